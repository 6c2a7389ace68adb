/*
 * `weft generate` on several ranks: the text of one rank in every layout, prompts that do not divide, ends at different
 * tokens (all ranks run the same passes), stopping, and memory as planned. That one rank is right is test_infer_generate's
 * and the goldens' business.
 */
#include "generate_ranks.h"
#include "tiny.h"

#include <stdio.h>
#include <string.h>

/* ---- the same text ---- */

static void check_layouts(void **state, const char *config, const char *dtype, size_t n_prompts)
{
    static generate_answer one;
    static generate_answer many;
    weft_generate_options o = generate_case_options(*state, config, n_prompts);

    o.layout.dtype = dtype;
    expect_ok(generate_case_run(&one, &o, true));
    assert_int_equal(one.n_prompts, n_prompts);
    assert_true(strlen(one.text) > 5 * n_prompts);
    for (int64_t dp = 2; dp <= 8; dp += dp < 4 ? 1 : 4) {
        for (int64_t group = 0; group <= 2; group++) {
            for (int64_t stage = 0; stage <= 3; stage += stage == 0 ? 2 : 1) {
                char what[96];
                o.layout.dp = dp;
                o.layout.micro_batch_size = group;
                o.layout.zero_stage = stage;
                o.layout.zero_prefetch = group != 1;
                (void)snprintf(what, sizeof(what), "dp %d, groups of %d, stage %d", (int)dp,
                               (int)group, (int)stage);
                expect_ok(generate_case_run(&many, &o, true));
                generate_case_same(&many, &one, what);
            }
        }
    }
    o.layout.zero_stage = 0;
    o.layout.strategy = "data-parallel"; /* nothing of it acts here */
    expect_ok(generate_case_run(&many, &o, true));
    generate_case_same(&many, &one, "DataParallel");
}

static const char *with_bytes(const char *config)
{
    return tiny_config(config, "\"vocab_size\": 53", "\"vocab_size\": 300");
}

static void test_infer_generate_ranks__the_text_of_one_rank(void **state)
{
    check_layouts(state, with_bytes(tiny_llama), "", 7);
    check_layouts(state, with_bytes(tiny_gpt2), "", 12);
    check_layouts(state, with_bytes(tiny_llama), "bf16", 5);
}

/* One prompt, two, none that may grow: ranks without work join and end. */
static void test_infer_generate_ranks__fewer_prompts_than_ranks(void **state)
{
    static generate_answer a;
    weft_generate_options o = generate_case_options(*state, tiny_llama, 1);

    for (int64_t i = 0; i < 2 * 4 * 2; i++) {
        o.n_ids = (size_t)(1 + i % 2);
        o.layout.dp = 8;
        o.layout.zero_stage = i / 2 % 4;
        o.max_new_tokens = i / 8 == 0 ? 3 : 0;
        expect_ok(generate_case_run(&a, &o, false));
        assert_int_equal(a.n_prompts, o.n_ids);
        for (int64_t k = 0; k < a.n_prompts; k++) {
            assert_int_equal(a.n_ids[k], o.max_new_tokens);
            assert_int_equal(a.finish[k], WEFT_FINISH_LENGTH);
        }
        assert_int_equal(a.result.n_forwards, o.max_new_tokens);
    }
}

/* More ids than one message carries: 3 prompts of 1500 on rank 1. */
static void test_infer_generate_ranks__long_answers(void **state)
{
    static generate_answer one;
    static generate_answer many;
    static const char config[] =
        "{\"model_type\": \"llama\", \"hidden_size\": 8, \"num_hidden_layers\": 1,\n"
        " \"num_attention_heads\": 1, \"intermediate_size\": 8, \"vocab_size\": 31,\n"
        " \"max_position_embeddings\": 4096, \"eos_token_id\": null}\n";
    static const char *short_prompts[] = {"1", "2", "3", "4", "5", "6"};
    weft_generate_options o = generate_case_options(*state, config, 6);

    o.ids = short_prompts;
    o.max_new_tokens = 1500;
    expect_ok(generate_case_run(&one, &o, false));
    o.layout.dp = 2;
    expect_ok(generate_case_run(&many, &o, false));
    generate_case_same(&many, &one, "1500 ids");
}

/* ---- ends at different tokens ---- */

/* Whether ids of two free answers end prompt 0 at token 2 and prompt 1 at token 5 and nothing earlier. */
static bool is_fit(const generate_answer *a)
{
    const int32_t x = a->ids[0][1];
    const int32_t y = a->ids[1][4];
    if (a->ids[0][0] == x || a->ids[0][0] == y)
        return false;
    for (int i = 0; i < 4; i++) {
        if (a->ids[1][i] == x || a->ids[1][i] == y)
            return false;
    }
    return true;
}

/* E06: ends at tokens 2 and 5 of at most 8 under ZeRO-3: forwards [5, 5], lengths [2, 5]; and memory is as planned. */
static void test_infer_generate_ranks__all_ranks_run_the_same_passes(void **state)
{
    static generate_answer a;
    char folder[512];
    char eos[64];
    weft_generate_options o = generate_case_options(*state, tiny_llama, 2);

    o.max_new_tokens = 8;
    do {
        o.layout.seed++;
        expect_ok(generate_case_run(&a, &o, false));
    } while (!is_fit(&a));
    (void)snprintf(eos, sizeof(eos), "\"eos_token_id\": [%d, %d]", a.ids[0][1], a.ids[1][4]);
    const tiny_folder ending = {.config = tiny_config(tiny_llama, "\"eos_token_id\": null", eos)};
    o.model = tiny_write(*state, "ending", &ending, folder);
    o.layout.dp = 2;
    for (int64_t stage = 0; stage <= 3; stage++) {
        o.layout.zero_stage = stage;
        generate_ranks c = {.options = o, .is_dealt = true};
        expect_ok(generate_case_run(&a, &o, false));
        assert_int_equal(a.n_ids[0], 2);
        assert_int_equal(a.n_ids[1], 5);
        assert_int_equal(a.finish[0], WEFT_FINISH_EOS);
        assert_int_equal(a.finish[1], WEFT_FINISH_EOS);
        assert_int_equal(a.result.n_forwards, 5);
        assert_int_equal(a.result.n_new_tokens, 7);
        generate_ranks_run(&c);
        for (int r = 0; r < 2; r++) {
            const generate_rank *k = &c.rank[r];
            assert_int_equal(k->n_forwards, 5);
            assert_int_equal(k->n_ids, r == 0 ? 2 : 5);
            assert_int_equal(k->taken, k->planned);
            assert_int_equal(k->n_blocks, 0);
            /* 6 layers with weights of their own, a segment each */
            assert_int_equal(k->traffic[WEFT_AXIS_DP].n_calls[WEFT_COMM_ALL_GATHER],
                             stage == 3 ? 5 * 6 : 0);
        }
    }
}

/* ---- stopping, failing ---- */

/* Rank 0 alone is asked; everybody stops, and every prompt gets its end. */
static void test_infer_generate_ranks__stops_when_told(void **state)
{
    static generate_answer free_run;
    static generate_answer a;
    weft_generate_options o = generate_case_options(*state, tiny_llama, 7);

    o.max_new_tokens = 40;
    expect_ok(generate_case_run(&free_run, &o, false));
    for (int i = 0; i < 6; i++) {
        o.layout.dp = 2 + i % 3;
        o.layout.zero_stage = i < 3 ? 0 : 3;
        o.layout.micro_batch_size = 1 + i % 2;
        a.stop_after = 1 + 4 * i;
        expect_ok(generate_case_run(&a, &o, false));
        assert_int_equal(a.n_prompts, 7);
        assert_int_equal(generate_case_stopped(&a, &free_run), 7);
    }
    a.stop_after = 0;
}

/* A rank whose logits are not finite ends all others, which wait for it. */
static void test_infer_generate_ranks__a_failing_rank_ends_all(void **state)
{
    static generate_answer a;
    weft_generate_options o = generate_case_poisoned(*state);

    o.layout.dp = 3;
    for (int64_t stage = 0; stage <= 3; stage += 3) {
        o.layout.zero_stage = stage;
        expect_failure(generate_case_run(&a, &o, false), WEFT_STATUS_NUMERIC, "rank 2", "prompt 2",
                       NULL);
        assert_true(weft_last_error_is_of_run());
    }
}

static void test_infer_generate_ranks__refusals_keep_their_status(void **state)
{
    static generate_answer a;
    static const char *beyond[] = {"1", "53"};
    weft_generate_options o = generate_case_options(*state, tiny_llama, 2);

    o.layout.dp = 4;
    o.ids = beyond;
    expect_failure(generate_case_run(&a, &o, false), WEFT_STATUS_MISMATCH, "id 53", NULL);
    assert_false(weft_last_error_is_of_run());
    o.n_ids = 1;
    o.layout.micro_batch_size = -1;
    expect_failure(generate_case_run(&a, &o, false), WEFT_STATUS_ARG, "micro_batch_size -1", NULL);
    o.layout.micro_batch_size = 0;
    o.model = scratch_path(*state, "none");
    expect_failure(generate_case_run(&a, &o, false), WEFT_STATUS_IO, "none", NULL);
    assert_false(weft_last_error_is_of_run());
}

int main(void)
{
#define RUN(test)                                                                                  \
    cmocka_unit_test_setup_teardown(test_infer_generate_ranks__##test, scratch_setup,              \
                                    scratch_teardown)
    const struct CMUnitTest tests[] = {
        RUN(the_text_of_one_rank),
        RUN(fewer_prompts_than_ranks),
        RUN(long_answers),
        RUN(all_ranks_run_the_same_passes),
        RUN(stops_when_told),
        RUN(a_failing_rank_ends_all),
        RUN(refusals_keep_their_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
