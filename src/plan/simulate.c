/*
 * `weft simulate`: a schedule alone (contract: weft/simulate.h). The lists are parallel/schedule_*.c's, the events
 * parallel/schedule_sim.c's, the picture parallel/timeline.c's; this file only carries numbers between them.
 */
#include "weft/simulate.h"

#include "base/ctx.h"
#include "base/error.h"
#include "base/file.h"
#include "parallel/schedule_sim.h"
#include "parallel/timeline.h"
#include "weft/options.h"

#include <math.h>
#include <stdio.h>

#define MOST                                                                                       \
    1048576 /* stages, micro-batches, chunks: beyond it a list is no longer looked at by anybody */

static weft_status write_picture(const weft_sim *sim,
                                 const weft_schedule_shape *shape,
                                 weft_alloc *alloc,
                                 const char *path)
{
    char title[160], note[160];
    weft_bar *bars = NULL;
    weft_str svg;
    weft_timeline t = {.title = title, .note = note, .unit = ""};
    int64_t n = 0;
    weft_status st = WEFT_OK;
    weft_i_str_init(&svg, alloc);
    WEFT_TRY_GOTO(st, weft_i_alloc_array(alloc, sim->n_actions, sizeof(*bars), &bars), out);
    for (int r = 0; r < sim->n_ranks; r++) {
        for (int64_t i = 0; i < sim->rank[r].n_events; i++) {
            const weft_sim_event *e = &sim->rank[r].event[i];
            bars[n++] = (weft_bar){.row = r,
                                   .kind = (weft_step_kind)e->action.kind,
                                   .micro_batch = e->action.micro_batch,
                                   .chunk = e->action.chunk,
                                   .start = e->start,
                                   .end = e->end};
        }
    }
    (void)snprintf(title, sizeof(title), "%s: %d stages, %d micro-batches, chunks of a stage: %d",
                   weft_i_schedule_name(shape->kind), shape->n_stages, shape->n_micro_batches,
                   shape->n_chunks);
    (void)snprintf(note, sizeof(note),
                   "simulated; length %.6g, idle %.1f %% of it (%.1f %% of the ideal %.6g)",
                   sim->span, 100.0 * sim->idle_of_total, 100.0 * sim->idle_of_ideal, sim->ideal);
    t.n_rows = sim->n_ranks;
    t.bars = bars;
    t.n_bars = n;
    t.n_chunks = shape->n_chunks;
    WEFT_TRY_GOTO(st, weft_i_timeline_svg(&svg, &t), out);
    st = weft_i_file_write(path, svg.text, svg.n_bytes);
out:
    weft_i_alloc_put(alloc, bars);
    weft_i_str_fini(&svg);
    return st;
}

static weft_status deliver(const weft_sim *sim,
                           int n_chunks,
                           weft_alloc *alloc,
                           void (*done)(void *user, const weft_simulate_result *r),
                           void *user)
{
    int64_t *numbers = NULL;
    WEFT_TRY(weft_i_alloc_array(alloc, 2 * (int64_t)sim->n_ranks, sizeof(*numbers), &numbers));
    for (int r = 0; r < sim->n_ranks; r++) {
        numbers[r] = sim->rank[r].in_flight;
        numbers[sim->n_ranks + r] = sim->rank[r].in_flight_input;
    }
    const weft_simulate_result result = {
        .n_chunks = n_chunks,
        .n_actions = sim->n_actions,
        .makespan = sim->makespan,
        .span = sim->span,
        .ideal = sim->ideal,
        .idle_of_total = sim->idle_of_total,
        .idle_of_ideal = sim->idle_of_ideal,
        .n_ranks = sim->n_ranks,
        .in_flight = numbers,
        .in_flight_input = numbers + sim->n_ranks,
    };
    done(user, &result);
    weft_i_alloc_put(alloc, numbers);
    return WEFT_OK;
}

static weft_status shape_of(const weft_simulate_options *o, weft_schedule_shape *out)
{
    WEFT_TRY(weft_options_check(WEFT_COMMAND_SIMULATE, o));
    WEFT_TRY(weft_i_schedule_from_name(&out->kind, o->schedule));
    const int64_t n_chunks = o->chunks > 0 ? o->chunks : weft_i_schedule_usual_chunks(out->kind);
    const double n_events = (double)o->stages * (double)o->micro_batches * (double)n_chunks;
    if (n_events > MOST * 64.0)
        WEFT_FAIL(
            WEFT_STATUS_ARG,
            "--stages %lld x --micro-batches %lld x --chunks %lld is %.3g forwards, more than "
            "are simulated",
            (long long)o->stages, (long long)o->micro_batches, (long long)n_chunks, n_events);
    out->n_stages = (int)o->stages;
    out->n_micro_batches = (int)o->micro_batches;
    out->n_chunks = (int)n_chunks;
    return weft_i_schedule_check(out);
}

weft_status weft_simulate_run(const weft_simulate_options *options,
                              void (*done)(void *user, const weft_simulate_result *r),
                              void *user)
{
    const weft_sim_times times = {options->forward, options->backward, options->weight,
                                  options->comm};
    weft_schedule_shape shape;
    weft_alloc *alloc = NULL;
    weft_sim sim;
    WEFT_TRY(shape_of(options, &shape));
    WEFT_TRY(weft_i_alloc_create(&alloc, false, 0));
    weft_status st = weft_i_sim_run(&sim, alloc, &shape, &times, 1);
    if (st == WEFT_OK && !isfinite(sim.makespan))
        st = weft_i_error_set(WEFT_STATUS_ARG,
                              "the schedule's length is beyond what a number can hold with "
                              "--forward %g, --backward %g, --weight %g, --comm %g",
                              times.forward, times.backward, times.weight, times.comm);
    if (st == WEFT_OK && options->timeline != NULL && options->timeline[0] != '\0')
        st = write_picture(&sim, &shape, alloc, options->timeline);
    if (st == WEFT_OK)
        st = deliver(&sim, shape.n_chunks, alloc, done, user);
    weft_i_sim_fini(&sim);
    weft_i_alloc_destroy(alloc);
    return st;
}
