/*
 * Composes the methods a layout asks for, in a fixed order, and runs passes over a global batch (contract: parallel.h).
 *
 * Hooks, outermost first: the data axis (so that gathering comes before a layer's own time and a reduction after it), the
 * tensor axis (whose partial gradients are summed before the data axis reduces them), the trace, pace.
 *
 * Communication: of the methods; add_up, from_rank0 and largest as their comments say.
 * Invariants
 *  1. Micro-batch j of a global batch belongs to dp rank j mod dp and runs in round j / dp. All ranks run all rounds: one
 *     without a micro-batch joins with an idle pass.
 *  2. What a rank adds up depends on its micro-batches alone; sums over ranks are exact. Ranks of one tensor group have the
 *     same micro-batches: the first of them delivers.
 */
#include "parallel/parallel.h"

#include "base/ctx.h"
#include "parallel/data_axis.h"
#include "parallel/pace.h"
#include "parallel/tensor_parallel.h"
#include "parallel/trace_hooks.h"

#include <string.h>

#define MAX_HOOKS 4
#define SUM_ELEMS (WEFT_SUM_BINS + 1)
#define MAX_SUMS 2
#define MAX_COUNTS 4

struct weft_parallel {
    weft_ctx *ctx;
    weft_mesh *mesh;
    weft_model *model;
    weft_data_axis *data;
    weft_tensor_axis *tensor;     /* NULL: one rank along it */
    weft_hooks *hooks[MAX_HOOKS]; /* in the list */
    weft_hooks *trace, *pace;     /* NULL: none */
    int n_hooks;
};

/* ---- creation ---- */

weft_status weft_i_parallel_model(weft_model **out,
                                  const weft_mesh *mesh,
                                  const weft_config *config,
                                  weft_dtype dtype)
{
    const weft_model_slice slice =
        weft_i_tensor_slice(config, mesh->size[WEFT_AXIS_TP], mesh->coord[WEFT_AXIS_TP],
                            mesh->layout.is_sequence_parallel);
    return weft_i_model_from_slice(out, mesh->ctx, config, dtype, &slice);
}

static weft_status list_hooks(weft_parallel *p)
{
    const weft_pace *const pace = p->mesh->layout.pace;
    p->hooks[p->n_hooks++] = &p->data->hooks;
    if (p->tensor != NULL)
        p->hooks[p->n_hooks++] = &p->tensor->hooks;
    if (p->mesh->trace != NULL) {
        WEFT_TRY(weft_i_trace_hooks_create(&p->trace, p->ctx, p->mesh->trace, pace != NULL));
        p->hooks[p->n_hooks++] = p->trace;
    }
    if (pace != NULL && !weft_i_alloc_is_dry(p->ctx->alloc)) {
        WEFT_TRY(weft_i_pace_hooks_create(&p->pace, p->ctx, pace));
        p->hooks[p->n_hooks++] = p->pace;
    }
    return WEFT_OK;
}

weft_status
weft_i_parallel_create(weft_parallel **out, weft_mesh *mesh, weft_model *model, bool is_training)
{
    void *block = NULL;
    *out = NULL;
    WEFT_TRY(weft_i_alloc_new(mesh->ctx->alloc, 1, sizeof(weft_parallel), &block));
    weft_parallel *p = block;
    p->ctx = mesh->ctx;
    p->mesh = mesh;
    p->model = model;
    weft_status st = weft_i_data_axis_create(&p->data, mesh, model, is_training);
    if (st == WEFT_OK && mesh->size[WEFT_AXIS_TP] > 1)
        st = weft_i_tensor_axis_create(&p->tensor, mesh, model, is_training);
    if (st == WEFT_OK)
        st = list_hooks(p);
    if (st != WEFT_OK) {
        weft_i_parallel_destroy(p);
        return st;
    }
    *out = p;
    return WEFT_OK;
}

void weft_i_parallel_destroy(weft_parallel *p)
{
    if (p == NULL)
        return;
    weft_i_pace_hooks_destroy(p->pace);
    weft_i_trace_hooks_destroy(p->trace);
    weft_i_tensor_axis_destroy(p->tensor);
    weft_i_data_axis_destroy(p->data);
    weft_i_alloc_put(p->ctx->alloc, p);
}

weft_mesh *weft_i_parallel_mesh(const weft_parallel *p)
{
    return p->mesh;
}

weft_hooks **weft_i_parallel_hooks(weft_parallel *p, int *n_hooks)
{
    *n_hooks = p->n_hooks;
    return p->hooks;
}

void weft_i_parallel_run_options(weft_parallel *p, weft_run_options *options)
{
    options->hooks = p->hooks;
    options->n_hooks = p->n_hooks;
    options->stream_rows = NULL;
    if (p->tensor != NULL && p->tensor->is_sequence_parallel) {
        options->stream_rows = weft_i_sequence_rows;
        options->stream_user = p->tensor;
    }
}

const weft_parts *weft_i_parallel_values(const weft_parallel *p)
{
    return &p->data->value_parts;
}

const weft_parts *weft_i_parallel_states(const weft_parallel *p)
{
    return &p->data->state_parts;
}

const weft_parts *weft_i_parallel_owned(const weft_parallel *p)
{
    return &p->data->owned_parts;
}

int64_t weft_i_parallel_state_elems(const weft_parallel *p)
{
    return p->data->n_state_elems;
}

/* ---- weights ---- */

bool weft_i_parallel_is_source(const weft_parallel *p)
{
    return p->data->method->is_value_shard || p->mesh->coord[WEFT_AXIS_DP] == 0;
}

weft_status weft_i_parallel_share_weights(weft_parallel *p)
{
    weft_data_axis *a = p->data;
    const weft_dtype dtype = weft_model_dtype(p->model);
    if (a->method->is_value_shard || a->comm->size == 1)
        return WEFT_OK;
    for (int64_t i = 0; i < a->shards.n_segments; i++) {
        const weft_segment *s = &a->shards.segments[i];
        char *at = (char *)a->values + (size_t)s->value_first * weft_dtype_bytes(dtype);
        const weft_message m = {.op = WEFT_COMM_BROADCAST,
                                .dtype = dtype,
                                .send = at,
                                .recv = at,
                                .n_elems = s->n_elems,
                                .tensor = weft_i_segment_name(a, s)};
        WEFT_TRY(weft_comm_call(a->comm, &m));
    }
    return WEFT_OK;
}

weft_status weft_i_parallel_share_update(weft_parallel *p)
{
    const weft_data_method *m = p->data->method;
    return m->share_update != NULL ? m->share_update(p->data) : WEFT_OK;
}

/* ---- who reads ---- */

weft_status weft_i_parallel_reserve(weft_parallel *p, int64_t n_seqs, int64_t n_tokens)
{
    if (!p->data->method->is_on_root)
        return WEFT_OK;
    return weft_i_data_parallel_reserve(p->data, n_seqs, n_tokens);
}

bool weft_i_parallel_is_reader(const weft_parallel *p)
{
    return !p->data->method->is_on_root || p->data->comm->rank == 0;
}

weft_status weft_i_parallel_from_reader(weft_parallel *p, int64_t *value)
{
    const weft_message m = {.op = WEFT_COMM_BROADCAST,
                            .dtype = WEFT_DTYPE_I64,
                            .send = value,
                            .recv = value,
                            .n_elems = 1,
                            .is_host = true,
                            .tensor = "word of the reader"};
    return p->data->method->is_on_root ? weft_comm_call(p->data->comm, &m) : WEFT_OK;
}

/* ---- passes ---- */

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Micro-batch j of the pass; n_seqs 0 when there is none of that number. */
static weft_micro_batch micro_batch_of(const weft_parallel_pass *pass, int64_t j)
{
    const int64_t first = j * pass->micro_batch;
    weft_micro_batch mb = {.number = j, .first_seq = first};
    if (first < pass->batch->n_seqs)
        mb.n_seqs = WEFT_MIN(pass->micro_batch, pass->batch->n_seqs - first);
    return mb;
}

static weft_status load(weft_run *run, const weft_parallel_pass *pass, const weft_micro_batch *mb)
{
    const weft_host_batch *b = pass->batch;
    const int64_t at = mb->first_seq * b->n_tokens;
    const weft_host_batch part = {
        .n_seqs = mb->n_seqs,
        .n_tokens = b->n_tokens,
        .ids = b->ids + at,
        .targets = b->targets != NULL ? b->targets + at : NULL,
        .positions = b->positions != NULL ? b->positions + at : NULL,
        .samples = b->samples != NULL ? b->samples + mb->first_seq : NULL,
    };
    weft_exec *e = weft_run_exec(run);
    e->logits = pass->logits;
    if (e->logits.data != NULL)
        e->logits.rows = mb->n_seqs * b->n_tokens;
    return weft_run_load(run, 0, &part);
}

/* All ranks of a tensor group have the same losses and logits: they count once. */
static weft_status deliver(weft_parallel *p,
                           weft_run *run,
                           const weft_parallel_pass *pass,
                           weft_micro_batch *mb,
                           bool has_loss)
{
    if (pass->done == NULL || p->mesh->coord[WEFT_AXIS_TP] != 0)
        return WEFT_OK;
    mb->logits = weft_run_exec(run)->logits;
    mb->losses = has_loss ? weft_run_losses(run, 0) : weft_view_none();
    return pass->done(pass->user, mb);
}

static weft_status train_micro_batch(weft_parallel *p,
                                     weft_run *run,
                                     const weft_parallel_pass *pass,
                                     weft_micro_batch *mb)
{
    if (mb->n_seqs == 0) {
        weft_run_exec(run)->logits = pass->logits; /* what a pass reads follows from it */
        WEFT_TRY(weft_run_idle(run, WEFT_PASS_FORWARD));
        return weft_run_idle(run, WEFT_PASS_BACKWARD);
    }
    WEFT_TRY(load(run, pass, mb));
    WEFT_TRY(weft_run_forward(run, 0));
    WEFT_TRY(weft_run_backward(run, 0, WEFT_BACKWARD_BOTH));
    return deliver(p, run, pass, mb, true);
}

/* The micro-batches from number `first` on, one a rank. */
static weft_status
train_round(weft_parallel *p, weft_run *run, const weft_parallel_pass *pass, int64_t first)
{
    if (p->data->method->is_on_root)
        return weft_i_data_parallel_round(p->data, run, pass, first);
    weft_micro_batch mb = micro_batch_of(pass, first + p->mesh->coord[WEFT_AXIS_DP]);
    return train_micro_batch(p, run, pass, &mb);
}

weft_status
weft_i_parallel_train_pass(weft_parallel *p, weft_run *run, const weft_parallel_pass *pass)
{
    weft_data_axis *a = p->data;
    const int64_t dp = p->mesh->size[WEFT_AXIS_DP];
    const int64_t n_rounds = ceil_div(ceil_div(pass->batch->n_seqs, pass->micro_batch), dp);
    WEFT_TRY(weft_i_parallel_reserve(p, pass->micro_batch, pass->batch->n_tokens));
    weft_i_parallel_bind(p, run);
    weft_model_begin_step(p->model);
    weft_i_buckets_begin_step(a);
    for (int64_t i = 0; i < n_rounds; i++) {
        weft_i_buckets_begin_action(a, WEFT_BACKWARD_BOTH, i == n_rounds - 1);
        if (p->tensor != NULL)
            weft_i_tensor_begin_action(p->tensor, a->is_reducing);
        WEFT_TRY(train_round(p, run, pass, i * dp));
        WEFT_TRY(weft_i_buckets_end_action(a));
    }
    WEFT_TRY(weft_i_buckets_end_step(a));
    return a->method->end_step != NULL ? a->method->end_step(a) : WEFT_OK;
}

weft_status
weft_i_parallel_forward_pass(weft_parallel *p, weft_run *run, const weft_parallel_pass *pass)
{
    const int64_t dp = p->mesh->size[WEFT_AXIS_DP];
    const int64_t n_rounds = ceil_div(ceil_div(pass->batch->n_seqs, pass->micro_batch), dp);
    weft_i_parallel_bind(p, run);
    for (int64_t i = 0; i < n_rounds; i++) {
        weft_micro_batch mb = micro_batch_of(pass, i * dp + p->mesh->coord[WEFT_AXIS_DP]);
        if (mb.n_seqs == 0) {
            weft_run_exec(run)->logits = pass->logits; /* what a pass reads follows from it */
            WEFT_TRY(weft_run_idle(run, WEFT_PASS_FORWARD));
            continue;
        }
        WEFT_TRY(load(run, pass, &mb));
        WEFT_TRY(weft_run_forward_only(run, NULL));
        WEFT_TRY(deliver(p, run, pass, &mb, weft_run_exec(run)->is_loss_wanted));
    }
    return WEFT_OK;
}

void weft_i_parallel_bind(weft_parallel *p, weft_run *run)
{
    weft_i_mesh_begin(p->mesh);
    p->data->exec = weft_run_exec(run);
    if (p->tensor != NULL)
        p->tensor->exec = weft_run_exec(run);
}

/* ---- numbers of all ranks ---- */

weft_status
weft_i_parallel_add_up(weft_parallel *p, weft_sum *sums, int n, int64_t *counts, int n_counts)
{
    int64_t x[MAX_SUMS * SUM_ELEMS + MAX_COUNTS];
    const bool has_model_axes = p->mesh->layout.tp * p->mesh->layout.pp > 1;
    weft_comm *comm = p->mesh->comm[has_model_axes ? WEFT_AXIS_WORLD : WEFT_AXIS_DP];
    const int64_t n_elems = (int64_t)n * SUM_ELEMS + n_counts;
    WEFT_ASSERT(n <= MAX_SUMS && n_counts <= MAX_COUNTS);
    if (comm->size == 1)
        return WEFT_OK;
    for (int i = 0; i < n; i++) {
        weft_i_sum_normalise(&sums[i]);
        memcpy(x + i * SUM_ELEMS, sums[i].bin, sizeof(sums[i].bin));
        x[i * SUM_ELEMS + WEFT_SUM_BINS] = sums[i].n_nonfinite;
    }
    for (int i = 0; i < n_counts; i++)
        x[n * SUM_ELEMS + i] = counts[i];
    const weft_message m = {.op = WEFT_COMM_ALL_REDUCE,
                            .dtype = WEFT_DTYPE_I64,
                            .send = x,
                            .recv = x,
                            .n_elems = n_elems,
                            .is_host = true,
                            .tensor = "sums of the step"};
    WEFT_TRY(weft_comm_call(comm, &m));
    for (int i = 0; i < n; i++) {
        memcpy(sums[i].bin, x + i * SUM_ELEMS, sizeof(sums[i].bin));
        sums[i].n_nonfinite = x[i * SUM_ELEMS + WEFT_SUM_BINS];
        sums[i].n_pending = comm->size; /* each bin is a sum of that many digits */
        weft_i_sum_normalise(&sums[i]);
    }
    for (int i = 0; i < n_counts; i++)
        counts[i] = x[n * SUM_ELEMS + i];
    return WEFT_OK;
}

static weft_status one_number(weft_parallel *p, weft_comm_op op, int64_t *value, const char *what)
{
    weft_comm *comm = p->mesh->comm[WEFT_AXIS_WORLD];
    const weft_message m = {.op = op,
                            .dtype = WEFT_DTYPE_I64,
                            .reduction = WEFT_REDUCTION_MAX,
                            .send = value,
                            .recv = value,
                            .n_elems = 1,
                            .is_host = true,
                            .tensor = what};
    return comm->size == 1 ? WEFT_OK : weft_comm_call(comm, &m);
}

weft_status weft_i_parallel_from_rank0(weft_parallel *p, int64_t *value)
{
    return one_number(p, WEFT_COMM_BROADCAST, value, "word of rank 0");
}

weft_status weft_i_parallel_largest(weft_parallel *p, int64_t *value)
{
    return one_number(p, WEFT_COMM_ALL_REDUCE, value, "largest of all ranks");
}
