/*
 * Counts the calls that start and the bytes they send, by operation.
 *
 * The bytes are the convention's (comm/message.h), not a transport's: so a run's traffic is compared with the formulas
 * exactly, on any transport.
 * Communication: none of its own.
 */
#include "comm/message.h"
#include "comm/wrap/wrapper.h"

typedef struct count_comm {
    weft_wrapper wrapper;
    weft_comm_count count[WEFT_COMM_OP_COUNT];
} count_comm;

static weft_status start_count(weft_comm *c, const weft_message *m, weft_request *request)
{
    count_comm *const counter = (count_comm *)(void *)c;
    WEFT_TRY(weft_i_wrapper_start(c, m, request));
    counter->count[m->op].n_calls++;
    counter->count[m->op].sent_bytes += weft_i_comm_sent_bytes(m, c->size, c->rank);
    return WEFT_OK;
}

static const weft_comm_ops count_ops = {.name = "count",
                                        .start = start_count,
                                        .wait = weft_i_wrapper_wait,
                                        .abort = weft_i_wrapper_abort,
                                        .destroy = weft_i_wrapper_destroy};

weft_status weft_i_count_create(weft_comm **out, weft_comm *take_inner)
{
    void *p = NULL;
    *out = NULL;
    WEFT_TRY(weft_i_wrapper_new(&p, sizeof(count_comm), &count_ops, take_inner));
    *out = p;
    return WEFT_OK;
}

weft_comm_count weft_i_count_get(const weft_comm *counter, weft_comm_op op)
{
    const count_comm *const c = (const count_comm *)(const void *)counter;
    if (op != WEFT_COMM_OP_COUNT)
        return c->count[op];
    weft_comm_count sum = {0};
    for (int i = 0; i < WEFT_COMM_OP_COUNT; i++) {
        sum.n_calls += c->count[i].n_calls;
        sum.sent_bytes += c->count[i].sent_bytes;
    }
    return sum;
}

void weft_i_count_reset(weft_comm *counter)
{
    count_comm *const c = (count_comm *)(void *)counter;
    for (int i = 0; i < WEFT_COMM_OP_COUNT; i++)
        c->count[i] = (weft_comm_count){0};
}
