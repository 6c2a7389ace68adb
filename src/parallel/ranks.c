/*
 * Ranks as threads of this process: start, watch, end, first cause.
 *
 * What the threads share is on the heap (a crew). A rank that does not come back after a failure is left behind with its
 * memory, and the crew with it: it may wake up at any time, finds the world failed at its next operation, and its log goes
 * nowhere; the last one to end frees the crew. Only what the caller passed as `user` is then the caller's risk; the program
 * ends soon after.
 *
 * Each rank makes its context and mesh on its own thread, so its memory is first touched there.
 *
 * Invariants: 1. the first failure of any rank is the run's, however the others end.
 *             2. whoever learns of a failure from weft_i_ctx_alive may free its buffers: no thread touches them any more.
 * Communication: none of its own; it aborts the world when a rank fails.
 */
#include "parallel/ranks.h"

#include "base/clock.h"
#include "base/compiler.h"
#include "base/ctx.h"
#include "base/env.h"
#include "base/str.h"
#include "comm/thread/thread.h"
#include "nn/layout_context.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define GRACE_SECONDS 8.0
#define LOOK_SECONDS 0.1
#define STACK_BYTES ((size_t)8 << 20)
#define MESSAGE_BYTES 1024
#define CACHE_LINE_BYTES 128

/* What a rank is given to run. */
typedef struct rank_task {
    weft_layout layout;
    weft_ctx_options options; /* log is the caller's */
    weft_thread_world *world; /* NULL: one rank */
    weft_rank_fn *fn;
    void *user;
} rank_task;

typedef struct rank_slot {
    struct crew *crew;
    int rank;
    pthread_t thread;
    bool is_started;
    weft_comm *alarm; /* over all ranks; only ever aborted */
    weft_status st;   /* of fn; guarded by the crew's lock, as is_done */
    bool is_done;
    char message[MESSAGE_BYTES];
    char padding_before[CACHE_LINE_BYTES]; /* the counter is written at every operation */
    atomic_ullong n_alive;
    char padding_after[CACHE_LINE_BYTES];
} rank_slot;

typedef struct crew {
    weft_ctx *ctx; /* owns all of this, and the world's blocks */
    rank_task task;
    int n_ranks;
    weft_thread_world *world;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    int n_done;
    bool is_left; /* by the caller: the last rank frees it; guarded by lock */
    bool has_locks;
    atomic_bool has_begun; /* steps, on any rank */
    pthread_mutex_t log_lock;
    bool is_log_closed; /* guarded by log_lock */
    rank_slot *slots;   /* [n_ranks] */
} crew;

/* ---- what a rank's context is given ---- */

static void log_line(void *user, weft_log_level level, const char *line)
{
    const rank_slot *const s = user;
    crew *const c = s->crew;
    char text[MESSAGE_BYTES + 256];
    if (s->rank > 0) {
        (void)snprintf(text, sizeof(text), "rank %d: %s", s->rank, line);
        line = text;
    }
    (void)pthread_mutex_lock(&c->log_lock);
    if (!c->is_log_closed)
        c->task.options.log(c->task.options.log_user, level, line);
    (void)pthread_mutex_unlock(&c->log_lock);
}

static weft_status alive(void *user)
{
    rank_slot *const s = user;
    (void)atomic_fetch_add_explicit(&s->n_alive, 1, memory_order_relaxed);
    return weft_i_thread_check(s->crew->world, s->rank);
}

static uint64_t progress_of(void *user, int world_rank)
{
    const crew *const c = user;
    return atomic_load_explicit(&c->slots[world_rank].n_alive, memory_order_relaxed);
}

/* ---- a rank ---- */

/* The outcome of a rank or a run whose trace has yet to be written: its own failure goes first. */
static weft_status settle(weft_status st, const char *message, weft_status written)
{
    return st == WEFT_OK ? written : weft_i_error_set(st, "%s", message);
}

/* fn on a mesh of its own, with this rank's trace. *has_begun: whether steps had. */
static weft_status run_on(weft_ctx *ctx, const rank_task *task, int rank, bool *has_begun)
{
    const weft_layout *const layout = &task->layout;
    char message[MESSAGE_BYTES] = "";
    weft_mesh *mesh = NULL;
    weft_trace *trace = NULL;
    if (layout->trace[0] != '\0')
        WEFT_TRY(weft_i_trace_create(&trace, ctx->alloc, layout->trace, rank, layout->n_ranks));
    weft_status st = weft_i_mesh_create(&mesh, ctx, layout, task->world, rank, trace);
    if (st == WEFT_OK) {
        st = task->fn(task->user, mesh);
        *has_begun = mesh->has_begun;
    }
    (void)snprintf(message, sizeof(message), "%s", weft_last_error());
    weft_i_mesh_destroy(mesh);
    st = settle(st, message, weft_i_trace_finish(trace));
    weft_i_trace_destroy(trace);
    return st;
}

/* One file of all ranks' traces; also of a run that failed. */
static weft_status join_traces(weft_alloc *alloc, const weft_layout *layout, weft_status st)
{
    char message[MESSAGE_BYTES] = "";
    if (layout->trace[0] == '\0')
        return st;
    (void)snprintf(message, sizeof(message), "%s", weft_last_error());
    return settle(st, message, weft_i_trace_join(alloc, layout->trace, layout->n_ranks));
}

static weft_status run_rank(rank_slot *s)
{
    crew *const c = s->crew;
    weft_ctx_options o = c->task.options;
    weft_ctx *ctx = NULL;
    bool has_begun = false;
    if (o.log != NULL) {
        o.log = log_line;
        o.log_user = s;
        if (s->rank > 0)
            o.log_level = WEFT_MAX(o.log_level, WEFT_LOG_ERROR);
    }
    WEFT_TRY(weft_i_thread_check(c->world, s->rank));
    WEFT_TRY(weft_ctx_create(&ctx, &o));
    ctx->alive = alive;
    ctx->alive_user = s;
    const weft_status st = run_on(ctx, &c->task, s->rank, &has_begun);
    weft_ctx_destroy(ctx);
    if (has_begun)
        atomic_store(&c->has_begun, true);
    return st;
}

/* Only when every rank has ended. */
static void destroy_crew(crew *c)
{
    if (c == NULL)
        return;
    weft_ctx *const ctx = c->ctx;
    for (int r = 0; c->slots != NULL && r < c->n_ranks; r++)
        weft_comm_destroy(c->slots[r].alarm);
    weft_i_thread_world_destroy(c->world);
    if (c->has_locks) {
        (void)pthread_cond_destroy(&c->ended);
        (void)pthread_mutex_destroy(&c->lock);
        (void)pthread_mutex_destroy(&c->log_lock);
    }
    weft_i_alloc_put(ctx->alloc, c->slots);
    weft_i_alloc_put(ctx->alloc, c);
    weft_ctx_destroy(ctx);
}

static void *rank_main(void *argument)
{
    rank_slot *const s = argument;
    crew *const c = s->crew;
    char name[16];
    (void)snprintf(name, sizeof(name), "rank %d", s->rank);
    weft_i_env_name_thread(name);
    const weft_status st = run_rank(s);
    if (st != WEFT_OK)
        s->alarm->ops->abort(s->alarm, st, weft_last_error());
    (void)pthread_mutex_lock(&c->lock);
    s->st = st;
    if (st != WEFT_OK)
        (void)snprintf(s->message, sizeof(s->message), "%s", weft_last_error());
    s->is_done = true;
    c->n_done++;
    const bool is_last = c->is_left && c->n_done == c->n_ranks;
    (void)pthread_cond_signal(&c->ended);
    (void)pthread_mutex_unlock(&c->lock);
    if (is_last)
        destroy_crew(c);
    return NULL;
}

/* ---- the crew ---- */

static void init_locks(crew *c)
{
    pthread_condattr_t monotonic; /* none of these can fail with these attributes on Linux */
    (void)pthread_mutex_init(&c->lock, NULL);
    (void)pthread_mutex_init(&c->log_lock, NULL);
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&c->ended, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    c->has_locks = true;
}

static weft_status create_crew(crew **out, const rank_task *task)
{
    const weft_ctx_options o = {.backend = WEFT_BACKEND_REFERENCE, .n_threads = 1};
    const int n = task->layout.n_ranks;
    weft_ctx *ctx = NULL;
    void *p = NULL, *slots = NULL;
    crew *c = NULL;
    WEFT_TRY(weft_ctx_create(&ctx, &o));
    weft_status st = weft_i_alloc_new(ctx->alloc, 1, sizeof(crew), &p);
    if (st != WEFT_OK) {
        weft_ctx_destroy(ctx);
        return st;
    }
    c = p;
    c->ctx = ctx;
    c->task = *task;
    c->n_ranks = n;
    atomic_init(&c->has_begun, false);
    init_locks(c);
    const weft_thread_options t = {
        .deadline_s = task->layout.comm_timeout_s, .progress = progress_of, .user = c};
    st = weft_i_thread_world_create(&c->world, ctx, n, &t);
    if (st == WEFT_OK)
        st = weft_i_alloc_new(ctx->alloc, (size_t)n, sizeof(rank_slot), &slots);
    c->task.world = c->world;
    c->slots = slots;
    for (int r = 0; r < n && st == WEFT_OK; r++) {
        rank_slot *const s = &c->slots[r];
        s->crew = c;
        s->rank = r;
        atomic_init(&s->n_alive, 0);
        st = weft_i_thread_comm_create(&s->alarm, c->world, ctx, r, NULL, 0, "ranks");
    }
    if (st == WEFT_OK)
        *out = c;
    else
        destroy_crew(c);
    return st;
}

/* Starts all, or fails the world, so that those that started end. */
static void start_ranks(crew *c)
{
    pthread_attr_t attributes;
    (void)pthread_attr_init(&attributes);
    (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
    for (int r = 0; r < c->n_ranks; r++) {
        rank_slot *const s = &c->slots[r];
        const int rc = pthread_create(&s->thread, &attributes, rank_main, s);
        if (rc == 0) {
            s->is_started = true;
            continue;
        }
        (void)weft_i_error_set(WEFT_STATUS_NOMEM, "thread %d of %d could not be started: %s", r,
                               c->n_ranks, strerror(rc));
        s->alarm->ops->abort(s->alarm, WEFT_STATUS_NOMEM, weft_last_error());
        (void)pthread_mutex_lock(&c->lock);
        for (int left = r; left < c->n_ranks; left++)
            c->slots[left].is_done = true;
        c->n_done += c->n_ranks - r;
        (void)pthread_mutex_unlock(&c->lock);
        break;
    }
    (void)pthread_attr_destroy(&attributes);
}

/* ---- until all ended ---- */

/* Sleeps a little, or until a rank ends; whether all have. */
static bool nap(crew *c)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)(LOOK_SECONDS * 1e9);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)pthread_mutex_lock(&c->lock);
    if (c->n_done < c->n_ranks)
        (void)pthread_cond_timedwait(&c->ended, &c->lock, &until);
    const bool is_over = c->n_done == c->n_ranks;
    (void)pthread_mutex_unlock(&c->lock);
    return is_over;
}

/* How far those came that have not ended; *last is one of them. *n_done: those that have. */
static uint64_t look_at_the_rest(crew *c, int *last, int *n_done)
{
    uint64_t sum = 0;
    (void)pthread_mutex_lock(&c->lock);
    *n_done = c->n_done;
    for (int r = 0; r < c->n_ranks; r++) {
        if (c->slots[r].is_done)
            continue;
        sum += progress_of(c, r);
        *last = r;
    }
    (void)pthread_mutex_unlock(&c->lock);
    return sum;
}

/* Until all ended, or some are to be left. Ranks that others wait for in a call are the calls' to watch. */
static void wait_for_ranks(crew *c)
{
    double failed_at = -1, silent_since = weft_i_clock_seconds();
    uint64_t progress = 0;
    int n_done = 0;
    while (!nap(c)) {
        const double now = weft_i_clock_seconds();
        int last = 0, n = 0;
        if (weft_i_thread_world_has_failed(c->world)) {
            failed_at = failed_at < 0 ? now : failed_at;
            if (now - failed_at > GRACE_SECONDS)
                return;
            continue;
        }
        const uint64_t p = look_at_the_rest(c, &last, &n);
        if (n == 0 || n != n_done || p != progress) {
            n_done = n;
            progress = p;
            silent_since = now;
        } else if (now - silent_since > 2 * c->task.layout.comm_timeout_s) {
            rank_slot *const s = &c->slots[last];
            (void)weft_i_error_set(WEFT_STATUS_TIMEOUT,
                                   "rank %d was silent for %.3g s while %d of %d ranks had ended",
                                   last, now - silent_since, n, c->n_ranks);
            s->alarm->ops->abort(s->alarm, WEFT_STATUS_TIMEOUT, weft_last_error());
        }
    }
}

static void join_ranks(crew *c)
{
    for (int r = 0; r < c->n_ranks; r++) {
        rank_slot *const s = &c->slots[r];
        (void)pthread_mutex_lock(&c->lock);
        const bool is_done = s->is_done;
        (void)pthread_mutex_unlock(&c->lock);
        if (!s->is_started)
            continue;
        if (is_done)
            (void)pthread_join(s->thread, NULL);
        else
            (void)pthread_detach(s->thread);
    }
}

/* Whether a message already names a rank: "rank 3 ...", "ranks 1, 2 ...". */
static bool names_a_rank(const char *message)
{
    return strncmp(message, "ranks ", 6) == 0 ||
           (strncmp(message, "rank ", 5) == 0 && message[5] >= '0' && message[5] <= '9');
}

/* Whether every rank ended with the same failure: then it is no rank's own. */
static bool have_all_failed_alike(crew *c)
{
    bool is_alike = true;
    (void)pthread_mutex_lock(&c->lock);
    for (int r = 0; r < c->n_ranks; r++) {
        const rank_slot *const s = &c->slots[r];
        is_alike = is_alike && s->is_done && s->st == c->slots[0].st &&
                   strcmp(s->message, c->slots[0].message) == 0;
    }
    (void)pthread_mutex_unlock(&c->lock);
    return is_alike;
}

static weft_status first_cause(crew *c)
{
    int rank = -1;
    weft_status st = weft_i_thread_world_cause(c->world, &rank);
    if (st == WEFT_OK)
        return WEFT_OK;
    if (!names_a_rank(weft_last_error()) && !have_all_failed_alike(c))
        st = weft_i_error_prefix(st, "rank %d", rank);
    return st;
}

/* To the ranks that are left; false: there are none. The log is the caller's and ends with the call. */
static bool leave_crew(crew *c)
{
    (void)pthread_mutex_lock(&c->log_lock);
    c->is_log_closed = true;
    (void)pthread_mutex_unlock(&c->log_lock);
    (void)pthread_mutex_lock(&c->lock);
    const bool is_left = c->n_done < c->n_ranks;
    c->is_left = is_left;
    (void)pthread_mutex_unlock(&c->lock);
    return is_left;
}

static weft_status run_many(const rank_task *task, bool *has_begun)
{
    crew *c = NULL;
    WEFT_TRY(create_crew(&c, task));
    start_ranks(c);
    wait_for_ranks(c);
    join_ranks(c);
    weft_status st = first_cause(c);
    st = join_traces(c->ctx->alloc, &task->layout, st);
    *has_begun = atomic_load(&c->has_begun);
    if (!leave_crew(c))
        destroy_crew(c);
    return st;
}

static weft_status run_one(const rank_task *task, bool *has_begun)
{
    weft_ctx *ctx = NULL;
    WEFT_TRY(weft_ctx_create(&ctx, &task->options));
    weft_status st = run_on(ctx, task, 0, has_begun);
    st = join_traces(ctx->alloc, &task->layout, st);
    weft_ctx_destroy(ctx);
    return st;
}

static void warn_of_crowd(const weft_ctx_options *o, int n_ranks, int n_processors)
{
    char line[256];
    if (o->log == NULL || o->log_level > WEFT_LOG_WARN ||
        (int64_t)n_ranks * o->n_threads <= n_processors)
        return;
    if (weft_i_str_print(line, sizeof(line),
                         "parallel: %d ranks of %d threads are more than the %d processors; they "
                         "will wait for each other",
                         n_ranks, o->n_threads, n_processors) == WEFT_OK)
        o->log(o->log_user, WEFT_LOG_WARN, line);
}

weft_status weft_i_ranks_run(const weft_layout *layout,
                             const weft_layout_options *options,
                             const weft_ctx_options *like,
                             weft_rank_fn *fn,
                             void *user)
{
    rank_task task = {.layout = *layout, .fn = fn, .user = user};
    weft_ctx_options *const o = &task.options;
    bool has_begun = false;
    WEFT_TRY(weft_i_layout_ctx_options(o, options, like));
    if (layout->trace[0] != '\0')
        WEFT_TRY(weft_i_trace_prepare(layout->trace));
    const int n_processors = weft_i_env_processors();
    if (o->n_threads > 0)
        warn_of_crowd(o, layout->n_ranks, n_processors);
    else
        o->n_threads = WEFT_MAX(n_processors / layout->n_ranks, 1);
    const weft_status st =
        layout->n_ranks == 1 ? run_one(&task, &has_begun) : run_many(&task, &has_begun);
    if (st != WEFT_OK && has_begun)
        weft_i_error_mark_run();
    return st;
}
