/*
 * The choke point of all operations: arguments are checked, workspace is taken and work is counted here, once, for
 * every backend. So backends hold kernels only, and a dry run counts what a real run counts.
 */
#include "backend/run_op.h"

#include "backend/check_args.h"
#include "base/ctx.h"

weft_status weft_i_op_run(weft_backend *b, weft_op op, const void *args, weft_arena *workspace)
{
    size_t n_bytes = 0;
    void *scratch = NULL;
    WEFT_TRY(weft_i_ctx_alive(b->ctx));
    WEFT_TRY(weft_i_op_check(op, args));
    WEFT_TRY(b->ops->workspace_bytes(b, op, args, &n_bytes));
    if (n_bytes > 0 && workspace == NULL)
        WEFT_FAIL(WEFT_STATUS_INTERNAL, "%s needs %zu bytes of workspace and was given no arena",
                  weft_op_name(op), n_bytes);
    const size_t mark = workspace != NULL ? weft_i_arena_mark(workspace) : 0;
    if (n_bytes > 0)
        WEFT_TRY(weft_i_arena_get(workspace, n_bytes, &scratch));
    b->n_ops++;
    b->n_flops += weft_op_flops(op, args);
    const weft_status st = b->ops->run[op](b, args, scratch);
    if (workspace != NULL)
        weft_i_arena_reset(workspace, mark);
    return st;
}
