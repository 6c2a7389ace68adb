/*
 * Pipeline schedules by name (contract: schedule.h). Each schedule's rule is in a file of its own.
 * Communication: none; these are pure functions.
 */
#include "parallel/schedule.h"

#include "base/error.h"

#include <string.h>

typedef weft_status schedule_fn(weft_actions *out, const weft_schedule_shape *shape, int rank);

static const struct {
    const char *name;
    schedule_fn *make;
    bool is_split;
} schedules[WEFT_SCHEDULE_COUNT] = {
    [WEFT_SCHEDULE_NAIVE] = {"naive", weft_i_schedule_naive, false},
    [WEFT_SCHEDULE_GPIPE] = {"gpipe", weft_i_schedule_gpipe, false},
    [WEFT_SCHEDULE_1F1B] = {"1f1b", weft_i_schedule_1f1b, false},
    [WEFT_SCHEDULE_INTERLEAVED] = {"interleaved", weft_i_schedule_interleaved, false},
    [WEFT_SCHEDULE_ZB_H1] = {"zb-h1", weft_i_schedule_zb_h1, true},
    [WEFT_SCHEDULE_ZB_H2] = {"zb-h2", weft_i_schedule_zb_h2, true},
};

const char *weft_i_schedule_name(weft_schedule_kind kind)
{
    return schedules[kind].name;
}

int weft_i_schedule_usual_chunks(weft_schedule_kind kind)
{
    return kind == WEFT_SCHEDULE_INTERLEAVED ? 2 : 1;
}

weft_status weft_i_schedule_from_name(weft_schedule_kind *out, const char *name)
{
    for (int i = 0; i < WEFT_SCHEDULE_COUNT; i++) {
        if (strcmp(name, schedules[i].name) == 0) {
            *out = (weft_schedule_kind)i;
            return WEFT_OK;
        }
    }
    WEFT_FAIL(WEFT_STATUS_ARG,
              "schedule \"%s\" is none of naive, gpipe, 1f1b, interleaved, zb-h1, zb-h2", name);
}

bool weft_i_schedule_is_split(weft_schedule_kind kind)
{
    return schedules[kind].is_split;
}

weft_status weft_i_schedule_check(const weft_schedule_shape *s)
{
    if (s->n_stages < 1 || s->n_micro_batches < 1 || s->n_chunks < 1)
        WEFT_FAIL(WEFT_STATUS_ARG,
                  "a schedule needs at least one stage, micro-batch and chunk, and had %d, %d, %d",
                  s->n_stages, s->n_micro_batches, s->n_chunks);
    if (s->n_chunks > 1 && s->kind != WEFT_SCHEDULE_INTERLEAVED)
        WEFT_FAIL(WEFT_STATUS_ARG, "%d chunks a stage need the schedule interleaved, not %s",
                  s->n_chunks, schedules[s->kind].name);
    return WEFT_OK;
}

weft_status weft_i_schedule_make(weft_actions *out,
                                 weft_alloc *alloc,
                                 const weft_schedule_shape *shape,
                                 int rank)
{
    *out = (weft_actions){.alloc = alloc};
    WEFT_TRY(weft_i_schedule_check(shape));
    if (rank < 0 || rank >= shape->n_stages)
        WEFT_FAIL(WEFT_STATUS_ARG, "rank %d is none of the pipeline's %d", rank, shape->n_stages);
    const weft_status st = schedules[shape->kind].make(out, shape, rank);
    if (st != WEFT_OK)
        weft_i_actions_fini(out);
    return st;
}

void weft_i_actions_fini(weft_actions *a)
{
    if (a->alloc != NULL)
        weft_i_alloc_put(a->alloc, a->action);
    a->action = NULL;
    a->n = 0;
}

weft_status weft_i_actions_add(weft_actions *a, weft_action_kind kind, int micro_batch, int chunk)
{
    void *list = a->action;
    WEFT_TRY(
        weft_i_alloc_grow(a->alloc, (size_t)a->n + 1, sizeof(weft_action), &a->capacity, &list));
    a->action = list;
    a->action[a->n++] = (weft_action){kind, micro_batch, chunk};
    return WEFT_OK;
}
