/**
 * A small matrix product whose operands are in cache, and transposes: what tiled attention is made of.
 *
 * Sums are over k in order, one accumulator an element, so an element does not depend on the tile it lies in.
 */
#ifndef WEFT_BACKEND_CPU_ISA_SIMD_TILE_H
#define WEFT_BACKEND_CPU_ISA_SIMD_TILE_H

#include "backend/cpu/isa/simd.h"

enum {
    VEC = WEFT_VEC_FLOATS,
    TILE_ROWS = 4, /* rows of C in registers */
    TILE_VECS =
        VEC == 16 ? 4 : 2, /* vectors of a row of C in registers: TILE_ROWS x 4 of 32, x 2 of 16 */
    ROW_FLOATS = 16        /* scratch rows are a multiple of this, whatever the vector */
};

static inline int64_t padded(int64_t n)
{
    return (n + ROW_FLOATS - 1) / ROW_FLOATS * ROW_FLOATS;
}

/** A's element (i, k) is a[i * row + k * col]; so A may be stored transposed. */
typedef struct tile_a {
    const float *a;
    int64_t row, col;
} tile_a;

typedef struct tile_shape {
    int64_t m, n, k; /* n: a multiple of VEC */
    int64_t ldb, ldc;
    bool is_added;
} tile_shape;

/** rows x (n_vecs vectors) of C (+)= A B. */
static WEFT_ALWAYS_INLINE void tile_block(const int rows,
                                          const int n_vecs,
                                          float *c,
                                          const tile_a *a,
                                          const float *b,
                                          const tile_shape *s)
{
    weft_vec sum[TILE_ROWS][TILE_VECS];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < n_vecs; v++)
            sum[r][v] = s->is_added ? weft_vec_load(c + r * s->ldc + v * VEC) : weft_vec_set(0.0f);
    for (int64_t k = 0; k < s->k; k++) {
        weft_vec x[TILE_VECS];
        for (int v = 0; v < n_vecs; v++)
            x[v] = weft_vec_load(b + k * s->ldb + v * VEC);
        for (int r = 0; r < rows; r++) {
            const weft_vec f = weft_vec_set(a->a[r * a->row + k * a->col]);
            for (int v = 0; v < n_vecs; v++)
                sum[r][v] = weft_vec_fma(f, x[v], sum[r][v]);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < n_vecs; v++)
            weft_vec_store(c + r * s->ldc + v * VEC, sum[r][v]);
}

static WEFT_ALWAYS_INLINE void
tile_columns(const int n_vecs, float *c, const tile_a *a, const float *b, const tile_shape *s)
{
    int64_t i = 0;
    tile_a part = *a;
    for (; i + TILE_ROWS <= s->m; i += TILE_ROWS) {
        part.a = a->a + i * a->row;
        tile_block(TILE_ROWS, n_vecs, c + i * s->ldc, &part, b, s);
    }
    for (; i < s->m; i++) {
        part.a = a->a + i * a->row;
        tile_block(1, n_vecs, c + i * s->ldc, &part, b, s);
    }
}

/** C [m, n] (+)= A [m, k] B [k, n]. */
static WEFT_NOINLINE void
tile_product(float *c, const tile_a *a, const float *b, const tile_shape *s)
{
    int64_t j = 0;
    for (; j + TILE_VECS * VEC <= s->n; j += TILE_VECS * VEC)
        tile_columns(TILE_VECS, c + j, a, b + j, s);
    const int64_t rest = (s->n - j) / VEC;
    if (TILE_VECS > 3 && rest == 3)
        tile_columns(WEFT_MIN(3, TILE_VECS), c + j, a, b + j, s);
    else if (TILE_VECS > 2 && rest == 2)
        tile_columns(2, c + j, a, b + j, s);
    else if (rest == 1)
        tile_columns(1, c + j, a, b + j, s);
}

/** out [cols, rows] = transpose of in [rows, cols]. */
static inline void tile_transpose(
    float *out, int64_t ld_out, const float *in, int64_t ld_in, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows; i += 4) {
        for (int64_t j = 0; j < cols; j += 4) {
            if (i + 4 <= rows && j + 4 <= cols) {
                weft_transpose_4x4(out + j * ld_out + i, ld_out, in + i * ld_in + j, ld_in);
                continue;
            }
            for (int64_t r = i; r < WEFT_MIN(i + 4, rows); r++)
                for (int64_t c = j; c < WEFT_MIN(j + 4, cols); c++)
                    out[c * ld_out + r] = in[r * ld_in + c];
        }
    }
}

/** Rows of a matrix of either type as fp32 at out [rows, padded(cols)], the padding zero. (No memcpy: rows are short.) */
static inline void
tile_load(float *out, weft_view x, int64_t row, int64_t col, int64_t rows, int64_t cols)
{
    const int64_t ld = padded(cols);
    for (int64_t r = 0; r < rows; r++) {
        const void *const from = at(x, row + r, col);
        float *const to = out + r * ld;
        if (x.dtype == WEFT_DTYPE_BF16) {
            WEFT_SIMD
            for (int64_t c = 0; c < cols; c++)
                to[c] = load(from, c, true);
        } else {
            WEFT_SIMD
            for (int64_t c = 0; c < cols; c++)
                to[c] = load(from, c, false);
        }
        for (int64_t c = cols; c < ld; c++)
            to[c] = 0.0f;
    }
}

static inline void
tile_store(weft_view x, int64_t row, int64_t col, const float *in, int64_t rows, int64_t cols)
{
    const int64_t ld = padded(cols);
    for (int64_t r = 0; r < rows; r++) {
        void *const to = at(x, row + r, col);
        const float *const from = in + r * ld;
        if (x.dtype == WEFT_DTYPE_BF16) {
            WEFT_SIMD
            for (int64_t c = 0; c < cols; c++)
                store(to, c, from[c], true);
        } else {
            WEFT_SIMD
            for (int64_t c = 0; c < cols; c++)
                store(to, c, from[c], false);
        }
    }
}

#endif
