/*
 * Event simulation of action lists (contract: schedule_sim.h). The deadlock check before a pipeline starts is this with
 * any times: lists that can end here end in any timing, since every action waits for data alone.
 *
 * Source: the rule of edges of arXiv:2401.10241, sec. 4; span is the cost of its tables 5 and 6.
 * Communication: none.
 */
#include "parallel/schedule_sim.h"

#include "base/compiler.h"

#include <stdio.h>

#define UNKNOWN (-1.0)

/* Ends of what has run: [stage][micro-batch], UNKNOWN before. */
typedef struct board {
    double *forward, *input; /* input: end of INPUT or BACKWARD */
    int n_micro_batches;
} board;

typedef struct simulation {
    weft_alloc *alloc;
    const weft_schedule_shape *shape;
    const weft_sim_times *times;
    int n_times;
    weft_actions *lists; /* [ranks] */
    int64_t *next;       /* [ranks] */
    double *clock;       /* [ranks] */
    board board;
} simulation;

static double *cell(const board *b, double *table, int stage, int micro_batch)
{
    return &table[(int64_t)stage * b->n_micro_batches + micro_batch];
}

static int n_stages(const simulation *s)
{
    return s->shape->n_stages * s->shape->n_chunks;
}

static int rank_of(const simulation *s, int stage)
{
    return stage % s->shape->n_stages;
}

/* Of an action, or of the whole stage that its chunk has a share in. */
static const weft_sim_times *times_of(const simulation *s, int stage)
{
    return &s->times[stage % s->n_times];
}

/* When what an action needs is there; UNKNOWN when it is not known yet. */
static double ready_at(const simulation *s, int rank, const weft_action *a)
{
    const board *b = &s->board;
    const int stage = a->chunk * s->shape->n_stages + rank;
    const double comm = times_of(s, stage)->comm;
    double at = 0.0;
    if (a->kind == WEFT_ACTION_WEIGHT)
        return *cell(b, b->input, stage, a->micro_batch);
    if (a->kind != WEFT_ACTION_FORWARD) {
        at = *cell(b, b->forward, stage, a->micro_batch);
        if (at < 0.0)
            return UNKNOWN;
    }
    const int other = a->kind == WEFT_ACTION_FORWARD ? stage - 1 : stage + 1;
    if (other < 0 || other >= n_stages(s))
        return at;
    double *table = a->kind == WEFT_ACTION_FORWARD ? b->forward : b->input;
    const double end = *cell(b, table, other, a->micro_batch);
    if (end < 0.0)
        return UNKNOWN;
    return WEFT_MAX(at, end + (rank_of(s, other) != rank ? comm : 0.0));
}

static double duration_of(const simulation *s, int stage, weft_action_kind kind)
{
    const weft_sim_times *t = times_of(s, stage);
    double whole = t->forward;
    if (kind == WEFT_ACTION_BACKWARD)
        whole = t->backward + t->weight;
    else if (kind == WEFT_ACTION_INPUT)
        whole = t->backward;
    else if (kind == WEFT_ACTION_WEIGHT)
        whole = t->weight;
    return s->n_times == n_stages(s) ? whole : whole / s->shape->n_chunks;
}

/* Runs as many of the rank's actions as can be; false when there was none. */
static bool advance(simulation *s, weft_sim *out, int rank)
{
    const weft_actions *list = &s->lists[rank];
    weft_sim_rank *r = &out->rank[rank];
    bool has_moved = false;
    while (s->next[rank] < list->n) {
        const weft_action *a = &list->action[s->next[rank]];
        const double ready = ready_at(s, rank, a);
        if (ready < 0.0)
            break;
        const int stage = a->chunk * s->shape->n_stages + rank;
        const double start = WEFT_MAX(ready, s->clock[rank]);
        const double end = start + duration_of(s, stage, a->kind);
        if (a->kind == WEFT_ACTION_FORWARD)
            *cell(&s->board, s->board.forward, stage, a->micro_batch) = end;
        else if (a->kind != WEFT_ACTION_WEIGHT)
            *cell(&s->board, s->board.input, stage, a->micro_batch) = end;
        r->event[r->n_events++] = (weft_sim_event){*a, start, end};
        r->busy += end - start;
        s->clock[rank] = end;
        s->next[rank]++;
        has_moved = true;
    }
    return has_moved;
}

static const char *kind_name(weft_action_kind kind)
{
    static const char *const names[] = {"forward", "backward", "input gradient", "weight gradient"};
    return names[kind];
}

/* Names where every rank stands. */
static weft_status deadlock(const simulation *s)
{
    char text[512] = "";
    size_t n = 0;
    for (int r = 0; r < s->shape->n_stages && n < sizeof(text); r++) {
        if (s->next[r] == s->lists[r].n)
            continue;
        const weft_action *a = &s->lists[r].action[s->next[r]];
        const int added =
            snprintf(text + n, sizeof(text) - n, "%srank %d at %s of micro-batch %d, chunk %d",
                     n > 0 ? "; " : "", r, kind_name(a->kind), a->micro_batch, a->chunk);
        n += added > 0 ? (size_t)added : 0;
    }
    WEFT_FAIL(WEFT_STATUS_LAYOUT,
              "the schedule %s of %d stages, %d micro-batches and %d chunks waits for itself: %s",
              weft_i_schedule_name(s->shape->kind), s->shape->n_stages, s->shape->n_micro_batches,
              s->shape->n_chunks, text);
}

static weft_status run_all(simulation *s, weft_sim *out)
{
    int64_t n_left = out->n_actions;
    while (n_left > 0) {
        bool has_moved = false;
        for (int r = 0; r < s->shape->n_stages; r++)
            has_moved = advance(s, out, r) || has_moved;
        if (!has_moved)
            return deadlock(s);
        n_left = 0;
        for (int r = 0; r < s->shape->n_stages; r++)
            n_left += s->lists[r].n - s->next[r];
    }
    return WEFT_OK;
}

/* ---- what came out ---- */

static void count_in_flight(weft_sim_rank *r, bool is_split)
{
    int whole = 0, input = 0;
    for (int64_t i = 0; i < r->n_events; i++) {
        const weft_action_kind kind = r->event[i].action.kind;
        if (kind == WEFT_ACTION_FORWARD) {
            whole++;
            input++;
            r->in_flight = WEFT_MAX(r->in_flight, whole);
            r->in_flight_input = WEFT_MAX(r->in_flight_input, input);
        }
        input -= kind == WEFT_ACTION_INPUT || kind == WEFT_ACTION_BACKWARD ? 1 : 0;
        whole -= kind == (is_split ? WEFT_ACTION_WEIGHT : WEFT_ACTION_BACKWARD) ? 1 : 0;
    }
}

static void measure(const simulation *s, weft_sim *out)
{
    const bool is_split = weft_i_schedule_is_split(s->shape->kind);
    for (int r = 0; r < out->n_ranks; r++) {
        weft_sim_rank *rank = &out->rank[r];
        count_in_flight(rank, is_split);
        const double start = rank->event[0].start, end = rank->event[rank->n_events - 1].end;
        out->makespan = WEFT_MAX(out->makespan, end);
        out->span = WEFT_MAX(out->span, end - start);
        out->ideal = WEFT_MAX(out->ideal, rank->busy);
    }
    out->idle_of_total = out->span > 0.0 ? 1.0 - out->ideal / out->span : 0.0;
    out->idle_of_ideal = out->ideal > 0.0 ? out->span / out->ideal - 1.0 : 0.0;
}

static weft_status take(simulation *s, weft_sim *out)
{
    const int p = s->shape->n_stages;
    const int64_t n_cells = (int64_t)n_stages(s) * s->shape->n_micro_batches;
    WEFT_TRY(weft_i_alloc_array(s->alloc, p, sizeof(weft_actions), &s->lists));
    WEFT_TRY(weft_i_alloc_array(s->alloc, p, sizeof(int64_t), &s->next));
    WEFT_TRY(weft_i_alloc_array(s->alloc, p, sizeof(double), &s->clock));
    WEFT_TRY(weft_i_alloc_array(s->alloc, n_cells, sizeof(double), &s->board.forward));
    WEFT_TRY(weft_i_alloc_array(s->alloc, n_cells, sizeof(double), &s->board.input));
    WEFT_TRY(weft_i_alloc_array(s->alloc, p, sizeof(weft_sim_rank), &out->rank));
    out->n_ranks = p;
    for (int64_t i = 0; i < n_cells; i++)
        s->board.forward[i] = s->board.input[i] = UNKNOWN;
    for (int r = 0; r < p; r++) {
        WEFT_TRY(weft_i_schedule_make(&s->lists[r], s->alloc, s->shape, r));
        WEFT_TRY(weft_i_alloc_array(s->alloc, s->lists[r].n, sizeof(weft_sim_event),
                                    &out->rank[r].event));
        out->n_actions += s->lists[r].n;
    }
    return WEFT_OK;
}

weft_status weft_i_sim_run(weft_sim *out,
                           weft_alloc *alloc,
                           const weft_schedule_shape *shape,
                           const weft_sim_times *times,
                           int n_times)
{
    simulation s = {.alloc = alloc, .shape = shape, .times = times, .n_times = n_times};
    weft_status st = WEFT_OK;
    *out = (weft_sim){.alloc = alloc};
    s.board.n_micro_batches = shape->n_micro_batches;
    WEFT_TRY(weft_i_schedule_check(shape));
    if (n_times != 1 && n_times != shape->n_stages && n_times != n_stages(&s))
        WEFT_FAIL(WEFT_STATUS_ARG, "%d times were given for %d stages of %d chunks", n_times,
                  shape->n_stages, shape->n_chunks);
    WEFT_TRY_GOTO(st, take(&s, out), out);
    WEFT_TRY_GOTO(st, run_all(&s, out), out);
    measure(&s, out);
out:
    for (int r = 0; s.lists != NULL && r < shape->n_stages; r++)
        weft_i_actions_fini(&s.lists[r]);
    weft_i_alloc_put(alloc, s.board.input);
    weft_i_alloc_put(alloc, s.board.forward);
    weft_i_alloc_put(alloc, s.clock);
    weft_i_alloc_put(alloc, s.next);
    weft_i_alloc_put(alloc, s.lists);
    if (st != WEFT_OK)
        weft_i_sim_fini(out);
    return st;
}

void weft_i_sim_fini(weft_sim *s)
{
    for (int r = 0; s->rank != NULL && r < s->n_ranks; r++)
        weft_i_alloc_put(s->alloc, s->rank[r].event);
    if (s->alloc != NULL)
        weft_i_alloc_put(s->alloc, s->rank);
    s->rank = NULL;
}
