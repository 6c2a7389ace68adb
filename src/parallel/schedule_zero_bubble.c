/*
 * Zero bubble: backward in two, so that weight gradients, which nobody waits for, fill the bubbles.
 *
 * Source: Qi et al., "Zero Bubble Pipeline Parallelism", arXiv:2401.10241: ZB-H1 (sec. 2.2, no more memory than 1F1B) and
 * ZB-H2 (sec. 2.3, twice the warm-up, no bubble when the three passes take equal times and m >= 2 p - 1).
 * Invariants: 1. a rank's W of a micro-batch comes after its I, in the order of micro-batches. 2. ZB-H1 holds at most
 * p - r micro-batches whole and r more for their weight gradients.
 * Communication: none here (pipeline.c).
 */
#include "parallel/schedule.h"

#include "base/compiler.h"

weft_status weft_i_schedule_zb_h1(weft_actions *out, const weft_schedule_shape *shape, int rank)
{
    const int m = shape->n_micro_batches;
    const int n_warm_up = WEFT_MIN(shape->n_stages - rank - 1, m);
    int weight = 0; /* the next one whose weight gradient is due */
    for (int i = 0; i < n_warm_up; i++)
        WEFT_TRY(weft_i_actions_add(out, WEFT_ACTION_FORWARD, i, 0));
    for (int i = 0; i < m - n_warm_up; i++) {
        WEFT_TRY(weft_i_actions_add(out, WEFT_ACTION_FORWARD, n_warm_up + i, 0));
        WEFT_TRY(weft_i_actions_add(out, WEFT_ACTION_INPUT, i, 0));
        if (i >= rank)
            WEFT_TRY(weft_i_actions_add(out, WEFT_ACTION_WEIGHT, weight++, 0));
    }
    for (int i = m - n_warm_up; i < m; i++) {
        WEFT_TRY(weft_i_actions_add(out, WEFT_ACTION_INPUT, i, 0));
        WEFT_TRY(weft_i_actions_add(out, WEFT_ACTION_WEIGHT, weight++, 0));
    }
    while (weight < m)
        WEFT_TRY(weft_i_actions_add(out, WEFT_ACTION_WEIGHT, weight++, 0));
    return WEFT_OK;
}

weft_status weft_i_schedule_zb_h2(weft_actions *out, const weft_schedule_shape *shape, int rank)
{
    const int m = shape->n_micro_batches;
    int forward = WEFT_MIN(2 * (shape->n_stages - rank) - 2, m);
    int weight = 0;
    for (int i = 0; i < forward; i++)
        WEFT_TRY(weft_i_actions_add(out, WEFT_ACTION_FORWARD, i, 0));
    for (int i = 0; i < m; i++) {
        if (forward < m)
            WEFT_TRY(weft_i_actions_add(out, WEFT_ACTION_FORWARD, forward++, 0));
        WEFT_TRY(weft_i_actions_add(out, WEFT_ACTION_INPUT, i, 0));
        if (i + 1 - weight > 2 * rank)
            WEFT_TRY(weft_i_actions_add(out, WEFT_ACTION_WEIGHT, weight++, 0));
    }
    while (weight < m)
        WEFT_TRY(weft_i_actions_add(out, WEFT_ACTION_WEIGHT, weight++, 0));
    return WEFT_OK;
}
