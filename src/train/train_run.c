/*
 * weft_train_run: the loop over steps, with evaluation, saving and stopping (contract: weft/train.h).
 *
 * Invariants
 *  1. Between the first step and the last, weft's allocator hands out nothing but control memory while a checkpoint is
 *     written, and that is given back.
 *  2. A run that ends, by its length, by request or by the clock, leaves a checkpoint of its last step. A run that fails
 *     writes none: the last good one stays the newest.
 *  3. What a step computes depends on its number and the state before it alone; so stopping and resuming changes nothing.
 */
#include "train/step_picture.h"
#include "train/train_session.h"

#include "base/clock.h"
#include "base/ctx.h"
#include "base/env.h"
#include "base/file.h"
#include "nn/layout_context.h"
#include "parallel/ranks.h"
#include "weft/options.h"

#include <string.h>

#define SAVE_BYTES_PER_SECOND 1e8 /* before the first save has shown it */

/* ---- the loop ---- */

static weft_status run_steps(weft_train_session *s)
{
    const size_t saved_bytes =
        s->plan.bytes[WEFT_MEM_PARAMETERS] + s->plan.bytes[WEFT_MEM_OPTIMIZER];
    s->timing.save_seconds = (double)saved_bytes / SAVE_BYTES_PER_SECOND;
    int64_t saved_step = s->state.step;
    if (s->state.step >= s->settings.train_steps)
        weft_i_train_note(s, "nothing to do: the run has its %lld steps",
                          (long long)s->settings.train_steps);
    while (s->state.step < s->settings.train_steps) {
        WEFT_TRY(weft_i_train_round(s));
        if (s->options->save_interval > 0 && s->state.step % s->options->save_interval == 0) {
            WEFT_TRY(weft_i_train_save(s));
            saved_step = s->state.step;
        }
        bool is_stopping = false;
        if (s->state.step < s->settings.train_steps)
            WEFT_TRY(weft_i_train_ask_stop(s, &is_stopping));
        if (is_stopping)
            break;
    }
    return saved_step == s->state.step ? WEFT_OK : weft_i_train_save(s);
}

static void note_end(const weft_train_session *s, uint64_t resident_bytes)
{
    char planned[32], measured[32], above[32];
    const double extra = (double)resident_bytes - (double)s->base_bytes;
    weft_alloc_count memory;
    weft_i_alloc_total(s->ctx->alloc, &memory);
    if (s->mesh->world_size == 1)
        weft_i_train_note(
            s,
            "memory: planned peak %s bytes, measured peak %s bytes; resident less the base %s "
            "bytes (%.1f %% of the plan)",
            weft_i_str_thousands((int64_t)s->plan.total_bytes, planned, sizeof(planned)),
            weft_i_str_thousands((int64_t)memory.peak_bytes, measured, sizeof(measured)),
            weft_i_str_thousands((int64_t)extra, above, sizeof(above)),
            100.0 * extra / (double)s->all_bytes);
    else
        weft_i_train_note(
            s,
            "memory: planned for all ranks %s bytes; resident less the base %s bytes (%.1f %% of "
            "the plan)",
            weft_i_str_thousands(s->all_bytes, planned, sizeof(planned)),
            weft_i_str_thousands((int64_t)extra, above, sizeof(above)),
            100.0 * extra / (double)s->all_bytes);
}

/* Ranks' figures on rank 0, printed and in OUT/report.json. */
static weft_status report(weft_train_session *s)
{
    char path[WEFT_PATH_MAX];
    if (s->report.n_steps == 0) {
        if (s->options->timeline[0] != '\0')
            weft_i_train_note(s, "timeline: no step was made, and %s not written",
                              s->options->timeline);
        return WEFT_OK;
    }
    WEFT_TRY(weft_i_path_join(path, s->options->out, "report.json"));
    WEFT_TRY(
        weft_i_report_finish(&s->report, s->mesh, &s->plan, path, s->notes.line, s->notes.user));
    if (s->options->timeline[0] == '\0')
        return WEFT_OK;
    WEFT_TRY(weft_i_step_picture_write(s->mesh, s->trainer->parallel, s->state.step,
                                       s->options->timeline));
    weft_i_train_note(s, "timeline: step %lld in %s", (long long)s->state.step,
                      s->options->timeline);
    return WEFT_OK;
}

/* What all ranks share: the call's arguments. */
typedef struct train_call {
    const weft_train_options *options;
    const weft_train_callbacks *callbacks;
    double start;
} train_call;

static weft_status run_rank(void *user, weft_mesh *mesh)
{
    const train_call *call = user;
    weft_status st = WEFT_OK;
    weft_train_session s = {
        .options = call->options,
        .callbacks = call->callbacks,
        .timing = {.start = call->start},
        .mesh = mesh,
        .ctx = mesh->ctx,
        .is_speaker = mesh->world_rank == 0,
    };
    s.notes.user = s.callbacks->user;
    s.notes.line = s.is_speaker ? s.callbacks->note : NULL;
    WEFT_TRY_GOTO(st, weft_i_train_session_open(&s), out);
    WEFT_TRY_GOTO(st, weft_i_train_session_take(&s), out);
    WEFT_TRY_GOTO(st, run_steps(&s), out);
    note_end(&s, weft_i_env_resident_bytes());
    WEFT_TRY_GOTO(st, report(&s), out);
    st = weft_i_metrics_close(&s.metrics);
    s.metrics.file.fd = -1;
out:
    (void)weft_i_mesh_fail(mesh, st);
    weft_i_train_session_close(&s);
    return st;
}

/* A trace is opened before anything else is; where it lies under --out, that folder has to be there by then. */
static weft_status make_folder_of_trace(const char *trace, const char *out)
{
    size_t n = strlen(out);
    while (n > 0 && out[n - 1] == '/')
        n--;
    return strncmp(trace, out, n) == 0 && trace[n] == '/' ? weft_i_dir_make(out) : WEFT_OK;
}

weft_status weft_train_run(const weft_train_options *options,
                           const weft_ctx_options *ctx_options,
                           const weft_train_callbacks *callbacks)
{
    static const weft_train_callbacks none = {.user = NULL};
    train_call call = {
        .options = options,
        .callbacks = callbacks != NULL ? callbacks : &none,
        .start = weft_i_clock_seconds(),
    };
    weft_layout layout;
    weft_pace pace;
    WEFT_TRY(weft_options_check(WEFT_COMMAND_TRAIN, options));
    WEFT_TRY(weft_i_layout_make(&layout, &options->layout));
    WEFT_TRY(weft_i_layout_read_pace(&pace, &layout.pace, &options->layout));
    WEFT_TRY(make_folder_of_trace(layout.trace, options->out));
    return weft_i_ranks_run(&layout, &options->layout, ctx_options, run_rank, &call);
}
