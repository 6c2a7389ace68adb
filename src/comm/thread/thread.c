/*
 * The transport of ranks that are threads of one process and read each other's memory directly.
 *
 * start leaves the message with its call; the last member to come checks that they fit and opens the call's blocks (does
 * them at once when there is only one). wait works on open blocks, then sleeps till the call is done. So a call overlaps
 * with what its ranks compute: whoever waits does the work of those who still compute.
 *
 * Collectives meet by their number in the group, SEND and RECV by (sender, receiver, tag) in the order of posting. SEND
 * is done when its receiver has come: nothing is buffered.
 *
 * Invariants: 1. no wait returns while a rank may still touch the buffers of the call, failed or not.
 *             2. calls are taken from a free list. With K collectives and P pairs of a rank on their way at once, at most
 *                2 K + n P calls are in use: a rank that is ahead has started K, and one that is behind has not left the K
 *                before. So many are made when a rank's K or P grows, and then none any more, however ranks run.
 * Leaves to others: progress of backend operations (weft_thread_options.progress, weft_i_thread_pulse).
 */
#include "comm/thread/thread.h"

#include "base/clock.h"
#include "base/compiler.h"
#include "base/ctx.h"
#include "comm/message.h"
#include "comm/thread/thread_world.h"

#include <stdio.h>
#include <string.h>

typedef struct thread_comm {
    weft_comm base;
    weft_thread_group *group;
    int world_rank;
    uint64_t n_collectives;
    int n_under_way[2]; /* collectives, pairs */
} thread_comm;

static thread_comm *of(weft_comm *c)
{
    return (thread_comm *)(void *)c;
}

/* ---- calls: all under the group's lock ---- */

static weft_status make_call(weft_thread_group *g)
{
    weft_alloc *const alloc = g->world->alloc;
    const size_t n = (size_t)WEFT_MAX(g->size, 2);
    void *p = NULL, *member = NULL, *is_here = NULL, *m = NULL, *send = NULL;
    weft_thread_call *call = NULL;
    weft_status st = WEFT_OK;
    WEFT_TRY_GOTO(st, weft_i_alloc_new(alloc, 1, sizeof(weft_thread_call), &p), failed);
    WEFT_TRY_GOTO(st, weft_i_alloc_new(alloc, n, sizeof(int), &member), failed);
    WEFT_TRY_GOTO(st, weft_i_alloc_new(alloc, n, sizeof(bool), &is_here), failed);
    WEFT_TRY_GOTO(st, weft_i_alloc_new(alloc, n, sizeof(weft_message), &m), failed);
    WEFT_TRY_GOTO(st, weft_i_alloc_new(alloc, n, sizeof(void *), &send), failed);
    call = p;
    call->group = g;
    call->member = member;
    call->is_here = is_here;
    call->m = m;
    call->send = send;
    call->next = g->free_calls;
    g->free_calls = call;
    g->n_made++;
    return WEFT_OK;
failed:
    weft_i_alloc_put(alloc, m);
    weft_i_alloc_put(alloc, is_here);
    weft_i_alloc_put(alloc, member);
    weft_i_alloc_put(alloc, p);
    return st;
}

/* A rank has `n` collectives, or pairs, on their way. */
static weft_status reserve_calls(weft_thread_group *g, bool is_pair, int n)
{
    if (n <= g->n_most[is_pair])
        return WEFT_OK;
    g->n_most[is_pair] = n;
    const int n_wanted = 2 * g->n_most[false] + g->size * g->n_most[true];
    while (g->n_made < n_wanted)
        WEFT_TRY(make_call(g));
    return WEFT_OK;
}

/* Who takes part, and as which member the caller does. */
typedef struct place {
    bool is_pair;
    uint64_t index;
    int sender, receiver; /* pair */
    int me;               /* member of the call */
} place;

static place place_of(thread_comm *c, const weft_message *m)
{
    if (!weft_i_comm_is_pair(m->op))
        return (place){.index = c->n_collectives++, .me = c->base.rank};
    const bool is_send = m->op == WEFT_COMM_SEND;
    return (place){.is_pair = true,
                   .index = (uint64_t)(int64_t)m->tag,
                   .sender = is_send ? c->base.rank : m->peer,
                   .receiver = is_send ? m->peer : c->base.rank,
                   .me = is_send ? 0 : 1};
}

static bool is_for(const weft_thread_call *call, const place *p)
{
    return call->is_pair == p->is_pair && call->index == p->index && !call->is_here[p->me] &&
           (!p->is_pair || (call->member[0] == p->sender && call->member[1] == p->receiver));
}

/* The call that waits for this member, or a new one at the end of the list. */
static weft_status find_call(weft_thread_call **out, weft_thread_group *g, const place *p)
{
    weft_thread_call **at = &g->calls;
    while (*at != NULL && !is_for(*at, p))
        at = &(*at)->next;
    *out = *at;
    if (*at != NULL)
        return WEFT_OK;
    if (g->free_calls == NULL)
        WEFT_TRY(make_call(g));
    weft_thread_call *const call = g->free_calls;
    g->free_calls = call->next;
    call->next = NULL;
    call->is_pair = p->is_pair;
    call->index = p->index;
    call->is_dry = false;
    call->n_members = p->is_pair ? 2 : g->size;
    call->n_arrived = call->n_left = 0;
    for (int i = 0; i < call->n_members; i++) {
        call->member[i] = i;
        call->is_here[i] = false;
    }
    if (p->is_pair) {
        call->member[0] = p->sender;
        call->member[1] = p->receiver;
    }
    atomic_store(&call->state, WEFT_THREAD_ARRIVING);
    *at = call;
    *out = call;
    return WEFT_OK;
}

static void leave_call(weft_thread_call *call)
{
    weft_thread_group *const g = call->group;
    (void)pthread_mutex_lock(&g->lock);
    call->n_left++;
    if (call->n_left == call->n_members) {
        weft_thread_call **at = &g->calls;
        while (*at != call)
            at = &(*at)->next;
        *at = call->next;
        call->next = g->free_calls;
        g->free_calls = call;
    }
    (void)pthread_mutex_unlock(&g->lock);
}

/* ---- start and wait ---- */

/* For the message of a rank that waits in vain for this one. */
static void note_call(thread_comm *c, const weft_message *m, uint64_t index)
{
    weft_thread_rank *const me = &c->group->world->ranks[c->world_rank];
    (void)pthread_mutex_lock(&me->lock);
    char *const call = me->last_calls[me->n_last++ % WEFT_THREAD_MAX_LAST];
    (void)snprintf(call, sizeof(me->last_calls[0]), "%s %llu of %.64s over %s",
                   weft_i_comm_op_name(m->op), (unsigned long long)index,
                   weft_i_comm_tensor_name(m), c->group->axis);
    (void)pthread_mutex_unlock(&me->lock);
}

/* Leaves the message with its call. *is_last: all members are there now, and the call is READY or DONE. */
static weft_status
arrive(thread_comm *c, const weft_message *m, weft_thread_call **out, bool *is_last)
{
    weft_thread_group *const g = c->group;
    const place p = place_of(c, m);
    note_call(c, m, p.index);
    (void)pthread_mutex_lock(&g->lock);
    weft_status st = reserve_calls(g, p.is_pair, ++c->n_under_way[p.is_pair]);
    if (st == WEFT_OK)
        st = find_call(out, g, &p);
    if (st == WEFT_OK) {
        weft_thread_call *const call = *out;
        call->m[p.me] = *m;
        call->is_here[p.me] = true;
        call->is_dry = call->is_dry || (!m->is_host && weft_i_alloc_is_dry(c->base.ctx->alloc));
        call->n_arrived++;
        *is_last = call->n_arrived == call->n_members;
        if (*is_last)
            st = weft_i_thread_call_prepare(call);
        if (*is_last && st == WEFT_OK)
            atomic_store(&call->state, call->n_blocks > 0 ? WEFT_THREAD_READY : WEFT_THREAD_DONE);
    }
    (void)pthread_mutex_unlock(&g->lock);
    return st;
}

static weft_status start_thread(weft_comm *base, const weft_message *m, weft_request *request)
{
    thread_comm *const c = of(base);
    weft_thread_group *const g = c->group;
    weft_thread_world *const w = g->world;
    WEFT_TRY(weft_i_comm_check(base, m));
    if (atomic_load(&w->has_failed))
        return weft_i_thread_remote(w);
    weft_i_thread_pulse(w, c->world_rank);
    request->message = *m;
    request->sequence = base->n_calls++;
    request->started_seconds = weft_i_clock_seconds();
    request->ready_seconds = request->ended_seconds = request->started_seconds;
    request->impl = NULL;
    weft_thread_call *call = NULL;
    bool is_last = false;
    const weft_status st = arrive(c, m, &call, &is_last);
    if (st != WEFT_OK) {
        weft_i_thread_fail(w, c->world_rank, st, weft_last_error());
        return st;
    }
    request->impl = call;
    if (is_last && call->n_blocks == 1) {
        weft_i_thread_call_work(call);
    } else if (is_last) {
        for (int i = 0; i < call->n_members; i++)
            weft_i_thread_wake(w, g->world_rank[call->member[i]]);
    }
    return WEFT_OK;
}

static weft_status wait_thread(weft_comm *base, weft_request *request)
{
    thread_comm *const c = of(base);
    weft_thread_world *const w = c->group->world;
    weft_thread_rank *const me = &w->ranks[c->world_rank];
    weft_thread_call *const call = request->impl;
    if (call == NULL)
        WEFT_FAIL(WEFT_STATUS_ARG, "rank %d waited for a request that was not started",
                  c->world_rank);
    request->impl = NULL;
    weft_i_thread_pulse(w, c->world_rank);
    for (;;) {
        const int state = atomic_load(&call->state);
        if (state == WEFT_THREAD_DONE)
            break;
        if (atomic_load(&w->has_failed))
            return weft_i_thread_remote(w);
        if (state == WEFT_THREAD_READY)
            weft_i_thread_call_work(call);
        atomic_store(&me->is_waiting, true);
        const weft_status st = weft_i_thread_sleep(call, base, state);
        atomic_store(&me->is_waiting, false);
        WEFT_TRY(st);
    }
    weft_i_thread_pulse(w, c->world_rank);
    c->n_under_way[call->is_pair]--;
    request->ready_seconds = call->ready_s;
    request->ended_seconds = call->done_s;
    leave_call(call);
    return WEFT_OK;
}

static void abort_thread(weft_comm *base, weft_status status, const char *message)
{
    thread_comm *const c = of(base);
    weft_i_thread_fail(c->group->world, c->world_rank, status, message);
}

static void destroy_thread(weft_comm *base)
{
    weft_i_thread_group_leave(of(base)->group);
    weft_i_alloc_put(base->ctx->alloc, base);
}

static const weft_comm_ops thread_ops = {.name = "thread",
                                         .is_ordered = true,
                                         .start = start_thread,
                                         .wait = wait_thread,
                                         .abort = abort_thread,
                                         .destroy = destroy_thread};

/* The place of `world_rank` among the members, each of which must be a rank of the world, once; -1. */
static int place_among(const weft_thread_world *w, int world_rank, const int *members, int n)
{
    int me = -1;
    for (int i = 0; i < n; i++) {
        if (members[i] < 0 || members[i] >= w->n_ranks)
            return -1;
        for (int j = 0; j < i; j++) {
            if (members[j] == members[i])
                return -1;
        }
        if (members[i] == world_rank)
            me = i;
    }
    return me;
}

weft_status weft_i_thread_comm_create(weft_comm **out,
                                      weft_thread_world *w,
                                      weft_ctx *ctx,
                                      int world_rank,
                                      const int *members,
                                      int n_members,
                                      const char *axis)
{
    void *p = NULL, *all = NULL;
    weft_status st = WEFT_OK;
    *out = NULL;
    const int n = members != NULL ? n_members : w->n_ranks;
    if (n < 1 || n > w->n_ranks)
        WEFT_FAIL(WEFT_STATUS_ARG, "a group of %d ranks over %s cannot be made of %d ranks", n,
                  axis, w->n_ranks);
    if (members == NULL) {
        WEFT_TRY(weft_i_alloc_new(ctx->alloc, (size_t)n, sizeof(int), &all));
        for (int i = 0; i < n; i++)
            ((int *)all)[i] = i;
        members = all;
    }
    const int rank = place_among(w, world_rank, members, n);
    if (rank < 0)
        st = weft_i_error_set(WEFT_STATUS_ARG,
                              "rank %d of %d is not in the group of %d ranks over %s, or the group "
                              "names a rank twice or one that is not there",
                              world_rank, w->n_ranks, n, axis);
    if (st == WEFT_OK)
        st = weft_i_alloc_new(ctx->alloc, 1, sizeof(thread_comm), &p);
    if (st == WEFT_OK) {
        thread_comm *const c = p;
        c->base =
            (weft_comm){.ops = &thread_ops, .ctx = ctx, .rank = rank, .size = n, .axis = axis};
        c->world_rank = world_rank;
        st = weft_i_thread_group_join(&c->group, w, rank, members, n, axis);
        if (st == WEFT_OK) {
            c->base.world_rank = c->group->world_rank;
            *out = &c->base;
        } else {
            weft_i_alloc_put(ctx->alloc, p);
        }
    }
    weft_i_alloc_put(ctx->alloc, all);
    return st;
}
