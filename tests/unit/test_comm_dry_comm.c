/* The dry transport: counts like a group of threads, answers host messages as stated, refuses what a group refuses. */
#include "test_comm_ranks.h"

#include "base/error.h"
#include "comm/dry/dry_comm.h"
#include "comm/message.h"
#include "comm/wrap/wrap.h"

#define N_RANKS 3
#define N_ELEMS 7

static const int64_t uneven[N_RANKS] = {5, 0, 2};

/* Every operation, whole and in uneven parts; the buffers are backend memory. */
static weft_status make_calls(weft_comm *c, void *send, void *recv)
{
    for (int op = 0; op < WEFT_COMM_OP_COUNT; op++) {
        for (int k = 0; k < 3; k++) {
            if (weft_i_comm_is_pair((weft_comm_op)op) && c->rank > 1)
                continue;
            if ((op == WEFT_COMM_SEND && c->rank == 1) || (op == WEFT_COMM_RECV && c->rank == 0))
                continue;
            const weft_message m = {.op = (weft_comm_op)op,
                                    .dtype = k == 1 ? WEFT_DTYPE_BF16 : WEFT_DTYPE_F32,
                                    .send = send,
                                    .recv = recv,
                                    .n_elems = N_ELEMS,
                                    .counts = k == 2 && op != WEFT_COMM_ALL_TO_ALL ? uneven : NULL,
                                    .peer = op == WEFT_COMM_RECV ? 0 : 1,
                                    .is_added = k == 2 && op == WEFT_COMM_REDUCE_SCATTER,
                                    .tensor = "wte"};
            WEFT_TRY(weft_comm_call(c, &m));
        }
    }
    return WEFT_OK;
}

typedef struct counts {
    weft_comm_count op[N_RANKS][WEFT_COMM_OP_COUNT];
} counts;

static void keep_counts(counts *out, const weft_comm *counter)
{
    for (int op = 0; op < WEFT_COMM_OP_COUNT; op++)
        out->op[counter->rank][op] = weft_i_count_get(counter, (weft_comm_op)op);
}

static weft_status count_threads(test_rank *rank)
{
    weft_comm *c = NULL;
    float send[16] = {0}, recv[16] = {0};
    WEFT_TRY(
        weft_i_thread_comm_create(&c, rank->world, rank->ctx, rank->comm->rank, NULL, 0, "tp"));
    WEFT_TRY(weft_i_count_create(&c, c));
    const weft_status st = make_calls(c, send, recv);
    keep_counts(rank->user, c);
    weft_comm_destroy(c);
    return st;
}

static void test_comm_dry_comm__counts_what_a_group_of_threads_counts(void **state)
{
    const weft_ctx_options o = {.backend = WEFT_BACKEND_DRY, .n_threads = 1};
    counts real = {0}, dry = {0};
    (void)state;
    run_ranks_ok(N_RANKS, count_threads, &real);
    for (int r = 0; r < N_RANKS; r++) {
        weft_ctx *ctx = NULL;
        weft_comm *c = NULL;
        void *send = NULL, *recv = NULL;
        CHECK_OK(weft_ctx_create(&ctx, &o));
        CHECK_OK(weft_i_alloc_get(ctx->alloc, WEFT_MEM_GRADIENTS, 64, "send", &send));
        CHECK_OK(weft_i_alloc_get(ctx->alloc, WEFT_MEM_GRADIENTS, 64, "recv", &recv));
        CHECK_OK(weft_i_dry_comm_create(&c, ctx, r, N_RANKS, "tp"));
        CHECK_OK(weft_i_count_create(&c, c));
        CHECK_OK(make_calls(c, send,
                            recv)); /* the addresses only count: touching them would end the test */
        keep_counts(&dry, c);
        weft_comm_destroy(c);
        weft_i_alloc_put(ctx->alloc, send);
        weft_i_alloc_put(ctx->alloc, recv);
        weft_ctx_destroy(ctx);
    }
    assert_memory_equal(&dry, &real, sizeof(real));
    assert_true(real.op[0][WEFT_COMM_ALL_REDUCE].sent_bytes > 0);
    assert_int_equal(real.op[1][WEFT_COMM_RECV].n_calls, 3);
}

/* ---- host messages ---- */

static weft_ctx *ctx;
static weft_comm *comm; /* rank 1 of 3 */

static int open_comm(void **state)
{
    const weft_ctx_options o = {.backend = WEFT_BACKEND_DRY, .n_threads = 1};
    (void)state;
    CHECK_OK(weft_ctx_create(&ctx, &o));
    CHECK_OK(weft_i_dry_comm_create(&comm, ctx, 1, N_RANKS, "dp"));
    return 0;
}

static int close_comm(void **state)
{
    (void)state;
    weft_comm_destroy(comm);
    weft_ctx_destroy(ctx);
    return 0;
}

static void test_comm_dry_comm__host_messages_give_this_ranks_own(void **state)
{
    static const int64_t own_part[3] = {3, 1, 2}, other[3] = {1, 3, 3};
    /* Sent: 1 .. 6 (a part alone: its first numbers). 0 in `out`: recv is as it was. */
    const struct {
        weft_comm_op op;
        int root;
        const int64_t *counts, *recv_counts;
        int64_t out[7];
    } cases[] = {
        {WEFT_COMM_ALL_REDUCE, 0, NULL, NULL, {1, 2, 3, 4, 5, 6}},
        {WEFT_COMM_BROADCAST, 1, NULL, NULL, {1, 2, 3, 4, 5, 6}},
        {WEFT_COMM_BROADCAST, 0, NULL, NULL, {0}},
        {WEFT_COMM_REDUCE, 1, NULL, NULL, {1, 2, 3, 4, 5, 6}},
        {WEFT_COMM_REDUCE, 2, NULL, NULL, {0}},
        {WEFT_COMM_REDUCE_SCATTER, 0, NULL, NULL, {3, 4}},
        {WEFT_COMM_REDUCE_SCATTER, 0, own_part, NULL, {4}},
        {WEFT_COMM_SCATTER, 1, NULL, NULL, {3, 4}},
        {WEFT_COMM_SCATTER, 2, NULL, NULL, {0}},
        {WEFT_COMM_ALL_GATHER, 0, NULL, NULL, {1, 2, 1, 2, 1, 2}},
        {WEFT_COMM_ALL_GATHER, 0, own_part, NULL, {1, 0, 0, 1, 1, 0}},
        {WEFT_COMM_ALL_GATHER, 0, other, NULL, {1, 1, 2, 3, 1, 2, 3}},
        {WEFT_COMM_GATHER, 1, own_part, NULL, {1, 0, 0, 1, 1, 0}},
        {WEFT_COMM_GATHER, 0, own_part, NULL, {0}},
        {WEFT_COMM_ALL_TO_ALL, 0, NULL, NULL, {3, 4, 3, 4, 3, 4}},
        {WEFT_COMM_ALL_TO_ALL, 0, own_part, other, {4, 4, 0, 0, 4, 0, 0}},
        {WEFT_COMM_RECV, 0, NULL, NULL, {0}},
        {WEFT_COMM_SEND, 0, NULL, NULL, {0}},
        {WEFT_COMM_BARRIER, 0, NULL, NULL, {0}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (int reduction = 0; reduction < 2; reduction++) {
            const int64_t send[7] = {1, 2, 3, 4, 5, 6, 7};
            int64_t recv[8] = {0, 0, 0, 0, 0, 0, 0, -1};
            const weft_message m = {.op = cases[i].op,
                                    .dtype = WEFT_DTYPE_I64,
                                    .reduction = (weft_reduction)reduction,
                                    .send = send,
                                    .recv = recv,
                                    .n_elems = cases[i].counts == other ? 7 : 6,
                                    .counts = cases[i].counts,
                                    .recv_counts = cases[i].recv_counts,
                                    .peer = cases[i].root,
                                    .is_host = true};
            CHECK_OK(weft_comm_call(comm, &m));
            for (int k = 0; k < 7; k++) {
                if (recv[k] != cases[i].out[k])
                    fail_msg("case %zu (%s): element %d is %lld, not %lld", i,
                             weft_i_comm_op_name(m.op), k, (long long)recv[k],
                             (long long)cases[i].out[k]);
            }
            assert_int_equal(recv[7], -1);
        }
    }
}

static void test_comm_dry_comm__works_in_place_and_adds_onto_recv(void **state)
{
    int64_t x[6] = {0, 0, 7, 8, 0, 0};
    float send[6] = {1, 2, 3, 4, 5, 6}, acc[2] = {10, 20};
    (void)state;
    const weft_message gather = {.op = WEFT_COMM_ALL_GATHER,
                                 .dtype = WEFT_DTYPE_I64,
                                 .send = x + 2,
                                 .recv = x,
                                 .n_elems = 6,
                                 .is_host = true};
    const int64_t all[6] = {7, 8, 7, 8, 7, 8};
    CHECK_OK(weft_comm_call(comm, &gather));
    assert_memory_equal(x, all, sizeof(all));
    const weft_message add = {.op = WEFT_COMM_REDUCE_SCATTER,
                              .send = send,
                              .recv = acc,
                              .n_elems = 6,
                              .is_added = true,
                              .is_host = true};
    CHECK_OK(weft_comm_call(comm, &add));
    assert_true(acc[0] == 13.0f && acc[1] == 24.0f);
}

static void test_comm_dry_comm__refuses_what_a_group_refuses(void **state)
{
    float x[6] = {0};
    weft_comm *c = NULL;
    (void)state;
    const weft_message bad[] = {
        {.op = WEFT_COMM_BROADCAST, .send = x, .recv = x, .n_elems = 6, .peer = 3, .tensor = "wte"},
        {.op = WEFT_COMM_SEND, .send = x, .n_elems = 6, .peer = 1, .tensor = "wte"},
        {.op = WEFT_COMM_ALL_REDUCE, .send = x, .recv = x + 1, .n_elems = 5, .tensor = "wte"},
        {.op = WEFT_COMM_ALL_REDUCE, .recv = x, .n_elems = 5, .tensor = "wte"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CHECK_FAILS(weft_comm_call(comm, &bad[i]), WEFT_STATUS_ARG, "wte");
    CHECK_FAILS(weft_i_dry_comm_create(&c, ctx, 3, 3, "dp"), WEFT_STATUS_ARG,
                "rank 3 of 3 over dp");
    assert_null(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_comm_dry_comm__counts_what_a_group_of_threads_counts),
        cmocka_unit_test_setup_teardown(test_comm_dry_comm__host_messages_give_this_ranks_own,
                                        open_comm, close_comm),
        cmocka_unit_test_setup_teardown(test_comm_dry_comm__works_in_place_and_adds_onto_recv,
                                        open_comm, close_comm),
        cmocka_unit_test_setup_teardown(test_comm_dry_comm__refuses_what_a_group_refuses, open_comm,
                                        close_comm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
