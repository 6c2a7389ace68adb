/*
 * What the ranks of a run took, sent and waited for (contract: report.h).
 *
 * Communication (world): at the end 1 gather of every rank's figures (I64, host).
 * Invariant: figures are what allocator, count wrapper and trace wrapper counted; nothing here is a formula.
 */
#include "train/report.h"

#include "base/ctx.h"
#include "base/file.h"
#include "base/str.h"
#include "comm/message.h"
#include "parallel/ranks.h"

#include <stdio.h>
#include <string.h>

#define RECORD_ELEMS ((int64_t)(sizeof(weft_rank_report) / sizeof(int64_t)))
#define MAX_COLUMNS                                                                                \
    8 /* ranks a table shows; of more it shows the smallest and the largest figure */
#define KIND_WIDTH 28 /* "communication", and room */
#define CALL_WIDTH 36 /* "reduce_scatter over world, 128 calls" */
#define LINE_BYTES 320

static int64_t nanoseconds(double seconds)
{
    return (int64_t)(seconds * 1e9);
}

void weft_i_report_begin_step(weft_report *r, weft_mesh *mesh)
{
    (void)r;
    weft_i_mesh_traffic_reset(mesh);
    weft_i_step_record_reset(&mesh->record);
}

void weft_i_report_end_step(weft_report *r, weft_mesh *mesh, double seconds)
{
    weft_rank_report *me = &r->rank;
    weft_i_step_record_close(&mesh->record);
    for (int a = 0; a < WEFT_AXIS_COUNT; a++) {
        weft_traffic t;
        weft_i_mesh_traffic(mesh, (weft_axis)a, &t);
        for (int op = 0; op < WEFT_COMM_OP_COUNT; op++) {
            me->sent[a][op] = (int64_t)t.sent_bytes[op];
            me->calls[a][op] = (int64_t)t.n_calls[op];
        }
    }
    me->n_forwards = mesh->record.n_actions[WEFT_STEP_FORWARD];
    r->n_steps++;
    if (r->n_steps == 1) /* the first step meets cold caches */
        return;
    me->span_ns += mesh->record.last_ns - mesh->record.first_ns;
    for (int c = 0; c < WEFT_STEP_CHUNKS; c++) {
        for (int k = 0; k < WEFT_STEP_ACTIONS; k++)
            me->chunk_ns[c][k] += mesh->record.chunk_ns[c][k];
    }
    me->step_ns += nanoseconds(seconds);
    for (int a = 0; a < WEFT_AXIS_COUNT; a++) {
        const weft_comm_seconds s = weft_i_mesh_seconds(mesh, (weft_axis)a);
        me->blocked_ns += nanoseconds(s.blocked);
        me->moving_ns += nanoseconds(s.moving);
        me->exposed_ns += nanoseconds(s.exposed);
    }
}

/* This rank's record, complete. */
static void fill_record(weft_report *r, const weft_mesh *mesh, const weft_train_plan *plan)
{
    weft_rank_report *me = &r->rank;
    const int64_t n = r->n_steps > 1 ? r->n_steps - 1 : 1;
    me->step_ns /= n;
    me->blocked_ns /= n;
    me->moving_ns /= n;
    me->exposed_ns /= n;
    me->span_ns /= n;
    for (int c = 0; c < WEFT_STEP_CHUNKS; c++) {
        for (int k = 0; k < WEFT_STEP_ACTIONS; k++)
            me->chunk_ns[c][k] /= n;
    }
    for (int a = 0; a < WEFT_AXIS_COUNT; a++) {
        me->coord[a] = mesh->coord[a];
        for (int op = 0; op < WEFT_COMM_OP_COUNT; op++)
            me->planned_sent[a][op] = (int64_t)plan->step_traffic[a].sent_bytes[op];
    }
    for (int i = 0; i < WEFT_MEM_COUNT; i++) {
        weft_alloc_count count;
        weft_i_alloc_counts(mesh->ctx->alloc, (weft_mem)i, &count);
        me->taken_bytes[i] = (int64_t)count.peak_bytes;
        me->planned_bytes[i] = (int64_t)plan->bytes[i];
    }
    me->plain_sent = plan->plain_sent_bytes;
}

/* ---- for people ---- */

typedef struct printer {
    void (*line)(void *user, const char *text);
    void *user;
    const weft_rank_report *ranks;
    int n;
    int width; /* of a table's first column */
} printer;

/* "what        1,234      1,234": a column a rank, or the least and the most. */
static void print_row(const printer *p, const char *what, const int64_t *values)
{
    char text[LINE_BYTES], number[32];
    int at = snprintf(text, sizeof(text), "%-*s", p->width, what);
    int64_t least = values[0], most = values[0];
    for (int i = 0; i < p->n; i++) {
        least = WEFT_MIN(least, values[i]);
        most = WEFT_MAX(most, values[i]);
    }
    const int64_t ends[2] = {least, most};
    const int n = p->n <= MAX_COLUMNS ? p->n : 2;
    for (int i = 0; i < n; i++) {
        const int64_t x = p->n <= MAX_COLUMNS ? values[i] : ends[i];
        at += snprintf(text + at, sizeof(text) - (size_t)at, " %15s",
                       weft_i_str_thousands(x, number, sizeof(number)));
    }
    p->line(p->user, text);
}

static void print_head(const printer *p, const char *what)
{
    char text[LINE_BYTES];
    int at = snprintf(text, sizeof(text), "%-*s", p->width, what);
    for (int i = 0; i < p->n && p->n <= MAX_COLUMNS; i++) {
        char rank[24];
        (void)snprintf(rank, sizeof(rank), "rank %d", i);
        at += snprintf(text + at, sizeof(text) - (size_t)at, " %15s", rank);
    }
    if (p->n > MAX_COLUMNS)
        (void)snprintf(text + at, sizeof(text) - (size_t)at, " %15s %15s", "least", "most");
    p->line(p->user, text);
}

static void print_memory(printer *p, int64_t *column)
{
    int64_t largest = 0;
    int where = 0;
    bool is_planned = true;
    char text[LINE_BYTES], number[32];
    p->width = KIND_WIDTH;
    print_head(p, "memory taken, bytes");
    for (int k = 0; k < WEFT_MEM_CONTROL; k++) {
        int64_t sum = 0;
        for (int i = 0; i < p->n; i++) {
            column[i] = p->ranks[i].taken_bytes[k];
            sum += column[i];
            is_planned = is_planned && column[i] == p->ranks[i].planned_bytes[k];
        }
        if (sum > 0)
            print_row(p, weft_i_mem_name((weft_mem)k), column);
    }
    for (int i = 0; i < p->n; i++) {
        column[i] = 0;
        for (int k = 0; k < WEFT_MEM_CONTROL; k++)
            column[i] += p->ranks[i].taken_bytes[k];
        if (column[i] > largest) {
            largest = column[i];
            where = i;
        }
    }
    print_row(p, "sum", column);
    (void)snprintf(text, sizeof(text), "most memory: rank %d, %s bytes; %s", where,
                   weft_i_str_thousands(largest, number, sizeof(number)),
                   is_planned ? "every kind on every rank as planned"
                              : "NOT as planned: see report.json");
    p->line(p->user, text);
}

static void print_traffic(printer *p, int64_t *column)
{
    char what[64];
    p->width = CALL_WIDTH;
    print_head(p, "sent in a step, bytes");
    for (int a = 0; a < WEFT_AXIS_COUNT; a++) {
        for (int op = 0; op < WEFT_COMM_OP_COUNT; op++) {
            int64_t calls = 0;
            for (int i = 0; i < p->n; i++) {
                column[i] = p->ranks[i].sent[a][op];
                calls = WEFT_MAX(calls, p->ranks[i].calls[a][op]);
            }
            if (calls == 0)
                continue;
            (void)snprintf(what, sizeof(what), "%s over %s, %lld calls",
                           weft_i_comm_op_name((weft_comm_op)op), weft_i_axis_name((weft_axis)a),
                           (long long)calls);
            print_row(p, what, column);
        }
    }
}

static int64_t sent_of(const weft_rank_report *r)
{
    int64_t sum = 0;
    for (int a = 0; a < WEFT_AXIS_COUNT; a++) {
        for (int op = 0; op < WEFT_COMM_OP_COUNT; op++)
            sum += r->sent[a][op];
    }
    return sum;
}

static void print_extra(const printer *p)
{
    char text[LINE_BYTES], number[32], plain[32];
    int64_t sent = 0, without = 0;
    if (p->ranks[0].plain_sent < 0)
        return;
    for (int i = 0; i < p->n; i++) {
        sent += sent_of(&p->ranks[i]);
        without += p->ranks[i].plain_sent;
    }
    (void)snprintf(text, sizeof(text),
                   "reproducible: all ranks send %s bytes a step more than the %s without it",
                   weft_i_str_thousands(sent - without, number, sizeof(number)),
                   weft_i_str_thousands(without, plain, sizeof(plain)));
    p->line(p->user, text);
}

static double share(int64_t part, int64_t whole)
{
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0.0;
}

static void print_time(const printer *p, bool is_paced)
{
    char text[LINE_BYTES];
    int64_t moving = 0, exposed = 0;
    if (p->ranks[0].step_ns == 0) {
        p->line(p->user, "times are of the steps after the first; this run made one");
        return;
    }
    int at = snprintf(text, sizeof(text), "%s%.2f ms; waiting in communication",
                      is_paced ? "paced step " : "step ", (double)p->ranks[0].step_ns / 1e6);
    for (int i = 0; i < p->n; i++) {
        moving += p->ranks[i].moving_ns;
        exposed += p->ranks[i].exposed_ns;
        if (i < MAX_COLUMNS)
            at += snprintf(text + at, sizeof(text) - (size_t)at, " %.1f %%",
                           share(p->ranks[i].blocked_ns, p->ranks[i].step_ns));
    }
    p->line(p->user, text);
    if (moving == 0 || !is_paced)
        return; /* threads move what they need when they wait for it: only stated times overlap */
    (void)snprintf(text, sizeof(text),
                   "paced: communication takes %.2f ms of a step, %.1f %% of it behind computation",
                   (double)moving / 1e6 / p->n, 100.0 - share(exposed, moving));
    p->line(p->user, text);
}

static weft_status find_idle(weft_idle_share *out, weft_mesh *mesh, const weft_rank_report *ranks)
{
    weft_rank_times *times = NULL;
    WEFT_TRY(weft_i_alloc_array(mesh->ctx->alloc, mesh->world_size, sizeof(*times), &times));
    for (int i = 0; i < mesh->world_size; i++) {
        times[i].stage = ranks[i].coord[WEFT_AXIS_PP];
        times[i].n_forwards = ranks[i].span_ns > 0 ? ranks[i].n_forwards : 0;
        times[i].span_ns = ranks[i].span_ns;
        memcpy(times[i].chunk_ns, ranks[i].chunk_ns, sizeof(times[i].chunk_ns));
    }
    const weft_status st = weft_i_idle_share_find(
        out, mesh->ctx->alloc, &mesh->layout, times,
        weft_i_idle_share_message(&mesh->layout, ranks[0].sent[WEFT_AXIS_PP][WEFT_COMM_SEND],
                                  ranks[0].calls[WEFT_AXIS_PP][WEFT_COMM_SEND]));
    weft_i_alloc_put(mesh->ctx->alloc, times);
    return st;
}

static void print_idle(const printer *p, const weft_layout *l, const weft_idle_share *idle)
{
    char text[LINE_BYTES];
    if (!idle->is_known)
        return;
    (void)snprintf(
        text, sizeof(text),
        "%spipeline %s: idle %.1f %% of %.2f ms measured; %.1f %% of %.2f ms simulated with "
        "the stages' times",
        l->pace != NULL ? "paced " : "", weft_i_schedule_name(l->schedule), 100.0 * idle->measured,
        idle->span_ms, 100.0 * idle->simulated, idle->simulated_ms);
    p->line(p->user, text);
}

/* ---- for programs ---- */

/* Of all chunks. */
static double action_ms(const weft_rank_report *r, weft_step_kind kind)
{
    int64_t ns = 0;
    for (int c = 0; c < WEFT_STEP_CHUNKS; c++)
        ns += r->chunk_ns[c][kind];
    return (double)ns / 1e6;
}

static weft_status add_rank(weft_str *s, const weft_rank_report *r, int rank)
{
    const char *gap = "";
    WEFT_TRY(weft_i_str_addf(s, "%s\n    {\"rank\": %d, \"dp\": %lld, \"tp\": %lld, \"pp\": %lld,",
                             rank > 0 ? "," : "", rank, (long long)r->coord[WEFT_AXIS_DP],
                             (long long)r->coord[WEFT_AXIS_TP], (long long)r->coord[WEFT_AXIS_PP]));
    WEFT_TRY(weft_i_str_addf(s, "\n     \"memory\": {"));
    for (int k = 0; k < WEFT_MEM_CONTROL; k++)
        WEFT_TRY(weft_i_str_addf(s, "%s\"%s\": {\"planned\": %lld, \"taken\": %lld}",
                                 k > 0 ? ", " : "", weft_i_mem_name((weft_mem)k),
                                 (long long)r->planned_bytes[k], (long long)r->taken_bytes[k]));
    WEFT_TRY(weft_i_str_addf(s, "},\n     \"step_traffic\": ["));
    for (int a = 0; a < WEFT_AXIS_COUNT; a++) {
        for (int op = 0; op < WEFT_COMM_OP_COUNT; op++) {
            if (r->calls[a][op] == 0)
                continue;
            WEFT_TRY(weft_i_str_addf(
                s,
                "%s{\"axis\": \"%s\", \"op\": \"%s\", \"calls\": %lld, \"sent_bytes\": %lld, "
                "\"planned_bytes\": %lld}",
                gap, weft_i_axis_name((weft_axis)a), weft_i_comm_op_name((weft_comm_op)op),
                (long long)r->calls[a][op], (long long)r->sent[a][op],
                (long long)r->planned_sent[a][op]));
            gap = ", ";
        }
    }
    return weft_i_str_addf(s,
                           "],\n     \"step_ms\": %.6f, \"waiting_ms\": %.6f, \"moving_ms\": %.6f, "
                           "\"exposed_ms\": %.6f,\n     \"forward_ms\": %.6f, \"backward_ms\": "
                           "%.6f, \"input_gradient_ms\": %.6f, \"weight_gradient_ms\": %.6f, "
                           "\"span_ms\": %.6f}",
                           (double)r->step_ns / 1e6, (double)r->blocked_ns / 1e6,
                           (double)r->moving_ns / 1e6, (double)r->exposed_ns / 1e6,
                           action_ms(r, WEFT_STEP_FORWARD), action_ms(r, WEFT_STEP_BACKWARD),
                           action_ms(r, WEFT_STEP_INPUT), action_ms(r, WEFT_STEP_WEIGHT),
                           (double)r->span_ns / 1e6);
}

static weft_status add_pipeline(weft_str *s, const weft_layout *l, const weft_idle_share *idle)
{
    if (!idle->is_known)
        return WEFT_OK;
    return weft_i_str_addf(s,
                           "\n  \"pipeline\": {\"schedule\": \"%s\", \"chunks\": %d, "
                           "\"micro_batches\": %lld, \"idle\": %.6f, \"span_ms\": %.6f, "
                           "\"simulated_idle\": %.6f, \"simulated_span_ms\": %.6f},",
                           weft_i_schedule_name(l->schedule), l->n_chunks,
                           (long long)idle->n_micro_batches, idle->measured, idle->span_ms,
                           idle->simulated, idle->simulated_ms);
}

static weft_status write_json(const weft_rank_report *ranks,
                              const weft_mesh *mesh,
                              const weft_idle_share *idle,
                              const char *path)
{
    const weft_layout *l = &mesh->layout;
    weft_str s;
    weft_status st = WEFT_OK;
    weft_i_str_init(&s, mesh->ctx->alloc);
    WEFT_TRY_GOTO(st,
                  weft_i_str_addf(&s,
                                  "{\n  \"layout\": {\"ranks\": %d, \"dp\": %d, \"tp\": %d, "
                                  "\"pp\": %d, \"zero_stage\": %d, \"strategy\": \"%s\", "
                                  "\"sequence_parallel\": %s, \"tp_strips\": %d, "
                                  "\"reproducible\": %s},\n  \"paced\": %s,",
                                  l->n_ranks, l->dp, l->tp, l->pp, l->zero_stage,
                                  l->is_data_parallel ? "data-parallel" : "",
                                  l->is_sequence_parallel ? "true" : "false", l->n_strips,
                                  l->is_reproducible ? "true" : "false",
                                  l->pace != NULL ? "true" : "false"),
                  out);
    WEFT_TRY_GOTO(st, add_pipeline(&s, l, idle), out);
    WEFT_TRY_GOTO(st, weft_i_str_addf(&s, "\n  \"ranks\": ["), out);
    for (int i = 0; i < mesh->world_size; i++)
        WEFT_TRY_GOTO(st, add_rank(&s, &ranks[i], i), out);
    WEFT_TRY_GOTO(st, weft_i_str_addf(&s, "\n  ]\n}\n"), out);
    st = weft_i_file_write(path, s.text, s.n_bytes);
out:
    weft_i_str_fini(&s);
    return st;
}

/* ---- gathering ---- */

static weft_status
show(const weft_rank_report *ranks, weft_mesh *mesh, printer *p, const char *path)
{
    int64_t *column = NULL;
    weft_idle_share idle;
    WEFT_TRY(find_idle(&idle, mesh, ranks));
    WEFT_TRY(weft_i_alloc_array(mesh->ctx->alloc, mesh->world_size, sizeof(*column), &column));
    if (p->line != NULL && p->n > 1) {
        print_memory(p, column);
        print_traffic(p, column);
        print_extra(p);
    }
    if (p->line != NULL && (p->n > 1 || mesh->layout.pace != NULL))
        print_time(p, mesh->layout.pace != NULL);
    if (p->line != NULL)
        print_idle(p, &mesh->layout, &idle);
    weft_i_alloc_put(mesh->ctx->alloc, column);
    return write_json(ranks, mesh, &idle, path);
}

weft_status weft_i_report_finish(weft_report *r,
                                 weft_mesh *mesh,
                                 const weft_train_plan *plan,
                                 const char *path,
                                 void (*line)(void *user, const char *text),
                                 void *user)
{
    const bool is_root = mesh->world_rank == 0;
    weft_rank_report *ranks = NULL;
    printer p = {.line = line, .user = user, .n = mesh->world_size};
    weft_status st = WEFT_OK;
    fill_record(r, mesh, plan);
    st = weft_i_alloc_array(mesh->ctx->alloc, mesh->world_size, sizeof(*ranks), &ranks);
    WEFT_TRY_GOTO(st, weft_i_mesh_agree(mesh, st), out);
    WEFT_TRY_GOTO(st,
                  weft_i_mesh_gather(mesh, (const int64_t *)(const void *)&r->rank,
                                     (int64_t *)(void *)ranks, RECORD_ELEMS),
                  out);
    p.ranks = ranks;
    st = weft_i_mesh_agree(mesh, is_root ? show(ranks, mesh, &p, path) : WEFT_OK);
out:
    weft_i_alloc_put(mesh->ctx->alloc, ranks);
    return st;
}
