/* The learning rate as a function of the optimizer step alone, so that a resumed run goes on exactly. */
#ifndef WEFT_OPTIM_LR_SCHEDULE_H
#define WEFT_OPTIM_LR_SCHEDULE_H

#include <stdint.h>

#include "base/error.h"

typedef enum weft_lr_kind {
    WEFT_LR_CONSTANT,
    WEFT_LR_LINEAR,
    WEFT_LR_COSINE,
    WEFT_LR_WSD /* warm-up, stable, decay (arXiv:2404.06395) */
} weft_lr_kind;

/**
 * With t the step from 1, W the warm-up, D the end of the decay, and x = (t - W) / (D - W) cut to [0, 1]:
 *
 *   t <= W     lr * t / W                                        all kinds
 *   constant   lr
 *   linear     min_lr + (lr - min_lr) * (1 - x)                  D = decay_steps, 0 = train_steps
 *   cosine     min_lr + (lr - min_lr) * (1 + cos(pi * x)) / 2    D = decay_steps, 0 = train_steps
 *   wsd        as linear with D = train_steps and D - decay_steps (not before W) in the place of W; decay_steps 0 = a
 *              tenth of train_steps, at least 1
 *
 * So the full rate stands at step W and min_lr at step D and after it. Steps are optimizer steps: neither micro-batches
 * nor ranks count.
 */
typedef struct weft_lr_schedule {
    weft_lr_kind kind;
    double lr;
    double min_lr;
    int64_t warmup_steps;
    int64_t decay_steps;
    int64_t train_steps;
} weft_lr_schedule;

/** @return WEFT_OK | ARG no schedule of that name */
weft_status weft_i_lr_kind_from_name(weft_lr_kind *out, const char *name);

/**
 * Whether the numbers make a schedule.
 *
 * @return WEFT_OK | ARG a rate that is negative or not finite, min_lr over lr, a warm-up that a stated decay leaves no room for
 */
weft_status weft_i_lr_schedule_check(const weft_lr_schedule *s);

/** The rate of step t >= 1. */
double weft_i_lr_schedule_at(const weft_lr_schedule *s, int64_t step);

#endif
