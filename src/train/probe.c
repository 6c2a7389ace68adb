/*
 * `weft probe`: one forward (and backward) pass, everything it computes written to a file (contract: weft/probe.h).
 *
 * The batch runs in micro-batches; gradients are those of the mean over the counted targets of the whole batch, since every
 * token's gradient is scaled by the one number 1 / n_targets. Dropout never acts.
 */
#include "weft/probe.h"

#include "base/clock.h"
#include "base/ctx.h"
#include "base/log.h"
#include "base/sum.h"
#include "nn/layout_context.h"
#include "nn/plan_forward.h"
#include "train/probe_output.h"
#include "train/settings.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef struct probe_session {
    weft_ctx *ctx;
    weft_source source;
    weft_probe_batch batch;
    weft_model *model;
    weft_run *run;
    weft_probe_output output;
    bool is_grads;
    int64_t micro_batch; /* sequences in a pass */
    void *logits;        /* f32 [micro_batch * T, V] */
    float *host_logits;  /* the same on the host */
    float *losses;       /* [B, T] */
} probe_session;

/* ---- opening ---- */

/* What is read must not be written: the batch, the config, the weights. */
static weft_status check_out(const probe_session *s, const weft_probe_options *o)
{
    const weft_st *w = s->source.weights;
    char config[WEFT_PATH_MAX] = "";

    if (s->source.dir[0] != '\0')
        WEFT_TRY(weft_i_path_join(config, s->source.dir, "config.json"));
    bool is_read = weft_i_file_is_same(o->out, o->batch) || weft_i_file_is_same(o->out, o->model) ||
                   weft_i_file_is_same(o->out, config);
    for (size_t i = 0; w != NULL && i < weft_i_st_file_count(w); i++)
        is_read = is_read || weft_i_file_is_same(o->out, weft_i_st_file(w, i));
    if (is_read)
        WEFT_FAIL(WEFT_STATUS_ARG, "%s is read and would be written; give --out another name",
                  o->out);
    return WEFT_OK;
}

static weft_status open_inputs(probe_session *s, const weft_probe_options *o)
{
    const weft_config *c = &s->source.hf.config;
    const char *dtype = o->layout.dtype != NULL ? o->layout.dtype : "";
    const int64_t micro = o->layout.micro_batch_size;

    WEFT_TRY(weft_i_source_open(&s->source, s->ctx, o->model, dtype));
    WEFT_TRY(weft_i_probe_batch_init(&s->batch, s->ctx, o->batch, c->vocab_size));
    WEFT_TRY(weft_i_layout_check_positions(s->ctx, c, "input_ids", s->batch.n_tokens));
    if (micro < 0)
        WEFT_FAIL(WEFT_STATUS_ARG, "micro_batch_size %" PRId64 " must not be negative", micro);
    s->micro_batch = micro > 0 ? WEFT_MIN(micro, s->batch.n_seqs) : s->batch.n_seqs;
    if (s->batch.n_targets == 0)
        weft_log(s->ctx, WEFT_LOG_WARN, "train",
                 "%s: no target is counted: the loss and all gradients are 0", o->batch);
    return WEFT_OK;
}

static weft_status take_memory(probe_session *s, const weft_probe_options *o)
{
    const int64_t rows = s->micro_batch * s->batch.n_tokens;
    const int64_t cols = s->source.hf.config.vocab_size;
    const int64_t rest = s->batch.n_seqs % s->micro_batch;
    const weft_pass_shape shapes[] = {{.n_seqs = s->micro_batch, .n_tokens = s->batch.n_tokens},
                                      {.n_seqs = rest, .n_tokens = s->batch.n_tokens}};
    weft_pass_plan plan = {.run = {.n_seqs = s->micro_batch,
                                   .n_tokens = s->batch.n_tokens,
                                   .n_slots = s->is_grads ? 1 : 0},
                           .shapes = shapes,
                           .n_shapes = rest > 0 ? 2 : 1,
                           .is_loss_wanted = true,
                           .is_backward = s->is_grads,
                           .logit_rows = rows};
    weft_backend *b = s->ctx->backend;
    weft_pass_memory memory;

    WEFT_TRY(weft_i_recompute_from_name(&plan.run.recompute, o->layout.recompute));
    WEFT_TRY(weft_i_plan_passes(&memory, s->ctx, &s->source, &plan));
    WEFT_TRY(
        weft_i_source_model(&s->model, &s->source, s->ctx, s->is_grads, (uint64_t)o->layout.seed));
    plan.run.workspace_bytes = memory.workspace_bytes;
    WEFT_TRY(weft_run_create(&s->run, s->model, &plan.run));
    WEFT_TRY(b->ops->mem_get(b, WEFT_MEM_ACTIVATIONS, (size_t)(rows * cols) * sizeof(float),
                             "logits", &s->logits));
    WEFT_TRY(weft_i_alloc_array(s->ctx->alloc, rows * cols, sizeof(float), &s->host_logits));
    return weft_i_alloc_array(s->ctx->alloc, s->batch.n_seqs * s->batch.n_tokens, sizeof(float),
                              &s->losses);
}

/* ---- the pass ---- */

static weft_status run_micro_batch(probe_session *s, int64_t first, int64_t n_seqs)
{
    const int64_t n_tokens = s->batch.n_tokens;
    const int64_t rows = n_seqs * n_tokens;
    const int64_t cols = s->source.hf.config.vocab_size;
    const weft_host_batch batch = {.n_seqs = n_seqs,
                                   .n_tokens = n_tokens,
                                   .ids = s->batch.ids + first * n_tokens,
                                   .targets = s->batch.targets + first * n_tokens};
    weft_backend *b = s->ctx->backend;
    weft_exec *exec = weft_run_exec(s->run);

    WEFT_TRY(weft_run_load(s->run, 0, &batch));
    exec->logits = weft_view_make(s->logits, WEFT_DTYPE_F32, rows, cols);
    if (s->is_grads) {
        WEFT_TRY(weft_run_forward(s->run, 0));
        WEFT_TRY(weft_run_backward(s->run, 0, WEFT_BACKWARD_BOTH));
    } else {
        WEFT_TRY(weft_run_forward_only(s->run, NULL));
    }
    WEFT_TRY(
        b->ops->copy_to_host(b, s->host_logits, s->logits, (size_t)(rows * cols) * sizeof(float)));
    WEFT_TRY(b->ops->copy_to_host(b, s->losses + first * n_tokens, weft_run_losses(s->run, 0).data,
                                  (size_t)rows * sizeof(float)));
    return weft_i_probe_output_add(&s->output, s->host_logits, rows * cols);
}

static weft_status run_batch(probe_session *s)
{
    const int64_t n_targets = s->batch.n_targets;
    weft_exec *exec = weft_run_exec(s->run);

    exec->is_training = false;
    exec->is_loss_wanted = !s->is_grads; /* backward computes them itself */
    exec->loss_scale = n_targets > 0 ? (float)(1.0 / (double)n_targets) : 0.0F;
    if (s->is_grads)
        weft_model_begin_step(s->model);
    for (int64_t i = 0; i < s->batch.n_seqs; i += s->micro_batch)
        WEFT_TRY(run_micro_batch(s, i, WEFT_MIN(s->micro_batch, s->batch.n_seqs - i)));
    return s->is_grads ? weft_model_end_step(s->model) : WEFT_OK;
}

/* Token losses without each sequence's last place, and their mean. */
static weft_status write_losses(probe_session *s, double *mean)
{
    const int64_t n_tokens = s->batch.n_tokens;
    weft_sum sum;

    weft_i_sum_init(&sum);
    for (int64_t i = 0; i < s->batch.n_seqs; i++) {
        const float *row = s->losses + i * n_tokens;
        weft_i_sum_add_floats(&sum, row, n_tokens - 1);
        WEFT_TRY(weft_i_probe_output_add(&s->output, row, n_tokens - 1));
    }
    *mean = s->batch.n_targets > 0 ? weft_i_sum_value(&sum) / (double)s->batch.n_targets : 0.0;
    const float loss = (float)*mean;
    return weft_i_probe_output_add(&s->output, &loss, 1);
}

static void close_session(probe_session *s)
{
    if (s->ctx == NULL)
        return;
    weft_i_probe_output_destroy(&s->output);
    weft_i_alloc_put(s->ctx->alloc, s->losses);
    weft_i_alloc_put(s->ctx->alloc, s->host_logits);
    s->ctx->backend->ops->mem_put(s->ctx->backend, s->logits);
    weft_run_destroy(s->run);
    weft_model_destroy(s->model);
    weft_i_probe_batch_fini(&s->batch);
    weft_i_source_close(&s->source, s->ctx);
    weft_ctx_destroy(s->ctx);
}

static weft_status run_session(weft_probe_result *out,
                               probe_session *s,
                               const weft_probe_options *o,
                               const weft_ctx_options *ctx_options)
{
    WEFT_TRY(weft_i_layout_context(&s->ctx, &o->layout, ctx_options));
    WEFT_TRY(open_inputs(s, o));
    WEFT_TRY(check_out(s, o));
    WEFT_TRY(take_memory(s, o));
    WEFT_TRY(weft_i_probe_output_create(&s->output, o->out, s->model, &s->source, &s->batch,
                                        s->is_grads));
    weft_i_source_unmap(&s->source);
    const double start = weft_i_clock_seconds();
    WEFT_TRY(run_batch(s));
    WEFT_TRY(write_losses(s, &out->loss));
    out->seconds = weft_i_clock_seconds() - start;
    WEFT_TRY(weft_i_probe_output_finish(&s->output));
    out->n_targets = s->batch.n_targets;
    out->n_sequences = s->batch.n_seqs;
    out->seq_length = s->batch.n_tokens;
    out->n_grads = s->output.n_grads;
    if (!isfinite(out->loss))
        WEFT_FAIL(WEFT_STATUS_NUMERIC, "the loss is not finite; %s was written all the same",
                  o->out);
    return WEFT_OK;
}

weft_status weft_probe_run(weft_probe_result *out,
                           const weft_probe_options *options,
                           const weft_ctx_options *ctx_options)
{
    probe_session s = {.is_grads = options->grads};

    memset(out, 0, sizeof(*out));
    if (options->model == NULL || options->batch == NULL || options->out == NULL)
        WEFT_FAIL(WEFT_STATUS_ARG, "probe needs a model, a batch and an output file");
    const weft_status st = run_session(out, &s, options, ctx_options);
    close_session(&s);
    return st;
}
