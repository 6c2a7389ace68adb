/*
 * The transport of one rank: a real one, always built, and the smallest example for authors of others.
 *
 * Every collective over one rank gives back what went in, so each call is a copy (nothing when in place); a sum that starts
 * from what recv holds is one addition. A message to oneself is refused: nobody would ever receive it in order.
 * Communication: none.
 */
#include "weft/ext/comm.h"

#include <string.h>

#include "backend/run_op.h"
#include "base/clock.h"
#include "base/ctx.h"
#include "base/error.h"
#include "comm/message.h"
#include "comm/ordered_reduce.h"

/* recv = recv + send, through the backend unless both are the host's. */
static weft_status add_message(weft_comm *c, const weft_message *m)
{
    if (m->is_host) {
        const void *const send[1] = {m->send};
        for (int64_t done = 0; done < m->n_elems; done += WEFT_REDUCE_TILE_ELEMS)
            weft_i_reduce_onto((float *)m->recv + done, send, 1, done,
                               (int)WEFT_MIN(m->n_elems - done, (int64_t)WEFT_REDUCE_TILE_ELEMS));
        return WEFT_OK;
    }
    const weft_view recv = weft_view_make(m->recv, m->dtype, 1, m->n_elems);
    const weft_add_args add = {
        .dst = recv,
        .a = recv,
        .b = weft_view_make((void *)(uintptr_t)m->send, m->dtype, 1, m->n_elems)};
    return m->n_elems > 0 ? weft_i_op_run(c->ctx->backend, WEFT_OP_ADD, &add, NULL) : WEFT_OK;
}

/* send -> recv, n_elems, through the backend unless both are the host's. */
static weft_status copy_message(weft_comm *c, const weft_message *m)
{
    const size_t n_bytes = (size_t)m->n_elems * weft_dtype_bytes(m->dtype);
    if (m->send == m->recv || m->recv == NULL || n_bytes == 0)
        return WEFT_OK;
    if (m->is_host) {
        memcpy(m->recv, m->send, n_bytes);
        return WEFT_OK;
    }
    const weft_copy_args copy = {
        .dst = weft_view_make(m->recv, m->dtype, 1, m->n_elems),
        .src = weft_view_make((void *)(uintptr_t)m->send, m->dtype, 1, m->n_elems)};
    return weft_i_op_run(c->ctx->backend, WEFT_OP_COPY, &copy, NULL);
}

static weft_status start_self(weft_comm *c, const weft_message *m, weft_request *request)
{
    WEFT_TRY(weft_i_comm_check(c, m));
    request->message = *m;
    request->sequence = c->n_calls++;
    request->started_seconds = request->ready_seconds = weft_i_clock_seconds();
    if (m->is_added)
        WEFT_TRY(add_message(c, m));
    else if (m->op != WEFT_COMM_BARRIER)
        WEFT_TRY(copy_message(c, m));
    request->ended_seconds = weft_i_clock_seconds();
    return WEFT_OK;
}

static weft_status wait_self(weft_comm *c, weft_request *request)
{
    (void)c;
    (void)request;
    return WEFT_OK;
}

static void abort_self(weft_comm *c, weft_status status, const char *message)
{
    (void)c;
    (void)status;
    (void)message;
}

static void destroy_self(weft_comm *c)
{
    weft_i_alloc_put(c->ctx->alloc, c);
}

static const weft_comm_ops self_ops = {.name = "self",
                                       .is_ordered = true,
                                       .start = start_self,
                                       .wait = wait_self,
                                       .abort = abort_self,
                                       .destroy = destroy_self};

weft_status weft_comm_self_create(weft_comm **out, weft_ctx *ctx, const char *axis)
{
    void *p = NULL;
    *out = NULL;
    WEFT_TRY(weft_i_alloc_new(ctx->alloc, 1, sizeof(weft_comm), &p));
    weft_comm *c = p;
    c->ops = &self_ops;
    c->ctx = ctx;
    c->size = 1;
    c->axis = axis;
    *out = c;
    return WEFT_OK;
}
