/*
 * What all wrappers share. A request's `impl` belongs to the innermost transport; a wrapper may change its times (pace_comm.c)
 * or answer it without the transport (fault.c).
 * Communication: what goes through.
 */
#include "comm/wrap/wrapper.h"

#include "base/ctx.h"

weft_status
weft_i_wrapper_new(void **out, size_t n_bytes, const weft_comm_ops *ops, weft_comm *take_inner)
{
    const weft_status st = weft_i_alloc_new(take_inner->ctx->alloc, 1, n_bytes, out);
    if (st != WEFT_OK) {
        weft_comm_destroy(take_inner);
        return st;
    }
    weft_wrapper *const w = *out;
    w->base = *take_inner; /* rank, size, axis, context */
    w->ops = *ops;
    w->ops.is_ordered = take_inner->ops->is_ordered;
    w->base.ops = &w->ops;
    w->inner = take_inner;
    return WEFT_OK;
}

weft_comm *weft_i_wrapper_inner(const weft_comm *c)
{
    return ((const weft_wrapper *)(const void *)c)->inner;
}

weft_status weft_i_wrapper_start(weft_comm *c, const weft_message *m, weft_request *request)
{
    weft_comm *const inner = weft_i_wrapper_inner(c);
    const weft_status st = inner->ops->start(inner, m, request);
    c->n_calls = inner->n_calls;
    return st;
}

weft_status weft_i_wrapper_wait(weft_comm *c, weft_request *request)
{
    weft_comm *const inner = weft_i_wrapper_inner(c);
    return inner->ops->wait(inner, request);
}

void weft_i_wrapper_abort(weft_comm *c, weft_status status, const char *message)
{
    weft_comm *const inner = weft_i_wrapper_inner(c);
    inner->ops->abort(inner, status, message);
}

void weft_i_wrapper_destroy(weft_comm *c)
{
    weft_comm_destroy(weft_i_wrapper_inner(c));
    weft_i_alloc_put(c->ctx->alloc, c);
}
