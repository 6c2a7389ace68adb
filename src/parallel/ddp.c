/*
 * DistributedDataParallel: every rank has the model, its own micro-batches, and the sum of all gradients.
 *
 * Source: Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", arXiv:2006.15704, sec. 3.2:
 * gradients in buckets, each all-reduced as soon as backward has completed it; with accumulation only in the last
 * micro-batch (sec. 3.2.4).
 *
 * Communication (dp): at the start a broadcast of every segment's weights; a step: 1 all_reduce a bucket, f32. With
 * --reproducible instead: a bucket and micro-batch 1 reduce_scatter, a bucket and step 1 all_gather.
 * Invariants: the sum is added in rank order, element by element, so neither buckets nor overlap change a bit.
 * Leaves to others: when a bucket is complete (bucket.c), memory (data_axis.c).
 */
#include "parallel/data_axis.h"

static weft_status reduce_ddp(weft_data_axis *a, weft_bucket *b)
{
    if (a->is_by_micro_batch)
        return weft_i_bucket_reduce_onto_own(a, b);
    const weft_message m = {.op = WEFT_COMM_ALL_REDUCE,
                            .dtype = WEFT_DTYPE_F32,
                            .send = b->grad,
                            .recv = b->grad,
                            .n_elems = b->segment->n_elems,
                            .tensor = weft_i_segment_name(a, b->segment)};
    return a->comm->ops->start(a->comm, &m, &b->request);
}

/* Every rank updates every weight, so with --reproducible the parts of the sum go to everybody. */
static weft_status end_step_ddp(weft_data_axis *a)
{
    if (!a->is_by_micro_batch || a->comm->size == 1)
        return WEFT_OK;
    for (int64_t i = 0; i < a->n_buckets; i++) {
        const weft_segment *s = a->buckets[i].segment;
        const weft_message m = {.op = WEFT_COMM_ALL_GATHER,
                                .dtype = WEFT_DTYPE_F32,
                                .send = a->buckets[i].own,
                                .recv = (float *)a->grads + s->grad_first,
                                .n_elems = s->n_elems,
                                .counts = s->counts,
                                .tensor = weft_i_segment_name(a, s)};
        WEFT_TRY(weft_comm_call(a->comm, &m));
    }
    return WEFT_OK;
}

const weft_data_method weft_i_ddp_method = {.reduce = reduce_ddp, .end_step = end_step_ddp};
