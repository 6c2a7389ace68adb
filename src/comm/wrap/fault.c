/*
 * Lets one call of this rank go wrong: fail, come late, or get lost.
 *
 * A lost collective cannot be told from a rank that stands still: nothing more leaves this rank, the others end by their
 * deadline, and this rank, which makes its calls in their order delay_s after it waits, learns of that. A lost SEND looks
 * sent to its sender, as it would on a wire.
 * Communication: none of its own.
 */
#include "base/clock.h"
#include "comm/message.h"
#include "comm/wrap/wrapper.h"

#define MAX_HELD 64

typedef struct fault_comm {
    weft_wrapper wrapper;
    weft_fault fault;
    uint64_t n_starts;            /* of this wrapper alone */
    uint64_t *n_calls;            /* what counts: the line above, or the caller's */
    weft_request *lost_send;      /* until it is waited for */
    weft_request *held[MAX_HELD]; /* the lost call and those after it, until one is waited for */
    int n_held;
} fault_comm;

static void let_pass(double seconds)
{
    weft_i_clock_sleep_until(weft_i_clock_seconds() + seconds);
}

/* Makes the calls that were held back, in their order. */
static weft_status make_held(fault_comm *f)
{
    weft_status st = WEFT_OK;
    let_pass(f->fault.delay_s);
    for (int i = 0; i < f->n_held && st == WEFT_OK; i++) {
        const weft_message m = f->held[i]->message;
        st = weft_i_wrapper_start(&f->wrapper.base, &m, f->held[i]);
    }
    f->n_held = 0;
    return st;
}

static weft_status hold(fault_comm *f, const weft_message *m, weft_request *request)
{
    if (f->n_held == MAX_HELD) {
        WEFT_TRY(make_held(f));
        return weft_i_wrapper_start(&f->wrapper.base, m, request);
    }
    request->message = *m;
    request->impl = NULL;
    f->held[f->n_held++] = request;
    return WEFT_OK;
}

static weft_status start_fault(weft_comm *c, const weft_message *m, weft_request *request)
{
    fault_comm *const f = (fault_comm *)(void *)c;
    const uint64_t call = (*f->n_calls)++;
    const weft_fault_kind kind = call == f->fault.at_call ? f->fault.kind : WEFT_FAULT_NONE;
    if (f->n_held > 0 || (kind == WEFT_FAULT_LOSE && m->op != WEFT_COMM_SEND))
        return hold(f, m, request);
    if (kind == WEFT_FAULT_FAIL)
        WEFT_FAIL(WEFT_STATUS_IO, "rank %d failed by injection at call %llu (%s of %s over %s)",
                  weft_i_comm_world_rank(c, c->rank), (unsigned long long)call,
                  weft_i_comm_op_name(m->op), weft_i_comm_tensor_name(m), c->axis);
    if (kind == WEFT_FAULT_DELAY)
        let_pass(f->fault.delay_s);
    if (kind != WEFT_FAULT_LOSE)
        return weft_i_wrapper_start(c, m, request);
    f->lost_send = request;
    request->message = *m;
    request->started_seconds = request->ready_seconds = request->ended_seconds =
        weft_i_clock_seconds();
    return WEFT_OK;
}

static weft_status wait_fault(weft_comm *c, weft_request *request)
{
    fault_comm *const f = (fault_comm *)(void *)c;
    if (request == f->lost_send) {
        f->lost_send = NULL;
        return WEFT_OK;
    }
    if (f->n_held > 0)
        WEFT_TRY(make_held(f));
    return weft_i_wrapper_wait(c, request);
}

static const weft_comm_ops fault_ops = {.name = "fault",
                                        .start = start_fault,
                                        .wait = wait_fault,
                                        .abort = weft_i_wrapper_abort,
                                        .destroy = weft_i_wrapper_destroy};

weft_status weft_i_fault_create(weft_comm **out, weft_comm *take_inner, const weft_fault *fault)
{
    void *p = NULL;
    *out = NULL;
    WEFT_TRY(weft_i_wrapper_new(&p, sizeof(fault_comm), &fault_ops, take_inner));
    fault_comm *const f = p;
    f->fault = *fault;
    f->n_calls = fault->n_calls != NULL ? fault->n_calls : &f->n_starts;
    *out = p;
    return WEFT_OK;
}
