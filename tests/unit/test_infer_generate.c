/*
 * `weft generate` as a call: a prompt's answer does not depend on its company, where sequences end, and what is refused.
 * That the ids are right is the goldens' business.
 */
#include "generate_case.h"
#include "golden.h"
#include "tiny.h"

#include <stdio.h>
#include <string.h>

#include "weft/options.h"

static weft_generate_options options_for(const char *folder)
{
    weft_generate_options o;
    weft_options_init(WEFT_COMMAND_GENERATE, &o);
    o.layout = golden_layout("cpu", "");
    o.model = folder;
    o.max_new_tokens = 12;
    return o;
}

static void expect_same(const generate_answer *a, int64_t i, const generate_answer *b, int64_t k)
{
    assert_int_equal(a->n_ids[i], b->n_ids[k]);
    assert_memory_equal(a->ids[i], b->ids[k], (size_t)a->n_ids[i] * sizeof(int32_t));
}

/* Alone, together, in groups; greedy and drawn (a draw belongs to its prompt and place). */
static void check_company(void **state, const tiny_folder *f, double temperature)
{
    static generate_answer together;
    static generate_answer other;
    char folder[512];
    weft_generate_options o = options_for(tiny_write(*state, "m", f, folder));

    generate_case_prompts(&o, 5);
    o.temperature = temperature;
    o.layout.seed = 3;
    expect_ok(generate_case_run(&together, &o, false));
    assert_int_equal(together.n_prompts, 5);
    for (int64_t group = 1; group <= 4; group++) {
        o.layout.micro_batch_size = group;
        expect_ok(generate_case_run(&other, &o, false));
        for (int64_t i = 0; i < 5; i++)
            expect_same(&together, i, &other, i);
    }
    if (temperature == 0.0) {
        /* Alone every prompt has number 0, which matters to draws only. */
        weft_generate_options alone = o;
        alone.n_ids = 1;
        for (int64_t i = 0; i < 5; i++) {
            alone.ids = &o.ids[i];
            expect_ok(generate_case_run(&other, &alone, false));
            expect_same(&together, i, &other, 0);
        }
        expect_same(&together, 0, &together, 3);
    } else {
        assert_memory_not_equal(together.ids[0], together.ids[3], 12 * sizeof(int32_t));
    }
}

static void test_infer_generate__company_changes_nothing(void **state)
{
    const tiny_folder llama = {.config = tiny_llama};
    const tiny_folder gpt2 = {.config = tiny_gpt2};
    check_company(state, &llama, 0.0);
    check_company(state, &llama, 1.0);
    check_company(state, &gpt2, 0.0);
    check_company(state, &gpt2, 1.0);
}

/* Prompts end at different tokens: each keeps its own length, the others go on (E06 on one rank). */
static void test_infer_generate__ends_at_the_end_of_text(void **state)
{
    static generate_answer free_run;
    static generate_answer a;
    char folder[512];
    char eos[64];
    scratch *s = *state;
    const tiny_folder plain = {.config = tiny_llama};
    weft_generate_options o = options_for(tiny_write(s, "m", &plain, folder));

    generate_case_prompts(&o, 5);
    o.temperature = 1.0; /* drawn, so that ids vary */
    o.max_new_tokens = 40;
    expect_ok(generate_case_run(&free_run, &o, false));
    /* Two ids that came end a text from now on. */
    const int32_t x = free_run.ids[0][4];
    const int32_t y = free_run.ids[2][9];
    (void)snprintf(eos, sizeof(eos), "\"eos_token_id\": [%d, %d]", x, y);
    const tiny_folder ending = {.config = tiny_config(tiny_llama, "\"eos_token_id\": null", eos)};
    tiny_write(s, "m", &ending, folder);
    expect_ok(generate_case_run(&a, &o, false));
    int64_t n_short = 0;
    for (int64_t i = 0; i < 5; i++) {
        int64_t n = 0; /* up to the first of the two, itself included */
        while (n < 40 && free_run.ids[i][n] != x && free_run.ids[i][n] != y)
            n++;
        const int64_t want = n < 40 ? n + 1 : 40;
        assert_int_equal(a.n_ids[i], want);
        assert_int_equal(a.finish[i], n < 40 ? WEFT_FINISH_EOS : WEFT_FINISH_LENGTH);
        assert_memory_equal(a.ids[i], free_run.ids[i], (size_t)want * sizeof(int32_t));
        n_short += want < 40;
    }
    assert_true(n_short >= 2);
    o.ignore_eos = true;
    expect_ok(generate_case_run(&a, &o, false));
    for (int64_t i = 0; i < 5; i++)
        expect_same(&a, i, &free_run, i);
}

/* "1,1,...", n times. */
static void repeat_id(char *out, size_t size, int n)
{
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i < n && used + 3 < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s1", i == 0 ? "" : ",");
}

/* 64 learned positions: the 65th id can still be chosen, not read. Rotary positions go on. */
static void test_infer_generate__ends_with_the_learned_positions(void **state)
{
    static generate_answer a;
    char folder[512];
    char long_prompt[512];
    const char *prompts[] = {"1,2,3", long_prompt};
    const tiny_folder gpt2 = {.config = tiny_gpt2};
    const tiny_folder llama = {.config = tiny_llama};
    weft_generate_options o = options_for(tiny_write(*state, "m", &gpt2, folder));

    repeat_id(long_prompt, sizeof(long_prompt), 64);
    o.ids = prompts;
    o.n_ids = 2;
    o.max_new_tokens = 100;
    expect_ok(generate_case_run(&a, &o, false));
    assert_int_equal(a.n_ids[0], 62);
    assert_int_equal(a.n_ids[1], 1);
    assert_int_equal(a.finish[0], WEFT_FINISH_CONTEXT);
    assert_int_equal(a.finish[1], WEFT_FINISH_CONTEXT);
    o.max_new_tokens = 61; /* fits: 3 + 61 = 64 */
    o.n_ids = 1;
    expect_ok(generate_case_run(&a, &o, false));
    assert_int_equal(a.finish[0], WEFT_FINISH_LENGTH);
    repeat_id(long_prompt, sizeof(long_prompt), 65);
    o.n_ids = 2;
    expect_failure(generate_case_run(&a, &o, false), WEFT_STATUS_MISMATCH, "prompt 1", "65 tokens",
                   "positions for 64", NULL);
    o.model = tiny_write(*state, "l", &llama, folder);
    o.max_new_tokens = 10;
    expect_ok(generate_case_run(&a, &o, false));
    assert_int_equal(a.n_ids[1], 10);
}

static void zero_head(const char *name, float *v, int64_t n)
{
    if (strcmp(name, "lm_head.weight") == 0)
        memset(v, 0, (size_t)n * sizeof(*v));
}

/* More rows than ids is fine and the surplus never comes; fewer is refused with both numbers. */
static void test_infer_generate__rows_beyond_the_tokenizer(void **state)
{
    static generate_answer a;
    char folder[512];
    const char *prompts[] = {"once", "upon"};
    const tiny_folder more = {
        .config = tiny_config(tiny_llama, "\"vocab_size\": 53", "\"vocab_size\": 272"),
        .edit = zero_head};
    weft_generate_options o = options_for(tiny_write(*state, "more", &more, folder));

    o.prompt = prompts;
    o.n_prompt = 2;
    o.temperature = 5.0;
    o.max_new_tokens = 1500;
    o.ignore_eos = true;
    o.layout.dtype = "bf16";
    expect_ok(generate_case_run(&a, &o, true));
    for (int64_t i = 0; i < 2; i++) {
        assert_int_equal(a.n_ids[i], 1500);
        for (int64_t k = 0; k < 1500; k++)
            assert_in_range(a.ids[i][k], 0, 256);
    }
    /* As ids, without a tokenizer, every row is a row. */
    const char *ids[] = {"1", "2"};
    o.n_prompt = 0;
    o.ids = ids;
    o.n_ids = 2;
    expect_ok(generate_case_run(&a, &o, false));
    int64_t n_beyond = 0;
    for (int64_t k = 0; k < 1500; k++)
        n_beyond += a.ids[0][k] > 256;
    assert_true(n_beyond > 20);

    const tiny_folder fewer = {
        .config = tiny_config(tiny_llama, "\"vocab_size\": 53", "\"vocab_size\": 256")};
    o.model = tiny_write(*state, "fewer", &fewer, folder);
    o.prompt = prompts;
    o.n_prompt = 2;
    o.n_ids = 0;
    expect_failure(generate_case_run(&a, &o, true), WEFT_STATUS_MISMATCH, "257", "256", NULL);
}

static void test_infer_generate__an_empty_prompt_needs_a_beginning(void **state)
{
    static generate_answer a;
    static generate_answer b;
    char folder[512];
    const char *empty[] = {""};
    const char *begin[] = {"7"};
    char config[1024];
    (void)snprintf(config, sizeof(config), "%s",
                   tiny_config(tiny_gpt2, "\"vocab_size\": 53", "\"vocab_size\": 300"));
    const tiny_folder without = {.config = config};
    weft_generate_options o = options_for(tiny_write(*state, "without", &without, folder));

    o.prompt = empty;
    o.n_prompt = 1;
    expect_failure(generate_case_run(&a, &o, true), WEFT_STATUS_ARG, "prompt 0 is empty", NULL);
    char with_bos[2048];
    (void)snprintf(with_bos, sizeof(with_bos), "%s",
                   tiny_config(config, "\"bos_token_id\": null", "\"bos_token_id\": 7"));
    const tiny_folder with = {.config = with_bos};
    o.model = tiny_write(*state, "with", &with, folder);
    expect_ok(generate_case_run(&a, &o, true));
    o.n_prompt = 0;
    o.ids = begin;
    o.n_ids = 1;
    expect_ok(generate_case_run(&b, &o, true));
    expect_same(&a, 0, &b, 0);
}

static void test_infer_generate__stops_when_told(void **state)
{
    static generate_answer a;
    char folder[512];
    const tiny_folder f = {.config = tiny_llama};
    weft_generate_options o = options_for(tiny_write(*state, "m", &f, folder));

    generate_case_prompts(&o, 5);
    o.max_new_tokens = 40;
    o.layout.micro_batch_size = 2;
    a.stop_after = 9;
    expect_ok(generate_case_run(&a, &o, false));
    a.stop_after = 0;
    assert_int_equal(a.n_prompts, 5);
    for (int64_t i = 0; i < 5; i++) {
        assert_int_equal(a.finish[i], WEFT_FINISH_STOPPED);
        assert_true(i < 2 ? a.n_ids[i] > 3 && a.n_ids[i] < 12 : a.n_ids[i] == 0);
    }
}

static void test_infer_generate__threads_change_nothing(void **state)
{
    static generate_answer one;
    static generate_answer other;
    char folder[512];
    const tiny_folder f = {.config = tiny_llama};
    weft_generate_options o = options_for(tiny_write(*state, "m", &f, folder));

    generate_case_prompts(&o, 5);
    o.temperature = 1.0;
    o.layout.threads_per_rank = 1;
    expect_ok(generate_case_run(&one, &o, false));
    o.layout.threads_per_rank = 4;
    expect_ok(generate_case_run(&other, &o, false));
    for (int64_t i = 0; i < 5; i++)
        expect_same(&one, i, &other, i);
}

static void test_infer_generate__refuses_bad_prompts(void **state)
{
    static generate_answer a;
    char folder[512];
    const char *text[] = {"a"};
    const tiny_folder f = {.config = tiny_llama};
    weft_generate_options o = options_for(tiny_write(*state, "m", &f, folder));
    static const struct {
        const char *ids;
        weft_status status;
        const char *message;
    } bad[] = {{"1,2,53", WEFT_STATUS_MISMATCH, "id 53 at place 2 is not one of the model's 53"},
               {"1,-2", WEFT_STATUS_MISMATCH, "place 1"},
               {"1,99999999999", WEFT_STATUS_MISMATCH, "id 99999999999 at place 1"},
               {"1,x", WEFT_STATUS_ARG, "\"x\" is no token id"},
               {"1.5", WEFT_STATUS_ARG, "\"1.5\" is no token id"},
               {"", WEFT_STATUS_ARG, "has no ids"},
               {" , ", WEFT_STATUS_ARG, "has no ids"}};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        const char *ids[] = {bad[i].ids};
        o.ids = ids;
        o.n_ids = 1;
        expect_failure(generate_case_run(&a, &o, false), bad[i].status, bad[i].message, "prompt 0",
                       NULL);
    }
    const char *good[] = {" 1, 2\t3"};
    o.ids = good;
    expect_ok(generate_case_run(&a, &o, false));
    o.prompt = text;
    o.n_prompt = 1;
    expect_failure(generate_case_run(&a, &o, false), WEFT_STATUS_ARG, "as text and as ids", NULL);
    o.n_prompt = 0;
    o.n_ids = 0;
    expect_failure(generate_case_run(&a, &o, false), WEFT_STATUS_ARG, "no prompt", NULL);
    o.ids = good;
    o.n_ids = 1;
    o.max_new_tokens = 0;
    expect_ok(generate_case_run(&a, &o, false));
    assert_int_equal(a.n_ids[0], 0);
    assert_int_equal(a.finish[0], WEFT_FINISH_LENGTH);
    o.max_new_tokens = INT64_MAX;
    expect_failure(generate_case_run(&a, &o, false), WEFT_STATUS_ARG, "2^31", NULL);
}

int main(void)
{
#define RUN(test)                                                                                  \
    cmocka_unit_test_setup_teardown(test_infer_generate__##test, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {RUN(company_changes_nothing),
                                       RUN(ends_at_the_end_of_text),
                                       RUN(ends_with_the_learned_positions),
                                       RUN(rows_beyond_the_tokenizer),
                                       RUN(an_empty_prompt_needs_a_beginning),
                                       RUN(stops_when_told),
                                       RUN(threads_change_nothing),
                                       RUN(refuses_bad_prompts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
