/*
 * Reference embedding lookup and its gradient.
 *
 * The gradient adds in fp32 in order of the rows, as the contract says: with the same row order every backend and
 * every cut of the vocabulary gives the same bits.
 */
#include "backend/reference/ref_ops.h"

/* Row of the table for an id, or -1 when another rank holds it. */
static int64_t row_of(int32_t id, int64_t first_id, int64_t n_rows)
{
    const int64_t row = (int64_t)id - first_id;
    return row >= 0 && row < n_rows ? row : -1;
}

weft_status weft_i_ref_embedding_forward(weft_backend *b, const void *args, void *workspace)
{
    const weft_embedding_forward_args *a = args;
    (void)b;
    (void)workspace;
    for (int64_t r = 0; r < a->y.rows; r++) {
        const int64_t row = row_of(weft_i_ref_id(&a->ids, r), a->first_id, a->table.rows);
        for (int64_t c = 0; c < a->y.cols; c++) {
            const float old = a->is_added ? weft_i_ref_get(&a->y, r, c) : 0.0f;
            const float found = row >= 0 ? weft_i_ref_get(&a->table, row, c) : 0.0f;
            weft_i_ref_set(&a->y, r, c, (double)(a->is_added ? old + found : found));
        }
    }
    return WEFT_OK;
}

weft_status weft_i_ref_embedding_backward(weft_backend *b, const void *args, void *workspace)
{
    const weft_embedding_backward_args *a = args;
    (void)b;
    (void)workspace;
    for (int64_t r = 0; !a->is_added && r < a->dtable.rows; r++) {
        for (int64_t c = 0; c < a->dtable.cols; c++)
            weft_i_ref_set(&a->dtable, r, c, 0.0);
    }
    for (int64_t r = 0; r < a->dy.rows; r++) {
        const int64_t row = row_of(weft_i_ref_id(&a->ids, r), a->first_id, a->dtable.rows);
        for (int64_t c = 0; row >= 0 && c < a->dy.cols; c++) {
            const float sum = weft_i_ref_get(&a->dtable, row, c) + weft_i_ref_get(&a->dy, r, c);
            weft_i_ref_set(&a->dtable, row, c, (double)sum);
        }
    }
    return WEFT_OK;
}
