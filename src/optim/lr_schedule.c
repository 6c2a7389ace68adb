/*
 * Learning-rate schedules: pure functions of the step (formulas in the header).
 *
 * Sources: cosine arXiv:1608.03983 without restarts; wsd arXiv:2404.06395. The warm-up counts as Megatron-LM's does: the
 * decay starts where it ends, and decay_steps is counted from the start of the run.
 *
 * Invariant: the rate of a step depends on nothing but the step and the settings.
 */
#include "optim/lr_schedule.h"

#include <math.h>
#include <string.h>

#define PI 3.14159265358979323846

weft_status weft_i_lr_kind_from_name(weft_lr_kind *out, const char *name)
{
    static const char *const names[] = {"constant", "linear", "cosine", "wsd"};
    for (size_t i = 0; i < WEFT_COUNT_OF(names); i++) {
        if (strcmp(name, names[i]) == 0) {
            *out = (weft_lr_kind)i;
            return WEFT_OK;
        }
    }
    WEFT_FAIL(WEFT_STATUS_ARG, "lr_schedule \"%s\" is none of constant, linear, cosine, wsd", name);
}

weft_status weft_i_lr_schedule_check(const weft_lr_schedule *s)
{
    if (!isfinite(s->lr) || s->lr < 0.0 || !isfinite(s->min_lr) || s->min_lr < 0.0)
        WEFT_FAIL(WEFT_STATUS_ARG, "lr %g and min_lr %g must be finite and not negative", s->lr,
                  s->min_lr);
    if (s->min_lr > s->lr && s->kind != WEFT_LR_CONSTANT)
        WEFT_FAIL(WEFT_STATUS_ARG, "min_lr %g is greater than lr %g", s->min_lr, s->lr);
    if (s->train_steps < 1 || s->warmup_steps < 0 || s->decay_steps < 0)
        WEFT_FAIL(WEFT_STATUS_ARG,
                  "train_steps %lld must be at least 1, lr_warmup_steps %lld and lr_decay_steps "
                  "%lld not negative",
                  (long long)s->train_steps, (long long)s->warmup_steps, (long long)s->decay_steps);
    if ((s->kind == WEFT_LR_LINEAR || s->kind == WEFT_LR_COSINE) && s->decay_steps > 0 &&
        s->decay_steps <= s->warmup_steps)
        WEFT_FAIL(WEFT_STATUS_ARG,
                  "lr_decay_steps %lld counts from the start of the run and must be greater than "
                  "lr_warmup_steps %lld",
                  (long long)s->decay_steps, (long long)s->warmup_steps);
    return WEFT_OK;
}

/* The share of the decay from step `start` to step `end` that is done at step t. */
static double done(int64_t t, int64_t start, int64_t end)
{
    if (t >= end)
        return 1.0;
    return t <= start ? 0.0 : (double)(t - start) / (double)(end - start);
}

double weft_i_lr_schedule_at(const weft_lr_schedule *s, int64_t step)
{
    if (step <= s->warmup_steps)
        return s->lr * (double)step / (double)s->warmup_steps;
    const double range = s->lr - s->min_lr;
    const int64_t end = s->decay_steps > 0 ? s->decay_steps : s->train_steps;
    switch (s->kind) {
    case WEFT_LR_CONSTANT:
        return s->lr;
    case WEFT_LR_LINEAR:
        return s->min_lr + range * (1.0 - done(step, s->warmup_steps, end));
    case WEFT_LR_COSINE:
        return s->min_lr + range * 0.5 * (1.0 + cos(PI * done(step, s->warmup_steps, end)));
    case WEFT_LR_WSD: {
        const int64_t tenth = WEFT_MAX(s->train_steps / 10, 1);
        const int64_t length = s->decay_steps > 0 ? s->decay_steps : tenth;
        const int64_t start = WEFT_MAX(s->train_steps - length, s->warmup_steps);
        return s->min_lr + range * (1.0 - done(step, start, s->train_steps));
    }
    }
    return s->lr;
}
