/*
 * ZeRO stage 1: the optimizer's state is cut over the dp ranks; each updates its part of the weights.
 *
 * Source: Rajbhandari et al., arXiv:1910.02054, sec. 5.1 (P_os).
 *
 * Communication (dp): a step: 1 reduce_scatter of every bucket's gradient, f32; 1 all_gather of every bucket's updated
 * weights, in the model's type. With --reproducible the reduce_scatter comes once a micro-batch.
 * Invariants: a part's sum is added in rank order, as DDP adds it, so both take the same steps bit for bit.
 * Leaves to others: when a bucket is complete (bucket.c), memory and parts (data_axis.c), the update (optim/).
 */
#include "parallel/data_axis.h"

static weft_status reduce_zero1(weft_data_axis *a, weft_bucket *b)
{
    if (a->is_by_micro_batch)
        return weft_i_bucket_reduce_onto_own(a, b);
    const weft_segment *s = b->segment;
    const weft_message m = {.op = WEFT_COMM_REDUCE_SCATTER,
                            .dtype = WEFT_DTYPE_F32,
                            .send = b->grad,
                            .recv = b->own, /* in place: this rank's part of grad */
                            .n_elems = s->n_elems,
                            .counts = s->counts,
                            .tensor = weft_i_segment_name(a, s)};
    return a->comm->ops->start(a->comm, &m, &b->request);
}

weft_status weft_i_zero1_share_update(weft_data_axis *a)
{
    const weft_dtype dtype = weft_model_dtype(a->model);
    const int64_t size = (int64_t)weft_dtype_bytes(dtype);
    if (a->comm->size == 1)
        return WEFT_OK;
    for (int64_t i = 0; i < a->n_buckets; i++) {
        weft_bucket *b = &a->buckets[i];
        const weft_segment *s = b->segment;
        char *whole = (char *)a->values + s->value_first * size;
        const weft_message m = {.op = WEFT_COMM_ALL_GATHER,
                                .dtype = dtype,
                                .send = whole + s->mine_first * size,
                                .recv = whole,
                                .n_elems = s->n_elems,
                                .counts = s->counts,
                                .tensor = weft_i_segment_name(a, s)};
        WEFT_TRY(a->comm->ops->start(a->comm, &m, &b->request));
        b->is_in_flight = true;
    }
    return weft_i_buckets_end_step(a);
}

const weft_data_method weft_i_zero1_method = {
    .is_state_shard = true, .reduce = reduce_zero1, .share_update = weft_i_zero1_share_update};
