/**
 * Element-wise kernels: fill, convert, add, scale, residual with dropout, rotary positions, embedding rows, column sums.
 *
 * Source of the random words: src/backend/dropout_mask.h, Philox 4x32-10 (Salmon et al., SC 2011), here over many
 * counters at once.
 */
#include "backend/cpu/isa/kernels.h"

#include "backend/cpu/isa/simd.h"
#include "backend/cpu/isa/simd_dropout.h"
#include "tensor/convert.h"

enum { SUM_ROWS = 64, STRIPE = 512 };

void WEFT_ISA_NAME(fill)(void *x, weft_dtype t, int64_t n, float value)
{
    if (t == WEFT_DTYPE_I32) {
        int32_t *const p = x;
        const int32_t v = (int32_t)value;
        for (int64_t i = 0; i < n; i++)
            p[i] = v;
    } else if (t == WEFT_DTYPE_BF16) {
        uint16_t *const p = x;
        const uint16_t v = bf16_of_float(value);
        for (int64_t i = 0; i < n; i++)
            p[i] = v;
    } else {
        float *const p = x;
        for (int64_t i = 0; i < n; i++)
            p[i] = value;
    }
}

static void convert_f16(void *y, weft_dtype ty, const void *x, weft_dtype tx, int64_t n)
{
    const uint16_t *const half = x;
    uint16_t *const out = y;
    for (int64_t i = 0; i < n; i++) {
        const float v =
            tx == WEFT_DTYPE_F16 ? weft_i_f16_to_f32(half[i]) : load(x, i, tx == WEFT_DTYPE_BF16);
        if (ty == WEFT_DTYPE_F16)
            out[i] = weft_i_f32_to_f16(v);
        else
            store(y, i, v, ty == WEFT_DTYPE_BF16);
    }
}

static WEFT_ALWAYS_INLINE void
convert_loop(void *y, bool is_y_bf16, const void *x, bool is_x_bf16, int64_t n)
{
    WEFT_SIMD
    for (int64_t i = 0; i < n; i++)
        store(y, i, load(x, i, is_x_bf16), is_y_bf16);
}

void WEFT_ISA_NAME(convert)(void *y, weft_dtype ty, const void *x, weft_dtype tx, int64_t n)
{
    if (ty == tx)
        memcpy(y, x, (size_t)n * (ty == WEFT_DTYPE_F32 ? 4u : 2u));
    else if (ty == WEFT_DTYPE_F16 || tx == WEFT_DTYPE_F16)
        convert_f16(y, ty, x, tx, n);
    else if (ty == WEFT_DTYPE_BF16)
        convert_loop(y, true, x, false, n);
    else
        convert_loop(y, false, x, true, n);
}

static WEFT_ALWAYS_INLINE void
add_loop(void *y, bool y_bf16, const void *a, bool a_bf16, const void *b, bool b_bf16, int64_t n)
{
    WEFT_SIMD
    for (int64_t i = 0; i < n; i++)
        store(y, i, load(a, i, a_bf16) + load(b, i, b_bf16), y_bf16);
}

void WEFT_ISA_NAME(add)(const weft_add_args *g, int64_t row, int64_t col, int64_t n)
{
    const bool ya = g->dst.dtype == WEFT_DTYPE_BF16, aa = g->a.dtype == WEFT_DTYPE_BF16,
               ba = g->b.dtype == WEFT_DTYPE_BF16;
    void *const y = at(g->dst, row, col);
    const void *const a = at(g->a, row, col);
    const void *const b = at(g->b, row, col);
    if (!ya && !aa && !ba)
        add_loop(y, false, a, false, b, false, n);
    else if (ya && aa && ba)
        add_loop(y, true, a, true, b, true, n);
    else if (!ya && !aa)
        add_loop(y, false, a, false, b, true, n);
    else
        add_loop(y, ya, a, aa, b, ba, n);
}

static WEFT_ALWAYS_INLINE void scale_loop(void *x, bool is_bf16, float factor, int64_t n)
{
    WEFT_SIMD
    for (int64_t i = 0; i < n; i++)
        store(x, i, load(x, i, is_bf16) * factor, is_bf16);
}

void WEFT_ISA_NAME(scale)(void *x, weft_dtype t, int64_t n, float factor)
{
    if (t == WEFT_DTYPE_BF16)
        scale_loop(x, true, factor, n);
    else
        scale_loop(x, false, factor, n);
}

/* ---- columns: a task owns columns and walks all rows in order, so no sum is shared ------------------------- */

static WEFT_ALWAYS_INLINE void
column_sum_stripe(const weft_column_sum_args *a, int64_t col, int64_t n, bool is_bf16)
{
    float *const out = at(a->out, 0, col);
    float total[STRIPE];
    for (int64_t c = 0; c < n; c++)
        total[c] = 0.0f;
    for (int64_t r0 = 0; r0 < a->x.rows; r0 += SUM_ROWS) {
        const int64_t r1 = WEFT_MIN(r0 + SUM_ROWS, a->x.rows);
        float part[STRIPE];
        for (int64_t c = 0; c < n; c++)
            part[c] = 0.0f;
        for (int64_t r = r0; r < r1; r++) {
            const void *const x = at(a->x, r, col);
            WEFT_SIMD
            for (int64_t c = 0; c < n; c++)
                part[c] += load(x, c, is_bf16);
        }
        WEFT_SIMD
        for (int64_t c = 0; c < n; c++)
            total[c] += part[c];
    }
    WEFT_SIMD
    for (int64_t c = 0; c < n; c++)
        out[c] = a->is_added ? out[c] + total[c] : total[c];
}

void WEFT_ISA_NAME(column_sum)(const weft_column_sum_args *a, int64_t col, int64_t n)
{
    for (int64_t c = 0; c < n; c += STRIPE) {
        const int64_t m = WEFT_MIN(n - c, (int64_t)STRIPE);
        if (a->x.dtype == WEFT_DTYPE_BF16)
            column_sum_stripe(a, col + c, m, true);
        else
            column_sum_stripe(a, col + c, m, false);
    }
}

void WEFT_ISA_NAME(embedding_forward)(const weft_embedding_forward_args *a, int64_t row, int64_t n)
{
    const int64_t cols = a->y.cols;
    const bool is_bf16 = a->y.dtype == WEFT_DTYPE_BF16;
    const size_t row_bytes = (size_t)cols * (is_bf16 ? 2u : 4u);
    for (int64_t r = row; r < row + n; r++) {
        const int64_t id = (int64_t)i32_at(a->ids, r) - a->first_id;
        const bool is_here = id >= 0 && id < a->table.rows;
        void *const y = at(a->y, r, 0);
        if (!is_here && !a->is_added)
            memset(y, 0, row_bytes);
        if (!is_here)
            continue;
        const void *const t = at(a->table, id, 0);
        if (!a->is_added)
            memcpy(y, t, row_bytes);
        else if (is_bf16)
            add_loop(y, true, y, true, t, true, cols);
        else
            add_loop(y, false, y, false, t, false, cols);
    }
}

void WEFT_ISA_NAME(embedding_backward)(const weft_embedding_backward_args *a,
                                       int64_t col,
                                       int64_t n)
{
    for (int64_t r = 0; r < a->dy.rows; r++) {
        const int64_t id = (int64_t)i32_at(a->ids, r) - a->first_id;
        if (id < 0 || id >= a->dtable.rows)
            continue;
        float *const out = at(a->dtable, id, col);
        const void *const dy = at(a->dy, r, col);
        if (a->dy.dtype == WEFT_DTYPE_BF16)
            add_loop(out, false, out, false, dy, true, n);
        else
            add_loop(out, false, out, false, dy, false, n);
    }
}

/* ---- residual, dropout ------------------------------------------------------------------------------------- */

/* A run of elements: keep (factors of dropout), bias and residual may be NULL. */
typedef struct residual_rows {
    void *y;
    const void *x, *bias, *residual;
    const float *keep;
    bool is_bias_bf16;
} residual_rows;

static WEFT_ALWAYS_INLINE void residual_chunk(const residual_rows rows, int64_t n, bool is_bf16)
{
    WEFT_SIMD
    for (int64_t i = 0; i < n; i++) {
        float v = load(rows.x, i, is_bf16);
        if (rows.bias != NULL)
            v += load(rows.bias, i, rows.is_bias_bf16);
        if (rows.keep != NULL)
            v *= rows.keep[i];
        if (rows.residual != NULL)
            v += load(rows.residual, i, is_bf16);
        store(rows.y, i, v, is_bf16);
    }
}

/* The usual cases with what is absent known to the compiler. */
static WEFT_ALWAYS_INLINE void residual_typed(const residual_rows r, int64_t n, bool is_bf16)
{
    const bool has_usual_bias = r.bias != NULL && r.is_bias_bf16 == is_bf16;
    if (r.bias == NULL && r.keep == NULL && r.residual != NULL)
        residual_chunk((residual_rows){r.y, r.x, NULL, r.residual, NULL, false}, n, is_bf16);
    else if (has_usual_bias && r.keep == NULL && r.residual != NULL)
        residual_chunk((residual_rows){r.y, r.x, r.bias, r.residual, NULL, is_bf16}, n, is_bf16);
    else if (r.bias == NULL && r.keep != NULL && r.residual == NULL)
        residual_chunk((residual_rows){r.y, r.x, NULL, NULL, r.keep, false}, n, is_bf16);
    else if (has_usual_bias && r.keep != NULL && r.residual != NULL)
        residual_chunk((residual_rows){r.y, r.x, r.bias, r.residual, r.keep, is_bf16}, n, is_bf16);
    else
        residual_chunk(r, n, is_bf16);
}

void WEFT_ISA_NAME(residual)(const weft_residual_args *a, int64_t row, int64_t n)
{
    const bool is_bf16 = a->y.dtype == WEFT_DTYPE_BF16;
    const bool is_bias_bf16 = a->bias.dtype == WEFT_DTYPE_BF16;
    const bool is_dropped = a->dropout.p > 0.0f;
    float keep[DROPOUT_CHUNK];
    for (int64_t r = row; r < row + n; r++) {
        for (int64_t c = 0; c < a->y.cols; c += DROPOUT_CHUNK) {
            const int64_t m = WEFT_MIN(a->y.cols - c, (int64_t)DROPOUT_CHUNK);
            if (is_dropped)
                dropout_factors(keep, &a->dropout, r, a->dropout.first_elem + c, m);
            const residual_rows rows = {.y = at(a->y, r, c),
                                        .x = at(a->x, r, c),
                                        .bias = a->bias.data == NULL ? NULL : at(a->bias, 0, c),
                                        .residual =
                                            a->residual.data == NULL ? NULL : at(a->residual, r, c),
                                        .keep = is_dropped ? keep : NULL,
                                        .is_bias_bf16 = is_bias_bf16};
            if (is_bf16)
                residual_typed(rows, m, true);
            else
                residual_typed(rows, m, false);
        }
    }
}

/* ---- rotary positions -------------------------------------------------------------------------------------- */

static WEFT_ALWAYS_INLINE void
rotate(void *x, const float *cosine, const float *sine, int64_t half, float sign, bool is_bf16)
{
    WEFT_SIMD
    for (int64_t i = 0; i < half; i++) {
        const float a = load(x, i, is_bf16);
        const float b = load(x, i + half, is_bf16);
        const float s = sign * sine[i];
        store(x, i, a * cosine[i] - b * s, is_bf16);
        store(x, i + half, b * cosine[i] + a * s, is_bf16);
    }
}

void WEFT_ISA_NAME(rope)(const weft_rope_args *a, int64_t row, int64_t n)
{
    const int64_t half = a->head_dim / 2;
    const int64_t n_heads = a->x.cols / a->head_dim;
    const float sign = a->is_inverse ? -1.0f : 1.0f;
    for (int64_t r = row; r < row + n; r++) {
        const int64_t position = i32_at(a->positions, r);
        const float *const cosine = at(a->cos, position, 0);
        const float *const sine = at(a->sin, position, 0);
        for (int64_t h = 0; h < n_heads; h++) {
            void *const x = at(a->x, r, h * a->head_dim);
            if (a->x.dtype == WEFT_DTYPE_BF16)
                rotate(x, cosine, sine, half, sign, true);
            else
                rotate(x, cosine, sine, half, sign, false);
        }
    }
}
