/*
 * The transport of a dry run: one rank of a group whose others are not there.
 *
 * The program that is planned is the program that will train, so it makes its calls here too; wrappers above count them.
 * Communication: none.
 * Invariants: 1. backend memory is never touched: its addresses may only count.
 *             2. what a real group would refuse on this rank alone is refused here.
 */
#include "comm/dry/dry_comm.h"

#include <string.h>

#include "base/clock.h"
#include "base/ctx.h"
#include "base/error.h"
#include "comm/message.h"

/* recv[to ...] = send[from ...], n elements; regions may be one and the same. */
static void copy_elems(const weft_message *m, int64_t to, int64_t from, int64_t n)
{
    const size_t b = weft_dtype_bytes(m->dtype);
    if (n > 0 && m->recv != NULL)
        memmove((char *)m->recv + (size_t)to * b, (const char *)m->send + (size_t)from * b,
                (size_t)n * b);
}

/* The own part [mine] of `send` into every part of recv. */
static void fill_parts(const weft_message *m, int size, int64_t mine, int64_t n_mine)
{
    int64_t start = 0;
    for (int r = 0; r < size; r++) {
        const int64_t n = weft_i_comm_part(m, size, r);
        copy_elems(m, start, mine, WEFT_MIN(n, n_mine));
        start += n;
    }
}

static void answer_host(const weft_comm *c, const weft_message *m)
{
    const bool is_root = m->peer == c->rank;
    const int64_t n_mine = weft_i_comm_part(m, c->size, c->rank);
    const int64_t start = weft_i_comm_part_start(m, c->size, c->rank);
    switch (m->op) {
    case WEFT_COMM_ALL_REDUCE:
        copy_elems(m, 0, 0, m->n_elems);
        break;
    case WEFT_COMM_BROADCAST:
    case WEFT_COMM_REDUCE:
        copy_elems(m, 0, 0, is_root ? m->n_elems : 0);
        break;
    case WEFT_COMM_REDUCE_SCATTER:
        if (m->is_added) {
            for (int64_t i = 0; i < n_mine; i++)
                ((float *)m->recv)[i] += ((const float *)m->send)[start + i];
        } else {
            copy_elems(m, 0, start, n_mine);
        }
        break;
    case WEFT_COMM_SCATTER:
        copy_elems(m, 0, start, is_root ? n_mine : 0);
        break;
    case WEFT_COMM_ALL_GATHER:
        fill_parts(m, c->size, 0, n_mine);
        break;
    case WEFT_COMM_GATHER:
        if (is_root)
            fill_parts(m, c->size, 0, n_mine);
        break;
    case WEFT_COMM_ALL_TO_ALL: {
        int64_t to = 0;
        for (int r = 0; r < c->size; r++) {
            const int64_t n = weft_i_comm_recv_part(m, c->size, c->rank, r);
            copy_elems(m, to, start, WEFT_MIN(n, n_mine));
            to += n;
        }
        break;
    }
    case WEFT_COMM_SEND:
    case WEFT_COMM_RECV:
    case WEFT_COMM_BARRIER:
    case WEFT_COMM_OP_COUNT:
        break;
    }
}

static weft_status start_dry(weft_comm *c, const weft_message *m, weft_request *request)
{
    WEFT_TRY(weft_i_comm_check(c, m));
    request->message = *m;
    request->sequence = c->n_calls++;
    request->started_seconds = request->ready_seconds = request->ended_seconds =
        weft_i_clock_seconds();
    if (m->is_host)
        answer_host(c, m);
    return WEFT_OK;
}

static weft_status wait_dry(weft_comm *c, weft_request *request)
{
    (void)c;
    (void)request;
    return WEFT_OK;
}

static void abort_dry(weft_comm *c, weft_status status, const char *message)
{
    (void)c;
    (void)status;
    (void)message;
}

static void destroy_dry(weft_comm *c)
{
    weft_i_alloc_put(c->ctx->alloc, c);
}

static const weft_comm_ops dry_ops = {.name = "dry",
                                      .is_ordered = true,
                                      .start = start_dry,
                                      .wait = wait_dry,
                                      .abort = abort_dry,
                                      .destroy = destroy_dry};

weft_status
weft_i_dry_comm_create(weft_comm **out, weft_ctx *ctx, int rank, int size, const char *axis)
{
    void *p = NULL;
    *out = NULL;
    if (size < 1 || rank < 0 || rank >= size)
        WEFT_FAIL(WEFT_STATUS_ARG, "there is no rank %d of %d over %s", rank, size, axis);
    WEFT_TRY(weft_i_alloc_new(ctx->alloc, 1, sizeof(weft_comm), &p));
    weft_comm *const c = p;
    *c = (weft_comm){.ops = &dry_ops, .ctx = ctx, .rank = rank, .size = size, .axis = axis};
    *out = c;
    return WEFT_OK;
}
