/*
 * `weft probe`: one forward (and backward) pass, everything it computes written to a file (contract: weft/probe.h).
 *
 * The batch runs in micro-batches, dealt out over the ranks; gradients are those of the mean over the counted targets of the
 * whole batch, since every token's gradient is scaled by the one number 1 / n_targets. Dropout never acts.
 *
 * Communication: of the parallel methods' pass; at the end 1 all_reduce of the sum of losses; probe_output.c's agreements.
 * Invariant: a rank writes what its own micro-batches gave and the gradients it owns; the loss is an exact sum.
 */
#include "weft/probe.h"

#include "base/clock.h"
#include "base/ctx.h"
#include "base/log.h"
#include "base/sum.h"
#include "nn/layout_context.h"
#include "parallel/compare_start.h"
#include "parallel/plan_forward.h"
#include "parallel/ranks.h"
#include "train/probe_output.h"
#include "train/settings.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef struct probe_session {
    weft_mesh *mesh;
    weft_ctx *ctx; /* the mesh's */
    weft_source source;
    weft_probe_batch batch;
    weft_replica replica;
    weft_run *run;
    weft_probe_output output;
    bool is_grads;
    int64_t micro_batch; /* sequences in a micro-batch, at most */
    void *logits;        /* f32 [micro_batch * T, V] */
    float *host_logits;  /* the same on the host */
    float *losses;       /* [B, T], of the sequences that ran here */
    bool *is_here;       /* [B] */
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
    WEFT_TRY(weft_i_layout_check_model(&s->mesh->layout, &s->source.hf.config));
    WEFT_TRY(weft_i_probe_batch_init(&s->batch, s->ctx, o->batch, c->vocab_size));
    WEFT_TRY(weft_i_layout_check_positions(s->ctx, c, "input_ids", s->batch.n_tokens));
    if (micro < 0)
        WEFT_FAIL(WEFT_STATUS_ARG, "micro_batch_size %" PRId64 " must not be negative", micro);
    const int64_t n_ranks = s->mesh->size[WEFT_AXIS_DP];
    const int64_t fair = (s->batch.n_seqs + n_ranks - 1) / n_ranks;
    s->micro_batch = micro > 0 ? WEFT_MIN(micro, s->batch.n_seqs) : fair;
    if (s->batch.n_targets == 0)
        weft_log(s->ctx, WEFT_LOG_WARN, "train",
                 "%s: no target is counted: the loss and all gradients are 0", o->batch);
    return check_out(s, o);
}

typedef struct probe_start {
    const probe_session *session;
    const weft_probe_options *options;
} probe_start;

/* weft_start_texts_fn */
static weft_status add_texts(weft_str *options, weft_str *data, const void *user)
{
    const probe_start *const start = user;
    const probe_session *const s = start->session;
    const weft_probe_options *const o = start->options;
    const weft_probe_batch *const b = &s->batch;

    WEFT_TRY(weft_i_str_addf(options,
                             "micro_batch_size %" PRId64 ", grads %d, seed %" PRId64 ", out %s",
                             s->micro_batch, s->is_grads, o->layout.seed, o->out));
    WEFT_TRY(
        weft_i_str_addf(data, "input_ids [%" PRId64 ", %" PRId64 "] ", b->n_seqs, b->n_tokens));
    WEFT_TRY(weft_i_start_add_ids(data, b->ids, b->n_seqs * b->n_tokens));
    WEFT_TRY(weft_i_str_addf(data, "labels "));
    return weft_i_start_add_ids(data, b->targets, b->n_seqs * b->n_tokens);
}

static weft_status take_host(probe_session *s, int64_t n_logits)
{
    weft_alloc *a = s->ctx->alloc;
    const int64_t n_seqs = s->batch.n_seqs;

    WEFT_TRY(weft_i_alloc_array(a, n_logits, sizeof(float), &s->host_logits));
    WEFT_TRY(weft_i_alloc_array(a, n_seqs * s->batch.n_tokens, sizeof(float), &s->losses));
    return weft_i_alloc_array(a, n_seqs, sizeof(bool), &s->is_here);
}

static weft_status take_memory(probe_session *s, const weft_probe_options *o)
{
    const int64_t rows = s->micro_batch * s->batch.n_tokens;
    const int64_t n_logits = rows * s->source.hf.config.vocab_size;
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
                           .n_rounds = weft_i_mesh_rounds(s->mesh, s->batch.n_seqs, s->micro_batch),
                           .logit_rows = rows};
    weft_backend *b = s->ctx->backend;
    weft_pass_memory memory;

    weft_status st = weft_i_recompute_from_name(&plan.run.recompute, o->layout.recompute);
    if (st == WEFT_OK)
        st = weft_i_plan_passes(&memory, s->mesh, &s->source, &plan);
    WEFT_TRY(weft_i_mesh_agree(s->mesh, st));
    WEFT_TRY(weft_i_replica_create(&s->replica, s->mesh, &s->source, s->is_grads,
                                   (uint64_t)o->layout.seed));
    plan.run.workspace_bytes = memory.workspace_bytes;
    WEFT_TRY(weft_i_parallel_run_create(&s->run, s->replica.parallel, &plan.run, plan.n_rounds));
    WEFT_TRY(b->ops->mem_get(b, WEFT_MEM_ACTIVATIONS, (size_t)n_logits * sizeof(float), "logits",
                             &s->logits));
    return take_host(s, n_logits);
}

/* ---- the pass ---- */

/* A micro-batch's logits (into the file) or losses (kept), or both at once. */
static weft_status keep_micro_batch(void *user, const weft_micro_batch *mb)
{
    probe_session *s = user;
    const int64_t n_tokens = s->batch.n_tokens;
    const int64_t rows = mb->n_seqs * n_tokens;
    const int64_t cols = s->source.hf.config.vocab_size;
    weft_backend *b = s->ctx->backend;

    if (mb->losses.data != NULL) {
        WEFT_TRY(b->ops->copy_to_host(b, s->losses + mb->first_seq * n_tokens, mb->losses.data,
                                      (size_t)rows * sizeof(float)));
        for (int64_t i = 0; i < mb->n_seqs; i++)
            s->is_here[mb->first_seq + i] = true;
    }
    if (mb->logits.data == NULL)
        return WEFT_OK;
    WEFT_TRY(b->ops->copy_to_host(b, s->host_logits, mb->logits.data,
                                  (size_t)(rows * cols) * sizeof(float)));
    return weft_i_probe_output_add(&s->output, WEFT_PROBE_LOGITS, mb->first_seq * n_tokens * cols,
                                   s->host_logits, rows * cols);
}

static weft_status run_batch(probe_session *s)
{
    const int64_t n_targets = s->batch.n_targets;
    const weft_host_batch batch = {.n_seqs = s->batch.n_seqs,
                                   .n_tokens = s->batch.n_tokens,
                                   .ids = s->batch.ids,
                                   .targets = s->batch.targets};
    const weft_parallel_pass pass = {.batch = &batch,
                                     .micro_batch = s->micro_batch,
                                     .logits = weft_view_make(s->logits, WEFT_DTYPE_F32,
                                                              s->micro_batch * batch.n_tokens,
                                                              s->source.hf.config.vocab_size),
                                     .done = keep_micro_batch,
                                     .user = s};
    weft_exec *exec = weft_run_exec(s->run);

    exec->is_training = false;
    exec->is_loss_wanted = !s->is_grads; /* backward computes them itself */
    exec->loss_scale = n_targets > 0 ? (float)(1.0 / (double)n_targets) : 0.0F;
    if (s->is_grads)
        return weft_i_parallel_train_pass(s->replica.parallel, s->run, &pass);
    return weft_i_parallel_forward_pass(s->replica.parallel, s->run, &pass);
}

/* Token losses without each sequence's last place, and their mean over all ranks. */
static weft_status write_losses(probe_session *s, double *mean)
{
    const int64_t n_tokens = s->batch.n_tokens;
    weft_sum sum;

    weft_i_sum_init(&sum);
    for (int64_t i = 0; i < s->batch.n_seqs; i++) {
        const float *row = s->losses + i * n_tokens;
        if (!s->is_here[i])
            continue;
        weft_i_sum_add_floats(&sum, row, n_tokens - 1);
        WEFT_TRY(weft_i_probe_output_add(&s->output, WEFT_PROBE_TOKEN_LOSS, i * (n_tokens - 1), row,
                                         n_tokens - 1));
    }
    WEFT_TRY(weft_i_parallel_add_up(s->replica.parallel, &sum, 1, NULL, 0));
    *mean = s->batch.n_targets > 0 ? weft_i_sum_value(&sum) / (double)s->batch.n_targets : 0.0;
    const float loss = (float)*mean;
    if (s->mesh->world_rank != 0)
        return WEFT_OK;
    return weft_i_probe_output_add(&s->output, WEFT_PROBE_LOSS, 0, &loss, 1);
}

static weft_status write_all(probe_session *s, double *loss)
{
    WEFT_TRY(run_batch(s));
    WEFT_TRY(write_losses(s, loss));
    if (s->is_grads)
        WEFT_TRY(
            weft_i_probe_output_add_grads(&s->output, weft_i_parallel_owned(s->replica.parallel)));
    return WEFT_OK;
}

/* ---- a rank ---- */

static void close_session(probe_session *s)
{
    weft_alloc *alloc = s->ctx->alloc;

    weft_i_probe_output_destroy(&s->output);
    weft_i_alloc_put(alloc, s->is_here);
    weft_i_alloc_put(alloc, s->losses);
    weft_i_alloc_put(alloc, s->host_logits);
    s->ctx->backend->ops->mem_put(s->ctx->backend, s->logits);
    weft_run_destroy(s->run);
    weft_i_replica_destroy(&s->replica);
    weft_i_probe_batch_fini(&s->batch);
    weft_i_source_close(&s->source, s->ctx);
}

static weft_status
run_session(weft_probe_result *out, probe_session *s, const weft_probe_options *o)
{
    const probe_start begun = {.session = s, .options = o};
    WEFT_TRY(weft_i_mesh_agree(s->mesh, open_inputs(s, o)));
    WEFT_TRY(weft_i_mesh_compare_start(s->mesh, &s->source, add_texts, &begun));
    WEFT_TRY(take_memory(s, o));
    WEFT_TRY(weft_i_probe_output_create(&s->output, o->out, s->mesh, s->replica.model, &s->source,
                                        &s->batch, s->is_grads));
    weft_i_source_unmap(&s->source);
    weft_i_mesh_begin(s->mesh);
    const double start = weft_i_clock_seconds();
    WEFT_TRY(write_all(s, &out->loss));
    out->seconds = weft_i_clock_seconds() - start;
    WEFT_TRY(weft_i_probe_output_finish(&s->output));
    out->n_targets = s->batch.n_targets;
    out->n_sequences = s->batch.n_seqs;
    out->seq_length = s->batch.n_tokens;
    out->n_grads = s->output.n_grads;
    return WEFT_OK;
}

/* What all ranks share. */
typedef struct probe_call {
    const weft_probe_options *options;
    weft_probe_result *result; /* rank 0 writes it */
} probe_call;

static weft_status run_rank(void *user, weft_mesh *mesh)
{
    const probe_call *call = user;
    probe_session s = {.mesh = mesh, .ctx = mesh->ctx, .is_grads = call->options->grads};
    weft_probe_result result = {.loss = 0.0};

    const weft_status st = weft_i_mesh_fail(mesh, run_session(&result, &s, call->options));
    close_session(&s);
    if (st == WEFT_OK && mesh->world_rank == 0)
        *call->result = result;
    return st;
}

weft_status weft_probe_run(weft_probe_result *out,
                           const weft_probe_options *options,
                           const weft_ctx_options *ctx_options)
{
    probe_call call = {.options = options, .result = out};
    weft_layout layout;
    weft_pace pace;

    memset(out, 0, sizeof(*out));
    if (options->model == NULL || options->batch == NULL || options->out == NULL)
        WEFT_FAIL(WEFT_STATUS_ARG, "probe needs a model, a batch and an output file");
    WEFT_TRY(weft_i_layout_make(&layout, &options->layout));
    WEFT_TRY(weft_i_layout_read_pace(&pace, &layout.pace, &options->layout));
    WEFT_TRY(weft_i_ranks_run(&layout, &options->layout, ctx_options, run_rank, &call));
    if (!isfinite(out->loss))
        WEFT_FAIL(WEFT_STATUS_NUMERIC, "the loss is not finite; %s was written all the same",
                  options->out);
    return WEFT_OK;
}
