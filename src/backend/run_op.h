/* The single way by which everything above the backends runs an operation. */
#ifndef WEFT_BACKEND_RUN_OP_H
#define WEFT_BACKEND_RUN_OP_H

#include "base/arena.h"
#include "weft/ext/backend.h"

/**
 * Checks the arguments (check_args.h), takes the operation's workspace from the arena, counts n_ops and n_flops, runs
 * the operation and gives the workspace back.
 *
 * @collective  none
 * @param[in] args       the argument struct of `op` (weft_OP_args)
 * @param     workspace  may be NULL for operations that need none
 * @return    WEFT_OK | ARG operation and shapes | INTERNAL the arena is too small | what the operation fails with
 */
weft_status weft_i_op_run(weft_backend *b, weft_op op, const void *args, weft_arena *workspace);

#endif
