/* Runs a function on ranks that are threads of one world, each with a context of its own. For tests of src/comm. */
#ifndef WEFT_TESTS_TEST_COMM_RANKS_H
#define WEFT_TESTS_TEST_COMM_RANKS_H

#include "check.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/ctx.h"
#include "comm/thread/thread.h"

#define MAX_TEST_RANKS 8

/* cmocka's checks belong to its own thread: a rank reports by its status and text instead. */
typedef struct test_rank {
    weft_thread_world *world;
    weft_ctx *ctx;
    weft_comm *comm;     /* over all ranks, axis "dp" */
    atomic_ullong *work; /* raise it to show that this rank works, like a backend's counter */
    void *user;
    weft_status (*fn)(struct test_rank *r);
    weft_status st;
    char message[1024];
    char log[16384]; /* lines of WARN and above, each with a newline */
} test_rank;

static void test_rank_log(void *user, weft_log_level level, const char *line)
{
    test_rank *const r = user;
    const size_t used = strlen(r->log);
    (void)level;
    (void)snprintf(r->log + used, sizeof(r->log) - used, "%s\n", line);
}

static inline uint64_t test_rank_progress(void *user, int rank)
{
    return atomic_load((atomic_ullong *)user + rank);
}

static void *test_rank_main(void *argument)
{
    test_rank *const r = argument;
    r->st = r->fn(r);
    if (r->st != WEFT_OK)
        (void)snprintf(r->message, sizeof(r->message), "%s", weft_last_error());
    if (r->st == WEFT_STATUS_INTERNAL) /* a wrong value: let the others not wait for this rank */
        r->comm->ops->abort(r->comm, r->st, r->message);
    return NULL;
}

/* Leaves each rank's status and message in out[0 .. n). */
static void
run_ranks(test_rank *out, int n, double deadline_s, weft_status (*fn)(test_rank *), void *user)
{
    const weft_ctx_options o = {.backend = WEFT_BACKEND_REFERENCE, .n_threads = 1};
    atomic_ullong work[MAX_TEST_RANKS];
    const weft_thread_options t = {
        .deadline_s = deadline_s, .progress = test_rank_progress, .user = work};
    for (int r = 0; r < MAX_TEST_RANKS; r++)
        atomic_init(&work[r], 0);
    weft_ctx *shared = NULL;
    weft_thread_world *world = NULL;
    pthread_t thread[MAX_TEST_RANKS];
    CHECK_OK(weft_ctx_create(&shared, &o));
    CHECK_OK(weft_i_thread_world_create(&world, shared, n, &t));
    for (int r = 0; r < n; r++) {
        weft_ctx_options logged = o;
        logged.log = test_rank_log;
        logged.log_user = &out[r];
        logged.log_level = WEFT_LOG_WARN;
        out[r] = (test_rank){.world = world, .work = &work[r], .user = user, .fn = fn};
        CHECK_OK(weft_ctx_create(&out[r].ctx, &logged));
        CHECK_OK(weft_i_thread_comm_create(&out[r].comm, world, out[r].ctx, r, NULL, 0, "dp"));
    }
    for (int r = 0; r < n; r++)
        assert_int_equal(pthread_create(&thread[r], NULL, test_rank_main, &out[r]), 0);
    for (int r = 0; r < n; r++)
        assert_int_equal(pthread_join(thread[r], NULL), 0);
    for (int r = 0; r < n; r++) {
        weft_comm_destroy(out[r].comm);
        weft_ctx_destroy(out[r].ctx);
    }
    weft_i_thread_world_destroy(world);
    weft_ctx_destroy(shared);
}

/* The same, and every rank must succeed. */
static inline void run_ranks_ok(int n, weft_status (*fn)(test_rank *), void *user)
{
    test_rank rank[MAX_TEST_RANKS];
    run_ranks(rank, n, 30.0, fn, user);
    for (int r = 0; r < n; r++) {
        if (rank[r].st != WEFT_OK)
            fail_msg("rank %d of %d: %s", r, n, rank[r].message);
    }
}

#endif
