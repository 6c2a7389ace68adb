/* One rank: what asks for more is refused by name, what has nothing to act on passes. */
#include "scratch.h"

#include "formats/layout_one_rank.h"

static weft_layout_options usual(void)
{
    weft_layout_options o;
    weft_layout_options_init(&o);
    return o;
}

static void test_formats_layout_one_rank__defaults_and_ones_pass(void **state)
{
    (void)state;
    weft_layout_options o = usual();
    expect_ok(weft_i_layout_check_one_rank(&o));
    o.dp = o.tp = o.pp = o.ranks = 1;
    o.zero_stage = 3;
    o.pp_schedule = "zb-h1";
    o.pp_chunks = 4;
    o.sequence_parallel = true;
    o.strategy = "data-parallel";
    o.stage_layers = "12";
    expect_ok(weft_i_layout_check_one_rank(&o));
}

static void test_formats_layout_one_rank__more_ranks_are_refused_by_name(void **state)
{
    (void)state;
    weft_layout_options o = usual();
    o.dp = 2;
    expect_failure(weft_i_layout_check_one_rank(&o), WEFT_STATUS_UNSUPPORTED, "--dp 2", NULL);
    o = usual();
    o.tp = 4;
    expect_failure(weft_i_layout_check_one_rank(&o), WEFT_STATUS_UNSUPPORTED, "--tp 4", NULL);
    o = usual();
    o.pp = 3;
    expect_failure(weft_i_layout_check_one_rank(&o), WEFT_STATUS_UNSUPPORTED, "--pp 3", NULL);
    o = usual();
    o.ranks = 8;
    expect_failure(weft_i_layout_check_one_rank(&o), WEFT_STATUS_UNSUPPORTED, "--ranks 8", NULL);
    o = usual();
    o.strategy = "data-parallel";
    o.dp = 2;
    expect_failure(weft_i_layout_check_one_rank(&o), WEFT_STATUS_UNSUPPORTED, "--dp 2", NULL);
    o = usual();
    o.stage_layers = "6,3,3";
    expect_failure(weft_i_layout_check_one_rank(&o), WEFT_STATUS_UNSUPPORTED, "3 pipeline stages",
                   NULL);
    o = usual();
    o.dp = -1;
    expect_failure(weft_i_layout_check_one_rank(&o), WEFT_STATUS_ARG, "--dp -1", NULL);
}

static void test_formats_layout_one_rank__stage_layers_is_a_list_of_counts(void **state)
{
    (void)state;
    const char *const wrong[] = {"x", "6,", ",6",  "6,,3",
                                 "0", "-1", "6;3", "99999999999999999999999999"};
    for (size_t i = 0; i < WEFT_COUNT_OF(wrong); i++) {
        weft_layout_options o = usual();
        o.stage_layers = wrong[i];
        expect_failure(weft_i_layout_check_one_rank(&o), WEFT_STATUS_ARG, "--stage-layers",
                       wrong[i], NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formats_layout_one_rank__defaults_and_ones_pass),
        cmocka_unit_test(test_formats_layout_one_rank__more_ranks_are_refused_by_name),
        cmocka_unit_test(test_formats_layout_one_rank__stage_layers_is_a_list_of_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
