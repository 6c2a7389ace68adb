/* An injected failure, delay or lost message at each call of each rank ends as promised, and never hangs. */
#include "test_comm_ranks.h"

#include "base/error.h"
#include "comm/wrap/wrap.h"

#define DEADLINE_SECONDS 0.1
#define N_CALLS 5 /* of rank 0 and 1; the others make one less */

typedef struct fault_case {
    int rank;
    weft_fault fault;
} fault_case;

/* all_reduce; reduce_scatter and all_gather on their way together; rank 0 sends to rank 1; barrier. */
static weft_status make_calls(weft_comm *c)
{
    float x[12], part[12], y[12];
    weft_request request[2];
    memset(request, 0, sizeof(request));
    for (int i = 0; i < 12; i++)
        x[i] = part[i] = y[i] = 1.0f;
    const weft_message sum = {
        .op = WEFT_COMM_ALL_REDUCE, .send = x, .recv = x, .n_elems = 12, .tensor = "wte"};
    const weft_message scatter = {
        .op = WEFT_COMM_REDUCE_SCATTER, .send = x, .recv = part, .n_elems = 12, .tensor = "wpe"};
    const weft_message gather = {
        .op = WEFT_COMM_ALL_GATHER, .send = x, .recv = y, .n_elems = 12, .tensor = "ln_f"};
    const weft_message barrier = {.op = WEFT_COMM_BARRIER, .tensor = "the end"};
    WEFT_TRY(weft_comm_call(c, &sum));
    WEFT_TRY(c->ops->start(c, &scatter, &request[0]));
    WEFT_TRY(c->ops->start(c, &gather, &request[1]));
    WEFT_TRY(c->ops->wait(c, &request[0]));
    WEFT_TRY(c->ops->wait(c, &request[1]));
    if (c->rank < 2) {
        const weft_message pair = {.op = c->rank == 0 ? WEFT_COMM_SEND : WEFT_COMM_RECV,
                                   .send = c->rank == 0 ? x : NULL,
                                   .recv = c->rank == 0 ? NULL : x,
                                   .n_elems = 12,
                                   .peer = 1 - c->rank,
                                   .tensor = "acts"};
        WEFT_TRY(weft_comm_call(c, &pair));
    }
    WEFT_TRY(weft_comm_call(c, &barrier));
    const float n = (float)c->size;
    if (x[0] != n || part[0] != n * n || y[11] != n)
        WEFT_FAIL(WEFT_STATUS_INTERNAL, "wrong sums %g %g %g", (double)x[0], (double)part[0],
                  (double)y[11]);
    return WEFT_OK;
}

static weft_status fault_rank(test_rank *rank)
{
    const fault_case *const t = rank->user;
    const weft_fault none = {.kind = WEFT_FAULT_NONE};
    const int me = rank->comm->rank;
    weft_comm *inner = NULL, *c = NULL;
    WEFT_TRY(weft_i_thread_comm_create(&inner, rank->world, rank->ctx, me, NULL, 0, "dp"));
    WEFT_TRY(weft_i_fault_create(&c, inner, me == t->rank ? &t->fault : &none));
    const weft_status st = make_calls(c);
    if (st != WEFT_OK)
        c->ops->abort(c, st, weft_last_error());
    weft_comm_destroy(c);
    return st;
}

static bool is_reached(const fault_case *t)
{
    return t->fault.at_call < (t->rank < 2 ? N_CALLS : N_CALLS - 1);
}

static void check_rank(const fault_case *t, const test_rank *rank, int r)
{
    const weft_fault_kind kind = is_reached(t) ? t->fault.kind : WEFT_FAULT_NONE;
    if (kind == WEFT_FAULT_NONE || kind == WEFT_FAULT_DELAY) {
        if (rank->st != WEFT_OK)
            fail_msg("rank %d: %s", r, rank->message);
    } else if (kind == WEFT_FAULT_FAIL) {
        char text[64];
        (void)snprintf(text, sizeof(text), "rank %d failed by injection at call %d", t->rank,
                       (int)t->fault.at_call);
        if (rank->st != (r == t->rank ? WEFT_STATUS_IO : WEFT_STATUS_REMOTE) ||
            strstr(rank->message, text) == NULL)
            fail_msg("rank %d: %s", r, rank->message);
    } else if ((rank->st != WEFT_STATUS_TIMEOUT && rank->st != WEFT_STATUS_REMOTE) ||
               (strstr(rank->message, "missing from") == NULL &&
                strstr(rank->message, "failed") == NULL)) {
        fail_msg("rank %d: %s", r, rank->message);
    }
}

static void run_faults(weft_fault_kind kind, double delay_s, int n)
{
    for (int at = 0; at <= N_CALLS; at++) {
        for (int r = 0; r < n; r++) {
            test_rank rank[MAX_TEST_RANKS];
            fault_case t = {.rank = r,
                            .fault = {.kind = kind, .at_call = (uint64_t)at, .delay_s = delay_s}};
            const double before = weft_i_clock_seconds();
            run_ranks(rank, n, kind == WEFT_FAULT_LOSE ? DEADLINE_SECONDS : 30.0, fault_rank, &t);
            assert_true(weft_i_clock_seconds() - before < 10.0);
            for (int i = 0; i < n; i++)
                check_rank(&t, &rank[i], i);
        }
    }
}

static void test_comm_fault__a_failure_at_any_call_ends_all_ranks(void **state)
{
    (void)state;
    run_faults(WEFT_FAULT_FAIL, 0.0, 3);
    run_faults(WEFT_FAULT_FAIL, 0.0, 2);
}

static void test_comm_fault__a_delay_changes_nothing(void **state)
{
    (void)state;
    run_faults(WEFT_FAULT_DELAY, 0.02, 3);
}

static void test_comm_fault__a_lost_message_ends_by_the_deadline(void **state)
{
    (void)state;
    run_faults(WEFT_FAULT_LOSE, 5 * DEADLINE_SECONDS, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_comm_fault__a_failure_at_any_call_ends_all_ranks),
        cmocka_unit_test(test_comm_fault__a_delay_changes_nothing),
        cmocka_unit_test(test_comm_fault__a_lost_message_ends_by_the_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
