/* A transport whose calls have the times that a test states: for the wrappers that measure and hold back. */
#ifndef WEFT_TESTS_TEST_COMM_TIMED_H
#define WEFT_TESTS_TEST_COMM_TIMED_H

#include "check.h"

#include "base/ctx.h"
#include "weft/ext/comm.h"

typedef struct timed_comm {
    weft_comm base;
    double started, ready, ended; /* of the next call that is waited for */
    double ready_at[64];          /* by message.tag, where it is not 0 */
} timed_comm;

static weft_status timed_start(weft_comm *c, const weft_message *m, weft_request *request)
{
    request->message = *m;
    request->sequence = c->n_calls++;
    request->started_seconds = ((timed_comm *)(void *)c)->started;
    return WEFT_OK;
}

static weft_status timed_wait(weft_comm *c, weft_request *request)
{
    const timed_comm *const t = (timed_comm *)(void *)c;
    const int tag = request->message.tag;
    request->ready_seconds = tag != 0 ? t->ready_at[tag] : t->ready;
    request->ended_seconds = tag != 0 ? t->ready_at[tag] : t->ended;
    return WEFT_OK;
}

static void timed_abort(weft_comm *c, weft_status status, const char *message)
{
    (void)c;
    (void)status;
    (void)message;
}

static void timed_destroy(weft_comm *c)
{
    (void)c; /* the test's own */
}

static const weft_comm_ops timed_ops = {.name = "timed",
                                        .is_ordered = true,
                                        .start = timed_start,
                                        .wait = timed_wait,
                                        .abort = timed_abort,
                                        .destroy = timed_destroy};

static inline timed_comm timed_make(weft_ctx *ctx, int rank, int size)
{
    return (timed_comm){
        .base = {.ops = &timed_ops, .ctx = ctx, .rank = rank, .size = size, .axis = "dp"}};
}

#endif
