/*
 * Sequence parallelism: between the cut products every rank of the tensor axis has a part of the rows.
 *
 * Source: Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", arXiv:2205.05198, sec. 4.2.2.
 * The conjugate pair there: g is an all-gather forward and a reduce-scatter backward, g-bar the other way round.
 *
 * Norms, dropout and the residual stream treat each row by itself, so the rows of a micro-batch (all its sequences, one after
 * another) are cut at any row: the first ranks have one more. A gather or a scatter is then one call over neighbours in memory,
 * whatever the number of sequences and their length.
 *
 * Communication (tp), in the model's type, R rows of C elements:
 *   ENTER_COLUMN, HEAD_INPUT    forward all_gather [R, C], backward reduce_scatter [R, C]
 *   LEAVE_ROW, EMBEDDING_OUT    forward reduce_scatter [R, C], backward all_gather [R, C]
 * and forward's ENTER_COLUMN again in each backward: what was gathered is not kept. With --tp-strips the sums are
 * strip_sums.c's, and norms' weight gradients are no shares: NORM_ROWS gathers their inputs, [R, C] twice, statistics [R, 1].
 * Invariants
 *  1. A sum is added in rank order and rounded once, as tensor_parallel.c's: the same bits in forward with and without
 *     --sequence-parallel.
 *  2. A rank may have no row at all; it joins every call.
 * Leaves to others: gradients of norms (partial_gradients.c), dropout by global position (nn/dropout.c).
 */
#include "parallel/tensor_parallel.h"

#include "tensor/split.h"

void weft_i_sequence_rows(const void *axis, int64_t rows, int64_t *first, int64_t *n)
{
    const weft_tensor_axis *a = axis;
    *first = weft_i_split_first(rows, 1, a->comm->size, a->comm->rank);
    *n = weft_i_split_count(rows, 1, a->comm->size, a->comm->rank);
}

bool weft_i_sequence_has(const weft_tensor_axis *a, weft_region_kind kind)
{
    return kind == WEFT_REGION_ENTER_COLUMN || kind == WEFT_REGION_HEAD_INPUT ||
           kind == WEFT_REGION_LEAVE_ROW || kind == WEFT_REGION_EMBEDDING_OUT ||
           (kind == WEFT_REGION_NORM_ROWS && a->layout->n_strips > 0);
}

/* From a part of the rows to all of them. */
static bool is_gather(weft_region_kind kind, weft_pass way)
{
    const bool is_entry = kind == WEFT_REGION_ENTER_COLUMN || kind == WEFT_REGION_HEAD_INPUT ||
                          kind == WEFT_REGION_NORM_ROWS;
    return is_entry == (way == WEFT_PASS_FORWARD);
}

void weft_i_sequence_shape(const weft_tensor_axis *a,
                           weft_region_kind kind,
                           weft_pass way,
                           weft_view *out)
{
    const weft_layer_shape *s = &a->exec->shape;
    out->rows = is_gather(kind, way) ? s->rows_inside : s->rows_stream;
}

weft_status weft_i_sequence_start(
    weft_tensor_axis *a, weft_region_kind kind, weft_pass way, weft_view in, weft_view out)
{
    const int64_t rows = a->exec->shape.rows_inside;
    const bool is_gathered = is_gather(kind, way);
    for (int r = 0; r < a->comm->size; r++)
        a->counts[r] = weft_i_split_count(rows, 1, a->comm->size, r) * in.cols;
    const weft_message m = {.op = is_gathered ? WEFT_COMM_ALL_GATHER : WEFT_COMM_REDUCE_SCATTER,
                            .dtype = in.dtype,
                            .send = in.data,
                            .recv = out.data,
                            .n_elems = rows * in.cols,
                            .counts = a->counts,
                            .tensor = a->layer};
    return weft_i_tensor_start(a, &m);
}
