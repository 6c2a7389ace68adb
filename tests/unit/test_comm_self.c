/* The one-rank transport: every collective gives back what went in, in place or not, on the host or in backend memory. */
#include "check.h"

#include <string.h>

#include "base/clock.h"
#include "base/ctx.h"
#include "weft/ext/comm.h"

static weft_ctx *ctx;
static weft_comm *comm;

static int open_comm(void **state)
{
    const weft_ctx_options o = {.backend = WEFT_BACKEND_REFERENCE, .n_threads = 1};
    (void)state;
    CHECK_OK(weft_ctx_create(&ctx, &o));
    CHECK_OK(weft_comm_self_create(&comm, ctx, "world"));
    return 0;
}

static int close_comm(void **state)
{
    (void)state;
    weft_comm_destroy(comm);
    weft_ctx_destroy(ctx);
    return 0;
}

static void test_comm_self__collectives_copy(void **state)
{
    const float in[5] = {1.0f, -2.0f, 3.5f, 0.0f, 1e-30f};
    (void)state;
    for (int op = WEFT_COMM_ALL_REDUCE; op <= WEFT_COMM_ALL_TO_ALL; op++) {
        for (int is_host = 0; is_host < 2; is_host++) {
            float out[5] = {9.0f, 9.0f, 9.0f, 9.0f, 9.0f};
            const weft_message m = {.op = (weft_comm_op)op,
                                    .dtype = WEFT_DTYPE_F32,
                                    .send = in,
                                    .recv = out,
                                    .n_elems = 5,
                                    .is_host = is_host == 1,
                                    .tensor = "t"};
            CHECK_OK(weft_comm_call(comm, &m));
            assert_memory_equal(out, in, sizeof(in));
        }
    }
    assert_int_equal(comm->n_calls, 2 * (WEFT_COMM_ALL_TO_ALL - WEFT_COMM_ALL_REDUCE + 1));
}

static void test_comm_self__in_place_changes_nothing(void **state)
{
    int64_t x[3] = {5, -6, 7};
    (void)state;
    const weft_message m = {.op = WEFT_COMM_ALL_REDUCE,
                            .dtype = WEFT_DTYPE_I64,
                            .send = x,
                            .recv = x,
                            .n_elems = 3,
                            .is_host = true};
    CHECK_OK(weft_comm_call(comm, &m));
    assert_int_equal(x[0], 5);
    assert_int_equal(x[1], -6);
    assert_int_equal(x[2], 7);
}

/* On every backend and on the host: recv + send, once for each call, also over more than a tile. */
static void test_comm_self__a_sum_starts_from_what_recv_holds(void **state)
{
    enum { N = 1300 };
    static const weft_backend_kind kinds[] = {WEFT_BACKEND_CPU, WEFT_BACKEND_REFERENCE};
    (void)state;
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        const weft_ctx_options o = {.backend = kinds[k], .n_threads = 1};
        weft_ctx *own = NULL;
        weft_comm *c = NULL;
        float acc[N + 1], send[N], expected[N];
        CHECK_OK(weft_ctx_create(&own, &o));
        CHECK_OK(weft_comm_self_create(&c, own, "dp"));
        for (int i = 0; i < N; i++) {
            acc[i] = 1.0f / (float)(i + 1);
            send[i] = 1e-3f * (float)i;
            expected[i] = acc[i] + send[i] + send[i];
        }
        acc[N] = 7.0f;
        for (int is_host = 0; is_host < 2; is_host++) {
            const weft_message m = {.op = WEFT_COMM_REDUCE_SCATTER,
                                    .send = send,
                                    .recv = acc,
                                    .n_elems = N,
                                    .is_added = true,
                                    .is_host = is_host == 1};
            CHECK_OK(weft_comm_call(c, &m));
        }
        assert_memory_equal(acc, expected, sizeof(expected));
        assert_true(acc[N] == 7.0f);
        const weft_message in_place = {.op = WEFT_COMM_REDUCE_SCATTER,
                                       .send = acc,
                                       .recv = acc,
                                       .n_elems = N,
                                       .is_added = true,
                                       .tensor = "wte"};
        CHECK_FAILS(weft_comm_call(c, &in_place), WEFT_STATUS_ARG, "wte");
        weft_comm_destroy(c);
        weft_ctx_destroy(own);
    }
}

static void test_comm_self__a_request_says_when_it_ran(void **state)
{
    float x[2] = {0}, y[2];
    weft_request request = {0};
    const weft_message m = {.op = WEFT_COMM_ALL_REDUCE, .send = x, .recv = y, .n_elems = 2};
    (void)state;
    const double before = weft_i_clock_seconds();
    CHECK_OK(comm->ops->start(comm, &m, &request));
    CHECK_OK(comm->ops->wait(comm, &request));
    assert_true(before <= request.started_seconds);
    assert_true(request.started_seconds <= request.ready_seconds);
    assert_true(request.ready_seconds <= request.ended_seconds);
    assert_true(request.ended_seconds <= weft_i_clock_seconds());
}

static void test_comm_self__refuses_messages_to_itself_and_absent_roots(void **state)
{
    float x = 1.0f;
    (void)state;
    const weft_message send = {
        .op = WEFT_COMM_SEND, .dtype = WEFT_DTYPE_F32, .send = &x, .n_elems = 1, .tensor = "acts"};
    const weft_message root = {.op = WEFT_COMM_BROADCAST,
                               .dtype = WEFT_DTYPE_F32,
                               .send = &x,
                               .recv = &x,
                               .n_elems = 1,
                               .peer = 1};
    assert_int_equal(weft_comm_call(comm, &send), WEFT_STATUS_ARG);
    assert_non_null(strstr(weft_last_error(), "acts"));
    assert_int_equal(weft_comm_call(comm, &root), WEFT_STATUS_ARG);
    assert_non_null(strstr(weft_last_error(), "peer 1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_comm_self__collectives_copy, open_comm, close_comm),
        cmocka_unit_test_setup_teardown(test_comm_self__in_place_changes_nothing, open_comm,
                                        close_comm),
        cmocka_unit_test(test_comm_self__a_sum_starts_from_what_recv_holds),
        cmocka_unit_test_setup_teardown(test_comm_self__a_request_says_when_it_ran, open_comm,
                                        close_comm),
        cmocka_unit_test_setup_teardown(test_comm_self__refuses_messages_to_itself_and_absent_roots,
                                        open_comm, close_comm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
