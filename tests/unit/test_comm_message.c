/* The meaning of messages: what one rank sends others receive, and which in-place forms are taken. */
#include "check.h"

#include "comm/message.h"

#define MAX_SIZE 8

/* Sums over the group of bytes sent and received. */
static void test_comm_message__what_is_sent_is_received(void **state)
{
    static const int sizes[] = {1, 2, 3, 4, 8};
    static const int64_t lengths[] = {0, 1, 7, 64, 1001};
    (void)state;
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++) {
            const int n = sizes[s];
            int64_t uneven[MAX_SIZE] = {0};
            uneven[n / 2] = lengths[l] / 3;
            uneven[n - 1] += lengths[l] - lengths[l] / 3;
            for (int op = 0; op < WEFT_COMM_SEND; op++) {
                for (int k = 0; k < 2; k++) {
                    if (op == WEFT_COMM_ALL_TO_ALL && k == 1)
                        continue; /* counts differ by rank there: below */
                    const weft_message m = {.op = (weft_comm_op)op,
                                            .dtype = WEFT_DTYPE_BF16,
                                            .n_elems = lengths[l],
                                            .counts = k == 1 ? uneven : NULL,
                                            .peer = n / 2};
                    uint64_t sent = 0, received = 0;
                    for (int r = 0; r < n; r++) {
                        sent += weft_i_comm_sent_bytes(&m, n, r);
                        received += weft_i_comm_received_bytes(&m, n, r);
                    }
                    if (sent != received)
                        fail_msg("%s of %lld over %d: %llu sent, %llu received",
                                 weft_i_comm_op_name(m.op), (long long)m.n_elems, n,
                                 (unsigned long long)sent, (unsigned long long)received);
                    if (k == 0 && n > 1 && lengths[l] > n)
                        assert_true(sent > 0);
                }
            }
        }
    }
}

static void test_comm_message__a_pair_sends_its_own_count(void **state)
{
    /* Row: from rank r to each. */
    static const int64_t counts[3][3] = {{5, 1, 0}, {2, 7, 4}, {0, 3, 9}};
    (void)state;
    uint64_t sent = 0, received = 0;
    for (int r = 0; r < 3; r++) {
        const int64_t from[3] = {counts[0][r], counts[1][r], counts[2][r]};
        const weft_message m = {.op = WEFT_COMM_ALL_TO_ALL,
                                .dtype = WEFT_DTYPE_F32,
                                .n_elems = counts[r][0] + counts[r][1] + counts[r][2],
                                .counts = counts[r],
                                .recv_counts = from};
        sent += weft_i_comm_sent_bytes(&m, 3, r);
        received += weft_i_comm_received_bytes(&m, 3, r);
        assert_int_equal(weft_i_comm_sent_bytes(&m, 3, r), 4 * (m.n_elems - counts[r][r]));
        assert_int_equal(weft_i_comm_received_bytes(&m, 3, r),
                         4 * (from[0] + from[1] + from[2] - counts[r][r]));
    }
    assert_int_equal(sent, 4 * (1 + 2 + 4 + 3));
    assert_int_equal(received, sent);
    const weft_message send = {.op = WEFT_COMM_SEND, .dtype = WEFT_DTYPE_F32, .n_elems = 3};
    const weft_message recv = {.op = WEFT_COMM_RECV, .dtype = WEFT_DTYPE_F32, .n_elems = 3};
    assert_int_equal(weft_i_comm_sent_bytes(&send, 2, 0), 12);
    assert_int_equal(weft_i_comm_received_bytes(&send, 2, 0), 0);
    assert_int_equal(weft_i_comm_sent_bytes(&recv, 2, 1), 0);
    assert_int_equal(weft_i_comm_received_bytes(&recv, 2, 1), 12);
}

/* In place in the whole: each rank's part where it lies, also a part of nothing, wherever that points. */
static void test_comm_message__parts_lie_in_the_whole(void **state)
{
    static const int64_t counts[4] = {3, 0, 5, 0};
    static const weft_comm_op ops[] = {WEFT_COMM_REDUCE_SCATTER, WEFT_COMM_ALL_GATHER,
                                       WEFT_COMM_GATHER, WEFT_COMM_SCATTER};
    float whole[8], *const nowhere = NULL;
    weft_comm c = {.size = 4, .axis = "dp"};
    (void)state;
    for (size_t k = 0; k < sizeof(ops) / sizeof(ops[0]); k++) {
        for (c.rank = 0; c.rank < 4; c.rank++) {
            const bool is_gather = ops[k] == WEFT_COMM_ALL_GATHER || ops[k] == WEFT_COMM_GATHER;
            const int64_t at[4] = {0, 3, 3, 8};
            float *const parts[] = {whole + at[c.rank], counts[c.rank] == 0 ? nowhere : NULL,
                                    whole + 1};
            for (int p = 0; p < 3; p++) {
                const weft_message m = {.op = ops[k],
                                        .send = is_gather ? parts[p] : whole,
                                        .recv = is_gather ? whole : parts[p],
                                        .n_elems = 8,
                                        .counts = counts,
                                        .peer = c.rank,
                                        .tensor = "wte"};
                const bool is_right = p == 0 || counts[c.rank] == 0;
                const weft_status st = weft_i_comm_check(&c, &m);
                if (st != (is_right ? WEFT_OK : WEFT_STATUS_ARG))
                    fail_msg("%s, rank %d, place %d: %s", weft_i_comm_op_name(ops[k]), c.rank, p,
                             weft_last_error());
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_comm_message__what_is_sent_is_received),
        cmocka_unit_test(test_comm_message__a_pair_sends_its_own_count),
        cmocka_unit_test(test_comm_message__parts_lie_in_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
