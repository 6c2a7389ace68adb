/* Hooks of a paced run: a layer takes as long as was stated. */
#ifndef WEFT_PARALLEL_PACE_H
#define WEFT_PARALLEL_PACE_H

#include "base/pace_spec.h"
#include "weft/context.h"
#include "weft/ext/layer.h"

/**
 * To stand last in the list of hooks: its time begins when the others have let a layer begin, and what they do after a
 * gradient or a layer begins when the stated time is over.
 *
 * @collective  none
 * @param[in] pace  outlives it
 * @return      WEFT_OK | NOMEM
 */
weft_status weft_i_pace_hooks_create(weft_hooks **out, weft_ctx *ctx, const weft_pace *pace);

/** The passes that go on are of this run. */
void weft_i_pace_hooks_bind(weft_hooks *hooks, const weft_exec *exec);
void weft_i_pace_hooks_destroy(weft_hooks *hooks);

#endif
