/* Norms and cross-entropy: every row is a block's own; the gradients of gains and biases are cut by columns. */
#include <math.h>

#include "backend/cpu/cpu.h"

enum { NOT_COUNTED = -100 };

static void norm_forward_part(const weft_cpu *cpu, const void *args, const weft_cpu_part *p)
{
    cpu->kernels->norm_forward(args, p->row, p->rows);
}

weft_status weft_i_cpu_norm_forward(weft_backend *b, const void *args, void *workspace)
{
    (void)workspace;
    const weft_norm_forward_args *const a = args;
    weft_i_cpu_each_rows(weft_i_cpu_of(b), a->x.rows, a->x.cols, norm_forward_part, a);
    return WEFT_OK;
}

static void norm_backward_input_part(const weft_cpu *cpu, const void *args, const weft_cpu_part *p)
{
    cpu->kernels->norm_backward_input(args, p->row, p->rows);
}

weft_status weft_i_cpu_norm_backward_input(weft_backend *b, const void *args, void *workspace)
{
    (void)workspace;
    const weft_norm_backward_input_args *const a = args;
    weft_i_cpu_each_rows(weft_i_cpu_of(b), a->x.rows, a->x.cols, norm_backward_input_part, a);
    return WEFT_OK;
}

static void norm_backward_weight_part(const weft_cpu *cpu, const void *args, const weft_cpu_part *p)
{
    cpu->kernels->norm_backward_weight(args, p->col, p->n);
}

weft_status weft_i_cpu_norm_backward_weight(weft_backend *b, const void *args, void *workspace)
{
    (void)workspace;
    const weft_norm_backward_weight_args *const a = args;
    weft_i_cpu_each_columns(weft_i_cpu_of(b), a->x.rows, a->x.cols, norm_backward_weight_part, a);
    return WEFT_OK;
}

static void xent_stats_part(const weft_cpu *cpu, const void *args, const weft_cpu_part *p)
{
    cpu->kernels->xent_stats(args, p->row, p->rows);
}

weft_status weft_i_cpu_xent_stats(weft_backend *b, const void *args, void *workspace)
{
    (void)workspace;
    const weft_xent_stats_args *const a = args;
    weft_i_cpu_each_rows(weft_i_cpu_of(b), a->logits.rows, a->logits.cols, xent_stats_part, a);
    return WEFT_OK;
}

static float *number(const weft_view *v, int64_t row)
{
    return (float *)v->data + row * v->ld;
}

weft_status weft_i_cpu_xent_rescale(weft_backend *b, const void *args, void *workspace)
{
    (void)b;
    (void)workspace;
    const weft_xent_rescale_args *const a = args;
    for (int64_t r = 0; r < a->sum.rows; r++)
        *number(&a->sum, r) *= expf(*number(&a->local_max, r) - *number(&a->max, r));
    return WEFT_OK;
}

weft_status weft_i_cpu_xent_loss(weft_backend *b, const void *args, void *workspace)
{
    (void)b;
    (void)workspace;
    const weft_xent_loss_args *const a = args;
    for (int64_t r = 0; r < a->loss.rows; r++) {
        const int32_t target = ((const int32_t *)a->targets.data)[r * a->targets.ld];
        /* The maximum first: logits far from zero leave no digits behind. */
        const float above = *number(&a->max, r) - *number(&a->target, r);
        const float loss = above + logf(*number(&a->sum, r));
        *number(&a->loss, r) = target == NOT_COUNTED ? 0.0f : loss;
    }
    return WEFT_OK;
}

static void xent_grad_part(const weft_cpu *cpu, const void *args, const weft_cpu_part *p)
{
    cpu->kernels->xent_grad(args, p->row, p->rows);
}

weft_status weft_i_cpu_xent_grad(weft_backend *b, const void *args, void *workspace)
{
    (void)workspace;
    const weft_xent_grad_args *const a = args;
    weft_i_cpu_each_rows(weft_i_cpu_of(b), a->logits.rows, a->logits.cols, xent_grad_part, a);
    return WEFT_OK;
}
