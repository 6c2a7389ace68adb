/*
 * What one rank did in a step (contract: step_record.h).
 *
 * Invariant: recording neither takes memory nor fails; what finds no room is counted.
 * Communication: none.
 */
#include "base/step_record.h"

#include "base/clock.h"
#include "base/compiler.h"

#include <string.h>

static int64_t nanoseconds(double seconds)
{
    return (int64_t)(seconds * 1e9);
}

weft_status weft_i_step_record_reserve(weft_step_record *r, weft_alloc *alloc, int64_t capacity)
{
    weft_i_step_record_fini(r);
    WEFT_TRY(weft_i_alloc_array(alloc, capacity, sizeof(*r->events), &r->events));
    r->alloc = alloc;
    r->capacity = capacity;
    return WEFT_OK;
}

void weft_i_step_record_fini(weft_step_record *r)
{
    if (r->events != NULL)
        weft_i_alloc_put(r->alloc, r->events);
    *r = (weft_step_record){0};
}

void weft_i_step_record_reset(weft_step_record *r)
{
    memset(r->chunk_ns, 0, sizeof(r->chunk_ns));
    memset(r->n_actions, 0, sizeof(r->n_actions));
    r->first_ns = r->last_ns = 0;
    r->n = r->n_lost = 0;
    r->is_open = true;
}

void weft_i_step_record_close(weft_step_record *r)
{
    r->is_open = false;
}

void weft_i_step_record_begin(weft_step_record *r)
{
    r->open_ns = nanoseconds(weft_i_clock_seconds());
}

static void add(weft_step_record *r, const weft_step_event *event)
{
    if (!r->is_open)
        return;
    if (r->n < r->capacity)
        r->events[r->n++] = *event;
    else
        r->n_lost++;
}

void weft_i_step_record_end(weft_step_record *r,
                            weft_step_kind kind,
                            int64_t micro_batch,
                            int64_t chunk)
{
    const int64_t now = nanoseconds(weft_i_clock_seconds());
    const weft_step_event event = {kind, micro_batch, chunk, r->open_ns, now};
    if (!r->is_open)
        return;
    if (r->first_ns == r->last_ns)
        r->first_ns = r->open_ns;
    r->last_ns = now;
    r->chunk_ns[WEFT_MIN(chunk, WEFT_STEP_CHUNKS - 1)][kind] += now - r->open_ns;
    r->n_actions[kind]++;
    add(r, &event);
}

void weft_i_step_record_add(weft_step_record *r, weft_step_kind kind, double start_s, double end_s)
{
    const weft_step_event event = {kind, -1, 0, nanoseconds(start_s), nanoseconds(end_s)};
    add(r, &event);
}
