/*
 * The picture of a run's last step (contract: step_picture.h): events that the ranks recorded (base/step_record.h), drawn by
 * parallel/timeline.c. All ranks are threads of one process and share the clock.
 *
 * Communication (world): the largest number of events, and a gather of them (I64, host).
 */
#include "train/step_picture.h"

#include "base/ctx.h"
#include "base/file.h"
#include "base/str.h"
#include "parallel/ranks.h"
#include "parallel/timeline.h"
#include "train/idle_share.h"

#include <stdio.h>

#define EVENT_ELEMS ((int64_t)(sizeof(weft_step_event) / sizeof(int64_t)))
#define OTHER_EVENTS 8 /* the optimizer, and room */
#define NOTE_BYTES 32

int64_t weft_i_step_picture_events(const weft_mesh *mesh,
                                   const weft_train_plan *plan,
                                   const weft_train_settings *settings)
{
    const int64_t rounds = weft_i_mesh_rounds(mesh, settings->global_batch, settings->micro_batch);
    int64_t n = 3 * rounds * mesh->layout.n_chunks + OTHER_EVENTS;
    for (int a = 0; a < WEFT_AXIS_COUNT; a++) {
        for (int op = 0; op < WEFT_COMM_OP_COUNT; op++)
            n += (int64_t)plan->step_traffic[a].n_calls[op];
    }
    return n;
}

/* ---- what rank 0 draws ---- */

/* All ranks' events, n a rank; those without a duration end a rank's list. */
typedef struct drawing {
    weft_mesh *mesh;
    const weft_step_event *events;
    int64_t n;
    weft_bar *bars;         /* [world_size * n] */
    weft_rank_times *times; /* [world_size] */
    char (*notes)[NOTE_BYTES];
    const char **note;
    int64_t n_bars;
} drawing;

/* "dp 0 pp 3": the axes that have more than one rank. */
static void name_place(const drawing *d, const int *coord, char *out)
{
    int at = 0;
    out[0] = '\0';
    for (weft_axis a = WEFT_AXIS_DP; a < WEFT_AXIS_COUNT && at < NOTE_BYTES; a++) {
        if (d->mesh->size[a] > 1)
            at += snprintf(out + at, (size_t)(NOTE_BYTES - at), "%s%s %d", at > 0 ? " " : "",
                           weft_i_axis_name(a), coord[a]);
    }
}

static void add_rank(drawing *d, int rank)
{
    weft_rank_times *t = &d->times[rank];
    int coord[WEFT_AXIS_COUNT];
    int64_t first = 0, last = 0;
    weft_i_mesh_place(&d->mesh->layout, rank, coord);
    t->stage = coord[WEFT_AXIS_PP];
    d->note[rank] = d->notes[rank];
    name_place(d, coord, d->notes[rank]);
    for (int64_t i = 0; i < d->n; i++) {
        const weft_step_event *e = &d->events[(int64_t)rank * d->n + i];
        if (e->end_ns == 0)
            return;
        d->bars[d->n_bars++] = (weft_bar){.row = rank,
                                          .kind = (weft_step_kind)e->kind,
                                          .micro_batch = (int)e->micro_batch,
                                          .chunk = (int)e->chunk,
                                          .start = (double)e->start_ns / 1e6,
                                          .end = (double)e->end_ns / 1e6};
        if (e->kind >= WEFT_STEP_ACTIONS)
            continue;
        first = first == 0 ? e->start_ns : first;
        last = e->end_ns;
        t->span_ns = last - first;
        t->chunk_ns[WEFT_MIN(e->chunk, WEFT_STEP_CHUNKS - 1)][e->kind] += e->end_ns - e->start_ns;
        t->n_forwards += e->kind == WEFT_STEP_FORWARD ? 1 : 0;
    }
}

/* Idle share where there is no pipeline: of the time from the first action of all to the last one's end. */
static double idle_of_all(const drawing *d)
{
    double work = 0.0, begin = 0.0, end = 0.0;
    for (int64_t i = 0; i < d->n_bars; i++) {
        const weft_bar *b = &d->bars[i];
        if (b->kind >= (weft_step_kind)WEFT_STEP_ACTIONS)
            continue;
        begin = work == 0.0 ? b->start : WEFT_MIN(begin, b->start);
        end = WEFT_MAX(end, b->end);
        work += b->end - b->start;
    }
    return end > begin ? 1.0 - work / d->mesh->world_size / (end - begin) : 0.0;
}

static double message_seconds(const drawing *d)
{
    weft_traffic t;
    weft_i_mesh_traffic(d->mesh, WEFT_AXIS_PP, &t);
    return weft_i_idle_share_message(&d->mesh->layout, (int64_t)t.sent_bytes[WEFT_COMM_SEND],
                                     (int64_t)t.n_calls[WEFT_COMM_SEND]);
}

static weft_status draw(drawing *d, weft_str *svg, int64_t step)
{
    const weft_layout *l = &d->mesh->layout;
    const char *pace = l->pace != NULL ? "paced: layers and messages take stated times; " : "";
    char title[160], note[240];
    weft_idle_share idle;
    WEFT_TRY(weft_i_idle_share_find(&idle, d->mesh->ctx->alloc, l, d->times, message_seconds(d)));
    if (idle.is_known) {
        (void)snprintf(
            title, sizeof(title),
            "%s: dp %d, tp %d, pp %d, micro-batches of a rank: %lld, chunks of a stage: %d",
            weft_i_schedule_name(l->schedule), l->dp, l->tp, l->pp, (long long)idle.n_micro_batches,
            l->n_chunks);
        (void)snprintf(
            note, sizeof(note),
            "%sstep %lld; idle %.1f %% of %.4g ms measured, %.1f %% simulated with these "
            "stage times",
            pace, (long long)step, 100.0 * idle.measured, idle.span_ms, 100.0 * idle.simulated);
    } else {
        (void)snprintf(title, sizeof(title), "%s: dp %d, tp %d, ZeRO stage %d",
                       l->is_data_parallel ? "DataParallel" : "one stage", l->dp, l->tp,
                       l->zero_stage);
        (void)snprintf(note, sizeof(note), "%sstep %lld; idle between actions %.1f %%", pace,
                       (long long)step, 100.0 * idle_of_all(d));
    }
    const weft_timeline t = {.title = title,
                             .note = note,
                             .unit = "ms",
                             .n_rows = d->mesh->world_size,
                             .row_notes = d->note,
                             .bars = d->bars,
                             .n_bars = d->n_bars,
                             .n_chunks = l->n_chunks};
    return weft_i_timeline_svg(svg, &t);
}

static weft_status
show(weft_mesh *mesh, const weft_step_event *events, int64_t n, int64_t step, const char *path)
{
    weft_alloc *alloc = mesh->ctx->alloc;
    drawing d = {.mesh = mesh, .events = events, .n = n};
    const int64_t n_ranks = mesh->world_size;
    weft_str svg;
    weft_status st = WEFT_OK;
    weft_i_str_init(&svg, alloc);
    WEFT_TRY_GOTO(st, weft_i_alloc_array(alloc, n_ranks * n, sizeof(*d.bars), &d.bars), out);
    WEFT_TRY_GOTO(st, weft_i_alloc_array(alloc, n_ranks, sizeof(*d.times), &d.times), out);
    WEFT_TRY_GOTO(st, weft_i_alloc_array(alloc, n_ranks, sizeof(*d.notes), &d.notes), out);
    WEFT_TRY_GOTO(st, weft_i_alloc_array(alloc, n_ranks, sizeof(*d.note), &d.note), out);
    for (int r = 0; r < mesh->world_size; r++)
        add_rank(&d, r);
    WEFT_TRY_GOTO(st, draw(&d, &svg, step), out);
    st = weft_i_file_write(path, svg.text, svg.n_bytes);
out:
    weft_i_alloc_put(alloc, d.note);
    weft_i_alloc_put(alloc, d.notes);
    weft_i_alloc_put(alloc, d.times);
    weft_i_alloc_put(alloc, d.bars);
    weft_i_str_fini(&svg);
    return st;
}

weft_status
weft_i_step_picture_write(weft_mesh *mesh, weft_parallel *parallel, int64_t step, const char *path)
{
    const weft_step_record *record = &mesh->record;
    weft_alloc *alloc = mesh->ctx->alloc;
    const bool is_root = mesh->world_rank == 0;
    weft_step_event *mine = NULL, *all = NULL;
    int64_t n = record->n;
    weft_status st = WEFT_OK;
    WEFT_ASSERT(record->n_lost == 0); /* the plan's count of events is enough */
    WEFT_TRY(weft_i_parallel_largest(parallel, &n));
    if (n == 0)
        return WEFT_OK;
    st = weft_i_alloc_array(alloc, n, sizeof(*mine), &mine);
    if (st == WEFT_OK && is_root)
        st = weft_i_alloc_array(alloc, n * mesh->world_size, sizeof(*all), &all);
    WEFT_TRY_GOTO(st, weft_i_mesh_agree(mesh, st), out);
    for (int64_t i = 0; i < record->n; i++)
        mine[i] = record->events[i];
    WEFT_TRY_GOTO(st,
                  weft_i_mesh_gather(mesh, (const int64_t *)(const void *)mine,
                                     (int64_t *)(void *)all, n * EVENT_ELEMS),
                  out);
    st = weft_i_mesh_agree(mesh, is_root ? show(mesh, all, n, step, path) : WEFT_OK);
out:
    weft_i_alloc_put(alloc, all);
    weft_i_alloc_put(alloc, mine);
    return st;
}
