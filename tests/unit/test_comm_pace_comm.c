/* The pace wrapper: stated times of calls on one link, worked out for any order of waiting, and waits that keep to them. */
#include "test_comm_ranks.h"
#include "test_comm_timed.h"

#include "base/error.h"
#include "comm/wrap/wrap.h"

/* ---- times: all of them long gone, so that nothing sleeps ---- */

static weft_ctx *ctx;

static int open_ctx(void **state)
{
    const weft_ctx_options o = {.backend = WEFT_BACKEND_REFERENCE, .n_threads = 1};
    (void)state;
    CHECK_OK(weft_ctx_create(&ctx, &o));
    return 0;
}

static int close_ctx(void **state)
{
    (void)state;
    weft_ctx_destroy(ctx);
    return 0;
}

static float buffer[2][4096];

/* One call of an all_reduce over two ranks: 4 * n bytes each way. */
static weft_request call_at(weft_comm *paced, timed_comm *t, double ready, int64_t n)
{
    const weft_message m = {
        .op = WEFT_COMM_ALL_REDUCE, .send = buffer[0], .recv = buffer[1], .n_elems = n};
    weft_request request = {0};
    t->ready = t->ended = ready;
    CHECK_OK(paced->ops->start(paced, &m, &request));
    CHECK_OK(paced->ops->wait(paced, &request));
    return request;
}

#define CHECK_SPAN(request, from, to)                                                              \
    do {                                                                                           \
        const weft_request span_ = (request);                                                      \
        CHECK_NEAR(span_.ready_seconds, (from), 1e-9);                                             \
        CHECK_NEAR(span_.ended_seconds, (to), 1e-9);                                               \
    } while (0)

static void test_comm_pace_comm__calls_take_turns_on_the_link(void **state)
{
    weft_pace_link link = {.latency_s = 0.001, .bytes_per_s = 4000.0}; /* 1000 elements a second */
    timed_comm t = timed_make(ctx, 0, 2), other = timed_make(ctx, 0, 2);
    weft_comm *a = NULL, *b = NULL;
    (void)state;
    CHECK_OK(weft_i_pace_comm_create(&a, &t.base, &link));
    CHECK_OK(weft_i_pace_comm_create(&b, &other.base, &link));
    CHECK_SPAN(call_at(a, &t, 1.0, 9), 1.0, 1.010);       /* a free link: latency, and 9 ms */
    CHECK_SPAN(call_at(a, &t, 1.005, 19), 1.010, 1.030);  /* waits for the one before */
    CHECK_SPAN(call_at(b, &other, 1.0, 9), 1.030, 1.040); /* another communicator, the same link */
    CHECK_SPAN(call_at(a, &t, 2.0, 999), 2.0, 3.0);       /* idle in between */
    CHECK_SPAN(call_at(a, &t, 1.5, 99), 1.5, 1.6);        /* waited for later, ready earlier */
    CHECK_SPAN(call_at(a, &t, 1.55, 499), 2.6, 3.1);  /* 0.4 before the one at 2, the rest after */
    CHECK_SPAN(call_at(a, &t, 1.0, 0), 1.040, 1.041); /* nothing to send: latency alone */
    assert_true(link.n_busy <= 3);
    weft_comm_destroy(a);
    weft_comm_destroy(b);
}

static void test_comm_pace_comm__a_link_forgets_and_never_gains(void **state)
{
    weft_pace_link link = {.latency_s = 0.25};
    timed_comm t = timed_make(ctx, 0, 2);
    weft_comm *c = NULL;
    (void)state;
    CHECK_OK(weft_i_pace_comm_create(&c, &t.base, &link));
    for (int i = 0; i < 3 * WEFT_PACE_MAX_BUSY; i++) { /* a gap after each */
        CHECK_SPAN(call_at(c, &t, i, 100), i, i + 0.25);
        assert_true(link.n_busy <= WEFT_PACE_MAX_BUSY);
    }
    /* Older than what it remembers: it comes after what it would have met. */
    const weft_request late = call_at(c, &t, 0.5, 100);
    assert_true(late.ended_seconds >= 2 * WEFT_PACE_MAX_BUSY);
    /* Remembered gaps are still free. */
    const double recent = 3 * WEFT_PACE_MAX_BUSY - 2;
    CHECK_SPAN(call_at(c, &t, recent + 0.5, 1), recent + 0.5, recent + 0.75);
    for (int i = 0; i + 1 < link.n_busy; i++)
        assert_true(link.busy[i].from < link.busy[i].to &&
                    link.busy[i].to <= link.busy[i + 1].from);
    weft_comm_destroy(c);
}

/* The larger of what a rank sends and receives; nothing for control messages and for groups of one. */
static void test_comm_pace_comm__the_larger_way_counts(void **state)
{
    static const int64_t counts[3] = {100, 0, 300};
    static const struct {
        weft_comm_op op;
        double elems[3]; /* of ranks 0, 1, 2 */
    } expected[] = {
        {WEFT_COMM_ALL_GATHER, {300, 400, 600}},     /* 400 - V_r, or 2 V_r */
        {WEFT_COMM_REDUCE_SCATTER, {300, 400, 600}}, /* the other way round */
        {WEFT_COMM_BROADCAST, {400, 800, 400}},      /* root 1 sends two */
        {WEFT_COMM_REDUCE, {400, 800, 400}},         {WEFT_COMM_SCATTER, {100, 400, 300}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        for (int r = 0; r < 3; r++) {
            weft_pace_link link = {.bytes_per_s = 4.0};
            timed_comm t = timed_make(ctx, r, 3);
            weft_comm *c = NULL;
            weft_message m = {.op = expected[i].op,
                              .send = buffer[0],
                              .recv = buffer[1],
                              .n_elems = 400,
                              .counts = counts,
                              .peer = 1};
            weft_request request = {0};
            t.ready = t.ended = 0.5;
            CHECK_OK(weft_i_pace_comm_create(&c, &t.base, &link));
            CHECK_OK(c->ops->start(c, &m, &request));
            CHECK_OK(c->ops->wait(c, &request));
            CHECK_NEAR(request.ended_seconds, 0.5 + expected[i].elems[r], 1e-9);
            m.is_host = true;
            CHECK_OK(c->ops->start(c, &m, &request));
            CHECK_OK(c->ops->wait(c, &request));
            CHECK_SPAN(request, 0.5, 0.5);
            assert_int_equal(link.n_busy, 1);
            weft_comm_destroy(c);
        }
    }
    weft_pace_link link = {.latency_s = 100.0};
    timed_comm t = timed_make(ctx, 0, 1);
    weft_comm *c = NULL;
    CHECK_OK(weft_i_pace_comm_create(&c, &t.base, &link));
    CHECK_SPAN(call_at(c, &t, 1.0, 4), 1.0, 1.0);
    weft_comm_destroy(c);
}

/* ---- waiting, on ranks that are threads ---- */

/* Two calls of 30 ms each at once: both ranks are held for 60 ms from when the later of them came. */
static weft_status wait_paced(test_rank *rank)
{
    const struct timespec moment = {.tv_nsec = 50000000};
    weft_pace_link link = {.latency_s = 0.010, .bytes_per_s = 4 * 1000 / 0.020};
    weft_comm *c = NULL;
    weft_request request[2];
    float x[2][1000] = {{0}};
    weft_status st = WEFT_OK;
    double both = 0.0;
    memset(request, 0, sizeof(request));
    if (rank->comm->rank == 1)
        (void)nanosleep(&moment, NULL);
    const double came = weft_i_clock_seconds();
    WEFT_TRY(
        weft_i_thread_comm_create(&c, rank->world, rank->ctx, rank->comm->rank, NULL, 0, "tp"));
    WEFT_TRY(weft_i_pace_comm_create(&c, c, &link));
    for (int i = 0; i < 2; i++) {
        const weft_message m = {
            .op = WEFT_COMM_ALL_REDUCE, .send = x[i], .recv = x[i], .n_elems = 1000};
        WEFT_TRY_GOTO(st, c->ops->start(c, &m, &request[i]), out);
    }
    for (int i = 1; i >= 0; i--) { /* backwards: the times are those of the link all the same */
        WEFT_TRY_GOTO(st, c->ops->wait(c, &request[i]), out);
        if (weft_i_clock_seconds() < request[i].ended_seconds)
            st = weft_i_error_set(WEFT_STATUS_INTERNAL, "wait came back too early");
    }
    both = WEFT_MAX(request[0].ended_seconds, request[1].ended_seconds);
    if (st == WEFT_OK && (both - came < 0.0599 || both - came > 20.0))
        st = weft_i_error_set(WEFT_STATUS_INTERNAL, "60 ms became %g s", both - came);
out:
    weft_comm_destroy(c);
    return st;
}

static void test_comm_pace_comm__wait_holds_until_the_stated_end(void **state)
{
    (void)state;
    run_ranks_ok(2, wait_paced, NULL);
}

static weft_status world_failed(void *user)
{
    int *const n_asked = user;
    return ++*n_asked < 3 ? WEFT_OK
                          : weft_i_error_set(WEFT_STATUS_REMOTE, "rank 5 failed: so it did");
}

/* A rank held for an hour says that it lives, and gives up when another fails. */
static void test_comm_pace_comm__a_held_rank_stays_alive(void **state)
{
    weft_pace_link link = {.latency_s = 3600.0};
    timed_comm t = timed_make(ctx, 0, 2);
    weft_comm *c = NULL;
    int n_asked = 0;
    const weft_message m = {
        .op = WEFT_COMM_ALL_REDUCE, .send = buffer[0], .recv = buffer[1], .n_elems = 1};
    (void)state;
    CHECK_OK(weft_i_pace_comm_create(&c, &t.base, &link));
    ctx->alive = world_failed;
    ctx->alive_user = &n_asked;
    t.ready = t.ended = weft_i_clock_seconds();
    CHECK_FAILS(weft_comm_call(c, &m), WEFT_STATUS_REMOTE, "so it did");
    ctx->alive = NULL;
    assert_int_equal(n_asked, 3);
    weft_comm_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_comm_pace_comm__calls_take_turns_on_the_link, open_ctx,
                                        close_ctx),
        cmocka_unit_test_setup_teardown(test_comm_pace_comm__a_link_forgets_and_never_gains,
                                        open_ctx, close_ctx),
        cmocka_unit_test_setup_teardown(test_comm_pace_comm__the_larger_way_counts, open_ctx,
                                        close_ctx),
        cmocka_unit_test(test_comm_pace_comm__wait_holds_until_the_stated_end),
        cmocka_unit_test_setup_teardown(test_comm_pace_comm__a_held_rank_stays_alive, open_ctx,
                                        close_ctx),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
