/* AdamW and SGD: one pass over flat spans, cut into parts. */
#include "backend/cpu/cpu.h"

static void adamw_part(const weft_cpu *cpu, const void *args, const weft_cpu_part *p)
{
    cpu->kernels->adamw(args, p->col, p->n);
}

weft_status weft_i_cpu_adamw(weft_backend *b, const void *args, void *workspace)
{
    (void)workspace;
    const weft_adamw_args *const a = args;
    const int64_t n = a->x.rows * a->x.cols;
    weft_i_cpu_each_part(weft_i_cpu_of(b), 1, n, true, adamw_part, a);
    return WEFT_OK;
}

static void sgd_part(const weft_cpu *cpu, const void *args, const weft_cpu_part *p)
{
    cpu->kernels->sgd(args, p->col, p->n);
}

weft_status weft_i_cpu_sgd(weft_backend *b, const void *args, void *workspace)
{
    (void)workspace;
    const weft_sgd_args *const a = args;
    const int64_t n = a->x.rows * a->x.cols;
    weft_i_cpu_each_part(weft_i_cpu_of(b), 1, n, true, sgd_part, a);
    return WEFT_OK;
}
