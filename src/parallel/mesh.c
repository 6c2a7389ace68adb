/*
 * The mesh: where each rank stands, and its communicators. The only file that creates communicators.
 *
 * Ranks are numbered along the axes of rank_order, the first of them fastest. An axis' group are the ranks that differ in
 * that axis alone, in its order, so a rank's place in the group is its coordinate.
 *
 * Communicators are made in the order of weft_axis on every rank. On each: the transport, then what the caller must not
 * see (fault, pace, check), then what it must (count, trace), so that the traffic of checks is not counted.
 * Communication: none.
 */
#include "parallel/mesh.h"

#include "base/ctx.h"
#include "base/env.h"
#include "base/error.h"
#include "base/str.h"
#include "comm/dry/dry_comm.h"
#include "comm/thread/thread.h"

#include <string.h>

#define TIMEOUTS_LATE                                                                              \
    4 /* a lost call comes so many --comm-timeout late, when nobody waits any more */

const char *weft_i_axis_name(weft_axis axis)
{
    static const char *const names[WEFT_AXIS_COUNT] = {"world", "dp", "tp", "pp"};
    return names[axis];
}

static int size_of(const weft_layout *l, weft_axis axis)
{
    const int sizes[WEFT_AXIS_COUNT] = {l->n_ranks, l->dp, l->tp, l->pp};
    return sizes[axis];
}

/* The i-th axis of rank_order: two letters and a dash each. */
static weft_axis axis_at(const weft_layout *l, int i)
{
    const char *const name = l->rank_order + 3 * i;
    for (weft_axis a = WEFT_AXIS_DP; a < WEFT_AXIS_COUNT; a++) {
        if (strncmp(name, weft_i_axis_name(a), 2) == 0)
            return a;
    }
    return WEFT_AXIS_DP; /* layout.c lets only orders of the three pass */
}

void weft_i_mesh_place(const weft_layout *layout, int world_rank, int *coord)
{
    int rest = world_rank;
    coord[WEFT_AXIS_WORLD] = world_rank;
    for (int i = 0; i < 3; i++) {
        const weft_axis axis = axis_at(layout, i);
        coord[axis] = rest % size_of(layout, axis);
        rest /= size_of(layout, axis);
    }
}

int weft_i_mesh_rank_at(const weft_layout *layout, const int *coord)
{
    int rank = 0;
    for (int i = 2; i >= 0; i--) {
        const weft_axis axis = axis_at(layout, i);
        rank = rank * size_of(layout, axis) + coord[axis];
    }
    return rank;
}

/* ---- what tests let go wrong ---- */

/*
 * RANK:KIND:CALL[:SECONDS]; kind NONE when it is not for this rank. Without SECONDS a call comes later than others wait: a
 * loss that comes in time would be none.
 */
static weft_status read_fault(weft_fault *out, int world_rank, double comm_timeout_s)
{
    static const struct {
        const char *name;
        weft_fault_kind kind;
    } kinds[] = {{"fail", WEFT_FAULT_FAIL}, {"delay", WEFT_FAULT_DELAY}, {"lose", WEFT_FAULT_LOSE}};
    const char *const text = weft_i_env_get("WEFT_FAULT");
    *out = (weft_fault){.kind = WEFT_FAULT_NONE};
    if (text == NULL || text[0] == '\0')
        return WEFT_OK;
    char field[4][24] = {"", "", "", ""};
    const char *at = text;
    int n = 0;
    for (; n < 4; n++) {
        const size_t length = strcspn(at, ":");
        if (length >= sizeof(field[0]))
            break;
        memcpy(field[n], at, length);
        field[n][length] = '\0';
        at += length;
        if (*at == '\0')
            break;
        at++;
    }
    int64_t rank = -1, call = -1;
    double seconds = TIMEOUTS_LATE * comm_timeout_s;
    weft_fault_kind kind = WEFT_FAULT_NONE;
    for (size_t i = 0; i < WEFT_COUNT_OF(kinds); i++) {
        if (strcmp(field[1], kinds[i].name) == 0)
            kind = kinds[i].kind;
    }
    if (*at != '\0' || kind == WEFT_FAULT_NONE || !weft_i_str_to_int64(field[0], &rank) ||
        !weft_i_str_to_int64(field[2], &call) ||
        (n >= 3 && !weft_i_str_to_double(field[3], &seconds)) || rank < 0 || call < 0 ||
        !(seconds >= 0))
        WEFT_FAIL(WEFT_STATUS_ARG,
                  "WEFT_FAULT=%.64s is not RANK:KIND:CALL[:SECONDS] with KIND fail, delay or lose",
                  text);
    if (rank == world_rank)
        *out = (weft_fault){.kind = kind, .at_call = (uint64_t)call, .delay_s = seconds};
    return WEFT_OK;
}

static weft_status read_check(bool *is_global)
{
    const char *const text = weft_i_env_get("WEFT_COMM_CHECK");
    *is_global = text != NULL && strcmp(text, "global") == 0;
    if (text == NULL || *is_global || strcmp(text, "local") == 0 || strcmp(text, "off") == 0)
        return WEFT_OK; /* transports check arguments themselves */
    WEFT_FAIL(WEFT_STATUS_ARG, "WEFT_COMM_CHECK=%.64s is none of off, local, global", text);
}

/* ---- communicators ---- */

/* World ranks of this rank's group along an axis. members: [n_ranks]. */
static void find_members(int *members, const weft_mesh *m, weft_axis axis)
{
    int coord[WEFT_AXIS_COUNT];
    memcpy(coord, m->coord, sizeof(coord));
    for (int i = 0; i < m->size[axis]; i++) {
        coord[axis] = i;
        members[i] = axis == WEFT_AXIS_WORLD ? i : weft_i_mesh_rank_at(&m->layout, coord);
    }
}

/* members: NULL for a dry run. */
static weft_status
create_transport(weft_comm **out, const weft_mesh *m, weft_axis axis, const int *members)
{
    const char *const name = weft_i_axis_name(axis);
    if (m->size[axis] == 1)
        return weft_comm_self_create(out, m->ctx, name);
    if (members == NULL)
        return weft_i_dry_comm_create(out, m->ctx, m->coord[axis], m->size[axis], name);
    return weft_i_thread_comm_create(out, m->world, m->ctx, m->world_rank, members, m->size[axis],
                                     name);
}

/* What stands between the transport and the counter. A failure leaves in *c what there is, or NULL. */
static weft_status stack_hidden(weft_mesh *m, weft_axis axis, const int *members)
{
    weft_comm **const c = &m->comm[axis];
    weft_fault fault;
    bool is_global = false;
    WEFT_TRY(read_fault(&fault, m->world_rank, m->layout.comm_timeout_s));
    WEFT_TRY(read_check(&is_global));
    if (fault.kind != WEFT_FAULT_NONE) {
        fault.n_calls = &m->n_calls;
        WEFT_TRY(weft_i_fault_create(c, *c, &fault));
    }
    if (m->size[axis] == 1)
        return WEFT_OK;
    if (m->link.latency_s > 0 || m->link.bytes_per_s > 0)
        WEFT_TRY(weft_i_pace_comm_create(c, *c, &m->link));
    if (is_global) {
        weft_comm *duplicate = NULL;
        WEFT_TRY(create_transport(&duplicate, m, axis, members));
        WEFT_TRY(weft_i_check_create(c, *c, duplicate));
        m->checked[axis] = *c;
    }
    return WEFT_OK;
}

/* What is made so far is the mesh's, so that a failure frees it. members: NULL for a dry run. */
static weft_status create_comm(weft_mesh *m, weft_axis axis, const int *members)
{
    weft_comm **const c = &m->comm[axis];
    WEFT_TRY(create_transport(c, m, axis, members));
    if (members != NULL)
        WEFT_TRY(stack_hidden(m, axis, members));
    WEFT_TRY(weft_i_count_create(c, *c));
    m->counter[axis] = *c;
    WEFT_TRY(weft_i_trace_comm_create(c, *c, m->trace));
    if (members != NULL)
        weft_i_trace_comm_record(*c, &m->record);
    return WEFT_OK;
}

void weft_i_mesh_stand_for(weft_mesh *out, weft_ctx *ctx, const weft_layout *layout, int world_rank)
{
    *out = (weft_mesh){
        .ctx = ctx, .layout = *layout, .world_rank = world_rank, .world_size = layout->n_ranks};
    weft_i_mesh_place(layout, world_rank, out->coord);
    for (weft_axis a = WEFT_AXIS_WORLD; a < WEFT_AXIS_COUNT; a++)
        out->size[a] = size_of(layout, a);
}

static weft_status new_mesh(weft_mesh **out, weft_ctx *ctx, const weft_layout *l, int world_rank)
{
    void *p = NULL;
    WEFT_TRY(weft_i_alloc_new(ctx->alloc, 1, sizeof(weft_mesh), &p));
    weft_mesh *const m = p;
    weft_i_mesh_stand_for(m, ctx, l, world_rank);
    if (l->pace != NULL) {
        m->link.latency_s = l->pace->latency_s;
        m->link.bytes_per_s = l->pace->bytes_per_s;
    }
    *out = m;
    return WEFT_OK;
}

weft_status weft_i_mesh_create(weft_mesh **out,
                               weft_ctx *ctx,
                               const weft_layout *layout,
                               struct weft_thread_world *world,
                               int world_rank,
                               weft_trace *trace)
{
    weft_mesh *m = NULL;
    void *members = NULL;
    weft_status st = WEFT_OK;
    *out = NULL;
    if (world_rank < 0 || world_rank >= layout->n_ranks || (layout->n_ranks > 1 && world == NULL))
        WEFT_FAIL(WEFT_STATUS_ARG, "rank %d of %d has no place in this world", world_rank,
                  layout->n_ranks);
    WEFT_TRY(new_mesh(&m, ctx, layout, world_rank));
    m->world = world;
    m->trace = trace;
    WEFT_TRY_GOTO(st, weft_i_alloc_new(ctx->alloc, (size_t)layout->n_ranks, sizeof(int), &members),
                  out);
    for (weft_axis a = WEFT_AXIS_WORLD; a < WEFT_AXIS_COUNT; a++) {
        find_members(members, m, a);
        WEFT_TRY_GOTO(st, create_comm(m, a, members), out);
    }
out:
    weft_i_alloc_put(ctx->alloc, members);
    if (st == WEFT_OK)
        *out = m;
    else
        weft_i_mesh_destroy(m);
    return st;
}

weft_status weft_i_mesh_create_dry(weft_mesh **out, weft_ctx *dry, const weft_mesh *like)
{
    weft_mesh *m = NULL;
    weft_status st = WEFT_OK;
    *out = NULL;
    WEFT_TRY(new_mesh(&m, dry, &like->layout, like->world_rank));
    for (weft_axis a = WEFT_AXIS_WORLD; a < WEFT_AXIS_COUNT; a++)
        WEFT_TRY_GOTO(st, create_comm(m, a, NULL), out);
out:
    if (st == WEFT_OK)
        *out = m;
    else
        weft_i_mesh_destroy(m);
    return st;
}

void weft_i_mesh_destroy(weft_mesh *m)
{
    if (m == NULL)
        return;
    for (weft_axis a = WEFT_AXIS_WORLD; a < WEFT_AXIS_COUNT; a++)
        weft_comm_destroy(m->comm[a]);
    weft_i_step_record_fini(&m->record);
    weft_i_alloc_put(m->ctx->alloc, m);
}

/* ---- what was sent ---- */

void weft_i_mesh_traffic(const weft_mesh *m, weft_axis axis, weft_traffic *out)
{
    for (int op = 0; op < WEFT_COMM_OP_COUNT; op++) {
        const weft_comm_count count = weft_i_count_get(m->counter[axis], (weft_comm_op)op);
        out->n_calls[op] = count.n_calls;
        out->sent_bytes[op] = count.sent_bytes;
    }
}

void weft_i_mesh_traffic_reset(weft_mesh *m)
{
    for (weft_axis a = WEFT_AXIS_WORLD; a < WEFT_AXIS_COUNT; a++) {
        weft_i_count_reset(m->counter[a]);
        weft_i_trace_comm_reset(m->comm[a]);
    }
}

weft_comm_seconds weft_i_mesh_seconds(const weft_mesh *m, weft_axis axis)
{
    return weft_i_trace_comm_seconds(m->comm[axis]);
}

/* ---- steps ---- */

void weft_i_mesh_begin(weft_mesh *m)
{
    m->has_begun = true;
}

weft_status weft_i_mesh_fail(weft_mesh *m, weft_status st)
{
    weft_comm *const world = m->comm[WEFT_AXIS_WORLD];
    if (st != WEFT_OK)
        world->ops->abort(world, st, weft_last_error());
    return st;
}

weft_status weft_i_mesh_end_step(weft_mesh *m)
{
    for (weft_axis a = WEFT_AXIS_WORLD; a < WEFT_AXIS_COUNT; a++) {
        if (m->checked[a] != NULL)
            WEFT_TRY(weft_i_check_end_step(m->checked[a]));
    }
    return WEFT_OK;
}

int64_t weft_i_mesh_rounds(const weft_mesh *m, int64_t n_seqs, int64_t micro_batch)
{
    const int64_t dp = m->size[WEFT_AXIS_DP];
    return ((n_seqs + micro_batch - 1) / micro_batch + dp - 1) / dp;
}
