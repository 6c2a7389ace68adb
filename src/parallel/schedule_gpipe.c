/*
 * GPipe: all forwards, then all backwards.
 *
 * Source: Huang et al., "GPipe", arXiv:1811.06965, sec. 2.3; backwards in the order of forwards (the paper reverses them,
 * the length is the same).
 * Invariant: all m micro-batches are in flight at once.
 * Communication: none here (pipeline.c).
 */
#include "parallel/schedule.h"

weft_status weft_i_schedule_gpipe(weft_actions *out, const weft_schedule_shape *shape, int rank)
{
    (void)rank;
    for (int i = 0; i < shape->n_micro_batches; i++)
        WEFT_TRY(weft_i_actions_add(out, WEFT_ACTION_FORWARD, i, 0));
    for (int i = 0; i < shape->n_micro_batches; i++)
        WEFT_TRY(weft_i_actions_add(out, WEFT_ACTION_BACKWARD, i, 0));
    return WEFT_OK;
}
