/*
 * From options to a trainer that is ready for its first step.
 *
 * Order: checkpoint (on resume); model; settings; data; comparison with the checkpoint; plan; memory; weights
 * and state. Everything that can be refused is refused before memory is taken, and the files of the weights are unmapped
 * before the first step.
 */
#include "train/train_session.h"

#include "backend/warm.h"
#include "base/ctx.h"
#include "base/env.h"
#include "base/file.h"
#include "nn/layout_context.h"
#include "parallel/compare_start.h"
#include "parallel/ranks.h"
#include "parallel/stage_cut.h"
#include "train/out_lock.h"
#include "train/resume.h"
#include "train/step_picture.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define NOTE_BYTES 1024
#define N_FILES_BESIDE_RANKS 24 /* standard streams, lock, metrics, what checkpoints take along */
#define MAX_NAMED_RANKS 16      /* of a stage, in the map */

void weft_i_train_note(const weft_train_session *s, const char *fmt, ...)
{
    char line[NOTE_BYTES];
    if (s->notes.line == NULL || !s->is_speaker)
        return;
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    s->notes.line(s->notes.user, line);
}

/* ---- opening ---- */

/* Rank 0 locks and cleans OUT and says which checkpoint the run goes on from. */
static weft_status find_checkpoint(weft_train_session *s)
{
    const weft_train_options *o = s->options;
    weft_status st = WEFT_OK;
    if (s->is_speaker && weft_i_dir_exists(o->out))
        st = weft_i_out_lock(&s->lock, o->out);
    if (s->is_speaker && st == WEFT_OK)
        st = weft_i_resume_find(s->ctx->alloc, o->out, o->resume, s->resume_dir);
    WEFT_TRY(weft_i_mesh_agree_on_rank0(s->mesh, st));
    return weft_i_mesh_from_rank0(s->mesh, s->resume_dir, sizeof(s->resume_dir),
                                  "checkpoint to go on from");
}

/* The checkpoint's model when there is one, else --model; on resume the two must be the same. */
static weft_status open_model(weft_train_session *s)
{
    const weft_train_options *o = s->options;
    const char *dtype = o->layout.dtype != NULL ? o->layout.dtype : "";
    if (s->resume_dir[0] == '\0')
        return weft_i_source_open(&s->source, s->ctx, o->model, dtype);
    WEFT_TRY(weft_i_trainer_state_read(&s->saved, s->ctx->alloc, s->resume_dir));
    if (dtype[0] == '\0')
        dtype = weft_i_trainer_state_text(&s->saved, "dtype");
    WEFT_TRY(weft_i_source_open(&s->source, s->ctx, s->resume_dir, dtype));
    weft_hf_config given;
    WEFT_TRY(weft_i_hf_config_read(&given, s->ctx->alloc, o->model));
    const weft_status st =
        weft_i_resume_compare_config(&s->source.hf.config, &given.config, s->resume_dir);
    weft_i_hf_config_fini(&given, s->ctx->alloc);
    return st;
}

/* What is held out: data of its own, or the end of the stream; *n_held tokens of it. */
static weft_status open_evaluation(weft_train_session *s, int64_t *n_held)
{
    const weft_train_options *o = s->options;
    const int64_t n_tokens = weft_i_dataset_tokens(s->data);
    *n_held = 0;
    if (!s->settings.is_evaluating)
        return WEFT_OK;
    if (o->n_eval_data > 0) {
        WEFT_TRY(weft_i_dataset_open(&s->eval_data, s->ctx->alloc, o->eval_data, o->n_eval_data,
                                     s->tokenizer, s->source.hf.config.vocab_size));
        s->job.data = s->eval_data;
        s->job.first = 0;
        s->job.n_tokens = weft_i_dataset_tokens(s->eval_data);
    } else {
        *n_held = (int64_t)((double)n_tokens * o->eval_fraction);
        s->job.data = s->data;
        s->job.first = n_tokens - *n_held;
        s->job.n_tokens = *n_held;
    }
    if (s->job.n_tokens < 2)
        WEFT_FAIL(WEFT_STATUS_FORMAT,
                  "%s: %lld tokens are held out for evaluation, need at least 2; give more data, a "
                  "larger --eval-fraction, or --eval-interval 0",
                  weft_i_dataset_first_path(s->job.data), (long long)s->job.n_tokens);
    if (s->settings.eval_tokens > 0)
        s->job.n_tokens = WEFT_MIN(s->job.n_tokens, s->settings.eval_tokens + 1);
    s->job.seq_length = WEFT_MIN(s->settings.seq_length, s->job.n_tokens - 1);
    s->job.n_seqs = WEFT_MIN(s->settings.micro_batch, (s->job.n_tokens - 1) / s->job.seq_length);
    return WEFT_OK;
}

static weft_status open_data(weft_train_session *s)
{
    const weft_train_options *o = s->options;
    int64_t n_held = 0;
    WEFT_TRY(weft_i_tokenizer_open(&s->tokenizer, s->ctx->alloc, o->tokenizer));
    WEFT_TRY(weft_i_dataset_open(&s->data, s->ctx->alloc, o->data, o->n_data, s->tokenizer,
                                 s->source.hf.config.vocab_size));
    if (weft_i_dataset_has_text(s->data))
        weft_i_source_warn_tokenizer(&s->source, s->ctx);
    WEFT_TRY(open_evaluation(s, &n_held));
    return weft_i_sampler_init(&s->sampler, s->data, 0, weft_i_dataset_tokens(s->data) - n_held,
                               s->settings.seq_length, s->settings.seed, s->settings.is_shuffled);
}

static weft_status open_state(weft_train_session *s)
{
    WEFT_TRY(weft_i_trainer_state_settings(&s->state.settings, &s->settings, s->source.dtype));
    WEFT_TRY(weft_i_trainer_state_data(&s->state.data, s->options->data, s->options->n_data,
                                       s->data, s->sampler.n_tokens));
    if (s->resume_dir[0] == '\0')
        return WEFT_OK;
    WEFT_TRY(weft_i_trainer_state_compare(&s->saved, &s->state, s->resume_dir, &s->notes));
    if (s->saved.step > s->settings.train_steps)
        WEFT_FAIL(
            WEFT_STATUS_MISMATCH,
            "%s is at step %lld, beyond train_steps %lld (the length of the whole run); give a "
            "larger --train-steps",
            s->resume_dir, (long long)s->saved.step, (long long)s->settings.train_steps);
    s->state.step = s->saved.step;
    s->state.total_tokens = s->saved.total_tokens;
    s->state.next_sample = s->saved.next_sample;
    return WEFT_OK;
}

/* Every rank opens the file it writes to when a checkpoint is saved: a limit that is too low for it is said before hours of
   steps, not after. */
static weft_status check_open_files(const weft_mesh *mesh)
{
    const int64_t limit = weft_i_env_open_files_max();
    const int64_t needed = (int64_t)mesh->world_size + N_FILES_BESIDE_RANKS;
    if (mesh->world_size == 1 || needed <= limit)
        return WEFT_OK;
    WEFT_FAIL(WEFT_STATUS_NOMEM,
              "%d ranks that write a checkpoint have up to %lld files open at once, and this "
              "process may have %lld; raise the limit (ulimit -n) or take fewer ranks",
              mesh->world_size, (long long)needed, (long long)limit);
}

static weft_status open_inputs(weft_train_session *s)
{
    WEFT_TRY(check_open_files(s->mesh));
    WEFT_TRY(open_model(s));
    WEFT_TRY(weft_i_layout_check_model(&s->mesh->layout, &s->source.hf.config));
    WEFT_TRY(weft_i_train_settings_make(&s->settings, s->options, &s->source.hf.config));
    /* Another layout goes on with the same steps, unless another batch is asked for (and refused). */
    if (s->resume_dir[0] != '\0' && s->options->layout.global_batch_size == 0)
        s->settings.global_batch =
            weft_i_trainer_state_number(&s->saved, "global_batch_size", s->settings.global_batch);
    WEFT_TRY(weft_i_layout_check_positions(s->ctx, &s->source.hf.config, "seq_length",
                                           s->settings.seq_length));
    WEFT_TRY(open_data(s));
    return open_state(s);
}

/* weft_start_texts_fn: settings and data as they will stand in the checkpoint. */
static weft_status add_texts(weft_str *options, weft_str *data, const void *user)
{
    const weft_trainer_state *state = user;
    WEFT_TRY(weft_i_json_add_value(options, state->settings));
    return weft_i_json_add_value(data, state->data);
}

weft_status weft_i_train_session_open(weft_train_session *s)
{
    s->metrics.file.fd = -1;
    s->lock = -1;
    WEFT_TRY(find_checkpoint(s));
    WEFT_TRY(weft_i_mesh_agree(s->mesh, open_inputs(s)));
    WEFT_TRY(weft_i_mesh_agree_on_rank0(
        s->mesh, s->is_speaker ? weft_i_companions_open(&s->companions, s->source.dir) : WEFT_OK));
    return weft_i_mesh_compare_start(s->mesh, &s->source, add_texts, &s->state);
}

/* ---- saying what there is ---- */

static void note_model(const weft_train_session *s)
{
    char all[32], trained[32], tokens[32], windows[32], held[32];
    const weft_config *c = &s->source.hf.config;
    const weft_layout *l = &s->mesh->layout;
    char tensor[64] = "", strips[32] = "", steps[64];
    if (l->n_strips > 0)
        (void)snprintf(strips, sizeof(strips), " in %d strips", l->n_strips);
    if (l->tp > 1 || l->n_strips > 0)
        (void)snprintf(tensor, sizeof(tensor), "tp %d%s%s, ", l->tp, strips,
                       l->is_sequence_parallel ? " with sequence parallelism" : "");
    char stages[64] = "", chunks[32] = "";
    if (l->n_chunks > 1)
        (void)snprintf(chunks, sizeof(chunks), " of %d chunks a stage", l->n_chunks);
    if (l->pp > 1)
        (void)snprintf(stages, sizeof(stages), "pp %d %s%s, ", l->pp,
                       weft_i_schedule_name(l->schedule), chunks);
    if (l->n_ranks > 1 || l->n_strips > 0)
        weft_i_train_note(s, "ranks: %d as threads of this process, %s%sdp %d, %s%s", l->n_ranks,
                          tensor, stages, l->dp,
                          l->is_data_parallel  ? "DataParallel"
                          : l->zero_stage == 0 ? "DDP"
                          : l->zero_stage == 1 ? "ZeRO stage 1"
                          : l->zero_stage == 2 ? "ZeRO stage 2"
                                               : "ZeRO stage 3",
                          l->is_reproducible ? ", reproducible" : "");
    if (l->is_reproducible && l->tp > 1 && l->n_strips == 0)
        weft_i_train_note(s,
                          "reproducible with --tp %d; to have these bits with another --tp too, "
                          "see --tp-strips",
                          l->tp);
    if (l->pace != NULL)
        weft_i_train_note(s, "paced: layers and messages take the times that %s states",
                          s->options->layout.pace);
    weft_i_train_note(s, "model: %s, %s parameters, %s trained, %s, %s backend, threads: %d",
                      weft_family_name(c->family),
                      weft_i_str_thousands(s->plan.n_elems, all, sizeof(all)),
                      weft_i_str_thousands(s->plan.n_trained_elems, trained, sizeof(trained)),
                      s->source.dtype == WEFT_DTYPE_BF16 ? "bf16" : "fp32",
                      s->ctx->backend->ops->name, weft_i_pool_threads(s->ctx->pool));
    weft_i_train_note(
        s, "data: %s tokens, %s sequences of %lld; %s tokens held out for evaluation",
        weft_i_str_thousands(weft_i_dataset_tokens(s->data), tokens, sizeof(tokens)),
        weft_i_str_thousands(s->sampler.n_windows, windows, sizeof(windows)),
        (long long)s->settings.seq_length,
        weft_i_str_thousands(s->job.data != NULL ? s->job.n_tokens : 0, held, sizeof(held)));
    (void)snprintf(steps, sizeof(steps), "steps %lld to %lld", (long long)s->state.step + 1,
                   (long long)s->settings.train_steps);
    weft_i_train_note(s, "step: %lld sequences in micro-batches of %lld, %.3f GFLOP; %s",
                      (long long)s->settings.global_batch, (long long)s->settings.micro_batch,
                      (double)s->all_flops / 1e9,
                      s->state.step < s->settings.train_steps ? steps : "no step is left");
    if (s->resume_dir[0] != '\0')
        weft_i_train_note(s, "resume: from %s, after step %lld", s->resume_dir,
                          (long long)s->state.step);
}

/* "ranks 1, 3, 5" of a stage, or how many they are. */
static void name_ranks(const weft_layout *l, int stage, char *out, size_t size)
{
    int coord[WEFT_AXIS_COUNT], at = 0;
    if (l->n_ranks / l->pp > MAX_NAMED_RANKS) {
        (void)snprintf(out, size, "%d ranks", l->n_ranks / l->pp);
        return;
    }
    at = snprintf(out, size, l->n_ranks == l->pp ? "rank" : "ranks");
    for (int r = 0, n = 0; r < l->n_ranks && (size_t)at < size; r++) {
        weft_i_mesh_place(l, r, coord);
        if (coord[WEFT_AXIS_PP] == stage)
            at += snprintf(out + at, size - (size_t)at, "%s %d", n++ > 0 ? "," : "", r);
    }
}

/* The map of a pipeline: which layers are where. */
static weft_status note_stages(const weft_train_session *s)
{
    const weft_layout *l = &s->mesh->layout;
    weft_stage_cut cut;
    if (l->pp == 1 || s->notes.line == NULL)
        return WEFT_OK;
    WEFT_TRY(weft_i_stage_cut_make(&cut, s->ctx->alloc, &s->source.hf.config, WEFT_STAGE_CUT_TOKENS,
                                   l->pp * l->n_chunks, l->stage_layers));
    for (int stage = 0; stage < l->pp; stage++) {
        char layers[NOTE_BYTES / 2] = "", ranks[128], part[96];
        int at = 0;
        name_ranks(l, stage, ranks, sizeof(ranks));
        for (int i = stage; i < cut.n && (size_t)at < sizeof(layers); i += l->pp) {
            weft_i_stage_cut_text(&cut, i, part, sizeof(part));
            at += snprintf(layers + at, sizeof(layers) - (size_t)at, "%s%s", at > 0 ? " | " : "",
                           part);
        }
        weft_i_train_note(s, "stage %d on %s: %s", stage, ranks, layers);
    }
    weft_i_stage_cut_fini(&cut);
    return WEFT_OK;
}

/* Of one rank; of several the report at the end has them all. */
static void note_memory(const weft_train_session *s)
{
    size_t taken[WEFT_MEM_COUNT];
    if (s->notes.line == NULL || s->mesh->world_size > 1)
        return;
    for (int i = 0; i < WEFT_MEM_COUNT; i++) {
        weft_alloc_count count;
        weft_i_alloc_counts(s->ctx->alloc, (weft_mem)i, &count);
        taken[i] = count.peak_bytes;
    }
    weft_i_train_plan_print(&s->plan, taken, s->notes.line, s->notes.user);
}

/* ---- taking ---- */

static weft_status take_trainer(weft_train_session *s)
{
    WEFT_TRY(weft_i_trainer_create(&s->trainer, s->mesh, &s->source, &s->settings,
                                   s->plan.workspace_bytes));
    if (s->resume_dir[0] != '\0') {
        const weft_checkpoint c = weft_i_train_checkpoint(s);
        WEFT_TRY(weft_i_checkpoint_restore(&c, s->resume_dir));
    }
    weft_i_source_unmap(&s->source);
    const bool is_reader = weft_i_parallel_is_reader(s->trainer->parallel);
    WEFT_TRY(weft_i_batch_reader_init(&s->reader, s->ctx->alloc, is_reader ? &s->sampler : NULL,
                                      s->settings.global_batch, s->settings.seq_length));
    if (s->job.data != NULL) {
        s->evaluating =
            (weft_eval_callbacks){.user = s, .should_stop = weft_i_train_is_evaluation_stopped};
        s->job.callbacks = &s->evaluating;
        WEFT_TRY(weft_i_evaluator_create(&s->evaluator, s->mesh, &s->job));
    }
    return WEFT_OK;
}

static weft_status open_out(weft_train_session *s)
{
    char path[WEFT_PATH_MAX];
    WEFT_TRY(weft_i_dir_make(s->options->out));
    WEFT_TRY(weft_i_out_lock(&s->lock, s->options->out));
    if (s->options->timeline[0] != '\0')
        WEFT_TRY(weft_i_file_check_place(s->options->timeline));
    WEFT_TRY(weft_i_path_join(path, s->options->out, "latest"));
    WEFT_TRY(weft_i_link_check_place(path));
    WEFT_TRY(weft_i_path_join(path, s->options->out, "metrics.jsonl"));
    return weft_i_metrics_open(&s->metrics, path, s->state.step);
}

/* The sum over all ranks of two of the plan's figures. */
static weft_status add_plans(weft_train_session *s)
{
    int64_t x[2] = {(int64_t)s->plan.total_bytes, (int64_t)s->plan.step_flops};
    WEFT_TRY(weft_i_mesh_sum(s->mesh, x, 2));
    s->all_bytes = x[0];
    s->all_flops = x[1];
    return WEFT_OK;
}

weft_status weft_i_train_session_take(weft_train_session *s)
{
    const uint64_t limit = (uint64_t)weft_i_alloc_bytes_of_mb(s->options->memory_limit_mb);
    WEFT_TRY(weft_i_mesh_agree(s->mesh,
                               weft_i_train_plan_make(&s->plan, s->mesh, &s->source, &s->settings,
                                                      s->job.data != NULL ? &s->job : NULL)));
    WEFT_TRY(add_plans(s));
    note_model(s);
    WEFT_TRY(weft_i_mesh_agree(s->mesh, note_stages(s)));
    WEFT_TRY(weft_i_mesh_agree(s->mesh,
                               weft_i_train_plan_check(&s->plan, limit, (uint64_t)s->all_bytes)));
    const weft_ctx_options like = {.n_threads = weft_i_pool_threads(s->ctx->pool)};
    if (strcmp(s->ctx->backend->ops->name, "cpu") == 0)
        WEFT_TRY(weft_i_backend_warm(&like));
    s->base_bytes = weft_i_env_resident_bytes();
    WEFT_TRY(weft_i_mesh_agree(s->mesh, WEFT_OK)); /* nobody takes before everybody has looked */
    WEFT_TRY(take_trainer(s));
    if (s->options->timeline[0] != '\0')
        WEFT_TRY(weft_i_mesh_agree(
            s->mesh, weft_i_step_record_reserve(
                         &s->mesh->record, s->ctx->alloc,
                         weft_i_step_picture_events(s->mesh, &s->plan, &s->settings))));
    WEFT_TRY(weft_i_mesh_agree_on_rank0(s->mesh, s->is_speaker ? open_out(s) : WEFT_OK));
    note_memory(s);
    return WEFT_OK;
}

void weft_i_train_session_close(weft_train_session *s)
{
    (void)weft_i_metrics_close(&s->metrics);
    weft_i_out_unlock(&s->lock);
    weft_i_evaluator_destroy(s->evaluator);
    weft_i_batch_reader_fini(&s->reader);
    weft_i_trainer_destroy(s->trainer);
    weft_i_trainer_state_fini(&s->state);
    weft_i_dataset_close(s->eval_data);
    weft_i_dataset_close(s->data);
    weft_i_tokenizer_close(s->tokenizer);
    weft_i_companions_close(&s->companions);
    weft_i_source_close(&s->source, s->ctx);
    weft_i_trainer_state_fini(&s->saved);
}
