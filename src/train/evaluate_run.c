/*
 * `weft eval`: opens model and data, plans memory by a dry run, evaluates (contract: weft/eval.h).
 *
 * Windows and counting are evaluate.c's; this file only chooses their sizes.
 */
#include "base/clock.h"
#include "base/ctx.h"
#include "base/str.h"
#include "formats/json.h"
#include "nn/layout_context.h"
#include "parallel/compare_start.h"
#include "parallel/ranks.h"
#include "parallel/replica.h"
#include "train/evaluate.h"
#include "train/trainer_state.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DEFAULT_SEQ_LENGTH 256
#define DEFAULT_N_SEQS 8

typedef struct eval_session {
    weft_mesh *mesh;
    weft_ctx *ctx; /* the mesh's */
    weft_source source;
    weft_tokenizer *tokenizer;
    weft_dataset *data;
    weft_replica replica;
    weft_run *run;
    weft_evaluator *evaluator;
    weft_evaluation_job job;
} eval_session;

/*
 * A batch never has more windows, nor a window more inputs, than the data fills; unless asked for, no more windows either
 * than leave some for every rank.
 */
static weft_status choose_windows(eval_session *s, const weft_eval_options *o)
{
    const weft_config *c = &s->source.hf.config;
    const weft_layout_options *l = &o->layout;
    int64_t n_tokens = weft_i_dataset_tokens(s->data);

    if (o->seq_length < 0 || o->max_tokens < 0 || l->micro_batch_size < 0)
        WEFT_FAIL(WEFT_STATUS_ARG,
                  "seq_length %" PRId64 ", max_tokens %" PRId64 " and micro_batch_size %" PRId64
                  " must not be negative",
                  o->seq_length, o->max_tokens, l->micro_batch_size);
    if (o->max_tokens > 0)
        n_tokens = WEFT_MIN(n_tokens, o->max_tokens + 1);
    const int64_t wanted =
        o->seq_length > 0 ? o->seq_length : WEFT_MIN(c->max_positions, DEFAULT_SEQ_LENGTH);
    WEFT_TRY(weft_i_layout_check_positions(s->ctx, c, "seq_length", wanted));
    const int64_t seq_length = WEFT_MIN(wanted, WEFT_MAX(n_tokens - 1, 1));
    const int64_t n_windows = WEFT_MAX((n_tokens - 1) / seq_length, 1);
    const int64_t n_ranks = s->mesh->size[WEFT_AXIS_DP];
    const int64_t fair = WEFT_MIN((n_windows + n_ranks - 1) / n_ranks, DEFAULT_N_SEQS);
    const int64_t n_seqs = l->micro_batch_size > 0 ? l->micro_batch_size : fair;
    s->job.data = s->data;
    s->job.n_tokens = n_tokens;
    s->job.seq_length = seq_length;
    s->job.n_seqs = WEFT_MIN(n_seqs, n_windows);
    return WEFT_OK;
}

static weft_status
open_inputs(eval_session *s, const weft_eval_options *o, const weft_eval_callbacks *callbacks)
{
    const char *dtype = o->layout.dtype != NULL ? o->layout.dtype : "";

    WEFT_TRY(weft_i_source_open(&s->source, s->ctx, o->model, dtype));
    WEFT_TRY(weft_i_layout_check_model(&s->mesh->layout, &s->source.hf.config));
    WEFT_TRY(weft_i_tokenizer_open(&s->tokenizer, s->ctx->alloc, o->tokenizer));
    WEFT_TRY(weft_i_dataset_open(&s->data, s->ctx->alloc, o->data, o->n_data, s->tokenizer,
                                 s->source.hf.config.vocab_size));
    if (weft_i_dataset_has_text(s->data))
        weft_i_source_warn_tokenizer(&s->source, s->ctx);
    WEFT_TRY(choose_windows(s, o));
    s->job.callbacks = callbacks;
    return weft_i_evaluator_create(&s->evaluator, s->mesh, &s->job);
}

static weft_status take_memory(eval_session *s, uint64_t seed)
{
    weft_pass_shape shapes[WEFT_EVALUATION_SHAPES];
    weft_pass_plan plan = {.run = {.n_seqs = s->job.n_seqs, .n_tokens = s->job.seq_length},
                           .shapes = shapes,
                           .n_shapes = weft_i_evaluation_shapes(&s->job, shapes),
                           .is_loss_wanted = true};
    weft_pass_memory memory;

    WEFT_TRY(weft_i_mesh_agree(s->mesh, weft_i_plan_passes(&memory, s->mesh, &s->source, &plan)));
    WEFT_TRY(weft_i_replica_create(&s->replica, s->mesh, &s->source, false, seed));
    weft_i_source_unmap(&s->source);
    plan.run.workspace_bytes = memory.workspace_bytes;
    return weft_i_parallel_run_create(&s->run, s->replica.parallel, &plan.run, 1);
}

static void note(const eval_session *s)
{
    const weft_eval_callbacks *c = s->job.callbacks;
    char line[160];

    if (c == NULL || c->note == NULL || s->mesh->world_rank != 0)
        return;
    char tokens[32];
    const int n =
        snprintf(line, sizeof(line), "%s tokens, windows of %" PRId64 ", %" PRId64 " a batch, %s",
                 weft_i_str_thousands(s->job.n_tokens, tokens, sizeof(tokens)), s->job.seq_length,
                 s->job.n_seqs, weft_dtype_name(s->source.dtype));
    if (n > 0 && (size_t)n < sizeof(line))
        c->note(c->user, line);
}

typedef struct eval_start {
    const eval_session *session;
    const weft_eval_options *options;
} eval_start;

/* weft_start_texts_fn */
static weft_status add_texts(weft_str *options, weft_str *data, const void *user)
{
    const eval_start *const start = user;
    const eval_session *const s = start->session;
    const weft_eval_options *const o = start->options;
    json_t *files = NULL;

    WEFT_TRY(weft_i_str_addf(options,
                             "seq_length %" PRId64 ", micro_batch_size %" PRId64 ", tokens %" PRId64
                             ", seed %" PRId64,
                             s->job.seq_length, s->job.n_seqs, s->job.n_tokens, o->layout.seed));
    WEFT_TRY(weft_i_trainer_state_data(&files, o->data, o->n_data, s->data, -1));
    const weft_status st = weft_i_json_add_value(data, files);
    json_decref(files);
    return st;
}

static void close_session(eval_session *s)
{
    weft_run_destroy(s->run);
    weft_i_replica_destroy(&s->replica);
    weft_i_evaluator_destroy(s->evaluator);
    weft_i_dataset_close(s->data);
    weft_i_tokenizer_close(s->tokenizer);
    weft_i_source_close(&s->source, s->ctx);
}

/* What all ranks share. */
typedef struct eval_call {
    const weft_eval_options *options;
    const weft_eval_callbacks *callbacks;
    weft_eval_result *result; /* rank 0 writes it */
} eval_call;

static weft_status run_rank(void *user, weft_mesh *mesh)
{
    static const weft_eval_callbacks silent = {.user = NULL};
    const eval_call *call = user;
    const weft_eval_options *o = call->options;
    const bool is_speaker = mesh->world_rank == 0;
    eval_session s = {.mesh = mesh, .ctx = mesh->ctx};
    const eval_start begun = {.session = &s, .options = o};
    weft_evaluation evaluation;
    double start = 0.0;
    weft_status st = WEFT_OK;

    WEFT_TRY_GOTO(
        st, weft_i_mesh_agree(mesh, open_inputs(&s, o, is_speaker ? call->callbacks : &silent)),
        out);
    WEFT_TRY_GOTO(st, weft_i_mesh_compare_start(mesh, &s.source, add_texts, &begun), out);
    WEFT_TRY_GOTO(st, take_memory(&s, (uint64_t)o->layout.seed), out);
    note(&s);
    weft_i_mesh_begin(mesh);
    start = weft_i_clock_seconds();
    WEFT_TRY_GOTO(st, weft_i_evaluator_run(&evaluation, s.evaluator, s.replica.parallel, s.run),
                  out);
    if (is_speaker) {
        weft_i_evaluation_result(call->result, &evaluation);
        call->result->n_tokens = weft_i_dataset_tokens(s.data);
        call->result->seconds = weft_i_clock_seconds() - start;
    }
out:
    (void)weft_i_mesh_fail(mesh, st);
    close_session(&s);
    return st;
}

weft_status weft_eval_run(weft_eval_result *out,
                          const weft_eval_options *options,
                          const weft_ctx_options *ctx_options,
                          const weft_eval_callbacks *callbacks)
{
    eval_call call = {.options = options, .callbacks = callbacks, .result = out};
    weft_layout layout;
    weft_pace pace;

    memset(out, 0, sizeof(*out));
    if (options->model == NULL || options->n_data == 0)
        WEFT_FAIL(WEFT_STATUS_ARG, "eval needs a model and data");
    WEFT_TRY(weft_i_layout_make(&layout, &options->layout));
    WEFT_TRY(weft_i_layout_read_pace(&pace, &layout.pace, &options->layout));
    return weft_i_ranks_run(&layout, &options->layout, ctx_options, run_rank, &call);
}
