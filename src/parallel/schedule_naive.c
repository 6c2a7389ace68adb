/*
 * Naive model parallelism as a schedule: micro-batches one after another, each forward through all stages and back.
 *
 * A rank may begin the next micro-batch as soon as its own backward is done, but the first stage's is the last of a
 * micro-batch: so one rank is active at a time.
 * Communication: none here (pipeline.c).
 */
#include "parallel/schedule.h"

weft_status weft_i_schedule_naive(weft_actions *out, const weft_schedule_shape *shape, int rank)
{
    (void)rank;
    for (int i = 0; i < shape->n_micro_batches; i++) {
        WEFT_TRY(weft_i_actions_add(out, WEFT_ACTION_FORWARD, i, 0));
        WEFT_TRY(weft_i_actions_add(out, WEFT_ACTION_BACKWARD, i, 0));
    }
    return WEFT_OK;
}
