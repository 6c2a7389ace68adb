/*
 * One round of training, and saving.
 *
 * A round is a step and what belongs to it: evaluation when it is due, the line of metrics, the caller's callback. Its time
 * is the step's alone.
 */
#include "train/train_session.h"

#include "base/clock.h"
#include "base/ctx.h"
#include "base/env.h"

#include <math.h>

#define SAVE_LEAST_SECONDS 0.5
#define SAVE_MARGIN 1.5 /* a save may take longer than the last one did */

/* ---- stopping ---- */

bool weft_i_train_is_time_over(const weft_train_session *s, double next_seconds)
{
    const double limit = s->options->max_minutes * 60.0;
    if (limit <= 0.0)
        return false;
    const double elapsed = weft_i_clock_seconds() - s->timing.start;
    const double save_seconds = fmax(s->timing.save_seconds * SAVE_MARGIN, SAVE_LEAST_SECONDS);
    return elapsed + next_seconds + save_seconds > limit;
}

weft_status weft_i_train_ask_stop(weft_train_session *s, bool *is_stopping)
{
    enum { GO_ON, ASKED, TIME_OVER };
    int64_t word = GO_ON;
    if (s->is_speaker && s->callbacks->should_stop != NULL &&
        s->callbacks->should_stop(s->callbacks->user))
        word = ASKED;
    else if (s->is_speaker && weft_i_train_is_time_over(s, s->timing.round_seconds))
        word = TIME_OVER;
    WEFT_TRY(weft_i_parallel_from_rank0(s->trainer->parallel, &word));
    if (word == ASKED)
        weft_i_train_note(s, "asked to stop after step %lld", (long long)s->state.step);
    if (word == TIME_OVER)
        weft_i_train_note(s, "stopping after step %lld: --max-minutes %g is nearly over",
                          (long long)s->state.step, s->options->max_minutes);
    *is_stopping = word != GO_ON;
    return WEFT_OK;
}

bool weft_i_train_is_evaluation_stopped(void *session)
{
    const weft_train_session *s = session;
    if (!s->is_speaker)
        return false; /* rank 0 asks for all */
    return (s->callbacks->should_stop != NULL && s->callbacks->should_stop(s->callbacks->user)) ||
           weft_i_train_is_time_over(s, 0.0);
}

/* ---- saving ---- */

weft_checkpoint weft_i_train_checkpoint(const weft_train_session *s)
{
    const weft_trainer *t = s->trainer;
    return (weft_checkpoint){
        .ctx = s->ctx,
        .mesh = s->mesh,
        .model = t->model,
        .owned = weft_i_parallel_owned(t->parallel),
        .values = weft_i_parallel_values(t->parallel),
        .states = weft_i_parallel_states(t->parallel),
        .optimizer = t->optimizer,
        .save_dtype = weft_i_train_settings_save_dtype(&s->settings, s->source.dtype),
        .source = &s->source,
        .companions = &s->companions,
        .out = s->options->out,
        .state = &s->state,
        .keep = s->options->keep_checkpoints,
        .shard_bytes = WEFT_CHECKPOINT_SHARD_BYTES,
    };
}

weft_status weft_i_train_save(weft_train_session *s)
{
    const double start = weft_i_clock_seconds();
    const weft_checkpoint c = weft_i_train_checkpoint(s);
    WEFT_TRY(weft_i_checkpoint_save(&c));
    s->timing.save_seconds = weft_i_clock_seconds() - start;
    weft_i_train_note(s, "saved %s/checkpoint-%lld in %.2f s", s->options->out,
                      (long long)s->state.step, s->timing.save_seconds);
    return WEFT_OK;
}

/* ---- one round: step, evaluation, metrics ---- */

static bool is_due(int64_t step, int64_t interval)
{
    return interval > 0 && step % interval == 0;
}

static weft_status evaluate(weft_train_session *s, weft_train_step *line)
{
    weft_evaluation result;
    weft_eval_result mean;
    const weft_status st =
        weft_i_evaluator_run(&result, s->evaluator, s->trainer->parallel, s->trainer->run);
    if (st != WEFT_OK)
        return weft_i_error_prefix(st, "evaluation after step %lld", (long long)line->step);
    if (result.n_targets < s->job.n_tokens - 1) {
        weft_i_train_note(s, "the evaluation after step %lld was cut short: it is not reported",
                          (long long)line->step);
        return WEFT_OK;
    }
    weft_i_evaluation_result(&mean, &result);
    line->eval_loss = mean.loss;
    line->eval_tokens = result.n_targets;
    return WEFT_OK;
}

static void
fill_line(const weft_train_session *s, const weft_train_outcome *o, weft_train_step *line)
{
    weft_alloc_count memory;
    weft_i_alloc_total(s->ctx->alloc, &memory);
    line->step = s->state.step;
    line->train_steps = s->settings.train_steps;
    line->loss = o->loss;
    line->lr = o->lr;
    line->grad_norm = o->grad_norm;
    line->tokens = s->settings.global_batch * s->settings.seq_length;
    line->total_tokens = s->state.total_tokens;
    line->batch_hash = s->reader.hash;
    line->tokens_per_second = (double)line->tokens / line->seconds;
    line->gflops = (double)s->all_flops / line->seconds / 1e9;
    line->memory_bytes = (double)memory.peak_bytes; /* of rank 0 */
    line->resident_bytes = (double)weft_i_env_resident_bytes();
    line->eval_loss = (double)NAN;
    line->eval_tokens = 0;
}

weft_status weft_i_train_round(weft_train_session *s)
{
    weft_train_timing *t = &s->timing;
    weft_train_batch batch;
    weft_train_outcome outcome;
    weft_train_step line = {.step = s->state.step + 1};
    const double start = weft_i_clock_seconds();
    WEFT_TRY(weft_i_batch_reader_read(&s->reader, s->state.next_sample, &batch));
    weft_i_report_begin_step(&s->report, s->mesh);
    WEFT_TRY(weft_i_trainer_step(s->trainer, line.step, &batch, &outcome));
    s->state.step = line.step;
    s->state.next_sample += batch.n_seqs;
    s->state.total_tokens += batch.n_seqs * batch.n_tokens;
    line.seconds = fmax(weft_i_clock_seconds() - start, 1e-9);
    weft_i_report_end_step(&s->report, s->mesh, line.seconds);
    t->step_seconds =
        t->step_seconds == 0.0 ? line.seconds : 0.9 * t->step_seconds + 0.1 * line.seconds;
    fill_line(s, &outcome, &line);
    line.seconds_left = t->step_seconds * (double)(s->settings.train_steps - line.step);
    if (s->evaluator != NULL &&
        (is_due(line.step, s->options->eval_interval) || line.step == s->settings.train_steps))
        WEFT_TRY(evaluate(s, &line));
    if (s->is_speaker) {
        WEFT_TRY(weft_i_metrics_write(&s->metrics, &line));
        if (s->callbacks->step != NULL)
            s->callbacks->step(s->callbacks->user, &line);
    }
    t->round_seconds = fmax(t->round_seconds, weft_i_clock_seconds() - start);
    return WEFT_OK;
}
