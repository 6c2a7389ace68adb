/*
 * Holds calls back as a stated link would, so that a layout's time shows where links are faster than stated.
 *
 * A rank's link carries one call at a time, in the order in which they could begin. A rank may wait for its calls in
 * another order, and much later; the times are worked out when it does. So the link keeps the spans that calls took, and
 * a call is poured into what is free from the moment its last rank had come: all of it is taken then up to the call's end,
 * which is the one span that is written down. Neighbours are joined, so the list stays short; where it would not, the two
 * oldest spans become one, which can only make a link slower than stated.
 * Communication: none of its own.
 */
#include "base/compiler.h"
#include "base/ctx.h"
#include "comm/message.h"
#include "comm/wrap/wrapper.h"

#include <string.h>

typedef struct pace_comm {
    weft_wrapper wrapper;
    weft_pace_link *link;
} pace_comm;

/* Removes spans [at, at + n). */
static void remove_spans(weft_pace_link *link, int at, int n)
{
    memmove(&link->busy[at], &link->busy[at + n],
            (size_t)(link->n_busy - at - n) * sizeof(link->busy[0]));
    link->n_busy -= n;
}

static void insert_span(weft_pace_link *link, int at, weft_pace_busy span)
{
    if (link->n_busy == WEFT_PACE_MAX_BUSY) {
        link->busy[0].to = link->busy[1].to;
        remove_spans(link, 1, 1);
        at = WEFT_MAX(at - 1, 0);
        if (at == 0 && span.from < link->busy[0].to) { /* older than what is kept */
            link->busy[0].from = WEFT_MIN(link->busy[0].from, span.from);
            return;
        }
    }
    memmove(&link->busy[at + 1], &link->busy[at],
            (size_t)(link->n_busy - at) * sizeof(link->busy[0]));
    link->busy[at] = span;
    link->n_busy++;
}

/* Takes `seconds` of what is free from `ready` on. @return the end */
static double take_link(weft_pace_link *link, double ready, double seconds)
{
    int first = 0;
    while (first < link->n_busy && link->busy[first].to < ready)
        first++;
    double from = ready, end = ready, left = seconds;
    int n = 0; /* spans that the call meets: they are joined with it */
    for (; first + n < link->n_busy; n++) {
        const weft_pace_busy *const b = &link->busy[first + n];
        const double gap = b->from - end;
        if (gap >= left)
            break;
        left -= WEFT_MAX(gap, 0.0);
        from = WEFT_MIN(from, b->from);
        end = b->to;
    }
    end += left;
    remove_spans(link, first, n);
    insert_span(link, first, (weft_pace_busy){.from = from, .to = end});
    return end;
}

static double seconds_of(const weft_pace_link *link, const weft_message *m, int size, int rank)
{
    const uint64_t sent = weft_i_comm_sent_bytes(m, size, rank);
    const uint64_t received = weft_i_comm_received_bytes(m, size, rank);
    const double bytes = (double)WEFT_MAX(sent, received);
    return link->latency_s + (link->bytes_per_s > 0.0 ? bytes / link->bytes_per_s : 0.0);
}

static weft_status wait_pace(weft_comm *c, weft_request *request)
{
    weft_pace_link *const link = ((pace_comm *)(void *)c)->link;
    WEFT_TRY(weft_i_wrapper_wait(c, request));
    const weft_message *const m = &request->message;
    if (m->is_host || c->size == 1)
        return WEFT_OK;
    const double seconds = seconds_of(link, m, c->size, c->rank);
    if (!(seconds > 0.0))
        return WEFT_OK;
    request->ended_seconds = take_link(link, request->ready_seconds, seconds);
    request->ready_seconds = request->ended_seconds - seconds;
    return weft_i_ctx_sleep_until(c->ctx, request->ended_seconds);
}

static const weft_comm_ops pace_ops = {.name = "pace",
                                       .start = weft_i_wrapper_start,
                                       .wait = wait_pace,
                                       .abort = weft_i_wrapper_abort,
                                       .destroy = weft_i_wrapper_destroy};

weft_status weft_i_pace_comm_create(weft_comm **out, weft_comm *take_inner, weft_pace_link *link)
{
    void *p = NULL;
    *out = NULL;
    WEFT_TRY(weft_i_wrapper_new(&p, sizeof(pace_comm), &pace_ops, take_inner));
    ((pace_comm *)p)->link = link;
    *out = p;
    return WEFT_OK;
}
