/*
 * DataParallel: one process, whose rank 0 has the batch, the loss, the sum of gradients and the optimizer. Kept for
 * comparison: DDP does the same sum with less on rank 0 and less waiting.
 *
 * Source: PyTorch's torch.nn.DataParallel (scatter, replicate, parallel apply, gather), as Li et al., arXiv:2006.15704,
 * sec. 2.2 tell it apart from DDP.
 *
 * A round is one micro-batch a rank:
 *   1. scatter    ids (and positions, numbers of samples) from rank 0
 *   2. forward    on every rank, logits in full
 *   3. gather     logits to rank 0
 *   4. loss       on rank 0: token losses, gradients of all logits, divided by the targets of the whole global batch
 *   5. scatter    gradients of logits
 *   6. backward   on every rank from those; gradients add up over rounds
 * In the last round segments are reduced to rank 0 as backward completes them (with --reproducible: in every round, onto
 * the sum). After the update, by rank 0 alone, the trained weights are broadcast: the replication. Targets stay on rank 0.
 *
 * Communication (dp, n ranks), bytes sent a step by weft's convention. B sequences of T tokens, B_r of them on rank r; V
 * vocabulary; E trained elements with padding; s bytes of an element of the model's type:
 *   rank 0      scatter          4 T (B - B_0) ids, 8 (B - B_0) numbers of samples, s T V (B - B_0) gradients of logits
 *               broadcast        8 (n - 1) count of targets (the trainer's), s E (n - 1) weights
 *   the others  gather           4 T V B_r logits
 *               reduce           4 E; --reproducible: reduce_scatter instead, all of it to rank 0, 4 E a round
 * At the start a broadcast of all weights.
 *
 * Memory, beside weights and gradients everywhere and state on rank 0 (data_axis.c), of kind COMMUNICATION, b sequences a
 * micro-batch: logits, f32, n b T V on rank 0, b T V on the others; in bf16 their gradients, n b T V on rank 0.
 *
 * Invariants
 *  1. The head cuts the same chunks wherever the loss is computed, and a row's loss depends on that row alone; sums are in
 *     rank order. So losses, gradients and weights have DDP's bits.
 *  2. Every rank knows the sizes of all micro-batches of a round; a rank without one joins with parts of 0 elements.
 * Leaves to others: when a bucket is complete (bucket.c), memory and parts (data_axis.c).
 */
#include "base/ctx.h"
#include "base/error.h"
#include "parallel/data_axis.h"

/* ---- memory ---- */

void weft_i_data_parallel_destroy(weft_data_axis *a)
{
    weft_outputs *o = &a->outputs;
    weft_backend *b = a->ctx->backend;
    if (o->grads != o->logits)
        b->ops->mem_put(b, o->grads);
    b->ops->mem_put(b, o->logits);
    weft_i_alloc_put(a->ctx->alloc, o->ids);
    weft_i_alloc_put(a->ctx->alloc, o->positions);
    weft_i_alloc_put(a->ctx->alloc, o->samples);
    weft_i_alloc_put(a->ctx->alloc, o->counts);
    *o = (weft_outputs){.n_seqs = 0};
}

static weft_status get(weft_data_axis *a, int64_t n_elems, weft_dtype dtype, void **out)
{
    weft_backend *b = a->ctx->backend;
    return b->ops->mem_get(b, WEFT_MEM_COMMUNICATION, (size_t)n_elems * weft_dtype_bytes(dtype),
                           "outputs of all ranks", out);
}

static weft_status take(weft_data_axis *a, int64_t n_seqs, int64_t n_rows)
{
    weft_outputs *o = &a->outputs;
    weft_alloc *alloc = a->ctx->alloc;
    const bool is_root = a->comm->rank == 0;
    const weft_dtype dtype = weft_model_dtype(a->model);
    o->n_cols = weft_model_config(a->model)->vocab_size;
    if (o->n_cols < 1)
        WEFT_FAIL(WEFT_STATUS_UNSUPPORTED,
                  "DataParallel gathers the logits of a model of a known family; this list of "
                  "layers has none: use DDP");
    const int64_t n_elems = (is_root ? a->comm->size : 1) * n_rows * o->n_cols;
    WEFT_TRY(get(a, n_elems, WEFT_DTYPE_F32, &o->logits));
    o->grads =
        o->logits; /* XENT_GRAD works in place; elsewhere logits were sent before they come */
    if (is_root && dtype != WEFT_DTYPE_F32) {
        o->grads = NULL;
        WEFT_TRY(get(a, n_elems, dtype, &o->grads));
    }
    WEFT_TRY(weft_i_alloc_array(alloc, n_rows, sizeof(int32_t), &o->ids));
    WEFT_TRY(weft_i_alloc_array(alloc, n_rows, sizeof(int32_t), &o->positions));
    WEFT_TRY(weft_i_alloc_array(alloc, n_seqs, sizeof(int64_t), &o->samples));
    WEFT_TRY(weft_i_alloc_array(alloc, a->comm->size, sizeof(int64_t), &o->counts));
    o->n_seqs = n_seqs;
    o->n_rows = n_rows;
    return WEFT_OK;
}

weft_status weft_i_data_parallel_reserve(weft_data_axis *a, int64_t n_seqs, int64_t n_tokens)
{
    const weft_outputs *o = &a->outputs;
    const int64_t n_rows = n_seqs * n_tokens;
    if (n_seqs <= o->n_seqs && n_rows <= o->n_rows)
        return WEFT_OK;
    const int64_t most_seqs = WEFT_MAX(n_seqs, o->n_seqs);
    const int64_t most_rows = WEFT_MAX(n_rows, o->n_rows);
    weft_i_data_parallel_destroy(a);
    return take(a, most_seqs, most_rows);
}

/* ---- what a round exchanges ---- */

/* Micro-batches [first, first + ranks) of the pass. */
typedef struct dp_round {
    const weft_parallel_pass *pass;
    int64_t first;
} dp_round;

/* Sequences of the batch before rank's micro-batch, and those in it. */
static int64_t first_of(const dp_round *r, int rank)
{
    return (r->first + rank) * r->pass->micro_batch;
}

static int64_t seqs_of(const dp_round *r, int rank)
{
    const int64_t left = r->pass->batch->n_seqs - first_of(r, rank);
    return WEFT_MAX(WEFT_MIN(left, r->pass->micro_batch), 0);
}

/* Makes the call m with per_seq elements for each sequence of every rank's micro-batch. */
static weft_status exchange(weft_data_axis *a, const dp_round *r, weft_message m, int64_t per_seq)
{
    int64_t *counts = a->outputs.counts;
    for (int i = 0; i < a->comm->size; i++) {
        counts[i] = seqs_of(r, i) * per_seq;
        m.n_elems += counts[i];
    }
    m.counts = counts;
    return weft_comm_call(a->comm, &m);
}

/* This rank's part of the batch into the run's slot. */
static weft_status scatter_batch(weft_data_axis *a, weft_run *run, const dp_round *r)
{
    const weft_host_batch *b = r->pass->batch;
    const weft_outputs *o = &a->outputs;
    const bool is_root = a->comm->rank == 0;
    const int64_t first = first_of(r, 0);
    weft_host_batch mine = {
        .n_seqs = seqs_of(r, a->comm->rank), .n_tokens = b->n_tokens, .ids = o->ids};
    weft_message m = {.op = WEFT_COMM_SCATTER,
                      .dtype = WEFT_DTYPE_I32,
                      .send = is_root ? b->ids + first * b->n_tokens : NULL,
                      .recv = o->ids,
                      .is_host = true,
                      .tensor = "token ids"};
    WEFT_TRY(exchange(a, r, m, b->n_tokens));
    if (b->positions != NULL) {
        m.send = is_root ? b->positions + first * b->n_tokens : NULL;
        m.recv = o->positions;
        m.tensor = "positions";
        mine.positions = o->positions;
        WEFT_TRY(exchange(a, r, m, b->n_tokens));
    }
    if (b->samples != NULL) {
        m.dtype = WEFT_DTYPE_I64;
        m.send = is_root ? b->samples + first : NULL;
        m.recv = o->samples;
        m.tensor = "numbers of samples";
        mine.samples = o->samples;
        WEFT_TRY(exchange(a, r, m, 1));
    }
    return mine.n_seqs > 0 ? weft_run_load(run, 0, &mine) : WEFT_OK;
}

/* ---- the loss, on rank 0 ---- */

/* Where rank's rows lie in `block`, the memory of all ranks' logits or of their gradients. */
static weft_view
rows_of(const weft_data_axis *a, const dp_round *r, int rank, void *block, weft_dtype dtype)
{
    const weft_parallel_pass *pass = r->pass;
    const int64_t at = rank * pass->micro_batch * pass->batch->n_tokens * a->outputs.n_cols;
    void *data = (char *)block + (size_t)at * weft_dtype_bytes(dtype);
    return weft_view_make(data, dtype, seqs_of(r, rank) * pass->batch->n_tokens, a->outputs.n_cols);
}

/* The operations of nn/head.c on one rank's logits. */
static weft_status
token_losses(weft_exec *e, weft_view logits, weft_xent_grad_args *g, weft_view *loss)
{
    const int64_t rows = logits.rows;
    weft_view target;
    WEFT_TRY(weft_exec_view(e, WEFT_DTYPE_F32, rows, 1, &g->max));
    WEFT_TRY(weft_exec_view(e, WEFT_DTYPE_F32, rows, 1, &g->sum));
    WEFT_TRY(weft_exec_view(e, WEFT_DTYPE_F32, rows, 1, &target));
    WEFT_TRY(weft_exec_view(e, WEFT_DTYPE_F32, rows, 1, loss));
    const weft_xent_stats_args s = {
        .max = g->max, .sum = g->sum, .target = target, .logits = logits, .targets = g->targets};
    WEFT_TRY(weft_exec_op(e, WEFT_OP_XENT_STATS, &s));
    const weft_xent_loss_args l = {
        .loss = *loss, .max = g->max, .sum = g->sum, .target = target, .targets = g->targets};
    return weft_exec_op(e, WEFT_OP_XENT_LOSS, &l);
}

/* Losses and gradients of the logits of rank's micro-batch. */
static weft_status compute_loss(weft_data_axis *a, weft_run *run, const dp_round *r, int rank)
{
    const weft_parallel_pass *pass = r->pass;
    const weft_host_batch *b = pass->batch;
    weft_exec *e = weft_run_exec(run);
    weft_backend *be = a->ctx->backend;
    const weft_view logits = rows_of(a, r, rank, a->outputs.logits, WEFT_DTYPE_F32);
    const size_t mark = weft_exec_mark(e);
    weft_micro_batch mb = {.number = r->first + rank,
                           .first_seq = first_of(r, rank),
                           .n_seqs = seqs_of(r, rank),
                           .logits = pass->logits.data != NULL ? logits : weft_view_none()};
    weft_xent_grad_args g = {.dlogits =
                                 rows_of(a, r, rank, a->outputs.grads, weft_model_dtype(a->model)),
                             .logits = logits,
                             .scale = e->loss_scale};
    WEFT_TRY(weft_exec_view(e, WEFT_DTYPE_I32, logits.rows, 1, &g.targets));
    WEFT_TRY(be->ops->copy_from_host(be, g.targets.data, b->targets + mb.first_seq * b->n_tokens,
                                     (size_t)logits.rows * sizeof(int32_t)));
    WEFT_TRY(token_losses(e, logits, &g, &mb.losses));
    if (pass->done != NULL)
        WEFT_TRY(pass->done(pass->user, &mb));
    WEFT_TRY(weft_exec_op(e, WEFT_OP_XENT_GRAD, &g));
    weft_exec_reset(e, mark);
    return WEFT_OK;
}

/* ---- a round ---- */

/* Forward here, logits to rank 0. */
static weft_status forward(weft_data_axis *a, weft_run *run, const dp_round *r, bool is_idle)
{
    const weft_outputs *o = &a->outputs;
    weft_exec *e = weft_run_exec(run);
    const weft_message m = {.op = WEFT_COMM_GATHER,
                            .dtype = WEFT_DTYPE_F32,
                            .send = o->logits,
                            .recv = o->logits, /* in place: rank 0's are the first */
                            .tensor = "logits"};
    const int64_t rows = seqs_of(r, a->comm->rank) * r->pass->batch->n_tokens;
    e->logits = weft_view_make(o->logits, WEFT_DTYPE_F32, rows, o->n_cols);
    weft_i_step_record_begin(a->record);
    WEFT_TRY(is_idle ? weft_run_idle(run, WEFT_PASS_FORWARD) : weft_run_forward(run, 0));
    if (!is_idle)
        weft_i_step_record_end(a->record, WEFT_STEP_FORWARD, r->first + a->comm->rank, 0);
    e->logits = weft_view_none();
    return exchange(a, r, m, r->pass->batch->n_tokens * o->n_cols);
}

/* Gradients of logits from rank 0, backward here. */
static weft_status backward(weft_data_axis *a, weft_run *run, const dp_round *r, bool is_idle)
{
    const weft_outputs *o = &a->outputs;
    weft_exec *e = weft_run_exec(run);
    const weft_dtype dtype = weft_model_dtype(a->model);
    const weft_message m = {.op = WEFT_COMM_SCATTER,
                            .dtype = dtype,
                            .send = a->comm->rank == 0 ? o->grads : NULL,
                            .recv = o->grads, /* in place */
                            .tensor = "gradients of logits"};
    const int64_t rows = seqs_of(r, a->comm->rank) * r->pass->batch->n_tokens;
    WEFT_TRY(exchange(a, r, m, r->pass->batch->n_tokens * o->n_cols));
    if (is_idle)
        return weft_run_idle(run, WEFT_PASS_BACKWARD);
    e->grad_logits = weft_view_make(o->grads, dtype, rows, o->n_cols);
    weft_i_step_record_begin(a->record);
    const weft_status st = weft_run_backward(run, 0, WEFT_BACKWARD_BOTH);
    weft_i_step_record_end(a->record, WEFT_STEP_BACKWARD, r->first + a->comm->rank, 0);
    e->grad_logits = weft_view_none();
    return st;
}

weft_status weft_i_data_parallel_round(weft_data_axis *a,
                                       weft_run *run,
                                       const weft_parallel_pass *pass,
                                       int64_t first)
{
    const dp_round r = {.pass = pass, .first = first};
    const bool is_idle = seqs_of(&r, a->comm->rank) == 0;
    WEFT_TRY(scatter_batch(a, run, &r));
    WEFT_TRY(forward(a, run, &r, is_idle));
    for (int rank = 0; rank < a->comm->size && a->comm->rank == 0; rank++) {
        if (seqs_of(&r, rank) > 0)
            WEFT_TRY(compute_loss(a, run, &r, rank));
    }
    return backward(a, run, &r, is_idle);
}

/* ---- the method ---- */

static weft_status reduce_data_parallel(weft_data_axis *a, weft_bucket *b)
{
    if (a->is_by_micro_batch)
        return weft_i_bucket_reduce_onto_own(a, b);
    const weft_message m = {.op = WEFT_COMM_REDUCE,
                            .dtype = WEFT_DTYPE_F32,
                            .send = b->grad,
                            .recv = b->own, /* in place; NULL but on rank 0 */
                            .n_elems = b->segment->n_elems,
                            .tensor = weft_i_segment_name(a, b->segment)};
    return a->comm->ops->start(a->comm, &m, &b->request);
}

/* Replicates the updated model. */
static weft_status share_data_parallel(weft_data_axis *a)
{
    const weft_dtype dtype = weft_model_dtype(a->model);
    for (int64_t i = 0; i < a->n_buckets; i++) {
        weft_bucket *b = &a->buckets[i];
        const weft_segment *s = b->segment;
        char *at = (char *)a->values + (size_t)s->value_first * weft_dtype_bytes(dtype);
        const weft_message m = {.op = WEFT_COMM_BROADCAST,
                                .dtype = dtype,
                                .send = at,
                                .recv = at,
                                .n_elems = s->n_elems,
                                .tensor = weft_i_segment_name(a, s)};
        WEFT_TRY(a->comm->ops->start(a->comm, &m, &b->request));
        b->is_in_flight = true;
    }
    return weft_i_buckets_end_step(a);
}

const weft_data_method weft_i_data_parallel_method = {.is_state_shard = true,
                                                      .is_on_root = true,
                                                      .reduce = reduce_data_parallel,
                                                      .share_update = share_data_parallel};
