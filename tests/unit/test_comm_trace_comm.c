/* The trace wrapper: what it measures for stated times, and its events in the file of a run. */
#include "test_comm_ranks.h"
#include "test_comm_timed.h"

#include <jansson.h>

#include "base/error.h"
#include "comm/wrap/wrap.h"
#include "tmpdir.h"

/* A call that was ready `ready` and over `ended` seconds from now, both in the past unless positive. */
static void call_once(weft_comm *c, timed_comm *t, double ready, double ended, bool is_host)
{
    float x[2] = {0};
    const weft_message m = {
        .op = WEFT_COMM_ALL_REDUCE, .send = x, .recv = x, .n_elems = 2, .is_host = is_host};
    const double now = weft_i_clock_seconds();
    t->started = now + ready;
    t->ready = now + ready;
    t->ended = now + ended;
    CHECK_OK(weft_comm_call(c, &m));
}

static void test_comm_trace_comm__measures_what_was_not_hidden(void **state)
{
    const weft_ctx_options o = {.backend = WEFT_BACKEND_REFERENCE, .n_threads = 1};
    weft_ctx *ctx = NULL;
    weft_comm *c = NULL;
    (void)state;
    CHECK_OK(weft_ctx_create(&ctx, &o));
    timed_comm t = timed_make(ctx, 0, 2);
    CHECK_OK(weft_i_trace_comm_create(&c, &t.base, NULL));
    call_once(c, &t, -3.0, -1.0, false); /* over before anybody waited: hidden */
    CHECK_NEAR(weft_i_trace_comm_seconds(c).moving, 2.0, 1e-9);
    assert_true(weft_i_trace_comm_seconds(c).exposed == 0.0);
    call_once(c, &t, 10.0, 15.0, false); /* as if wait had begun before the last rank came */
    CHECK_NEAR(weft_i_trace_comm_seconds(c).moving, 7.0, 1e-9);
    CHECK_NEAR(weft_i_trace_comm_seconds(c).exposed, 5.0, 1e-9);
    call_once(c, &t, -30.0, 20.0, false); /* wait came in between: what was left counts */
    CHECK_NEAR(weft_i_trace_comm_seconds(c).moving, 57.0, 1e-9);
    assert_true(weft_i_trace_comm_seconds(c).exposed > 24.0);
    assert_true(weft_i_trace_comm_seconds(c).exposed <= 25.0);
    const weft_comm_seconds before = weft_i_trace_comm_seconds(c);
    call_once(c, &t, -3.0, 3.0, true); /* control messages are blocked time alone */
    assert_true(weft_i_trace_comm_seconds(c).moving == before.moving);
    assert_true(weft_i_trace_comm_seconds(c).exposed == before.exposed);
    assert_true(weft_i_trace_comm_seconds(c).blocked >= before.blocked);
    assert_true(before.blocked >= 0.0 && before.blocked < 20.0);
    weft_i_trace_comm_reset(c);
    assert_true(weft_i_trace_comm_seconds(c).moving == 0.0);
    assert_true(weft_i_trace_comm_seconds(c).blocked == 0.0);
    weft_comm_destroy(c);
    weft_ctx_destroy(ctx);
}

/* ---- events of ranks that are threads ---- */

static char path[TMPDIR_PATH_BYTES];

static weft_status make_calls(weft_comm *c)
{
    float x[6] = {0}, y[6] = {0};
    weft_request request = {0};
    const weft_message gather = {
        .op = WEFT_COMM_ALL_GATHER, .send = x, .recv = y, .n_elems = 5, .tensor = "h.0"};
    const weft_message barrier = {.op = WEFT_COMM_BARRIER};
    WEFT_TRY(c->ops->start(c, &gather, &request));
    WEFT_TRY(c->ops->wait(c, &request));
    WEFT_TRY(weft_comm_call(c, &barrier));
    const weft_comm_seconds seconds = weft_i_trace_comm_seconds(c);
    if (seconds.blocked + 1e-9 < seconds.exposed || seconds.moving < 0.0399 ||
        seconds.moving > 0.0401)
        WEFT_FAIL(WEFT_STATUS_INTERNAL, "blocked for %g s, moving for %g s", seconds.blocked,
                  seconds.moving);
    return WEFT_OK;
}

/* Two calls of 20 ms. */
static weft_status trace_rank(test_rank *rank)
{
    weft_trace *trace = NULL;
    weft_comm *c = NULL;
    weft_pace_link link = {.latency_s = 0.020};
    const int me = rank->comm->rank;
    weft_status st = weft_i_trace_create(&trace, rank->ctx->alloc, path, me, rank->comm->size);
    if (st == WEFT_OK)
        st = weft_i_thread_comm_create(&c, rank->world, rank->ctx, me, NULL, 0, "tp");
    if (st == WEFT_OK)
        st = weft_i_pace_comm_create(&c, c, &link);
    if (st == WEFT_OK)
        st = weft_i_trace_comm_create(&c, c, trace);
    if (st == WEFT_OK)
        st = make_calls(c);
    if (st == WEFT_OK)
        st = weft_i_trace_finish(trace);
    weft_comm_destroy(c);
    weft_i_trace_destroy(trace);
    return st;
}

static void check_events(const json_t *root, int rank)
{
    static const char *const names[] = {"all_gather", "barrier"};
    double earliest = 0.0;
    size_t i = 0;
    int n = 0;
    json_t *e = NULL;
    json_array_foreach(root, i, e)
    {
        if (strcmp(json_string_value(json_object_get(e, "ph")), "X") != 0 ||
            json_integer_value(json_object_get(e, "pid")) != rank)
            continue;
        const json_t *const args = json_object_get(e, "args");
        assert_true(n < 2);
        assert_string_equal(json_string_value(json_object_get(e, "name")), names[n]);
        assert_string_equal(json_string_value(json_object_get(args, "axis")), "tp");
        assert_true(json_number_value(json_object_get(e, "dur")) >= 19999.0); /* us */
        assert_true(json_number_value(json_object_get(e, "ts")) >= earliest);
        earliest = json_number_value(json_object_get(e, "ts")) + 19999.0;
        assert_int_equal(json_integer_value(json_object_get(args, "bytes")),
                         n == 0 ? (rank == 0 ? 12 : 8) : 0);
        if (n == 0)
            assert_string_equal(json_string_value(json_object_get(args, "tensor")), "h.0");
        else
            assert_null(json_object_get(args, "tensor"));
        n++;
    }
    assert_int_equal(n, 2);
}

static void test_comm_trace_comm__every_call_is_an_event_of_its_axis(void **state)
{
    char dir[TMPDIR_PATH_BYTES];
    weft_alloc *alloc = NULL;
    (void)state;
    tmpdir_make(dir);
    (void)tmpdir_join(path, dir, "t.json");
    CHECK_OK(weft_i_alloc_create(&alloc, false, 0));
    run_ranks_ok(2, trace_rank, NULL);
    CHECK_OK(weft_i_trace_join(alloc, path, 2));
    json_t *const root = json_load_file(path, 0, NULL);
    assert_non_null(root);
    for (int r = 0; r < 2; r++)
        check_events(root, r);
    json_decref(root);
    weft_i_alloc_destroy(alloc);
    tmpdir_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_comm_trace_comm__measures_what_was_not_hidden),
        cmocka_unit_test(test_comm_trace_comm__every_call_is_an_event_of_its_axis),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
