/*
 * The transport of one rank: a real one, always built, and the smallest example for authors of others.
 *
 * Every collective over one rank gives back what went in, so each call is a copy (nothing when in place). A message to
 * oneself is refused: nobody would ever receive it in order.
 * Communication: none.
 */
#include "weft/ext/comm.h"

#include <string.h>

#include "backend/run_op.h"
#include "base/ctx.h"
#include "base/error.h"

/* send -> recv, n_elems, through the backend unless both are the host's. */
static weft_status copy_message(weft_comm *c, const weft_message *m)
{
    const size_t n_bytes = (size_t)m->n_elems * weft_dtype_bytes(m->dtype);
    if (m->send == m->recv || n_bytes == 0)
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
    if ((unsigned)m->op >= WEFT_COMM_OP_COUNT || m->n_elems < 0)
        WEFT_FAIL(WEFT_STATUS_ARG, "call %d over %lld elements is no call of a communicator",
                  (int)m->op, (long long)m->n_elems);
    if (m->op == WEFT_COMM_SEND || m->op == WEFT_COMM_RECV || m->peer != 0)
        WEFT_FAIL(WEFT_STATUS_ARG, "rank 0 of a group of one named peer %d for %s", m->peer,
                  m->tensor != NULL ? m->tensor : "a message");
    request->message = *m;
    request->sequence = c->n_calls++;
    return m->op == WEFT_COMM_BARRIER ? WEFT_OK : copy_message(c, m);
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
