/* The count wrapper: bytes and calls against numbers worked out by hand from the convention. */
#include "test_comm_ranks.h"

#include "base/error.h"
#include "comm/wrap/wrap.h"

/* Elements that ranks 0, 1, 2 send of a whole of 7: even cut 3, 2, 2; uneven 5, 0, 2; root and receiver 1. */
static const struct {
    weft_comm_op op;
    bool is_uneven;
    uint64_t sent[3];
} expected[] = {
    {WEFT_COMM_ALL_REDUCE, false, {10, 9, 9}},   /* 2 V_r + 7 - V_r */
    {WEFT_COMM_REDUCE_SCATTER, true, {2, 7, 5}}, /* 7 - V_r */
    {WEFT_COMM_ALL_GATHER, true, {10, 0, 4}},    /* 2 V_r */
    {WEFT_COMM_BROADCAST, false, {0, 14, 0}},    /* root 2 * 7 */
    {WEFT_COMM_REDUCE, false, {7, 0, 7}},        /* the others all */
    {WEFT_COMM_GATHER, true, {5, 0, 2}},         /* the others their part */
    {WEFT_COMM_SCATTER, true, {0, 7, 0}},        /* root 7 - V_root */
    {WEFT_COMM_ALL_TO_ALL, false, {4, 5, 5}},    /* what does not stay */
    {WEFT_COMM_BARRIER, false, {0, 0, 0}},
};

#define N_EXPECTED (sizeof(expected) / sizeof(expected[0]))

static weft_status
check_count(const weft_comm *c, weft_comm_op op, uint64_t n_calls, uint64_t bytes)
{
    const weft_comm_count n = weft_i_count_get(c, op);
    if (n.n_calls != n_calls || n.sent_bytes != bytes)
        WEFT_FAIL(WEFT_STATUS_INTERNAL, "op %d: %llu calls and %llu bytes, expected %llu and %llu",
                  (int)op, (unsigned long long)n.n_calls, (unsigned long long)n.sent_bytes,
                  (unsigned long long)n_calls, (unsigned long long)bytes);
    return WEFT_OK;
}

static weft_status count_all(weft_comm *c)
{
    static const int64_t uneven[3] = {5, 0, 2};
    uint64_t all = 0, n_all = 0;
    for (size_t i = 0; i < N_EXPECTED; i++) {
        uint16_t in[7] = {0}, out[9] = {0}; /* all_to_all: rank 0 gets 3 from each */
        const weft_message m = {.op = expected[i].op,
                                .dtype = WEFT_DTYPE_BF16,
                                .send = in,
                                .recv = out,
                                .n_elems = 7,
                                .counts = expected[i].is_uneven ? uneven : NULL,
                                .peer = 1};
        for (uint64_t k = 1; k <= 3; k++) {
            WEFT_TRY(weft_comm_call(c, &m));
            WEFT_TRY(check_count(c, m.op, k, 2 * k * expected[i].sent[c->rank]));
        }
        all += 6 * expected[i].sent[c->rank];
        n_all += 3;
    }
    if (c->rank < 2) {
        float x[7] = {0};
        const weft_message m = {.op = c->rank == 0 ? WEFT_COMM_SEND : WEFT_COMM_RECV,
                                .send = c->rank == 0 ? x : NULL,
                                .recv = c->rank == 0 ? NULL : x,
                                .n_elems = 7,
                                .peer = 1 - c->rank};
        WEFT_TRY(weft_comm_call(c, &m));
        WEFT_TRY(check_count(c, m.op, 1, c->rank == 0 ? 28 : 0));
        all += c->rank == 0 ? 28 : 0;
        n_all++;
    }
    WEFT_TRY(check_count(c, WEFT_COMM_OP_COUNT, n_all, all));
    weft_i_count_reset(c);
    return check_count(c, WEFT_COMM_OP_COUNT, 0, 0);
}

static weft_status count_rank(test_rank *rank)
{
    weft_comm *inner = NULL, *counter = NULL;
    WEFT_TRY(
        weft_i_thread_comm_create(&inner, rank->world, rank->ctx, rank->comm->rank, NULL, 0, "dp"));
    WEFT_TRY(weft_i_count_create(&counter, inner));
    weft_status st = count_all(counter);
    if (st == WEFT_OK && (counter->rank != rank->comm->rank || !counter->ops->is_ordered))
        st = weft_i_error_set(WEFT_STATUS_INTERNAL, "the wrapper is not like what it wraps");
    weft_comm_destroy(counter);
    return st;
}

static void test_comm_count__bytes_follow_the_convention(void **state)
{
    (void)state;
    run_ranks_ok(3, count_rank, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_comm_count__bytes_follow_the_convention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
