/* Operations that touch elements or rows apart from each other: cut into parts here, computed by isa/. */
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/rng.h"
#include "tensor/convert.h"

enum { NORMAL_CHUNK = 256 }; /* normals drawn at once, in pairs */

static char *address(const weft_view *v, int64_t row, int64_t col)
{
    return (char *)v->data + (size_t)(row * v->ld + col) * weft_dtype_bytes(v->dtype);
}

static void fill_part(const weft_cpu *cpu, const void *args, const weft_cpu_part *p)
{
    const weft_fill_args *const a = args;
    for (int64_t r = p->row; r < p->row + p->rows; r++)
        cpu->kernels->fill(address(&a->x, r, p->col), a->x.dtype, p->n, a->value);
}

weft_status weft_i_cpu_fill(weft_backend *b, const void *args, void *workspace)
{
    (void)workspace;
    const weft_fill_args *const a = args;
    weft_i_cpu_each_part(weft_i_cpu_of(b), a->x.rows, a->x.cols, weft_i_cpu_is_dense(&a->x),
                         fill_part, a);
    return WEFT_OK;
}

static void copy_part(const weft_cpu *cpu, const void *args, const weft_cpu_part *p)
{
    const weft_copy_args *const a = args;
    for (int64_t r = p->row; r < p->row + p->rows; r++) {
        void *const dst = address(&a->dst, r, p->col);
        const void *const src = address(&a->src, r, p->col);
        if (a->dst.dtype == a->src.dtype)
            memcpy(dst, src, (size_t)p->n * weft_dtype_bytes(a->dst.dtype));
        else
            cpu->kernels->convert(dst, a->dst.dtype, src, a->src.dtype, p->n);
    }
}

weft_status weft_i_cpu_copy(weft_backend *b, const void *args, void *workspace)
{
    (void)workspace;
    const weft_copy_args *const a = args;
    const bool is_dense = weft_i_cpu_is_dense(&a->dst) && weft_i_cpu_is_dense(&a->src);
    weft_i_cpu_each_part(weft_i_cpu_of(b), a->dst.rows, a->dst.cols, is_dense, copy_part, a);
    return WEFT_OK;
}

static void add_part(const weft_cpu *cpu, const void *args, const weft_cpu_part *p)
{
    for (int64_t r = p->row; r < p->row + p->rows; r++)
        cpu->kernels->add(args, r, p->col, p->n);
}

weft_status weft_i_cpu_add(weft_backend *b, const void *args, void *workspace)
{
    (void)workspace;
    const weft_add_args *const a = args;
    const bool is_dense =
        weft_i_cpu_is_dense(&a->dst) && weft_i_cpu_is_dense(&a->a) && weft_i_cpu_is_dense(&a->b);
    weft_i_cpu_each_part(weft_i_cpu_of(b), a->dst.rows, a->dst.cols, is_dense, add_part, a);
    return WEFT_OK;
}

static void scale_part(const weft_cpu *cpu, const void *args, const weft_cpu_part *p)
{
    const weft_scale_args *const a = args;
    for (int64_t r = p->row; r < p->row + p->rows; r++)
        cpu->kernels->scale(address(&a->x, r, p->col), a->x.dtype, p->n, a->factor);
}

weft_status weft_i_cpu_scale(weft_backend *b, const void *args, void *workspace)
{
    (void)workspace;
    const weft_scale_args *const a = args;
    weft_i_cpu_each_part(weft_i_cpu_of(b), a->x.rows, a->x.cols, weft_i_cpu_is_dense(&a->x),
                         scale_part, a);
    return WEFT_OK;
}

static void init_normal_row(const weft_init_normal_args *a, void *x, uint64_t first, int64_t n)
{
    const weft_rng_key key = {{a->key[0], a->key[1]}};
    double drawn[NORMAL_CHUNK];
    for (int64_t i = 0; i < n; i += NORMAL_CHUNK) {
        const int64_t some = WEFT_MIN(n - i, (int64_t)NORMAL_CHUNK);
        weft_i_rng_normals(key, first + (uint64_t)i, some, drawn);
        for (int64_t c = 0; c < some; c++) {
            const float v = (float)(a->std * drawn[c]);
            if (a->x.dtype == WEFT_DTYPE_BF16)
                ((uint16_t *)x)[i + c] = weft_i_f32_to_bf16(v);
            else
                ((float *)x)[i + c] = v;
        }
    }
}

static void init_normal_part(const weft_cpu *cpu, const void *args, const weft_cpu_part *p)
{
    (void)cpu;
    const weft_init_normal_args *const a = args;
    for (int64_t r = p->row; r < p->row + p->rows; r++)
        init_normal_row(a, address(&a->x, r, p->col),
                        a->first + (uint64_t)r * a->row_step + (uint64_t)p->col, p->n);
}

weft_status weft_i_cpu_init_normal(weft_backend *b, const void *args, void *workspace)
{
    (void)workspace;
    const weft_init_normal_args *const a = args;
    weft_i_cpu_each_part(weft_i_cpu_of(b), a->x.rows, a->x.cols, false, init_normal_part, a);
    return WEFT_OK;
}

static void gather_rows_part(const weft_cpu *cpu, const void *args, const weft_cpu_part *p)
{
    (void)cpu;
    const weft_gather_rows_args *const a = args;
    for (int64_t r = p->row; r < p->row + p->rows; r++)
        memcpy(address(&a->dst, r, 0), address(&a->src, a->row[r], 0),
               (size_t)p->n * weft_dtype_bytes(a->dst.dtype));
}

weft_status weft_i_cpu_gather_rows(weft_backend *b, const void *args, void *workspace)
{
    (void)workspace;
    const weft_gather_rows_args *const a = args;
    weft_i_cpu_each_rows(weft_i_cpu_of(b), a->dst.rows, a->dst.cols, gather_rows_part, a);
    return WEFT_OK;
}

static void activation_forward_part(const weft_cpu *cpu, const void *args, const weft_cpu_part *p)
{
    for (int64_t r = p->row; r < p->row + p->rows; r++)
        cpu->kernels->activation_forward(args, r, p->col, p->n);
}

weft_status weft_i_cpu_activation_forward(weft_backend *b, const void *args, void *workspace)
{
    (void)workspace;
    const weft_activation_forward_args *const a = args;
    bool is_dense = weft_i_cpu_is_dense(&a->y) && weft_i_cpu_is_dense(&a->x);
    if (a->up.data != NULL)
        is_dense = is_dense && weft_i_cpu_is_dense(&a->up);

    weft_i_cpu_each_part(weft_i_cpu_of(b), a->y.rows, a->y.cols, is_dense, activation_forward_part,
                         a);
    return WEFT_OK;
}

static void activation_backward_part(const weft_cpu *cpu, const void *args, const weft_cpu_part *p)
{
    for (int64_t r = p->row; r < p->row + p->rows; r++)
        cpu->kernels->activation_backward(args, r, p->col, p->n);
}

weft_status weft_i_cpu_activation_backward(weft_backend *b, const void *args, void *workspace)
{
    (void)workspace;
    const weft_activation_backward_args *const a = args;
    bool is_dense =
        weft_i_cpu_is_dense(&a->dx) && weft_i_cpu_is_dense(&a->dy) && weft_i_cpu_is_dense(&a->x);
    if (a->up.data != NULL)
        is_dense = is_dense && weft_i_cpu_is_dense(&a->up) && weft_i_cpu_is_dense(&a->dup);

    weft_i_cpu_each_part(weft_i_cpu_of(b), a->dx.rows, a->dx.cols, is_dense,
                         activation_backward_part, a);
    return WEFT_OK;
}

static void residual_part(const weft_cpu *cpu, const void *args, const weft_cpu_part *p)
{
    cpu->kernels->residual(args, p->row, p->rows);
}

static weft_status run_residual(weft_cpu *cpu, const weft_residual_args *a)
{
    weft_i_cpu_each_rows(cpu, a->y.rows, a->y.cols, residual_part, a);
    return WEFT_OK;
}

weft_status weft_i_cpu_residual(weft_backend *b, const void *args, void *workspace)
{
    (void)workspace;
    return run_residual(weft_i_cpu_of(b), args);
}

weft_status weft_i_cpu_dropout(weft_backend *b, const void *args, void *workspace)
{
    (void)workspace;
    const weft_dropout_args *const a = args;
    const weft_residual_args r = {.y = a->y,
                                  .x = a->x,
                                  .bias = weft_view_none(),
                                  .residual = weft_view_none(),
                                  .dropout = a->dropout};
    return run_residual(weft_i_cpu_of(b), &r);
}

static void rope_part(const weft_cpu *cpu, const void *args, const weft_cpu_part *p)
{
    cpu->kernels->rope(args, p->row, p->rows);
}

weft_status weft_i_cpu_rope(weft_backend *b, const void *args, void *workspace)
{
    (void)workspace;
    const weft_rope_args *const a = args;
    weft_i_cpu_each_rows(weft_i_cpu_of(b), a->x.rows, a->x.cols, rope_part, a);
    return WEFT_OK;
}

static void embedding_forward_part(const weft_cpu *cpu, const void *args, const weft_cpu_part *p)
{
    cpu->kernels->embedding_forward(args, p->row, p->rows);
}

weft_status weft_i_cpu_embedding_forward(weft_backend *b, const void *args, void *workspace)
{
    (void)workspace;
    const weft_embedding_forward_args *const a = args;
    weft_i_cpu_each_rows(weft_i_cpu_of(b), a->y.rows, a->y.cols, embedding_forward_part, a);
    return WEFT_OK;
}

static void embedding_backward_part(const weft_cpu *cpu, const void *args, const weft_cpu_part *p)
{
    cpu->kernels->embedding_backward(args, p->col, p->n);
}

weft_status weft_i_cpu_embedding_backward(weft_backend *b, const void *args, void *workspace)
{
    (void)workspace;
    const weft_embedding_backward_args *const a = args;
    if (!a->is_added) {
        const weft_fill_args zero = {.x = a->dtable, .value = 0.0f};
        WEFT_TRY(weft_i_cpu_fill(b, &zero, NULL));
    }
    weft_i_cpu_each_columns(weft_i_cpu_of(b), a->dy.rows, a->dy.cols, embedding_backward_part, a);
    return WEFT_OK;
}
