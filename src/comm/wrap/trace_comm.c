/*
 * Writes an event for every call, and measures what was not hidden.
 *
 * A call has three times of its own (weft_request): when it was started, when its last rank had come, when it had ended.
 * What a rank spends in wait between the last two is what computation did not hide; waiting for a late rank is none of the
 * communication's time, and is in `blocked` alone.
 *
 * An event is written when its call was waited for, so one that failed has none.
 * Communication: none of its own.
 */
#include "base/clock.h"
#include "base/compiler.h"
#include "comm/message.h"
#include "comm/wrap/wrapper.h"

#include <string.h>

typedef struct trace_comm {
    weft_wrapper wrapper;
    weft_trace *trace; /* NULL: nobody reads events */
    weft_comm_seconds seconds;
    weft_step_record *record; /* NULL: nobody draws */
} trace_comm;

static trace_comm *of(weft_comm *c)
{
    return (trace_comm *)(void *)c;
}

static weft_status start_trace(weft_comm *c, const weft_message *m, weft_request *request)
{
    const double before = weft_i_clock_seconds();
    const weft_status st = weft_i_wrapper_start(c, m, request);
    of(c)->seconds.blocked += weft_i_clock_seconds() - before;
    return st;
}

static weft_step_kind kind_of(const weft_comm *c)
{
    return strcmp(c->axis, "dp") == 0 ? WEFT_STEP_REDUCTION : WEFT_STEP_MESSAGE;
}

static weft_status wait_trace(weft_comm *c, weft_request *request)
{
    weft_comm_seconds *const seconds = &of(c)->seconds;
    const double before = weft_i_clock_seconds();
    const weft_status st = weft_i_wrapper_wait(c, request);
    seconds->blocked += weft_i_clock_seconds() - before;
    if (st != WEFT_OK)
        return st;
    const weft_message *const m = &request->message;
    const double ready = request->ready_seconds, end = request->ended_seconds;
    if (!m->is_host && end > ready) {
        seconds->moving += end - ready;
        seconds->exposed += WEFT_MAX(end - WEFT_MAX(ready, before), 0.0);
        if (of(c)->record != NULL)
            weft_i_step_record_add(of(c)->record, kind_of(c), ready, end);
    }
    const weft_trace_event event = {.name = weft_i_comm_op_name(m->op),
                                    .line = c->axis,
                                    .start_s = request->started_seconds,
                                    .end_s = end,
                                    .tensor = m->tensor,
                                    .axis = c->axis,
                                    .bytes = (int64_t)weft_i_comm_sent_bytes(m, c->size, c->rank)};
    weft_i_trace_add(of(c)->trace, &event);
    return WEFT_OK;
}

static const weft_comm_ops trace_ops = {.name = "trace",
                                        .start = start_trace,
                                        .wait = wait_trace,
                                        .abort = weft_i_wrapper_abort,
                                        .destroy = weft_i_wrapper_destroy};

weft_status weft_i_trace_comm_create(weft_comm **out, weft_comm *take_inner, weft_trace *t)
{
    void *p = NULL;
    *out = NULL;
    WEFT_TRY(weft_i_wrapper_new(&p, sizeof(trace_comm), &trace_ops, take_inner));
    ((trace_comm *)p)->trace = t;
    *out = p;
    return WEFT_OK;
}

void weft_i_trace_comm_record(weft_comm *traced, weft_step_record *record)
{
    of(traced)->record = record;
}

weft_comm_seconds weft_i_trace_comm_seconds(const weft_comm *traced)
{
    return ((const trace_comm *)(const void *)traced)->seconds;
}

void weft_i_trace_comm_reset(weft_comm *traced)
{
    of(traced)->seconds = (weft_comm_seconds){0};
}
