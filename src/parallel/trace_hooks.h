/* Hooks that write what a rank computes to its trace: layers and weight gradients. */
#ifndef WEFT_PARALLEL_TRACE_HOOKS_H
#define WEFT_PARALLEL_TRACE_HOOKS_H

#include "base/trace.h"
#include "weft/context.h"
#include "weft/ext/layer.h"

/**
 * Events on the line "compute": "forward block 3", "backward block 3" (of a paced run: "paced forward block 3"), and within
 * a backward "weight gradient NAME" from grad_need to grad_ready. To stand after the methods whose waiting is no
 * computing, before pace. Takes no memory after its creation.
 *
 * @collective  none
 * @param[in] trace  outlives it
 * @return      WEFT_OK | NOMEM
 */
weft_status
weft_i_trace_hooks_create(weft_hooks **out, weft_ctx *ctx, weft_trace *trace, bool is_paced);

/** The passes that go on are of this run: parts of a split backward get names of their own. */
void weft_i_trace_hooks_bind(weft_hooks *hooks, const weft_exec *exec);
void weft_i_trace_hooks_destroy(weft_hooks *hooks);

#endif
