/* Reference matrix product and column sums: one double sum an element. */
#include "backend/reference/ref_ops.h"

/* op(M)[r, c] */
static double element(const weft_view *m, bool is_transposed, int64_t r, int64_t c)
{
    return (double)(is_transposed ? weft_i_ref_get(m, c, r) : weft_i_ref_get(m, r, c));
}

weft_status weft_i_ref_gemm(weft_backend *b, const void *args, void *workspace)
{
    const weft_gemm_args *a = args;
    const int64_t n_k = a->is_a_transposed ? a->a.rows : a->a.cols;
    (void)b;
    (void)workspace;
    for (int64_t i = 0; i < a->c.rows; i++) {
        for (int64_t j = 0; j < a->c.cols; j++) {
            double sum = 0.0;
            for (int64_t k = 0; k < n_k; k++)
                sum += element(&a->a, a->is_a_transposed, i, k) *
                       element(&a->b, a->is_b_transposed, k, j);
            if (a->bias.data != NULL)
                sum += (double)weft_i_ref_get(&a->bias, 0, j);
            if (a->is_added)
                sum += (double)weft_i_ref_get(&a->c, i, j);
            weft_i_ref_set(&a->c, i, j, sum);
        }
    }
    return WEFT_OK;
}

weft_status weft_i_ref_column_sum(weft_backend *b, const void *args, void *workspace)
{
    const weft_column_sum_args *a = args;
    (void)b;
    (void)workspace;
    for (int64_t c = 0; c < a->x.cols; c++) {
        double sum = a->is_added ? (double)weft_i_ref_get(&a->out, 0, c) : 0.0;
        for (int64_t r = 0; r < a->x.rows; r++)
            sum += (double)weft_i_ref_get(&a->x, r, c);
        weft_i_ref_set(&a->out, 0, c, sum);
    }
    return WEFT_OK;
}
