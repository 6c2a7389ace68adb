/* Layouts: what the options come to, and what cannot be, with the arithmetic. */
#include "check.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "parallel/layout.h"

static weft_layout_options usual(void)
{
    weft_layout_options o;
    weft_layout_options_init(&o);
    return o;
}

static void test_parallel_layout__defaults_are_one_rank(void **state)
{
    (void)state;
    weft_layout_options o = usual();
    weft_layout l;
    CHECK_OK(weft_i_layout_make(&l, &o));
    assert_int_equal(l.n_ranks, 1);
    assert_int_equal(l.dp * l.tp * l.pp, 1);
    assert_string_equal(l.rank_order, "tp-dp-pp");
    assert_false(l.is_data_parallel);
    assert_int_equal(l.zero_stage, 0);
    assert_true(l.has_prefetch && l.is_overlapped && !l.is_reproducible);
    assert_int_equal(l.bucket_bytes, 25000000);
    assert_true(l.comm_timeout_s == 120.0);
    assert_null(l.pace);
    assert_string_equal(l.trace, "");
    /* what has nothing to act on with one rank passes */
    o.dp = o.tp = o.pp = o.ranks = 1;
    o.zero_stage = 3;
    o.pp_schedule = "zb-h1";
    o.pp_chunks = 4;
    o.sequence_parallel = true;
    o.strategy = "data-parallel";
    o.stage_layers = "12";
    CHECK_OK(weft_i_layout_make(&l, &o));
}

static void test_parallel_layout__ranks_fill_dp(void **state)
{
    (void)state;
    weft_layout_options o = usual();
    weft_layout l;
    o.dp = 3;
    o.zero_stage = 2;
    o.trace = "t.json";
    CHECK_OK(weft_i_layout_make(&l, &o));
    assert_int_equal(l.dp, 3);
    assert_int_equal(l.n_ranks, 3);
    assert_int_equal(l.zero_stage, 2);
    assert_string_equal(l.trace, "t.json");
    o.ranks = 3;
    CHECK_OK(weft_i_layout_make(&l, &o));
    assert_int_equal(l.n_ranks, 3);
    o.dp = 0;
    o.ranks = 8;
    CHECK_OK(weft_i_layout_make(&l, &o));
    assert_int_equal(l.dp, 8);
    assert_int_equal(l.n_ranks, 8);
}

static void test_parallel_layout__impossible_ranks_come_with_the_arithmetic(void **state)
{
    (void)state;
    weft_layout_options o = usual();
    weft_layout l;
    o.ranks = 8;
    o.tp = 3;
    CHECK_FAILS(weft_i_layout_make(&l, &o), WEFT_STATUS_LAYOUT, "tp 3 x pp 1 = 3");
    assert_non_null(strstr(weft_last_error(), "--ranks 6 and --ranks 9"));
    o.ranks = 2;
    o.pp = 2;
    CHECK_FAILS(weft_i_layout_make(&l, &o), WEFT_STATUS_LAYOUT, "is: --ranks 6");
    o = usual();
    o.ranks = 4;
    o.dp = 3;
    CHECK_FAILS(weft_i_layout_make(&l, &o), WEFT_STATUS_LAYOUT, "dp 3 x tp 1 x pp 1 = 3 ranks");
    assert_non_null(strstr(weft_last_error(), "use --dp 4 or --ranks 3"));
    o = usual();
    o.dp = o.tp = o.pp = 1048576;
    CHECK_FAILS(weft_i_layout_make(&l, &o), WEFT_STATUS_LAYOUT, "more ranks than can be");
    o.dp = INT_MAX;
    o.tp = INT_MAX;
    o.pp = INT_MAX;
    CHECK_FAILS(weft_i_layout_make(&l, &o), WEFT_STATUS_LAYOUT, "more ranks than can be");
}

static void test_parallel_layout__what_does_not_go_together_is_refused(void **state)
{
    (void)state;
    weft_layout l;
    weft_layout_options o = usual();
    o.pp = 3;
    CHECK_OK(weft_i_layout_make(&l, &o));
    assert_int_equal(l.schedule, WEFT_SCHEDULE_1F1B);
    o.pp_schedule = "interleaved";
    o.pp_chunks = 0;
    CHECK_OK(weft_i_layout_make(&l, &o));
    assert_int_equal(l.n_chunks, 2); /* one chunk would be no interleaving */
    o.pp_chunks = 1;                 /* but it is had by whoever asks for it */
    CHECK_OK(weft_i_layout_make(&l, &o));
    assert_int_equal(l.n_chunks, 1);
    o.pp_chunks = 0;
    o.stage_layers = "6,3,3";
    CHECK_FAILS(weft_i_layout_make(&l, &o), WEFT_STATUS_LAYOUT, "3 parts, but there are 6");
    CHECK_FAILS(weft_i_layout_make(&l, &o), WEFT_STATUS_LAYOUT,
                "use 6 numbers"); /* 3 are no stages of 2 */
    o.stage_layers = "6,3,3,2";
    CHECK_FAILS(weft_i_layout_make(&l, &o), WEFT_STATUS_LAYOUT, "--pp 2 with a model of 12 blocks");
    o.stage_layers = "6,3,3";
    o.pp_schedule = "zb-h1";
    CHECK_OK(weft_i_layout_make(&l, &o));
    o.pp_chunks = 2;
    o.stage_layers = "";
    CHECK_FAILS(weft_i_layout_make(&l, &o), WEFT_STATUS_LAYOUT, "--pp-chunks 2");
    o = usual();
    o.stage_layers = "6,3,3";
    CHECK_FAILS(weft_i_layout_make(&l, &o), WEFT_STATUS_LAYOUT, "3 parts, but there are 1");
    o = usual();
    o.strategy = "data-parallel";
    o.dp = 2;
    CHECK_OK(weft_i_layout_make(&l, &o));
    assert_true(l.is_data_parallel);
    o.zero_stage = 1;
    CHECK_FAILS(weft_i_layout_make(&l, &o), WEFT_STATUS_LAYOUT, "--zero-stage 1");
    o.zero_stage = 0;
    o.tp = 2;
    CHECK_FAILS(weft_i_layout_make(&l, &o), WEFT_STATUS_LAYOUT, "--dp 4 alone");
}

/* B01: as many tensor ranks as heads, evenly or not, and no more; nothing to share out with one. */
static void test_parallel_layout__tensor_ranks_fit_the_model(void **state)
{
    (void)state;
    weft_config c = {.n_heads = 6, .n_kv_heads = 2, .ffn_size = 77, .vocab_size = 257};
    weft_layout l;
    weft_layout_options o = usual();
    o.sequence_parallel = true;
    CHECK_OK(weft_i_layout_make(&l, &o));
    assert_false(l.is_sequence_parallel);
    CHECK_OK(weft_i_layout_check_model(&l, &c));
    o.tp = 5;
    CHECK_OK(weft_i_layout_make(&l, &o));
    assert_true(l.is_sequence_parallel);
    assert_int_equal(l.n_ranks, 5);
    CHECK_OK(weft_i_layout_check_model(&l, &c));
    l.tp = l.n_ranks = 7;
    CHECK_FAILS(weft_i_layout_check_model(&l, &c), WEFT_STATUS_LAYOUT, "--tp 7");
    CHECK_FAILS(weft_i_layout_check_model(&l, &c), WEFT_STATUS_LAYOUT, "6 heads");
    CHECK_FAILS(weft_i_layout_check_model(&l, &c), WEFT_STATUS_LAYOUT, "--tp 1 to 6 work");
    CHECK_FAILS(weft_i_layout_check_model(&l, &c), WEFT_STATUS_LAYOUT, "--pp");
    l.tp = l.n_ranks = 6;
    CHECK_OK(weft_i_layout_check_model(&l, &c));
    c.vocab_size = 5;
    CHECK_FAILS(weft_i_layout_check_model(&l, &c), WEFT_STATUS_LAYOUT, "5 ids");
    CHECK_FAILS(weft_i_layout_check_model(&l, &c), WEFT_STATUS_LAYOUT, "--tp 1 to 5 work");
}

/* A strip is at least a kv head, an MLP column and an id, and a rank at least a strip. */
static void test_parallel_layout__strips_fit_ranks_and_model(void **state)
{
    (void)state;
    weft_config c = {
        .n_heads = 6, .n_kv_heads = 3, .ffn_size = 77, .vocab_size = 257, .n_layers = 2};
    weft_layout l;
    weft_layout_options o = usual();
    o.tp = 3;
    o.tp_strips = 2;
    CHECK_OK(weft_i_layout_make(&l, &o));
    CHECK_FAILS(weft_i_layout_check_model(&l, &c), WEFT_STATUS_LAYOUT, "--tp-strips 3 to 3");
    CHECK_FAILS(weft_i_layout_check_model(&l, &c), WEFT_STATUS_LAYOUT, "at most --tp 2");
    c.n_kv_heads = 2; /* and no number of strips is as many as the ranks */
    CHECK_FAILS(weft_i_layout_check_model(&l, &c), WEFT_STATUS_LAYOUT, "no more than 2");
    CHECK_FAILS(weft_i_layout_check_model(&l, &c), WEFT_STATUS_LAYOUT, "at most --tp 2");
    o.tp = 2;
    CHECK_OK(weft_i_layout_make(&l, &o));
    assert_int_equal(l.n_strips, 2);
    CHECK_OK(weft_i_layout_check_model(&l, &c));
    o.tp_strips = 3;
    CHECK_OK(weft_i_layout_make(&l, &o));
    CHECK_FAILS(weft_i_layout_check_model(&l, &c), WEFT_STATUS_LAYOUT, "2 heads of keys");
    CHECK_FAILS(weft_i_layout_check_model(&l, &c), WEFT_STATUS_LAYOUT, "at most --tp-strips 2");
    o = usual();
    o.dp = 2;
    o.tp_strips = 2;
    o.strategy = "data-parallel";
    CHECK_FAILS(weft_i_layout_make(&l, &o), WEFT_STATUS_LAYOUT, "--strategy data-parallel");
}

/* "--tp 4" in a message; `otherwise` where it is not there. */
static int64_t number_after(const char *text, const char *flag, int64_t otherwise)
{
    const char *at = strstr(text, flag);
    return at != NULL ? strtoll(at + strlen(flag), NULL, 10) : otherwise;
}

/* Follows the message of a refused layout to the one it names; false where it names none. */
static bool follow(weft_layout_options *o)
{
    const char *named = strstr(weft_last_error(), "with as many ranks: ");
    if (named == NULL)
        return false;
    o->dp = number_after(named, "--dp ", 0);
    o->tp = number_after(named, "--tp ", 0);
    o->pp = number_after(named, "--pp ", 0);
    o->tp_strips = number_after(named, "--tp-strips ", o->tp_strips);
    if (strstr(named, "without --stage-layers") != NULL)
        o->stage_layers = "";
    return true;
}

/* What is suggested works, with all other flags as they are, and has as many ranks. */
static void try_suggestion(const weft_config *c, const weft_layout_options *asked, int64_t *n_tried)
{
    weft_layout_options o = *asked;
    weft_layout l;
    CHECK_OK(weft_i_layout_make(&l, &o));
    const int n_ranks = l.n_ranks;
    if (weft_i_layout_check_model(&l, c) == WEFT_OK)
        return;
    if (!follow(&o))
        fail_msg("no layout is named: %s", weft_last_error());
    if (weft_i_layout_make(&l, &o) != WEFT_OK || weft_i_layout_check_model(&l, c) != WEFT_OK)
        fail_msg("tp %d pp %d strips %d schedule %s chunks %d stage layers \"%s\": what is named "
                 "does not work either: %s",
                 (int)asked->tp, (int)asked->pp, (int)asked->tp_strips, asked->pp_schedule,
                 (int)asked->pp_chunks, asked->stage_layers, weft_last_error());
    assert_int_equal(l.n_ranks, n_ranks);
    (*n_tried)++;
}

static void test_parallel_layout__what_is_suggested_works(void **state)
{
    (void)state;
    static const weft_config models[] = {
        {.n_heads = 4, .n_kv_heads = 4, .ffn_size = 9, .vocab_size = 257, .n_layers = 4},
        {.n_heads = 12, .n_kv_heads = 4, .ffn_size = 37, .vocab_size = 300, .n_layers = 3},
        {.n_heads = 8, .n_kv_heads = 1, .ffn_size = 96, .vocab_size = 2, .n_layers = 1},
    };
    static const struct {
        const char *schedule;
        int64_t chunks;
    } schedules[] = {{"1f1b", 0}, {"interleaved", 0}, {"interleaved", 8}, {"zb-h1", 1}};
    int64_t n_tried = 0;
    for (int64_t i = 0; i < 3 * 4 * 10 * 10 * 2; i++) {
        weft_layout_options o = usual();
        o.pp_schedule = schedules[i % 4].schedule;
        o.pp_chunks = schedules[i % 4].chunks;
        o.tp = 1 + i / 4 % 10;
        o.pp = 1 + i / 40 % 10;
        o.dp = 1 + i % 3;
        const weft_config *c = &models[i / 400 % 3];
        o.tp_strips = i / 1200 == 0 ? 0 : 1 + i % 7;
        try_suggestion(c, &o, &n_tried);
    }
    /* chunks that only a pipeline would mind, and a cut that another number of stages would */
    weft_layout_options o = usual();
    o.tp = 6;
    o.pp_schedule = "naive";
    o.pp_chunks = 8;
    try_suggestion(&models[0], &o, &n_tried);
    o.pp_chunks = 0;
    o.pp = 2;
    o.stage_layers = "3,3";
    try_suggestion(&models[0], &o, &n_tried);
    o.tp = 1;
    o.pp = 8;
    o.stage_layers = "1,1,1,1,1,1,1,1";
    try_suggestion(&models[0], &o, &n_tried);
    o.pp = 2; /* a cut that does not fit the model, beside something else that is refused first */
    o.tp = 64;
    o.stage_layers = "1,1";
    try_suggestion(&models[0], &o, &n_tried);
    assert_true(n_tried > 1000);
}

static void test_parallel_layout__values_are_checked(void **state)
{
    (void)state;
    static const char *const lists[] = {"x", "6,", ",6",  "6,,3",
                                        "0", "-1", "6;3", "99999999999999999999999999"};
    weft_layout l;
    weft_layout_options o = usual();
    for (size_t i = 0; i < WEFT_COUNT_OF(lists); i++) {
        o.stage_layers = lists[i];
        CHECK_FAILS(weft_i_layout_make(&l, &o), WEFT_STATUS_ARG, lists[i]);
    }
    o = usual();
    o.dp = -1;
    CHECK_FAILS(weft_i_layout_make(&l, &o), WEFT_STATUS_ARG, "--dp -1");
    o = usual();
    o.zero_stage = 4;
    CHECK_FAILS(weft_i_layout_make(&l, &o), WEFT_STATUS_ARG, "--zero-stage 4");
    o = usual();
    o.strategy = "ddp";
    CHECK_FAILS(weft_i_layout_make(&l, &o), WEFT_STATUS_ARG, "--strategy ddp");
    o = usual();
    o.rank_order = "tp-tp-pp";
    CHECK_FAILS(weft_i_layout_make(&l, &o), WEFT_STATUS_ARG, "--rank-order tp-tp-pp");
    static const double wrong[] = {0, -1, (double)NAN, (double)INFINITY};
    for (size_t i = 0; i < WEFT_COUNT_OF(wrong); i++) {
        o = usual();
        o.comm_timeout = wrong[i];
        CHECK_FAILS(weft_i_layout_make(&l, &o), WEFT_STATUS_ARG, "--comm-timeout");
        o = usual();
        o.bucket_size_mb = wrong[i];
        CHECK_FAILS(weft_i_layout_make(&l, &o), WEFT_STATUS_ARG, "--bucket-size-mb");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parallel_layout__defaults_are_one_rank),
        cmocka_unit_test(test_parallel_layout__ranks_fill_dp),
        cmocka_unit_test(test_parallel_layout__impossible_ranks_come_with_the_arithmetic),
        cmocka_unit_test(test_parallel_layout__what_does_not_go_together_is_refused),
        cmocka_unit_test(test_parallel_layout__tensor_ranks_fit_the_model),
        cmocka_unit_test(test_parallel_layout__strips_fit_ranks_and_model),
        cmocka_unit_test(test_parallel_layout__what_is_suggested_works),
        cmocka_unit_test(test_parallel_layout__values_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
