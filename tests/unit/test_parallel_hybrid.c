/*
 * Products of the axes: a set of layouts of 4 and 8 ranks in which every pair of values that go together occurs
 * (tools/layout_pairs.py: axes, ZeRO stage, schedule, sequence parallelism, recompute mode, model), each against one rank; and
 * what must be the same bits among them. The whole product is in tests/matrix.
 */
#include "ranks_golden.h"
#include "ranks_parity.h"

typedef struct pair_row {
    const odd_model *model;
    ranks_layout layout;
} pair_row;

static const pair_row rows[] = {
#include "layout_pairs.inc"
};

static ranks_variant variant_of(int i)
{
    /* micro-batches of one that dp 2 and 4 do not divide; of two, the last one smaller */
    static const int64_t batches[][2] = {{5, 1}, {3, 1}, {7, 2}};
    return (ranks_variant){.model = rows[i].model,
                           .layout = rows[i].layout,
                           .n_seqs = batches[i % 3][0],
                           .micro_batch = batches[i % 3][1]};
}

static void test_parallel_hybrid__every_pair_of_values_against_one_rank(void **state)
{
    for (int i = 0; i < (int)WEFT_COUNT_OF(rows); i += RANKS_STRIDE) {
        const ranks_variant v = variant_of(i);
        ranks_parity_check(*state, &v, i % 2 == 0);
    }
}

/* ---- against PyTorch ---- */

/* Pipelines alone at 2, 3 and 4 ranks (the goldens' lists have 4 items), and products. */
static const ranks_layout golden_layouts[] = {
    {.pp = 2, .schedule = "naive"},
    {.pp = 3, .schedule = "gpipe"},
    {.pp = 4},
    {.pp = 2, .schedule = "interleaved", .chunks = 2},
    {.pp = 3, .schedule = "zb-h1", .recompute = "full"},
    {.pp = 4, .schedule = "zb-h2"},
    {.pp = 2, .dp = 2, .stage = 3, .schedule = "zb-h1"},
    {.pp = 2, .tp = 2, .is_sequence_parallel = true, .recompute = "selective"},
    {.pp = 2, .tp = 2, .dp = 2, .stage = 1},
    {.pp = 2, .dp = 3, .stage = 2, .is_reproducible = true},
};

static void check_golden(scratch *s, const char *name, const ranks_layout *l, bool is_training)
{
    golden g;
    ranks_case c;
    ranks_result r;
    char text[128], why[256];
    ranks_golden_init(&c, &g, s, name, is_training ? "train.input_ids" : "input_ids");
    ranks_case_apply(&c, l);
    ranks_case_run(&r, &c);
    if (is_training ? !ranks_golden_training(&g, &r, why) : !ranks_golden_gradients(&g, &r, why))
        fail_msg("%s, %s: %s", name, ranks_layout_text(l, text), why);
    ranks_result_fini(&r);
    ranks_case_fini(&c);
    golden_close(&g);
}

static void test_parallel_hybrid__gradients_and_training_are_pytorchs(void **state)
{
    static const char *const names[] = {"gpt2", "llama"};
    for (size_t i = 0; i < 2 * WEFT_COUNT_OF(golden_layouts); i += RANKS_STRIDE) {
        check_golden(*state, names[i % 2], &golden_layouts[i / 2], false);
        check_golden(*state, names[i % 2], &golden_layouts[i / 2], true);
    }
}

/* ---- the same bits ---- */

static void run(ranks_result *r, ranks_case *c, const ranks_layout *l)
{
    ranks_case_apply(c, l);
    ranks_case_run(r, c);
}

static void
check_same(scratch *s, const odd_model *m, const char *dtype, const ranks_layout pair[2])
{
    ranks_case c;
    ranks_result a, b;
    char why[256], text[128];
    ranks_parity_init(&c, s, m, false);
    c.options.layout.dtype = dtype;
    ranks_case_batches(&c, m->vocab, 5, 10, 21);
    run(&a, &c, &pair[0]);
    run(&b, &c, &pair[1]);
    if (!ranks_same_bits(&a, &b, why))
        fail_msg("%s %s, %s: %s", m->name, dtype, ranks_layout_text(&pair[1], text), why);
    ranks_result_fini(&a);
    ranks_result_fini(&b);
    ranks_case_fini(&c);
}

/* A pipeline adds nothing to the order of sums on an untied model: pp is free, with dp and with tp. So is the schedule. */
static void test_parallel_hybrid__stages_do_not_change_bits(void **state)
{
    static const ranks_layout same[][2] = {
        {{.tp = 2}, {.tp = 2, .pp = 2, .schedule = "zb-h1"}},
        {{.tp = 2, .is_sequence_parallel = true},
         {.tp = 2, .pp = 3, .schedule = "interleaved", .chunks = 2, .is_sequence_parallel = true}},
        {{.dp = 2}, {.dp = 2, .pp = 3, .schedule = "gpipe"}},
        {{.dp = 2}, {.dp = 2, .pp = 2, .stage = 1, .schedule = "zb-h2"}},
        {{.dp = 3, .stage = 3}, {.dp = 3, .pp = 2, .stage = 2}},
        {{.dp = 2, .stage = 2},
         {.dp = 2, .pp = 2, .stage = 3, .schedule = "interleaved", .chunks = 3}},
        {{.dp = 2, .tp = 2, .stage = 3}, {.dp = 2, .tp = 2, .pp = 2, .stage = 3}},
        {{.dp = 2, .tp = 2}, {.dp = 2, .tp = 2, .pp = 2, .stage = 1, .recompute = "full"}},
        {{.dp = 2, .pp = 2}, {.dp = 2, .pp = 2, .bucket_mb = 0.01, .is_not_overlapped = true}},
        {{.dp = 2, .pp = 2, .stage = 3},
         {.dp = 2, .pp = 2, .stage = 3, .has_no_prefetch = true, .n_threads = 2}},
    };
    for (size_t i = 0; i < WEFT_COUNT_OF(same); i += RANKS_STRIDE)
        check_same(*state, &odd_llama, i % 3 == 2 ? "bf16" : "fp32", same[i]);
}

/* --reproducible and a tied table: the same bits for any dp, pp and stage at one tp. */
static void test_parallel_hybrid__reproducible_at_one_tp(void **state)
{
    static const ranks_layout same[][2] = {
        {{.tp = 2, .is_reproducible = true},
         {.tp = 2, .pp = 2, .is_reproducible = true, .schedule = "zb-h1"}},
        {{.tp = 2, .is_reproducible = true},
         {.tp = 2, .dp = 2, .pp = 2, .stage = 3, .is_reproducible = true}},
        {{.tp = 2, .dp = 2, .stage = 1, .is_reproducible = true},
         {.tp = 2,
          .dp = 2,
          .pp = 2,
          .stage = 2,
          .is_reproducible = true,
          .schedule = "interleaved",
          .chunks = 2}},
    };
    for (size_t i = 0; i < WEFT_COUNT_OF(same); i++)
        check_same(*state, i == 2 ? &odd_gpt2_dropout : &odd_tied, "fp32", same[i]);
}

/* Any order of ranks along the axes is the same run. */
static void test_parallel_hybrid__rank_order(void **state)
{
    static const char *const orders[] = {"tp-pp-dp", "dp-tp-pp", "dp-pp-tp", "pp-tp-dp",
                                         "pp-dp-tp"};
    const ranks_layout l = {.dp = 2, .tp = 2, .pp = 2, .stage = 1, .schedule = "zb-h1"};
    ranks_case c;
    ranks_result a, b;
    char why[256];
    ranks_parity_init(&c, *state, &odd_tied, false);
    ranks_case_batches(&c, odd_tied.vocab, 5, 3, 23);
    run(&a, &c, &l);
    for (size_t i = 0; i < WEFT_COUNT_OF(orders); i++) {
        c.options.layout.rank_order = orders[i];
        run(&b, &c, &l);
        if (!ranks_same_bits(&a, &b, why))
            fail_msg("%s: %s", orders[i], why);
        ranks_result_fini(&b);
    }
    ranks_result_fini(&a);
    ranks_case_fini(&c);
}

/* ---- on the reference backend, whose code the thread sanitizer sees ---- */

static void test_parallel_hybrid__reference_backend(void **state)
{
    static const ranks_layout layouts[] = {
        {.pp = 2, .schedule = "naive"},
        {.pp = 3, .schedule = "gpipe"},
        {.pp = 3},
        {.pp = 2, .schedule = "interleaved", .chunks = 2},
        {.pp = 2, .dp = 2, .stage = 3, .schedule = "zb-h1"},
        {.pp = 3, .dp = 2, .stage = 3, .schedule = "interleaved", .chunks = 2},
        {.pp = 2, .dp = 2, .stage = 2, .schedule = "zb-h2", .is_reproducible = true},
        {.pp = 2, .dp = 2, .stage = 1},
        {.pp = 2, .tp = 2, .is_sequence_parallel = true},
        {.pp = 2, .tp = 2, .dp = 2, .stage = 3, .schedule = "zb-h1"},
    };
    const ranks_layout alone = {.dp = 1};
    ranks_case c;
    ranks_result one;
    char why[256], text[128];
    ranks_parity_init(&c, *state, &odd_deep, true);
    c.options.layout.backend = "reference";
    ranks_case_batches(&c, odd_deep.vocab, 3, 2, 25);
    run(&one, &c, &alone);
    for (size_t i = 0; i < WEFT_COUNT_OF(layouts); i++) {
        ranks_case_apply(&c, &layouts[i]);
        if (!ranks_parity_near(&c, &one, why))
            fail_msg("%s: %s", ranks_layout_text(&layouts[i], text), why);
    }
    ranks_result_fini(&one);
    ranks_case_fini(&c);
}

int main(void)
{
#define RUN(test)                                                                                  \
    cmocka_unit_test_setup_teardown(test_parallel_hybrid__##test, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        RUN(every_pair_of_values_against_one_rank),
        RUN(gradients_and_training_are_pytorchs),
        RUN(stages_do_not_change_bits),
        RUN(reproducible_at_one_tp),
        RUN(rank_order),
        RUN(reference_backend),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
