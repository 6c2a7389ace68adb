/* Ranks as threads: each has its own, failures end all in time and are named, agreement and comparison. */
#include "check.h"

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/ctx.h"
#include "base/env.h"
#include "base/log.h"
#include "parallel/ranks.h"

static weft_layout_options usual(int dp)
{
    weft_layout_options o;
    weft_layout_options_init(&o);
    o.dp = dp;
    o.backend = "reference";
    o.threads_per_rank = 1;
    return o;
}

static weft_status
run_with(const weft_layout_options *o, const weft_ctx_options *like, weft_rank_fn *fn, void *user)
{
    weft_layout layout;
    CHECK_OK(weft_i_layout_make(&layout, o));
    return weft_i_ranks_run(&layout, o, like, fn, user);
}

static weft_status run(int dp, weft_rank_fn *fn, void *user)
{
    const weft_layout_options o = usual(dp);
    return run_with(&o, NULL, fn, user);
}

static weft_status all_reduce(weft_mesh *m, weft_axis axis, int64_t *value)
{
    const weft_message message = {.op = WEFT_COMM_ALL_REDUCE,
                                  .dtype = WEFT_DTYPE_I64,
                                  .send = value,
                                  .recv = value,
                                  .n_elems = 1,
                                  .is_host = true,
                                  .tensor = "value"};
    return weft_comm_call(m->comm[axis], &message);
}

static void pause_for(double seconds)
{
    const struct timespec t = {.tv_sec = (time_t)seconds,
                               .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    (void)nanosleep(&t, NULL);
}

/* ---- all is well ---- */

typedef struct seen {
    pthread_t main_thread;
    bool is_main[8];
    const weft_ctx *ctx[8];
    int64_t sum[8];
    int n_threads[8];
} seen;

static weft_status add_up(void *user, weft_mesh *m)
{
    seen *const s = user;
    int64_t world = 1 << m->world_rank, dp = m->coord[WEFT_AXIS_DP] + 1;
    s->is_main[m->world_rank] = pthread_equal(pthread_self(), s->main_thread) != 0;
    s->ctx[m->world_rank] = m->ctx;
    s->n_threads[m->world_rank] = weft_i_pool_threads(m->ctx->pool);
    WEFT_TRY(all_reduce(m, WEFT_AXIS_WORLD, &world));
    WEFT_TRY(all_reduce(m, WEFT_AXIS_DP, &dp));
    WEFT_TRY(all_reduce(m, WEFT_AXIS_TP, &dp)); /* alone on these axes: nothing changes */
    WEFT_TRY(all_reduce(m, WEFT_AXIS_PP, &dp));
    s->sum[m->world_rank] = 1000 * world + dp;
    return WEFT_OK;
}

static void test_parallel_ranks__each_has_its_own_context_and_they_meet(void **state)
{
    (void)state;
    for (int n = 2; n <= 8; n *= 2) {
        seen s = {.main_thread = pthread_self()};
        CHECK_OK(run(n, add_up, &s));
        for (int r = 0; r < n; r++) {
            assert_false(s.is_main[r]);
            assert_int_equal(s.sum[r], 1000 * ((1 << n) - 1) + n * (n + 1) / 2);
            assert_int_equal(s.n_threads[r], 1);
            for (int q = 0; q < r; q++)
                assert_ptr_not_equal(s.ctx[q], s.ctx[r]);
        }
    }
}

static void test_parallel_ranks__one_rank_runs_on_the_calling_thread(void **state)
{
    (void)state;
    seen s = {.main_thread = pthread_self()};
    CHECK_OK(run(1, add_up, &s));
    assert_true(s.is_main[0]);
    assert_int_equal(s.sum[0], 1001);
    assert_null(s.ctx[1]);
}

/* ---- failures ---- */

typedef struct failing {
    int rank;
    int64_t at_call;
    weft_status st;
    atomic_int n_begun, n_ended;
} failing;

static weft_status fail_at(void *user, weft_mesh *m)
{
    failing *const f = user;
    weft_status st = WEFT_OK;
    (void)atomic_fetch_add(&f->n_begun, 1);
    for (int64_t call = 0; call < 200 && st == WEFT_OK; call++) {
        int64_t value = 1;
        if (m->world_rank == f->rank && call == f->at_call)
            st = weft_i_error_set(f->st, "the disk of call %lld was full", (long long)call);
        if (st == WEFT_OK)
            st = weft_i_ctx_alive(m->ctx);
        if (st == WEFT_OK)
            st = all_reduce(m, call % 2 == 0 ? WEFT_AXIS_DP : WEFT_AXIS_WORLD, &value);
    }
    (void)atomic_fetch_add(&f->n_ended, 1);
    return st;
}

static void test_parallel_ranks__a_failing_rank_ends_all_and_is_named(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        const int n = 2 + (int)(seed % 4);
        failing f = {.rank = (int)(seed * 7 % (uint64_t)n),
                     .at_call = (int64_t)(seed * 37 % 190),
                     .st = seed % 2 == 0 ? WEFT_STATUS_IO : WEFT_STATUS_NUMERIC};
        atomic_init(&f.n_begun, 0);
        atomic_init(&f.n_ended, 0);
        char text[64];
        (void)snprintf(text, sizeof(text), "rank %d: the disk of call %lld", f.rank,
                       (long long)f.at_call);
        const double begin = weft_i_clock_seconds();
        CHECK_FAILS(run(n, fail_at, &f), f.st, text);
        assert_int_equal(atomic_load(&f.n_ended), atomic_load(&f.n_begun));
        assert_true(weft_i_clock_seconds() - begin < 5.0);
    }
}

static void test_parallel_ranks__one_rank_fails_without_a_prefix(void **state)
{
    (void)state;
    failing f = {.rank = 0, .at_call = 3, .st = WEFT_STATUS_IO};
    CHECK_FAILS(run(1, fail_at, &f), WEFT_STATUS_IO, "the disk of call 3 was full");
    assert_int_equal(strncmp(weft_last_error(), "the disk", 8), 0);
}

#define STARTED_ELEMS 300000

/* Every rank starts; rank 1 fails with the call on its way, and its memory is gone while the others work on it. */
static weft_status start_and_fail(void *user, weft_mesh *m)
{
    void *block = NULL;
    weft_request request = {0};
    (void)user;
    WEFT_TRY(weft_i_alloc_get(m->ctx->alloc, WEFT_MEM_GRADIENTS, STARTED_ELEMS * sizeof(float),
                              "gradients", &block));
    weft_comm *const c = m->comm[WEFT_AXIS_DP];
    const weft_message message = {.op = WEFT_COMM_ALL_REDUCE,
                                  .dtype = WEFT_DTYPE_F32,
                                  .send = block,
                                  .recv = block,
                                  .n_elems = STARTED_ELEMS,
                                  .tensor = "wte"};
    weft_status st = c->ops->start(c, &message, &request);
    if (st == WEFT_OK && m->world_rank == 1)
        st = weft_i_error_set(WEFT_STATUS_NUMERIC, "the loss was not finite");
    if (st == WEFT_OK)
        st = c->ops->wait(c, &request);
    (void)weft_i_mesh_fail(m, st);
    weft_i_alloc_put(m->ctx->alloc, block);
    return st;
}

static void test_parallel_ranks__a_failing_rank_may_free_what_it_had_started(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++)
        CHECK_FAILS(run(2 + i % 3, start_and_fail, NULL), WEFT_STATUS_NUMERIC,
                    "rank 1: the loss was not finite");
}

/* The others work without end and asks only whether the world still stands. */
static weft_status work_on(void *user, weft_mesh *m)
{
    (void)user;
    if (m->world_rank == 0) {
        pause_for(0.05);
        WEFT_FAIL(WEFT_STATUS_NUMERIC, "the loss was not finite");
    }
    for (;;)
        WEFT_TRY(weft_i_ctx_alive(m->ctx));
}

static void test_parallel_ranks__a_computing_rank_learns_of_a_failure(void **state)
{
    (void)state;
    const double begin = weft_i_clock_seconds();
    CHECK_FAILS(run(3, work_on, NULL), WEFT_STATUS_NUMERIC, "rank 0: the loss was not finite");
    assert_true(weft_i_clock_seconds() - begin < 2.0);
}

static weft_status sleep_on_1(void *user, weft_mesh *m)
{
    int64_t value = 1;
    if (m->world_rank == 1)
        pause_for(*(const double *)user);
    return all_reduce(m, WEFT_AXIS_DP, &value);
}

static void test_parallel_ranks__a_stuck_rank_is_named_and_left_behind(void **state)
{
    (void)state;
    static const double seconds = 60; /* outlives the rank that sleeps */
    weft_layout_options o = usual(3);
    o.comm_timeout = 0.3;
    const double begin = weft_i_clock_seconds();
    CHECK_FAILS(run_with(&o, NULL, sleep_on_1, (void *)(uintptr_t)&seconds), WEFT_STATUS_TIMEOUT,
                "rank 1 missing from all_reduce 0 of value over dp");
    const double took = weft_i_clock_seconds() - begin;
    assert_true(took > 0.3 && took < 12.0);
}

static weft_status sleep_at_the_end(void *user, weft_mesh *m)
{
    if (m->world_rank == 1)
        pause_for(*(const double *)user);
    return WEFT_OK;
}

static void test_parallel_ranks__a_rank_that_does_not_end_is_named(void **state)
{
    (void)state;
    double seconds = 2;
    weft_layout_options o = usual(2);
    o.comm_timeout = 0.3;
    CHECK_FAILS(run_with(&o, NULL, sleep_at_the_end, &seconds), WEFT_STATUS_TIMEOUT,
                "rank 1 was silent for");
}

/* ---- what a failure is of ---- */

typedef struct beginning {
    bool is_begun_on_1;
    weft_status st;
} beginning;

static weft_status begin_and_fail(void *user, weft_mesh *m)
{
    const beginning *const b = user;
    int64_t value = 1;
    if (m->world_rank == m->world_size - 1 && b->is_begun_on_1)
        weft_i_mesh_begin(m);
    WEFT_TRY(all_reduce(m, WEFT_AXIS_WORLD, &value));
    if (m->world_rank == 0 && b->st != WEFT_OK)
        WEFT_FAIL(b->st, "no");
    return all_reduce(m, WEFT_AXIS_WORLD, &value);
}

static void test_parallel_ranks__a_failure_after_the_start_is_the_runs(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++) {
        beginning b = {.is_begun_on_1 = false, .st = WEFT_STATUS_IO};
        CHECK_FAILS(run(n, begin_and_fail, &b), WEFT_STATUS_IO, "no");
        assert_false(weft_last_error_is_of_run());
        b.is_begun_on_1 = true;
        CHECK_FAILS(run(n, begin_and_fail, &b), WEFT_STATUS_IO, "no");
        assert_true(weft_last_error_is_of_run());
        b = (beginning){.is_begun_on_1 = true, .st = WEFT_OK};
        CHECK_OK(run(n, begin_and_fail, &b));
        const weft_layout_options wrong = {.dp = -1};
        weft_layout layout;
        assert_int_equal(weft_i_layout_make(&layout, &wrong), WEFT_STATUS_ARG);
        assert_false(weft_last_error_is_of_run());
    }
}

/* ---- traces ---- */

static int count_of(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part))
        n++;
    return n;
}

/* The trace at `path`, which must be one JSON array. */
static char *read_trace(const char *path)
{
    static char text[65536];
    json_error_t error;
    FILE *const f = fopen(path, "r");
    assert_non_null(f);
    const size_t n = fread(text, 1, sizeof(text) - 1, f);
    assert_int_equal(fclose(f), 0);
    text[n] = '\0';
    json_t *const root = json_loads(text, 0, &error);
    assert_true(json_is_array(root));
    json_decref(root);
    return text;
}

static void test_parallel_ranks__traces_of_all_ranks_are_joined_also_after_a_failure(void **state)
{
    (void)state;
    char path[] = "/tmp/weft-trace-XXXXXX";
    assert_true(mkstemp(path) >= 0);
    for (int n = 1; n <= 3; n++) {
        weft_layout_options o = usual(n);
        beginning b = {.st = WEFT_OK};
        o.trace = path;
        CHECK_OK(run_with(&o, NULL, begin_and_fail, &b));
        assert_int_equal(count_of(read_trace(path), "\"all_reduce\""), 2 * n);
        b.st = WEFT_STATUS_NUMERIC;
        CHECK_FAILS(run_with(&o, NULL, begin_and_fail, &b), WEFT_STATUS_NUMERIC, "no");
        assert_int_equal(count_of(read_trace(path), "\"process_name\""), n);
        char own[64];
        (void)snprintf(own, sizeof(own), "%s.rank-%d", path, n - 1);
        assert_int_equal(access(own, F_OK), -1);
    }
    assert_int_equal(unlink(path), 0);
    weft_layout_options o = usual(2);
    beginning b = {.st = WEFT_OK};
    o.trace = "/nowhere/t.json";
    CHECK_FAILS(run_with(&o, NULL, begin_and_fail, &b), WEFT_STATUS_IO, "/nowhere/t.json");
    char folder[] = "/tmp/weft-trace-XXXXXX", own[64];
    assert_non_null(mkdtemp(folder));
    o.trace = folder; /* before anything has begun; no rank leaves a file */
    CHECK_FAILS(run_with(&o, NULL, begin_and_fail, &b), WEFT_STATUS_IO, "is a folder");
    (void)snprintf(own, sizeof(own), "%s.rank-1", folder);
    assert_int_equal(access(own, F_OK), -1);
    assert_int_equal(rmdir(folder), 0);
}

/* ---- agreement ---- */

typedef struct agreeing {
    unsigned failing_ranks; /* bits */
    atomic_int n_ok;
} agreeing;

static weft_status agree(void *user, weft_mesh *m)
{
    agreeing *const a = user;
    weft_status st = WEFT_OK;
    if ((a->failing_ranks >> m->world_rank & 1) != 0)
        st = weft_i_error_set(WEFT_STATUS_FORMAT, "file %d was cut", m->world_rank);
    WEFT_TRY(weft_i_mesh_agree(m, st));
    (void)atomic_fetch_add(&a->n_ok, 1);
    return WEFT_OK;
}

static void test_parallel_ranks__agree_gives_everybody_the_lowest_failure(void **state)
{
    (void)state;
    agreeing a = {.failing_ranks = 0};
    atomic_init(&a.n_ok, 0);
    CHECK_OK(run(4, agree, &a));
    assert_int_equal(atomic_load(&a.n_ok), 4);
    a.failing_ranks = 1u << 3 | 1u << 2;
    atomic_store(&a.n_ok, 0);
    CHECK_FAILS(run(4, agree, &a), WEFT_STATUS_FORMAT, "rank 2: file 2 was cut");
    assert_int_equal(strncmp(weft_last_error(), "rank 2: file 2", 14), 0);
    assert_int_equal(atomic_load(&a.n_ok), 0);
}

/* Rank 0 alone does something for all: nobody else has a status of it. */
static weft_status agree_on_rank0(void *user, weft_mesh *m)
{
    agreeing *const a = user;
    weft_status st = WEFT_OK;
    if (m->world_rank == 0 && a->failing_ranks != 0)
        st = weft_i_error_set(WEFT_STATUS_IO, "the folder is not there");
    st = weft_i_mesh_agree_on_rank0(m, st);
    if (st == WEFT_OK)
        (void)atomic_fetch_add(&a->n_ok, 1);
    return st;
}

static void test_parallel_ranks__what_rank_0_does_for_all_names_no_rank(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n++) {
        agreeing a = {.failing_ranks = 0};
        atomic_init(&a.n_ok, 0);
        CHECK_OK(run(n, agree_on_rank0, &a));
        assert_int_equal(atomic_load(&a.n_ok), n);
        a.failing_ranks = 1;
        CHECK_FAILS(run(n, agree_on_rank0, &a), WEFT_STATUS_IO, "the folder is not there");
        assert_string_equal(weft_last_error(), "the folder is not there");
        assert_int_equal(atomic_load(&a.n_ok), n);
    }
}

static weft_status agree_on_one_failure(void *user, weft_mesh *m)
{
    (void)user;
    return weft_i_mesh_agree(m, weft_i_error_set(WEFT_STATUS_IO, "the file is not there"));
}

static void test_parallel_ranks__what_all_meet_alike_names_no_rank(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++) {
        CHECK_FAILS(run(n, agree_on_one_failure, NULL), WEFT_STATUS_IO, "the file is not there");
        assert_string_equal(weft_last_error(), "the file is not there");
    }
}

typedef struct comparing {
    int odd;
    const char *usual_value, *odd_value;
    atomic_int n_mismatch;
} comparing;

static weft_status compare(void *user, weft_mesh *m)
{
    comparing *const c = user;
    const weft_agreed items[] = {
        {"version", "0.2"}, {"config", m->world_rank == c->odd ? c->odd_value : c->usual_value}};
    const weft_status st = weft_i_mesh_compare(m, items, 2);
    (void)atomic_fetch_add(&c->n_mismatch, st == WEFT_STATUS_MISMATCH ? 1 : 0);
    return st;
}

static void test_parallel_ranks__compare_names_the_odd_rank_and_both_values(void **state)
{
    (void)state;
    char a[600], b[600];
    memset(a, 'x', sizeof(a));
    memset(b, 'x', sizeof(b));
    memcpy(a + 500, "\"n_layer\": 4", 12);
    memcpy(b + 500, "\"n_layer\": 5", 12);
    a[599] = b[599] = '\0';
    comparing c = {.odd = -1, .usual_value = a, .odd_value = b};
    atomic_init(&c.n_mismatch, 0);
    CHECK_OK(run(4, compare, &c));
    for (int odd = 0; odd < 4; odd++) {
        char text[64];
        c.odd = odd;
        atomic_store(&c.n_mismatch, 0);
        (void)snprintf(text, sizeof(text), "rank %d: the config differs", odd);
        CHECK_FAILS(run(4, compare, &c), WEFT_STATUS_MISMATCH, text);
        assert_int_equal(atomic_load(&c.n_mismatch), 4);
        assert_non_null(strstr(weft_last_error(), "\"n_layer\": 5"));
        assert_non_null(strstr(weft_last_error(), "\"n_layer\": 4"));
    }
}

/* ---- logs ---- */

typedef struct lines {
    int n;
    char text[16][128];
} lines;

static void keep_line(void *user, weft_log_level level, const char *line)
{
    lines *const l = user;
    (void)level;
    if (l->n < 16)
        (void)snprintf(l->text[l->n], sizeof(l->text[0]), "%s", line);
    l->n++;
}

static bool has_line(const lines *l, const char *text)
{
    for (int i = 0; i < l->n; i++) {
        if (strcmp(l->text[i], text) == 0)
            return true;
    }
    return false;
}

static weft_status speak(void *user, weft_mesh *m)
{
    (void)user;
    weft_log(m->ctx, WEFT_LOG_INFO, "test", "info of %d", m->world_rank);
    weft_log(m->ctx, WEFT_LOG_ERROR, "test", "error of %d", m->world_rank);
    return WEFT_OK;
}

static void test_parallel_ranks__rank_0_speaks_the_others_only_of_errors(void **state)
{
    (void)state;
    lines l = {0};
    const weft_ctx_options like = {.log = keep_line, .log_user = &l, .log_level = WEFT_LOG_INFO};
    const weft_layout_options o = usual(3);
    CHECK_OK(run_with(&o, &like, speak, NULL));
    assert_true(has_line(&l, "test: info of 0"));
    assert_true(has_line(&l, "test: error of 0"));
    assert_true(has_line(&l, "rank 1: test: error of 1"));
    assert_true(has_line(&l, "rank 2: test: error of 2"));
    for (int i = 0; i < l.n && i < 16; i++)
        assert_null(strstr(l.text[i], "info of 1"));
}

static void test_parallel_ranks__asking_for_too_many_threads_warns_once(void **state)
{
    (void)state;
    lines l = {0};
    const weft_ctx_options like = {.log = keep_line, .log_user = &l, .log_level = WEFT_LOG_WARN};
    seen s = {.main_thread = pthread_self()};
    weft_layout_options o = usual(2);
    o.threads_per_rank = 300;
    CHECK_OK(run_with(&o, &like, add_up, &s));
    assert_int_equal(l.n, 1);
    assert_non_null(strstr(l.text[0], "2 ranks of 300 threads"));
    assert_int_equal(s.n_threads[1], 300);
}

static void test_parallel_ranks__ranks_share_the_processors(void **state)
{
    (void)state;
    const int n_processors = weft_i_env_processors();
    lines l = {0};
    const weft_ctx_options like = {.log = keep_line, .log_user = &l, .log_level = WEFT_LOG_WARN};
    for (int n = 1; n <= 4; n++) {
        seen s = {.main_thread = pthread_self()};
        weft_layout_options o = usual(n);
        o.threads_per_rank = 0;
        CHECK_OK(run_with(&o, &like, add_up, &s));
        for (int r = 0; r < n; r++)
            assert_int_equal(s.n_threads[r], n_processors < n ? 1 : n_processors / n);
    }
    assert_int_equal(l.n, 0); /* nobody asked for more than there are */
}

/* ---- what tests let go wrong ---- */

static void test_parallel_ranks__faults_count_over_all_communicators(void **state)
{
    (void)state;
    failing f = {.rank = -1};
    assert_int_equal(setenv("WEFT_FAULT", "1:fail:5", 1), 0);
    CHECK_FAILS(run(3, fail_at, &f), WEFT_STATUS_IO, "rank 1 failed by injection at call 5");
    assert_non_null(strstr(weft_last_error(), "over world")); /* 0, 2, 4 over dp; 1, 3, 5 world */
    assert_int_equal(setenv("WEFT_FAULT", "1:fail:1000", 1), 0);
    CHECK_OK(run(3, fail_at, &f));
    assert_int_equal(setenv("WEFT_FAULT", "1:break:5", 1), 0);
    CHECK_FAILS(run(3, fail_at, &f), WEFT_STATUS_ARG, "WEFT_FAULT=1:break:5");
    assert_int_equal(unsetenv("WEFT_FAULT"), 0);
}

/* Without seconds a lost or late call stays away for longer than the others wait. */
static void test_parallel_ranks__lost_calls_are_waited_for_in_vain(void **state)
{
    (void)state;
    failing f = {.rank = -1};
    weft_layout_options o = usual(2);
    o.comm_timeout = 0.2;
    assert_int_equal(setenv("WEFT_FAULT", "1:lose:4", 1), 0);
    CHECK_FAILS(run_with(&o, NULL, fail_at, &f), WEFT_STATUS_TIMEOUT, "rank 1 missing from");
    assert_int_equal(setenv("WEFT_FAULT", "1:delay:4", 1), 0);
    CHECK_FAILS(run_with(&o, NULL, fail_at, &f), WEFT_STATUS_TIMEOUT, "rank 1 missing from");
    assert_int_equal(setenv("WEFT_FAULT", "1:delay:4:0.01", 1), 0);
    CHECK_OK(run_with(&o, NULL, fail_at, &f));
    assert_int_equal(setenv("WEFT_FAULT", "1:delay:4:", 1), 0);
    CHECK_FAILS(run_with(&o, NULL, fail_at, &f), WEFT_STATUS_ARG, "WEFT_FAULT=1:delay:4:");
    assert_int_equal(unsetenv("WEFT_FAULT"), 0);
}

static weft_status reduce_other_things(void *user, weft_mesh *m)
{
    int64_t value = 1;
    weft_message message = {.op = WEFT_COMM_ALL_REDUCE,
                            .dtype = WEFT_DTYPE_I64,
                            .send = &value,
                            .recv = &value,
                            .n_elems = 1,
                            .is_host = true,
                            .tensor = m->world_rank == 1 ? "wpe" : "wte"};
    (void)user;
    return weft_comm_call(m->comm[WEFT_AXIS_DP], &message);
}

static void test_parallel_ranks__calls_are_compared_when_asked_for(void **state)
{
    (void)state;
    assert_int_equal(setenv("WEFT_COMM_CHECK", "global", 1), 0);
    CHECK_FAILS(run(3, reduce_other_things, NULL), WEFT_STATUS_MISMATCH, "wpe");
    assert_int_equal(setenv("WEFT_COMM_CHECK", "local", 1), 0);
    CHECK_OK(run(3, reduce_other_things, NULL));
    assert_int_equal(setenv("WEFT_COMM_CHECK", "all", 1), 0);
    CHECK_FAILS(run(3, reduce_other_things, NULL), WEFT_STATUS_ARG, "WEFT_COMM_CHECK=all");
    assert_int_equal(unsetenv("WEFT_COMM_CHECK"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parallel_ranks__each_has_its_own_context_and_they_meet),
        cmocka_unit_test(test_parallel_ranks__one_rank_runs_on_the_calling_thread),
        cmocka_unit_test(test_parallel_ranks__a_failing_rank_ends_all_and_is_named),
        cmocka_unit_test(test_parallel_ranks__a_failing_rank_may_free_what_it_had_started),
        cmocka_unit_test(test_parallel_ranks__one_rank_fails_without_a_prefix),
        cmocka_unit_test(test_parallel_ranks__a_computing_rank_learns_of_a_failure),
        cmocka_unit_test(test_parallel_ranks__a_rank_that_does_not_end_is_named),
        cmocka_unit_test(test_parallel_ranks__a_failure_after_the_start_is_the_runs),
        cmocka_unit_test(test_parallel_ranks__traces_of_all_ranks_are_joined_also_after_a_failure),
        cmocka_unit_test(test_parallel_ranks__agree_gives_everybody_the_lowest_failure),
        cmocka_unit_test(test_parallel_ranks__what_rank_0_does_for_all_names_no_rank),
        cmocka_unit_test(test_parallel_ranks__what_all_meet_alike_names_no_rank),
        cmocka_unit_test(test_parallel_ranks__compare_names_the_odd_rank_and_both_values),
        cmocka_unit_test(test_parallel_ranks__rank_0_speaks_the_others_only_of_errors),
        cmocka_unit_test(test_parallel_ranks__asking_for_too_many_threads_warns_once),
        cmocka_unit_test(test_parallel_ranks__ranks_share_the_processors),
        cmocka_unit_test(test_parallel_ranks__faults_count_over_all_communicators),
        cmocka_unit_test(test_parallel_ranks__lost_calls_are_waited_for_in_vain),
        cmocka_unit_test(test_parallel_ranks__calls_are_compared_when_asked_for),
        cmocka_unit_test(test_parallel_ranks__a_stuck_rank_is_named_and_left_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
