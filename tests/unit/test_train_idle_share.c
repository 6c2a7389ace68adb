/* Idle shares of pipelines: what was measured, and the schedule simulated with the same stage times. */
#include "check.h"

#include "train/idle_share.h"

#include <math.h>
#include <string.h>

#define MS 1000000

static weft_layout layout_of(int dp, int pp, weft_schedule_kind schedule)
{
    return (weft_layout){.dp = dp,
                         .tp = 1,
                         .pp = pp,
                         .n_ranks = dp * pp,
                         .rank_order = "tp-dp-pp",
                         .schedule = schedule,
                         .n_chunks = 1,
                         .stage_layers = ""};
}

static weft_idle_share find(const weft_layout *l, const weft_rank_times *ranks, double message_s)
{
    weft_alloc *alloc = NULL;
    weft_idle_share share;
    CHECK_OK(weft_i_alloc_create(&alloc, false, 0));
    CHECK_OK(weft_i_idle_share_find(&share, alloc, l, ranks, message_s));
    weft_i_alloc_destroy(alloc);
    return share;
}

/* 4 stages, 8 micro-batches, forward 1, backward 2: 3 of 11 are idle (arXiv:2104.04473, (p - 1) / (m + p - 1)). */
static void test_train_idle_share__is_the_schedules_own(void **state)
{
    const weft_layout l = layout_of(2, 4, WEFT_SCHEDULE_1F1B);
    weft_rank_times ranks[8];
    (void)state;
    memset(ranks, 0, sizeof(ranks));
    for (int r = 0; r < 8; r++) {
        ranks[r].stage = r / 2;
        ranks[r].n_forwards = 8;
        ranks[r].span_ns = (33 - 2 * (r / 2)) * (int64_t)MS;
        ranks[r].chunk_ns[0][WEFT_STEP_FORWARD] = 8 * MS;
        ranks[r].chunk_ns[0][WEFT_STEP_BACKWARD] = 16 * MS;
    }
    const weft_idle_share share = find(&l, ranks, 0.0);
    assert_true(share.is_known);
    assert_int_equal(share.n_micro_batches, 8);
    assert_true(fabs(share.measured - 3.0 / 11.0) < 1e-12);
    assert_true(fabs(share.simulated - 3.0 / 11.0) < 1e-9);
    assert_true(fabs(share.simulated_ms - 33.0) < 1e-6);
    const weft_idle_share late = find(&l, ranks, 1e-4);
    assert_true(late.simulated > share.simulated);
}

/* A stage twice as slow as the other: 2 stages, naive, 3 micro-batches: one works at a time, 18 of 36 are idle. */
static void test_train_idle_share__counts_uneven_stages(void **state)
{
    const weft_layout l = layout_of(1, 2, WEFT_SCHEDULE_NAIVE);
    const weft_rank_times ranks[2] = {
        {.stage = 0, .n_forwards = 3, .span_ns = 27 * MS, .chunk_ns = {{3 * MS, 6 * MS}}},
        {.stage = 1, .n_forwards = 3, .span_ns = 24 * MS, .chunk_ns = {{6 * MS, 12 * MS}}}};
    (void)state;
    const weft_idle_share share = find(&l, ranks, 0.0);
    assert_true(fabs(share.measured - 0.5) < 1e-12);
    assert_true(fabs(share.simulated - 0.5) < 1e-9);
    assert_true(fabs(share.simulated_ms - 27.0) < 1e-6);
}

/* 11 micro-batches over 2 dp ranks are 6 and 5: each takes what it takes, and the pipeline with 6 is as long as it is. */
static void test_train_idle_share__counts_uneven_data_parallel_ranks(void **state)
{
    const weft_layout l = layout_of(2, 4, WEFT_SCHEDULE_GPIPE);
    weft_rank_times ranks[8];
    (void)state;
    memset(ranks, 0, sizeof(ranks));
    for (int r = 0; r < 8; r++) {
        const int64_t m = r % 2 == 0 ? 6 : 5;
        ranks[r].stage = r / 2;
        ranks[r].n_forwards = m;
        ranks[r].span_ns = (m + 3 - r / 2) * 3 * MS;
        ranks[r].chunk_ns[0][WEFT_STEP_FORWARD] = m * MS;
        ranks[r].chunk_ns[0][WEFT_STEP_BACKWARD] = m * 2 * MS;
    }
    const weft_idle_share share = find(&l, ranks, 0.0);
    assert_int_equal(share.n_micro_batches, 6);
    assert_true(fabs(share.simulated_ms - 27.0) < 1e-6);
    assert_true(fabs(share.measured - (1.0 - 5.5 / 9.0)) < 1e-12);
    assert_true(fabs(share.simulated - share.measured) < 1e-9);
}

/*
 * 2 stages of 2 chunks, 3 micro-batches; the parts take 1, 4, 2 and 1 forward and twice that backward: the stages work for 27
 * and 45, the first from 0 to 48. With more chunks than are kept apart all chunks of a stage count alike.
 */
static void test_train_idle_share__counts_uneven_chunks(void **state)
{
    weft_layout l = layout_of(1, 2, WEFT_SCHEDULE_INTERLEAVED);
    weft_rank_times ranks[2] = {{.stage = 0,
                                 .n_forwards = 6,
                                 .span_ns = 48 * MS,
                                 .chunk_ns = {{3 * MS, 6 * MS}, {6 * MS, 12 * MS}}},
                                {.stage = 1,
                                 .n_forwards = 6,
                                 .span_ns = 45 * MS,
                                 .chunk_ns = {{12 * MS, 24 * MS}, {3 * MS, 6 * MS}}}};
    (void)state;
    l.n_chunks = 2;
    const weft_idle_share share = find(&l, ranks, 0.0);
    assert_int_equal(share.n_micro_batches, 3);
    assert_true(fabs(share.simulated_ms - 48.0) < 1e-6);
    assert_true(fabs(share.measured - 0.25) < 1e-12);
    assert_true(fabs(share.simulated - 0.25) < 1e-9);

    l.n_chunks = WEFT_STEP_CHUNKS + 1;
    memset(ranks, 0, sizeof(ranks));
    for (int r = 0; r < 2; r++) {
        ranks[r].stage = r;
        ranks[r].n_forwards = 2 * l.n_chunks;
        ranks[r].span_ns = 4 * l.n_chunks * MS;
        for (int c = 0; c < WEFT_STEP_CHUNKS; c++)
            ranks[r].chunk_ns[c][WEFT_STEP_FORWARD] = (c == WEFT_STEP_CHUNKS - 1 ? 2 : 1) * 2 * MS;
    }
    /* only forwards take time: 2 x 17 of 1 each on a rank; the first one's last backward waits for the other's last forward */
    assert_true(fabs(find(&l, ranks, 0.0).simulated_ms - 35.0) < 1e-6);
}

static void test_train_idle_share__is_unknown_without_a_pipeline(void **state)
{
    const weft_layout one = layout_of(2, 1, WEFT_SCHEDULE_1F1B);
    const weft_layout two = layout_of(1, 2, WEFT_SCHEDULE_1F1B);
    const weft_rank_times none[2] = {{.stage = 0}, {.stage = 1}};
    (void)state;
    assert_true(!find(&one, none, 0.0).is_known);
    assert_true(!find(&two, none, 0.0).is_known);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_train_idle_share__is_the_schedules_own),
        cmocka_unit_test(test_train_idle_share__counts_uneven_stages),
        cmocka_unit_test(test_train_idle_share__counts_uneven_data_parallel_ranks),
        cmocka_unit_test(test_train_idle_share__counts_uneven_chunks),
        cmocka_unit_test(test_train_idle_share__is_unknown_without_a_pipeline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
