/*
 * Sums that start from what recv holds, bit for bit against a serial oracle: group sizes, lengths, splits with empty parts,
 * several additions one after the other, one rank included; and where such a sum is refused.
 */
#include "test_comm_ranks.h"

#include <stdlib.h>

#include "base/error.h"
#include "comm/message.h"

#define MAX_ELEMS 40000
#define N_ROUNDS 3

typedef enum split_kind { SPLIT_EVEN, SPLIT_UNEVEN, SPLIT_ALL_TO_LAST, SPLIT_COUNT } split_kind;

typedef struct added_case {
    int n;
    int64_t n_elems;
    const int64_t *counts; /* NULL: even */
    int64_t start[MAX_TEST_RANKS + 1];
    float *acc[MAX_TEST_RANKS];            /* [part + 1]; the last is no part of it */
    float *send[N_ROUNDS][MAX_TEST_RANKS]; /* [n_elems] */
} added_case;

/* Different magnitudes, so that another order of adding gives other bits. */
static float value(int64_t i, int rank, int round)
{
    const uint64_t h =
        ((uint64_t)i * 2654435761u + (uint64_t)rank * 40503u + (uint64_t)round * 977u + 3u) *
        0x9E3779B97F4A7C15u;
    const int32_t k = (int32_t)(uint32_t)(h >> 33) - (1 << 30);
    return (float)k / (float)(1 << (10 + (int)(h >> 60)));
}

static float start_value(int64_t i)
{
    return value(i, 99, 99);
}

static weft_status add_rounds(test_rank *rank)
{
    const added_case *const t = rank->user;
    const int r = rank->comm->rank;
    for (int round = 0; round < N_ROUNDS; round++) {
        const weft_message m = {.op = WEFT_COMM_REDUCE_SCATTER,
                                .dtype = WEFT_DTYPE_F32,
                                .send = t->send[round][r],
                                .recv = t->acc[r],
                                .n_elems = t->n_elems,
                                .counts = t->counts,
                                .is_added = true,
                                .is_host = round == 1,
                                .tensor = "grad"};
        WEFT_TRY(weft_comm_call(rank->comm, &m));
    }
    return WEFT_OK;
}

/* ((acc + rank 0) + rank 1) + ..., round after round; `is_other`: acc + (rank 0 + rank 1 + ...), the wrong order. */
static float oracle(const added_case *t, int64_t i, bool is_other)
{
    volatile float acc = start_value(i);
    for (int round = 0; round < N_ROUNDS; round++) {
        volatile float sum = is_other ? t->send[round][0][i] : acc;
        for (int r = is_other ? 1 : 0; r < t->n; r++)
            sum = sum + t->send[round][r][i];
        acc = is_other ? acc + sum : sum;
    }
    return acc;
}

static void split(added_case *t, split_kind kind, int64_t *counts)
{
    t->counts = kind == SPLIT_EVEN ? NULL : counts;
    memset(counts, 0, MAX_TEST_RANKS * sizeof(*counts));
    if (kind == SPLIT_UNEVEN) { /* two elements to the first, the rest to the last but one */
        counts[0] = t->n > 2 && t->n_elems > 2 ? 2 : 0;
        counts[t->n > 1 ? t->n - 2 : 0] += t->n_elems - counts[0];
    } else if (kind == SPLIT_ALL_TO_LAST) {
        counts[t->n - 1] = t->n_elems;
    }
    const weft_message m = {.n_elems = t->n_elems, .counts = t->counts};
    for (int r = 0; r <= t->n; r++)
        t->start[r] = weft_i_comm_part_start(&m, t->n, r);
}

/* How many elements another order would have got wrong. */
static int64_t check_added(added_case *t)
{
    int64_t n_telling = 0;
    for (int r = 0; r < t->n; r++) {
        const int64_t n = t->start[r + 1] - t->start[r];
        for (int64_t i = 0; i < n; i++)
            t->acc[r][i] = start_value(t->start[r] + i);
        t->acc[r][n] = 12345.0f;
        for (int round = 0; round < N_ROUNDS; round++) {
            for (int64_t i = 0; i < t->n_elems; i++)
                t->send[round][r][i] = value(i, r, round);
        }
    }
    run_ranks_ok(t->n, add_rounds, t);
    for (int r = 0; r < t->n; r++) {
        const int64_t n = t->start[r + 1] - t->start[r];
        for (int64_t i = 0; i < n; i++) {
            const float expected = oracle(t, t->start[r] + i, false);
            const float other = oracle(t, t->start[r] + i, true);
            n_telling += memcmp(&expected, &other, sizeof(other)) != 0 ? 1 : 0;
            if (memcmp(&expected, &t->acc[r][i], sizeof(expected)) != 0)
                fail_msg("%d ranks, %lld elements, split %d: rank %d element %lld is %a, not %a",
                         t->n, (long long)t->n_elems, t->counts != NULL, r, (long long)i,
                         (double)t->acc[r][i], (double)expected);
        }
        assert_true(t->acc[r][n] == 12345.0f); /* nothing behind it was touched */
    }
    return n_telling;
}

static void test_comm_ordered_reduce__a_sum_starts_from_what_recv_holds(void **state)
{
    static const int sizes[] = {1, 2, 3, 4, 8};
    static const int64_t lengths[] = {0, 1, 5, 512, 513, MAX_ELEMS}; /* the last: several blocks */
    added_case t = {0};
    int64_t counts[MAX_TEST_RANKS], n_telling = 0;
    (void)state;
    for (int r = 0; r < MAX_TEST_RANKS; r++) {
        t.acc[r] = malloc((MAX_ELEMS + 1) * sizeof(float));
        assert_non_null(t.acc[r]);
        for (int round = 0; round < N_ROUNDS; round++) {
            t.send[round][r] = malloc(MAX_ELEMS * sizeof(float));
            assert_non_null(t.send[round][r]);
        }
    }
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++) {
            for (int kind = 0; kind < SPLIT_COUNT; kind++) {
                t.n = sizes[s];
                t.n_elems = lengths[l];
                split(&t, (split_kind)kind, counts);
                n_telling += check_added(&t);
            }
        }
    }
    assert_true(n_telling > MAX_ELEMS); /* the numbers tell the orders apart */
    for (int r = 0; r < MAX_TEST_RANKS; r++) {
        free(t.acc[r]);
        for (int round = 0; round < N_ROUNDS; round++)
            free(t.send[round][r]);
    }
}

/* ---- twice the same ---- */

#define RUN_ELEMS 30000

/* Sums of several blocks, so that ranks share the work in another way each time. */
static weft_status sum_up(test_rank *rank)
{
    float *const out = (float *)rank->user + (size_t)rank->comm->rank * RUN_ELEMS;
    for (int i = 0; i < RUN_ELEMS; i++)
        out[i] = value(i, rank->comm->rank, 0);
    for (int k = 0; k < 4; k++) {
        const weft_message m = {
            .op = WEFT_COMM_ALL_REDUCE, .send = out, .recv = out, .n_elems = RUN_ELEMS};
        WEFT_TRY(weft_comm_call(rank->comm, &m));
        for (int i = 0; i < RUN_ELEMS; i++)
            out[i] = out[i] * 0.3f + value(i, rank->comm->rank, k);
    }
    return WEFT_OK;
}

static void test_comm_ordered_reduce__two_runs_give_the_same_bits(void **state)
{
    const size_t n_bytes = MAX_TEST_RANKS * RUN_ELEMS * sizeof(float);
    float *const first = malloc(n_bytes), *const again = malloc(n_bytes);
    (void)state;
    assert_true(first != NULL && again != NULL);
    run_ranks_ok(MAX_TEST_RANKS, sum_up, first);
    for (int k = 0; k < 3; k++) {
        run_ranks_ok(MAX_TEST_RANKS, sum_up, again);
        assert_memory_equal(first, again, n_bytes);
    }
    free(first);
    free(again);
}

/* ---- refused ---- */

static weft_status refuse(test_rank *rank)
{
    float x[8] = {0}, y[8] = {0};
    weft_comm *const c = rank->comm;
    const weft_message good = {.op = WEFT_COMM_REDUCE_SCATTER,
                               .send = x,
                               .recv = y,
                               .n_elems = 8,
                               .is_added = true,
                               .tensor = "wte"};
    for (int op = 0; op < WEFT_COMM_OP_COUNT; op++) {
        weft_message m = good;
        m.op = (weft_comm_op)op;
        m.peer = weft_i_comm_is_pair(m.op) ? 1 - c->rank : 0;
        if (op != WEFT_COMM_REDUCE_SCATTER && weft_comm_call(c, &m) != WEFT_STATUS_ARG)
            WEFT_FAIL(WEFT_STATUS_INTERNAL, "%s took it", weft_i_comm_op_name(m.op));
    }
    weft_message max = good, bf16 = good, in_place = good, within = good;
    max.reduction = WEFT_REDUCTION_MAX;
    bf16.dtype = WEFT_DTYPE_BF16;
    in_place.recv = x + 4 * c->rank;
    within.recv = x + 3;
    const weft_message *const bad[] = {&max, &bf16, &in_place, &within};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (weft_comm_call(c, bad[i]) != WEFT_STATUS_ARG ||
            strstr(weft_last_error(), "wte") == NULL)
            WEFT_FAIL(WEFT_STATUS_INTERNAL, "case %zu: %s", i, weft_last_error());
    }
    return weft_comm_call(c, &good);
}

static void test_comm_ordered_reduce__only_an_f32_sum_apart_from_its_input_starts_so(void **state)
{
    (void)state;
    run_ranks_ok(2, refuse, NULL);
}

static weft_status disagree(test_rank *rank)
{
    float x[4] = {0}, y[4] = {0};
    const weft_message m = {.op = WEFT_COMM_REDUCE_SCATTER,
                            .send = x,
                            .recv = y,
                            .n_elems = 4,
                            .is_added = rank->comm->rank == 1,
                            .tensor = "wte"};
    return weft_comm_call(rank->comm, &m);
}

static void test_comm_ordered_reduce__ranks_must_agree_on_it(void **state)
{
    test_rank rank[MAX_TEST_RANKS];
    int n_mismatch = 0;
    (void)state;
    run_ranks(rank, 3, 30.0, disagree, NULL);
    for (int r = 0; r < 3; r++) {
        n_mismatch += rank[r].st == WEFT_STATUS_MISMATCH ? 1 : 0;
        if (rank[r].st == WEFT_OK || strstr(rank[r].message, "starts from recv") == NULL)
            fail_msg("rank %d: %s", r, rank[r].message);
    }
    assert_int_equal(n_mismatch, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_comm_ordered_reduce__a_sum_starts_from_what_recv_holds),
        cmocka_unit_test(test_comm_ordered_reduce__two_runs_give_the_same_bits),
        cmocka_unit_test(test_comm_ordered_reduce__only_an_f32_sum_apart_from_its_input_starts_so),
        cmocka_unit_test(test_comm_ordered_reduce__ranks_must_agree_on_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
