/* The picture of a run's last step (--timeline): what every rank did when. */
#ifndef WEFT_TRAIN_STEP_PICTURE_H
#define WEFT_TRAIN_STEP_PICTURE_H

#include "train/plan.h"

/** Events that a step of this rank has, at most: actions and calls. */
int64_t weft_i_step_picture_events(const weft_mesh *mesh,
                                   const weft_train_plan *plan,
                                   const weft_train_settings *settings);

/**
 * Gathers the events of the last step on rank 0, which draws them to `path`.
 *
 * @collective  world: 1 all_reduce of 1 I64, 1 gather of every rank's events, and agree on writing
 * @param[in] step  its number
 * @return      WEFT_OK | NOMEM | IO
 */
weft_status
weft_i_step_picture_write(weft_mesh *mesh, weft_parallel *parallel, int64_t step, const char *path);

#endif
