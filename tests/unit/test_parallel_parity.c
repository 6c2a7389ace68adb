/*
 * Every layout against one rank, and against PyTorch's float64 values: gradients, weights after SGD, weights after AdamW. The
 * bounds are derived in ranks_compare.h. The whole product of layouts is tests/matrix.
 */
#include "ranks_golden.h"
#include "ranks_parity.h"

/* One rank on the same batches, in micro-batches of all sequences or of the same size; then the layout. */
static void check_variant(scratch *s, const ranks_variant *v, bool is_bf16, bool is_sgd)
{
    static const ranks_layout alone = {.dp = 1};
    ranks_case c;
    ranks_result one;
    char why[256], text[128];
    ranks_parity_init(&c, s, v->model, is_sgd);
    c.options.layout.dtype = is_bf16 ? "bf16" : "fp32";
    ranks_case_batches(&c, v->model->vocab, v->n_seqs, RANKS_PARITY_STEPS, 5);
    c.options.layout.micro_batch_size = is_bf16 ? v->micro_batch : v->n_seqs;
    ranks_case_apply(&c, &alone);
    ranks_case_run(&one, &c);
    c.options.layout.micro_batch_size = v->micro_batch;
    ranks_case_apply(&c, &v->layout);
    if (!ranks_parity_near(&c, &one, why))
        fail_msg("%s %s %s, %d sequences in %d, %s: %s", v->model->name, is_bf16 ? "bf16" : "fp32",
                 is_sgd ? "sgd" : "adamw", (int)v->n_seqs, (int)v->micro_batch,
                 ranks_layout_text(&v->layout, text), why);
    ranks_result_fini(&one);
    ranks_case_fini(&c);
}

/* Every dp, stage and recompute mode with every model, each pair at least once; both types and both optimizers. */
static const ranks_variant variants[] = {
    {&odd_llama, {.dp = 2, .stage = 0, .recompute = "full"}, 7, 1},
    {&odd_llama, {.dp = 3, .stage = 1, .recompute = "selective"}, 7, 2},
    {&odd_llama, {.dp = 4, .stage = 2}, 4, 1},
    {&odd_llama, {.dp = 8, .stage = 3, .recompute = "full"}, 9, 1},
    {&odd_tied, {.dp = 2, .stage = 1}, 5, 2},
    {&odd_tied, {.dp = 3, .stage = 2, .recompute = "full"}, 7, 1},
    {&odd_tied, {.dp = 4, .stage = 3, .recompute = "selective"}, 7, 1},
    {&odd_tied, {.dp = 8, .stage = 0}, 3, 1},
    {&odd_gpt2, {.dp = 2, .stage = 2, .recompute = "selective"}, 4, 2},
    {&odd_gpt2, {.dp = 3, .stage = 3}, 8, 1},
    {&odd_gpt2, {.dp = 4, .stage = 0, .recompute = "full"}, 9, 2},
    {&odd_gpt2, {.dp = 8, .stage = 1, .recompute = "selective"}, 8, 1},
    {&odd_gpt2_dropout, {.dp = 2, .stage = 3, .recompute = "full"}, 7, 2},
    {&odd_gpt2_dropout, {.dp = 3, .stage = 0, .recompute = "selective"}, 5, 1},
    {&odd_gpt2_dropout, {.dp = 4, .stage = 1}, 6, 1},
    {&odd_gpt2_dropout, {.dp = 8, .stage = 2, .recompute = "full"}, 8, 1},
    {&odd_llama_frozen, {.dp = 3, .stage = 3}, 5, 1},
    {&odd_gpt2_frozen, {.dp = 4, .stage = 2}, 5, 1},
    {&odd_small, {.dp = 8, .stage = 3}, 5, 1},
    {&odd_three, {.dp = 8, .stage = 1}, 8, 1},
    {&odd_three, {.dp = 8, .stage = 2}, 9, 1},
};

static void check_all(scratch *s, bool is_bf16, bool is_sgd)
{
    for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i += RANKS_STRIDE)
        check_variant(s, &variants[i], is_bf16, is_sgd);
}

static void test_parallel_parity__sgd(void **state)
{
    check_all(*state, false, true);
}

static void test_parallel_parity__adamw(void **state)
{
    check_all(*state, false, false);
}

static void test_parallel_parity__bf16_sgd(void **state)
{
    check_all(*state, true, true);
}

static void test_parallel_parity__bf16_adamw(void **state)
{
    check_all(*state, true, false);
}

/* ---- against PyTorch ---- */

/* Gradients of PyTorch's float64 run, on 2, 3, 4 and 8 ranks, a sequence a micro-batch. */
static void test_parallel_parity__gradients_are_pytorchs(void **state)
{
    static const struct {
        const char *name;
        ranks_layout layout[4];
    } cases[] = {
        {"gpt2", {{.dp = 2}, {.dp = 3, .stage = 1}, {.dp = 4, .stage = 3}, {.dp = 8, .stage = 2}}},
        {"llama", {{.dp = 2, .stage = 3}, {.dp = 3}, {.dp = 4, .stage = 1}, {.dp = 8, .stage = 2}}},
        {"gpt2_odd",
         {{.dp = 2, .stage = 2}, {.dp = 3, .stage = 3}, {.dp = 4}, {.dp = 8, .stage = 1}}},
        {"llama_odd",
         {{.dp = 2, .stage = 1}, {.dp = 3, .stage = 2}, {.dp = 4, .stage = 3}, {.dp = 8}}},
        {"gpt2_other", {{.dp = 2, .stage = 3}, {.dp = 3, .stage = 1}}},
        {"llama_bias", {{.dp = 2, .stage = 2}, {.dp = 3, .stage = 3}}},
        {"llama3_rope", {{.dp = 2}, {.dp = 8, .stage = 3}}},
        {"rope_yarn", {{.dp = 2, .stage = 3}}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i += RANKS_STRIDE) {
        for (int k = 0; k < 4 && cases[i].layout[k].dp > 0; k++) {
            golden g;
            ranks_case c;
            ranks_result r;
            char text[128], why[256];
            ranks_golden_init(&c, &g, *state, cases[i].name, "input_ids");
            ranks_case_apply(&c, &cases[i].layout[k]);
            ranks_case_run(&r, &c);
            if (!ranks_golden_gradients(&g, &r, why))
                fail_msg("%s, %s: %s", g.name, ranks_layout_text(&cases[i].layout[k], text), why);
            ranks_result_fini(&r);
            ranks_case_fini(&c);
            golden_close(&g);
        }
    }
}

static void check_golden_training(scratch *s, const char *name, const ranks_layout *l)
{
    golden g;
    ranks_case c;
    ranks_result r;
    char text[128], why[256];
    ranks_golden_init(&c, &g, s, name, "train.input_ids");
    ranks_case_apply(&c, l);
    ranks_case_run(&r, &c);
    if (!ranks_golden_training(&g, &r, why))
        fail_msg("%s, %s: %s", name, ranks_layout_text(l, text), why);
    ranks_result_fini(&r);
    ranks_case_fini(&c);
    golden_close(&g);
}

/* Five steps of PyTorch's AdamW. */
static void test_parallel_parity__training_is_pytorchs(void **state)
{
    static const ranks_layout layouts[] = {
        {.dp = 2},
        {.dp = 2, .stage = 3, .recompute = "full"},
        {.dp = 3, .stage = 1},
        {.dp = 4, .stage = 2, .recompute = "selective"},
        {.dp = 8, .stage = 3},
        {.dp = 2, .stage = 1, .is_reproducible = true},
    };
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i += RANKS_STRIDE) {
        check_golden_training(*state, "gpt2", &layouts[i]);
        check_golden_training(*state, "llama", &layouts[i]);
    }
}

#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(test_parallel_parity__##name, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(sgd),
        TEST(adamw),
        TEST(bf16_sgd),
        TEST(bf16_adamw),
        TEST(gradients_are_pytorchs),
        TEST(training_is_pytorchs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
