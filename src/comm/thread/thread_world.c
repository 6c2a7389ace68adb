/*
 * Ranks as threads: the shared state, how ranks sleep and wake, how they fail together.
 *
 * A rank sleeps on a condition variable of its own; before that it looks for 20 microseconds, where there are as many
 * processors as ranks. Wakers change the state first and look for sleepers after; a sleeper counts itself first and looks
 * at the state after. So no wake-up is lost, and waking a rank that does not sleep costs one load.
 *
 * Failure belongs to the world: the first cause is kept, every rank wakes, and buffers are let alone from then on
 * (n_working), so that a rank that got a failure may free what it had given to calls on their way.
 *
 * Silence: a rank is silent while its counter stands still. Ranks that themselves wait in a call are silent because of
 * others, so they are blamed only after twice the deadline: the rank that really stopped is named first.
 * Communication: this is its ground.
 */
#include "comm/thread/thread_world.h"

#include "base/clock.h"
#include "base/compiler.h"
#include "base/ctx.h"
#include "base/env.h"
#include "base/log.h"
#include "comm/message.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define DEADLINE_SECONDS 120.0
#define LONGEST_NAP_SECONDS 0.05
#define SPIN_SECONDS 20e-6
#define SPINS_PER_LOOK 32
#define MAX_RANKS 4096
#define CALLS_A_LINE 8

static void init_rank(weft_thread_rank *r)
{
    pthread_condattr_t monotonic; /* none of these can fail with these attributes on Linux */
    (void)pthread_mutex_init(&r->lock, NULL);
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&r->woken, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    atomic_init(&r->n_sleeping, 0);
    atomic_init(&r->is_waiting, false);
    atomic_init(&r->progress, 0);
}

weft_status weft_i_thread_world_create(weft_thread_world **out,
                                       weft_ctx *ctx,
                                       int n_ranks,
                                       const weft_thread_options *options)
{
    *out = NULL;
    if (n_ranks < 1 || n_ranks > MAX_RANKS)
        WEFT_FAIL(WEFT_STATUS_ARG, "%d ranks were asked for; 1 to %d can be threads of one process",
                  n_ranks, MAX_RANKS);
    void *p = NULL, *ranks = NULL;
    WEFT_TRY(weft_i_alloc_new(ctx->alloc, 1, sizeof(weft_thread_world), &p));
    const weft_status st =
        weft_i_alloc_new(ctx->alloc, (size_t)n_ranks, sizeof(weft_thread_rank), &ranks);
    if (st != WEFT_OK) {
        weft_i_alloc_put(ctx->alloc, p);
        return st;
    }
    weft_thread_world *const w = p;
    w->alloc = ctx->alloc;
    w->n_ranks = n_ranks;
    w->may_spin = n_ranks <= weft_i_env_processors();
    w->deadline_s =
        options != NULL && options->deadline_s > 0 ? options->deadline_s : DEADLINE_SECONDS;
    if (options != NULL) {
        w->progress = options->progress;
        w->user = options->user;
    }
    w->ranks = ranks;
    w->failed_rank = -1;
    (void)pthread_mutex_init(&w->lock, NULL);
    atomic_init(&w->has_failed, false);
    atomic_init(&w->n_working, 0);
    for (int r = 0; r < n_ranks; r++)
        init_rank(&w->ranks[r]);
    *out = w;
    return WEFT_OK;
}

static void free_calls(weft_alloc *alloc, weft_thread_call *call)
{
    while (call != NULL) {
        weft_thread_call *const next = call->next;
        weft_i_alloc_put(alloc, call->member);
        weft_i_alloc_put(alloc, call->is_here);
        weft_i_alloc_put(alloc, call->m);
        weft_i_alloc_put(alloc, call->send);
        weft_i_alloc_put(alloc, call);
        call = next;
    }
}

static void free_group(weft_thread_group *g)
{
    weft_alloc *const alloc = g->world->alloc;
    free_calls(alloc, g->calls);
    free_calls(alloc, g->free_calls);
    (void)pthread_mutex_destroy(&g->lock);
    weft_i_alloc_put(alloc, g->world_rank);
    weft_i_alloc_put(alloc, g->has_joined);
    weft_i_alloc_put(alloc, g);
}

void weft_i_thread_world_destroy(weft_thread_world *w)
{
    if (w == NULL)
        return;
    while (w->groups != NULL) {
        weft_thread_group *const g = w->groups;
        w->groups = g->next;
        free_group(g);
    }
    for (int r = 0; r < w->n_ranks; r++) {
        (void)pthread_cond_destroy(&w->ranks[r].woken);
        (void)pthread_mutex_destroy(&w->ranks[r].lock);
    }
    (void)pthread_mutex_destroy(&w->lock);
    weft_i_alloc_put(w->alloc, w->ranks);
    weft_i_alloc_put(w->alloc, w);
}

void weft_i_thread_pulse(weft_thread_world *w, int world_rank)
{
    (void)atomic_fetch_add_explicit(&w->ranks[world_rank].progress, 1, memory_order_relaxed);
}

/* ---- groups ---- */

static bool is_group_of(const weft_thread_group *g, const int *members, int n, const char *axis)
{
    return g->size == n && strncmp(g->axis, axis, sizeof(g->axis) - 1) == 0 &&
           memcmp(g->world_rank, members, (size_t)n * sizeof(*members)) == 0;
}

static weft_status new_group(
    weft_thread_group **out, weft_thread_world *w, const int *members, int n, const char *axis)
{
    void *p = NULL, *ranks = NULL, *joined = NULL;
    weft_status st = weft_i_alloc_new(w->alloc, 1, sizeof(weft_thread_group), &p);
    if (st == WEFT_OK)
        st = weft_i_alloc_new(w->alloc, (size_t)n, sizeof(int), &ranks);
    if (st == WEFT_OK)
        st = weft_i_alloc_new(w->alloc, (size_t)n, sizeof(bool), &joined);
    if (st != WEFT_OK) {
        weft_i_alloc_put(w->alloc, ranks);
        weft_i_alloc_put(w->alloc, p);
        return st;
    }
    weft_thread_group *const g = p;
    g->world = w;
    g->size = n;
    g->world_rank = ranks;
    g->has_joined = joined;
    memcpy(g->world_rank, members, (size_t)n * sizeof(*members));
    (void)snprintf(g->axis, sizeof(g->axis), "%s", axis);
    (void)pthread_mutex_init(&g->lock, NULL);
    *out = g;
    return WEFT_OK;
}

weft_status weft_i_thread_group_join(weft_thread_group **out,
                                     weft_thread_world *w,
                                     int rank,
                                     const int *members,
                                     int n_members,
                                     const char *axis)
{
    weft_status st = WEFT_OK;
    (void)pthread_mutex_lock(&w->lock);
    weft_thread_group **at = &w->groups; /* oldest first, so that n-th calls meet */
    while (*at != NULL && (!is_group_of(*at, members, n_members, axis) || (*at)->has_joined[rank]))
        at = &(*at)->next;
    if (*at == NULL)
        st = new_group(at, w, members, n_members, axis);
    if (st == WEFT_OK) {
        (*at)->has_joined[rank] = true;
        *out = *at;
    }
    (void)pthread_mutex_unlock(&w->lock);
    return st;
}

void weft_i_thread_group_leave(weft_thread_group *g)
{
    weft_thread_world *const w = g->world;
    (void)pthread_mutex_lock(&w->lock);
    g->n_gone++;
    if (g->n_gone == g->size) {
        weft_thread_group **at = &w->groups;
        while (*at != g)
            at = &(*at)->next;
        *at = g->next;
        free_group(g);
    }
    (void)pthread_mutex_unlock(&w->lock);
}

/* ---- failing together ---- */

static void quiesce(weft_thread_world *w)
{
    while (atomic_load(&w->n_working) != 0)
        (void)sched_yield();
}

static void wake_sleepers(weft_thread_rank *r)
{
    if (atomic_load(&r->n_sleeping) == 0)
        return;
    (void)pthread_mutex_lock(&r->lock);
    (void)pthread_cond_broadcast(&r->woken);
    (void)pthread_mutex_unlock(&r->lock);
}

void weft_i_thread_wake(weft_thread_world *w, int world_rank)
{
    wake_sleepers(&w->ranks[world_rank]);
}

void weft_i_thread_fail(weft_thread_world *w,
                        int world_rank,
                        weft_status status,
                        const char *message)
{
    (void)pthread_mutex_lock(&w->lock);
    if (!atomic_load(&w->has_failed)) {
        w->failed_rank = world_rank;
        w->cause = status;
        (void)snprintf(w->message, sizeof(w->message), "%s", message != NULL ? message : "");
        atomic_store(&w->has_failed, true);
    }
    (void)pthread_mutex_unlock(&w->lock);
    for (int r = 0; r < w->n_ranks; r++)
        wake_sleepers(&w->ranks[r]);
    quiesce(w);
}

weft_status weft_i_thread_remote(weft_thread_world *w)
{
    quiesce(w);
    WEFT_FAIL(WEFT_STATUS_REMOTE, "rank %d failed: %s", w->failed_rank, w->message);
}

bool weft_i_thread_world_has_failed(const weft_thread_world *w)
{
    return atomic_load_explicit(&w->has_failed, memory_order_relaxed);
}

weft_status weft_i_thread_check(weft_thread_world *w, int world_rank)
{
    if (!atomic_load_explicit(&w->has_failed, memory_order_acquire))
        return WEFT_OK;
    if (w->failed_rank != world_rank)
        return weft_i_thread_remote(w);
    quiesce(w);
    return weft_i_error_set(w->cause, "%s", w->message);
}

weft_status weft_i_thread_world_cause(weft_thread_world *w, int *world_rank)
{
    *world_rank = -1;
    if (!atomic_load(&w->has_failed))
        return WEFT_OK;
    *world_rank = w->failed_rank;
    return weft_i_error_set(w->cause, "%s", w->message);
}

/* ---- waiting ---- */

static bool is_over(weft_thread_call *call, int seen)
{
    return atomic_load(&call->state) > seen || atomic_load(&call->group->world->has_failed);
}

static bool spin(weft_thread_call *call, int seen)
{
    const double until = weft_i_clock_seconds() + SPIN_SECONDS;
    do {
        for (int i = 0; i < SPINS_PER_LOOK; i++) {
            if (is_over(call, seen))
                return true;
            WEFT_CPU_RELAX();
        }
    } while (weft_i_clock_seconds() < until);
    return false;
}

/* One nap: until woken, or `seconds`. */
static void nap(weft_thread_call *call, weft_thread_rank *me, int seen, double seconds)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    const int64_t ns = (int64_t)until.tv_nsec + (int64_t)(seconds * 1e9);
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    (void)pthread_mutex_lock(&me->lock);
    (void)atomic_fetch_add(&me->n_sleeping, 1);
    int rc = 0;
    while (!is_over(call, seen) && rc == 0)
        rc = pthread_cond_timedwait(&me->woken, &me->lock, &until);
    (void)atomic_fetch_sub(&me->n_sleeping, 1);
    (void)pthread_mutex_unlock(&me->lock);
}

/* Some ranks: "1, 3". */
typedef struct rank_names {
    int n;
    char text[256];
} rank_names;

/* The members this rank waits for: who has not come, or, when all have, everyone else. */
typedef struct awaited {
    uint64_t progress;
    rank_names waiting; /* for others in turn: blamed only where nobody stands still by itself */
    rank_names still;
} awaited;

static void add_name(rank_names *names, int world_rank)
{
    char *const text = names->text;
    const size_t used = strlen(text);
    names->n++;
    if (used + 24 > sizeof(names->text)) /* no room for one more and for the dots */
        (void)snprintf(text + used, sizeof(names->text) - used, "%s",
                       text[used - 1] != '.' ? ", ..." : "");
    else
        (void)snprintf(text + used, sizeof(names->text) - used, "%s%d", used > 0 ? ", " : "",
                       world_rank);
}

static void look_at(awaited *a, const weft_thread_group *g, int member)
{
    weft_thread_world *const w = g->world;
    const int world_rank = g->world_rank[member];
    weft_thread_rank *const r = &w->ranks[world_rank];
    a->progress += atomic_load(&r->progress);
    if (w->progress != NULL)
        a->progress += w->progress(w->user, world_rank);
    add_name(atomic_load(&r->is_waiting) ? &a->waiting : &a->still, world_rank);
}

/* Whether member i is not there yet, or, when all are, works still; not the rank that asks. Under the group's lock. */
static bool is_awaited(const weft_thread_call *call, int i, int rank)
{
    return call->member[i] != rank && (call->n_arrived == call->n_members || !call->is_here[i]);
}

/* Under the group's lock, since ranks may be arriving. */
static void look_at_awaited(awaited *a, weft_thread_call *call, int rank)
{
    weft_thread_group *const g = call->group;
    *a = (awaited){0};
    (void)pthread_mutex_lock(&g->lock);
    for (int i = 0; i < call->n_members; i++) {
        if (is_awaited(call, i, rank))
            look_at(a, g, call->member[i]);
    }
    (void)pthread_mutex_unlock(&g->lock);
}

/* "; rank 1 last began all_gather 2 of wte over dp", of the first who is missing. */
static void tell_last_call(char *out, size_t n_bytes, weft_thread_world *w, const char *names)
{
    int first = 0;
    out[0] = '\0';
    for (const char *p = names; *p >= '0' && *p <= '9'; p++)
        first = first * 10 + (*p - '0');
    weft_thread_rank *const r = &w->ranks[first];
    (void)pthread_mutex_lock(&r->lock);
    (void)snprintf(out, n_bytes, "; rank %d last began %s", first,
                   r->n_last > 0 ? r->last_calls[(r->n_last - 1) % WEFT_THREAD_MAX_LAST]
                                 : "no call");
    (void)pthread_mutex_unlock(&r->lock);
}

/* One line of the log for each few of a rank's last calls, oldest first. */
static void log_last_calls(const weft_ctx *ctx, weft_thread_rank *r, int world_rank)
{
    char text[CALLS_A_LINE * sizeof(r->last_calls[0])];
    (void)pthread_mutex_lock(&r->lock);
    const uint64_t n = r->n_last;
    uint64_t at = n - WEFT_MIN(n, (uint64_t)WEFT_THREAD_MAX_LAST);
    (void)pthread_mutex_unlock(&r->lock);
    if (n == 0)
        weft_log(ctx, WEFT_LOG_ERROR, "comm", "rank %d has begun no call", world_rank);
    while (at < n) {
        const uint64_t first = at;
        size_t used = 0;
        (void)pthread_mutex_lock(&r->lock);
        for (; at < n && at < first + CALLS_A_LINE; at++)
            used +=
                (size_t)snprintf(text + used, sizeof(text) - used, "%s%s", at > first ? "; " : "",
                                 r->last_calls[at % WEFT_THREAD_MAX_LAST]);
        (void)pthread_mutex_unlock(&r->lock);
        weft_log(ctx, WEFT_LOG_ERROR, "comm",
                 "rank %d began, of its %llu calls, number %llu on: %s", world_rank,
                 (unsigned long long)n, (unsigned long long)first, text);
    }
}

/* Those that are missing, as in the message. */
static void log_missing(const weft_thread_call *call, const weft_comm *c)
{
    weft_thread_group *const g = call->group;
    for (int i = 0; i < call->n_members; i++) {
        (void)pthread_mutex_lock(&g->lock);
        const bool is_late = is_awaited(call, i, c->rank);
        (void)pthread_mutex_unlock(&g->lock);
        const int world_rank = g->world_rank[call->member[i]];
        if (is_late)
            log_last_calls(c->ctx, &g->world->ranks[world_rank], world_rank);
    }
}

/*
 * The first collective of the group, up to `call`, that this rank has begun and another has not: with several on their way the
 * one that is waited for need not be the one that went missing. It is not used for another meanwhile: this rank has not left
 * it. Pairs have no order, so there it is `call`.
 */
static weft_thread_call *first_missed(weft_thread_call *call, int rank)
{
    weft_thread_group *const g = call->group;
    if (call->is_pair)
        return call;
    (void)pthread_mutex_lock(&g->lock);
    weft_thread_call *at = g->calls;
    while (at != call && (at->is_pair || !at->is_here[rank] || at->n_arrived == at->n_members))
        at = at->next;
    (void)pthread_mutex_unlock(&g->lock);
    return at;
}

static weft_status time_out(weft_thread_call *waited_for, const weft_comm *c, double waited_s)
{
    const int rank = c->rank;
    weft_thread_call *const call = first_missed(waited_for, rank);
    weft_thread_group *const g = call->group;
    weft_thread_world *const w = g->world;
    awaited a;
    look_at_awaited(&a, call, rank);
    const rank_names *const blamed = a.still.n > 0 ? &a.still : &a.waiting;
    char call_name[3 * WEFT_THREAD_NAME_BYTES] = "", last[4 * WEFT_THREAD_NAME_BYTES];
    for (int i = 0; i < call->n_members; i++) {
        if (call->member[i] != rank)
            continue;
        const weft_message *const m = &call->m[i];
        (void)snprintf(call_name, sizeof(call_name), "%s %llu of %.64s over %s",
                       weft_i_comm_op_name(m->op), (unsigned long long)call->index,
                       weft_i_comm_tensor_name(m), g->axis);
    }
    tell_last_call(last, sizeof(last), w, blamed->text);
    const bool is_work = atomic_load(&call->state) >= WEFT_THREAD_READY;
    (void)weft_i_error_set(WEFT_STATUS_TIMEOUT,
                           "%s %s %s %s: rank %d waited while they were silent for %.3g s%s",
                           blamed->n == 1 ? "rank" : "ranks", blamed->text,
                           is_work ? "did not finish" : "missing from", call_name,
                           g->world_rank[rank], waited_s, last);
    weft_i_thread_fail(w, g->world_rank[rank], WEFT_STATUS_TIMEOUT, weft_last_error());
    if (w->failed_rank != g->world_rank[rank])
        return weft_i_thread_remote(w);
    log_missing(call, c);
    return WEFT_STATUS_TIMEOUT;
}

weft_status weft_i_thread_sleep(weft_thread_call *call, const weft_comm *c, int seen)
{
    const int rank = c->rank;
    weft_thread_world *const w = call->group->world;
    weft_thread_rank *const me = &w->ranks[call->group->world_rank[rank]];
    if (w->may_spin && spin(call, seen))
        return WEFT_OK;
    const double nap_s = WEFT_MIN(w->deadline_s / 8, LONGEST_NAP_SECONDS);
    double since = weft_i_clock_seconds();
    uint64_t progress = 0;
    for (bool is_first = true; !is_over(call, seen); is_first = false) {
        awaited a;
        nap(call, me, seen, nap_s);
        if (is_over(call, seen))
            break;
        look_at_awaited(&a, call, rank);
        const double now = weft_i_clock_seconds();
        if (is_first || a.progress != progress) {
            progress = a.progress;
            since = is_first ? since : now;
        } else if (now - since >= (a.still.n == 0 ? 2 : 1) * w->deadline_s) {
            return time_out(call, c, now - since);
        }
    }
    return WEFT_OK;
}
