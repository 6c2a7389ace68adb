/*
 * A fixed set of worker threads that run numbered blocks.
 *
 * A run is a generation: the caller writes the job, raises the generation and works on blocks itself; every worker
 * sees the new generation once, takes blocks from the shared counter until none is left, and signs off. The caller
 * returns when all have signed off, so no worker can read a job that is gone.
 *
 * Waiting: about 20 microseconds in a loop, then on a condition variable. Only where there are as many processors
 * as threads: elsewhere a waiting thread would hold the processor that the awaited one needs.
 *
 * Invariants: 1. job fields are written only while n_active is 0. 2. each worker signs off once a generation.
 */
#include "base/pool.h"

#include "base/clock.h"
#include "base/env.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#define MAX_THREADS 1024
#define SPIN_SECONDS 20e-6
#define SPINS_PER_LOOK 32

typedef struct pool_worker {
    pthread_t thread;
    struct weft_pool *pool;
    int index; /* 1 .. n_threads - 1 */
} pool_worker;

struct weft_pool {
    weft_alloc *alloc;
    int n_threads;
    bool may_spin;
    weft_pool_start_fn *start;
    pool_worker *workers; /* [n_threads - 1] */
    int n_started;

    pthread_mutex_t lock;
    pthread_cond_t work_came;
    pthread_cond_t work_done;
    atomic_uint generation;
    atomic_int n_active; /* workers that have not signed off */
    atomic_bool is_ending;

    weft_pool_fn *fn;
    void *user;
    int64_t n_blocks;
    atomic_llong next_block;
};

static void work_on_blocks(weft_pool *p, int worker)
{
    for (;;) {
        const int64_t block = atomic_fetch_add(&p->next_block, 1);
        if (block >= p->n_blocks)
            return;
        p->fn(p->user, block, worker);
    }
}

/* Looks for a new generation for a while. */
static bool spin_for_work(weft_pool *p, unsigned seen)
{
    const double until = weft_i_clock_seconds() + SPIN_SECONDS;
    do {
        for (int i = 0; i < SPINS_PER_LOOK; i++) {
            if (atomic_load(&p->generation) != seen)
                return true;
            WEFT_CPU_RELAX();
        }
    } while (weft_i_clock_seconds() < until);
    return false;
}

static void wait_for_work(weft_pool *p, unsigned seen)
{
    if (p->may_spin && spin_for_work(p, seen))
        return;
    (void)pthread_mutex_lock(&p->lock);
    while (atomic_load(&p->generation) == seen)
        (void)pthread_cond_wait(&p->work_came, &p->lock);
    (void)pthread_mutex_unlock(&p->lock);
}

static void sign_off(weft_pool *p)
{
    if (atomic_fetch_sub(&p->n_active, 1) != 1)
        return;
    (void)pthread_mutex_lock(&p->lock);
    (void)pthread_cond_signal(&p->work_done);
    (void)pthread_mutex_unlock(&p->lock);
}

static void *worker_main(void *argument)
{
    pool_worker *const w = argument;
    weft_pool *const p = w->pool;
    if (p->start != NULL)
        p->start();
    for (unsigned seen = 0;; seen++) {
        wait_for_work(p, seen);
        if (atomic_load(&p->is_ending))
            return NULL;
        work_on_blocks(p, w->index);
        sign_off(p);
    }
}

/* Tells all workers that something changed. */
static void raise_generation(weft_pool *p)
{
    (void)pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->generation, 1);
    (void)pthread_cond_broadcast(&p->work_came);
    (void)pthread_mutex_unlock(&p->lock);
}

static bool spin_for_workers(weft_pool *p)
{
    const double until = weft_i_clock_seconds() + SPIN_SECONDS;
    do {
        for (int i = 0; i < SPINS_PER_LOOK; i++) {
            if (atomic_load(&p->n_active) == 0)
                return true;
            WEFT_CPU_RELAX();
        }
    } while (weft_i_clock_seconds() < until);
    return false;
}

static void wait_for_workers(weft_pool *p)
{
    if (p->may_spin && spin_for_workers(p))
        return;
    (void)pthread_mutex_lock(&p->lock);
    while (atomic_load(&p->n_active) != 0)
        (void)pthread_cond_wait(&p->work_done, &p->lock);
    (void)pthread_mutex_unlock(&p->lock);
}

void weft_i_pool_run(weft_pool *p, int64_t n_blocks, weft_pool_fn *fn, void *user)
{
    if (p->n_threads == 1 || n_blocks <= 1) {
        for (int64_t block = 0; block < n_blocks; block++)
            fn(user, block, 0);
        return;
    }
    WEFT_ASSERT(atomic_load(&p->n_active) ==
                0); /* one caller at a time, and not from inside a block */
    p->fn = fn;
    p->user = user;
    p->n_blocks = n_blocks;
    atomic_store(&p->next_block, 0);
    atomic_store(&p->n_active, p->n_threads - 1);
    raise_generation(p);
    work_on_blocks(p, 0);
    wait_for_workers(p);
}

int weft_i_pool_threads(const weft_pool *p)
{
    return p->n_threads;
}

/* Signals of the process belong to the program's own thread: workers block them all. */
static weft_status start_workers(weft_pool *p)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    weft_status st = WEFT_OK;
    for (int i = 0; i < p->n_threads - 1 && st == WEFT_OK; i++) {
        pool_worker *const w = &p->workers[i];
        *w = (pool_worker){.pool = p, .index = i + 1};
        if (pthread_create(&w->thread, NULL, worker_main, w) != 0)
            st = weft_i_error_set(WEFT_STATUS_NOMEM, "the system gave %d of %d threads",
                                  p->n_started + 1, p->n_threads);
        else
            p->n_started++;
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return st;
}

weft_status
weft_i_pool_create(weft_pool **out, weft_alloc *alloc, int n_threads, weft_pool_start_fn *start)
{
    if (n_threads < 1 || n_threads > MAX_THREADS)
        WEFT_FAIL(WEFT_STATUS_ARG, "%d threads were asked for; 1 to %d can be had", n_threads,
                  MAX_THREADS);
    void *block = NULL;
    WEFT_TRY(weft_i_alloc_new(alloc, 1, sizeof(weft_pool), &block));
    weft_pool *const p = block;
    p->alloc = alloc;
    p->n_threads = n_threads;
    p->start = start;
    p->may_spin = weft_i_env_processors() >= n_threads;
    (void)pthread_mutex_init(&p->lock, NULL); /* cannot fail with default attributes on Linux */
    (void)pthread_cond_init(&p->work_came, NULL);
    (void)pthread_cond_init(&p->work_done, NULL);
    atomic_init(&p->generation, 0);
    atomic_init(&p->n_active, 0);
    atomic_init(&p->is_ending, false);
    atomic_init(&p->next_block, 0);
    weft_status st = weft_i_alloc_new(alloc, (size_t)n_threads - 1, sizeof(pool_worker), &block);
    if (st == WEFT_OK) {
        p->workers = block;
        st = start_workers(p);
    }
    if (st != WEFT_OK) {
        weft_i_pool_destroy(p);
        return st;
    }
    if (start != NULL)
        start();
    *out = p;
    return WEFT_OK;
}

void weft_i_pool_destroy(weft_pool *p)
{
    if (p == NULL)
        return;
    atomic_store(&p->is_ending, true);
    raise_generation(p);
    for (int i = 0; i < p->n_started; i++)
        (void)pthread_join(p->workers[i].thread, NULL);
    (void)pthread_cond_destroy(&p->work_done);
    (void)pthread_cond_destroy(&p->work_came);
    (void)pthread_mutex_destroy(&p->lock);
    weft_i_alloc_put(p->alloc, p->workers);
    weft_i_alloc_put(p->alloc, p);
}
