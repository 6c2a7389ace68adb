/*
 * One forward, one backward: after a warm-up each rank alternates, so that few micro-batches are in flight.
 *
 * Source: Narayanan et al., "PipeDream", arXiv:1806.03377, sec. 3.2, with a flush (arXiv:2104.04473, sec. 2.2.1).
 * Invariant: rank r of p has min(p - r, m) micro-batches in flight at most.
 * Communication: none here (pipeline.c).
 */
#include "parallel/schedule.h"

#include "base/compiler.h"

weft_status weft_i_schedule_1f1b(weft_actions *out, const weft_schedule_shape *shape, int rank)
{
    const int m = shape->n_micro_batches;
    const int n_warm_up = WEFT_MIN(shape->n_stages - rank - 1, m);
    for (int i = 0; i < n_warm_up; i++)
        WEFT_TRY(weft_i_actions_add(out, WEFT_ACTION_FORWARD, i, 0));
    for (int i = 0; i < m - n_warm_up; i++) {
        WEFT_TRY(weft_i_actions_add(out, WEFT_ACTION_FORWARD, n_warm_up + i, 0));
        WEFT_TRY(weft_i_actions_add(out, WEFT_ACTION_BACKWARD, i, 0));
    }
    for (int i = m - n_warm_up; i < m; i++)
        WEFT_TRY(weft_i_actions_add(out, WEFT_ACTION_BACKWARD, i, 0));
    return WEFT_OK;
}
