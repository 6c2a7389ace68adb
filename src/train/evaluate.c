/*
 * Evaluation (contract: evaluate.h, weft/eval.h).
 *
 * Invariants
 *  1. Every token of the stream but the first is a target exactly once; its context is its own window up to it.
 *  2. Token losses are added exactly and divided once, so the mean does not depend on the batch (beyond the rounding of a
 *     token's own loss, where a matrix product of another number of rows rounds otherwise).
 *  3. Between create and destroy nothing is allocated.
 * Over a pipeline a pass has several batches of windows for each dp rank, so that stages work at the same time.
 * Communication: of the parallel methods' forward passes; a pass: rank 0's word on stopping; at the end 1 all_reduce.
 */
#include "train/evaluate.h"

#include "base/ctx.h"
#include "base/sum.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define BATCHES_A_STAGE 4 /* of a pass over a pipeline: of 5 p - 1 turns a stage waits in p - 1 */

struct weft_evaluator {
    weft_ctx *ctx;
    weft_evaluation_job job;
    int32_t *window;   /* seq_length + 1 */
    int32_t *ids;      /* n_batches * n_seqs * seq_length */
    int32_t *targets;  /* the same */
    float *losses;     /* n_seqs * seq_length */
    int64_t n_batches; /* of windows in a pass */
};

/* ---- shapes ---- */

size_t weft_i_evaluation_shapes(const weft_evaluation_job *job, weft_pass_shape *out)
{
    const int64_t n_targets = job->n_tokens - 1;
    const int64_t n_whole = n_targets / job->seq_length;
    const int64_t n_rest = n_targets % job->seq_length;
    size_t n = 0;

    if (n_whole >= job->n_seqs)
        out[n++] = (weft_pass_shape){.n_seqs = job->n_seqs, .n_tokens = job->seq_length};
    if (n_whole % job->n_seqs != 0)
        out[n++] = (weft_pass_shape){.n_seqs = n_whole % job->n_seqs, .n_tokens = job->seq_length};
    if (n_rest != 0)
        out[n++] = (weft_pass_shape){.n_seqs = 1, .n_tokens = n_rest};
    return n;
}

/* ---- the evaluator ---- */

/* One for each dp rank; over a pipeline several, but not more than the data fills. */
static int64_t count_batches(const weft_mesh *mesh, const weft_evaluation_job *job)
{
    const int64_t dp = mesh->size[WEFT_AXIS_DP], pp = mesh->size[WEFT_AXIS_PP];
    const int64_t n_there = (job->n_tokens - 1) / job->seq_length / job->n_seqs + 1;
    if (pp == 1)
        return dp;
    return dp * WEFT_MIN(pp * BATCHES_A_STAGE, (n_there + dp - 1) / dp);
}

weft_status
weft_i_evaluator_create(weft_evaluator **out, const weft_mesh *mesh, const weft_evaluation_job *job)
{
    weft_ctx *ctx = mesh->ctx;
    void *block = NULL;
    weft_status st = WEFT_OK;

    *out = NULL;
    if (job->n_tokens < 2)
        WEFT_FAIL(WEFT_STATUS_FORMAT, "%s: %" PRId64 " tokens to evaluate on, need at least 2",
                  weft_i_dataset_first_path(job->data), job->n_tokens);
    WEFT_TRY(weft_i_alloc_new(ctx->alloc, 1, sizeof(weft_evaluator), &block));
    weft_evaluator *e = block;
    e->ctx = ctx;
    e->job = *job;
    e->n_batches = count_batches(mesh, job);
    const int64_t n = job->n_seqs * job->seq_length;
    const int64_t n_all = n * e->n_batches;
    WEFT_TRY_GOTO(
        st, weft_i_alloc_array(ctx->alloc, job->seq_length + 1, sizeof(int32_t), &e->window), out);
    WEFT_TRY_GOTO(st, weft_i_alloc_array(ctx->alloc, n_all, sizeof(int32_t), &e->ids), out);
    WEFT_TRY_GOTO(st, weft_i_alloc_array(ctx->alloc, n_all, sizeof(int32_t), &e->targets), out);
    WEFT_TRY_GOTO(st, weft_i_alloc_array(ctx->alloc, n, sizeof(float), &e->losses), out);
out:
    if (st == WEFT_OK)
        *out = e;
    else
        weft_i_evaluator_destroy(e);
    return st;
}

void weft_i_evaluator_destroy(weft_evaluator *e)
{
    if (e == NULL)
        return;
    weft_alloc *alloc = e->ctx->alloc;
    weft_i_alloc_put(alloc, e->window);
    weft_i_alloc_put(alloc, e->ids);
    weft_i_alloc_put(alloc, e->targets);
    weft_i_alloc_put(alloc, e->losses);
    weft_i_alloc_put(alloc, e);
}

/* Windows of n_tokens inputs whose first targets follow `done` targets of the stream. */
static weft_status load_windows(weft_evaluator *e, int64_t done, int64_t n_seqs, int64_t n_tokens)
{
    for (int64_t i = 0; i < n_seqs; i++) {
        const int64_t first = e->job.first + done + i * n_tokens;
        WEFT_TRY(weft_i_dataset_read(e->job.data, first, n_tokens + 1, e->window));
        memcpy(e->ids + i * n_tokens, e->window, (size_t)n_tokens * sizeof(int32_t));
        memcpy(e->targets + i * n_tokens, e->window + 1, (size_t)n_tokens * sizeof(int32_t));
    }
    return WEFT_OK;
}

/* What a pass adds up on this rank. */
typedef struct pass_sums {
    weft_evaluator *evaluator;
    int64_t done;     /* targets of the stream before the pass */
    int64_t n_tokens; /* inputs of a window */
    weft_sum loss;
} pass_sums;

static weft_status add_losses(void *user, const weft_micro_batch *mb)
{
    pass_sums *s = user;
    weft_evaluator *e = s->evaluator;
    weft_backend *b = e->ctx->backend;
    const int64_t n = mb->n_seqs * s->n_tokens;

    WEFT_TRY(b->ops->copy_to_host(b, e->losses, mb->losses.data, (size_t)n * sizeof(float)));
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(e->losses[i]))
            WEFT_FAIL(
                WEFT_STATUS_NUMERIC, "the loss of token %" PRId64 " of the data is not finite (%g)",
                e->job.first + s->done + mb->first_seq * s->n_tokens + i + 1, (double)e->losses[i]);
    }
    weft_i_sum_add_floats(&s->loss, e->losses, n);
    return WEFT_OK;
}

/* Rank 0's answer, so that all ranks stop at the same pass. */
static weft_status ask_stop(const weft_evaluator *e, weft_parallel *parallel, bool *is_stopped)
{
    const weft_eval_callbacks *c = e->job.callbacks;
    int64_t word = c != NULL && c->should_stop != NULL && c->should_stop(c->user) ? 1 : 0;
    WEFT_TRY(weft_i_parallel_from_rank0(parallel, &word));
    *is_stopped = word != 0;
    return WEFT_OK;
}

/* One pass: batches of windows for every dp rank that there are some for. */
static weft_status
run_pass(pass_sums *s, weft_parallel *parallel, weft_run *run, int64_t n_seqs, int64_t *n_targets)
{
    weft_evaluator *e = s->evaluator;
    const weft_host_batch batch = {
        .n_seqs = n_seqs, .n_tokens = s->n_tokens, .ids = e->ids, .targets = e->targets};
    const weft_parallel_pass pass = {
        .batch = &batch, .micro_batch = e->job.n_seqs, .done = add_losses, .user = s};
    WEFT_TRY(load_windows(e, s->done, n_seqs, s->n_tokens));
    WEFT_TRY(weft_i_parallel_forward_pass(parallel, run, &pass));
    *n_targets = n_seqs * s->n_tokens;
    return WEFT_OK;
}

static weft_status
run_all(weft_sum *sum, int64_t *done, weft_evaluator *e, weft_parallel *parallel, weft_run *run)
{
    const weft_evaluation_job *job = &e->job;
    const int64_t n_targets = job->n_tokens - 1;
    pass_sums sums = {.evaluator = e};
    bool is_stopped = false;

    weft_i_sum_init(&sums.loss);
    while (sums.done < n_targets) {
        const int64_t left = n_targets - sums.done;
        int64_t n = 0;
        WEFT_TRY(ask_stop(e, parallel, &is_stopped));
        if (is_stopped)
            break;
        sums.n_tokens = WEFT_MIN(job->seq_length, left);
        WEFT_TRY(run_pass(&sums, parallel, run,
                          WEFT_MIN(job->n_seqs * e->n_batches, left / sums.n_tokens), &n));
        sums.done += n;
        if (job->callbacks != NULL && job->callbacks->progress != NULL)
            job->callbacks->progress(job->callbacks->user, sums.done, n_targets);
    }
    WEFT_TRY(weft_i_parallel_add_up(parallel, &sums.loss, 1, NULL, 0));
    *sum = sums.loss;
    *done = sums.done;
    return WEFT_OK;
}

weft_status weft_i_evaluator_run(weft_evaluation *out,
                                 weft_evaluator *e,
                                 weft_parallel *parallel,
                                 weft_run *run)
{
    weft_exec *exec = weft_run_exec(run);
    const weft_exec before = *exec;
    weft_sum sum;
    int64_t done = 0;

    weft_i_sum_init(&sum);
    exec->is_training = false;
    exec->is_loss_wanted = true;
    exec->logits = weft_view_none();
    exec->head_rows = NULL;
    exec->n_head_rows = 0;
    const weft_status st = run_all(&sum, &done, e, parallel, run);
    exec->is_training = before.is_training;
    exec->is_loss_wanted = before.is_loss_wanted;
    exec->logits = before.logits;
    exec->head_rows = before.head_rows;
    exec->n_head_rows = before.n_head_rows;
    if (st != WEFT_OK)
        return st;
    *out = (weft_evaluation){.loss_sum = weft_i_sum_value(&sum),
                             .n_targets = done,
                             .n_bytes = weft_i_dataset_bytes(e->job.data, e->job.first + 1, done)};
    return WEFT_OK;
}

void weft_i_evaluation_result(weft_eval_result *out, const weft_evaluation *e)
{
    const double ln2 = 0.69314718055994530942;
    out->n_targets = e->n_targets;
    out->loss = e->n_targets > 0 ? e->loss_sum / (double)e->n_targets : 0.0;
    out->perplexity = exp(out->loss);
    out->bits_per_byte = e->n_bytes > 0 ? e->loss_sum / ln2 / (double)e->n_bytes : (double)NAN;
}
