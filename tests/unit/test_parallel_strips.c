/*
 * --tp-strips: tensor ranks whose number shows in no bit. Ten clipped steps of AdamW on every number of tensor ranks, alone and
 * with --reproducible in products with the other axes, against one rank that computes the same strips; models that divide by
 * nothing (odd_model.h), and PyTorch's goldens. What strips change at all stays within the bounds of ranks_compare.h.
 */
#include "ranks_golden.h"
#include "ranks_parity.h"

#define STEPS 10

/* Three kv heads with two query heads each. */
static const odd_model three_kv = {.name = "kv3",
                                   .vocab = 53,
                                   .hidden = 48,
                                   .n_layers = 5,
                                   .n_heads = 6,
                                   .n_kv_heads = 3,
                                   .head_dim = 8,
                                   .ffn = 35,
                                   .n_positions = 32};

static void setup(ranks_case *c, scratch *s, const odd_model *m, bool is_bf16)
{
    ranks_case_init(c, s, m);
    c->options.layout.dtype = is_bf16 ? "bf16" : "fp32";
    c->options.layout.micro_batch_size = 2;
    c->options.clip_grad = 0.1;
    ranks_case_batches(c, m->vocab, 7, STEPS, 21);
}

static void run(ranks_result *r, ranks_case *c, const ranks_layout *l)
{
    ranks_case_apply(c, l);
    ranks_case_run(r, c);
}

/* Fails unless l gives what one has, bit for bit, and takes and sends what was planned. */
static void check_same(ranks_case *c, const ranks_result *one, const ranks_layout *l)
{
    ranks_result r;
    char why[256], text[128];
    run(&r, c, l);
    if (!ranks_same_bits(one, &r, why) || !ranks_as_planned(&r, why))
        fail_msg("%s: %s", ranks_layout_text(l, text), why);
    ranks_result_fini(&r);
}

/* Every tp up to the strips, even or not, in either type. */
static void test_parallel_strips__tensor_ranks_give_one_ranks_bits(void **state)
{
    static const struct {
        const odd_model *model;
        int strips;
        bool is_bf16;
    } cases[] = {{&odd_llama, 2, false},       {&odd_tied, 2, true},  {&odd_gpt2_dropout, 6, false},
                 {&odd_gpt2, 5, true},         {&three_kv, 3, false}, {&three_kv, 2, true},
                 {&odd_llama_frozen, 2, true}, {&odd_small, 1, false}};
    static const char *const recomputes[] = {"none", "selective", "full"};
    for (size_t i = 0; i < WEFT_COUNT_OF(cases); i += RANKS_STRIDE) {
        const ranks_layout alone = {.tp = 1, .strips = cases[i].strips};
        ranks_case c;
        ranks_result one;
        setup(&c, *state, cases[i].model, cases[i].is_bf16);
        run(&one, &c, &alone);
        for (int k = 2; k <= 2 * cases[i].strips + 1; k++) {
            const ranks_layout l = {.tp = k / 2,
                                    .strips = cases[i].strips,
                                    .is_sequence_parallel = k % 2 == 1,
                                    .n_threads = 1 + k / 2 % 2,
                                    .recompute = recomputes[k % 3]};
            check_same(&c, &one, &l);
        }
        ranks_result_fini(&one);
        ranks_case_fini(&c);
    }
}

/* With --reproducible: every product of the axes, stage and schedule. */
static void test_parallel_strips__products_give_one_ranks_bits(void **state)
{
    static const struct {
        const odd_model *model;
        int strips;
        ranks_layout layout;
    } cases[] = {
        {&odd_tied, 2, {.dp = 2, .tp = 2}},
        {&odd_tied, 2, {.dp = 2, .tp = 2, .stage = 3, .recompute = "full"}},
        {&odd_tied, 2, {.dp = 2, .tp = 2, .pp = 2, .stage = 1, .schedule = "zb-h1"}},
        {&odd_tied, 2, {.dp = 1, .tp = 2, .pp = 3, .schedule = "interleaved", .chunks = 2}},
        {&odd_tied, 2, {.dp = 3, .stage = 2}},
        {&odd_gpt2_dropout, 4, {.dp = 1, .tp = 4, .pp = 2, .schedule = "gpipe"}},
        {&odd_gpt2_dropout, 4, {.dp = 2, .tp = 3, .stage = 2}},
        {&odd_gpt2_dropout, 4, {.dp = 2, .tp = 2, .pp = 2, .stage = 3, .schedule = "zb-h2"}},
        {&odd_gpt2_dropout, 4, {.dp = 1, .pp = 4, .recompute = "selective"}},
        {&three_kv, 3, {.dp = 2, .tp = 3, .stage = 1, .recompute = "selective"}},
        {&three_kv, 3, {.dp = 1, .tp = 2, .pp = 4, .schedule = "naive"}},
        {&three_kv, 3, {.dp = 2, .tp = 3, .stage = 3, .is_sequence_parallel = true}},
        {&three_kv,
         3,
         {.dp = 1, .tp = 2, .pp = 3, .schedule = "zb-h1", .is_sequence_parallel = true}},
    };
    ranks_case c = {.n_steps = 0};
    ranks_result one;
    for (size_t i = 0; i < WEFT_COUNT_OF(cases); i++) {
        if (i == 0 || cases[i].model != cases[i - 1].model) {
            const ranks_layout alone = {
                .dp = 1, .strips = cases[i].strips, .is_reproducible = true};
            if (i > 0) {
                ranks_result_fini(&one);
                ranks_case_fini(&c);
            }
            setup(&c, *state, cases[i].model, i % 2 == 1);
            run(&one, &c, &alone);
        }
        ranks_layout l = cases[i].layout;
        l.strips = cases[i].strips;
        l.is_reproducible = true;
        check_same(&c, &one, &l);
    }
    ranks_result_fini(&one);
    ranks_case_fini(&c);
}

/* Strips change the order of additions and nothing else. */
static void test_parallel_strips__results_are_near_whole_products(void **state)
{
    static const ranks_variant variants[] = {
        {&odd_llama, {.tp = 2, .strips = 2}, 3, 1},
        {&odd_tied, {.tp = 1, .strips = 2}, 2, 1},
        {&odd_gpt2, {.tp = 4, .strips = 6}, 3, 2},
        {&odd_gpt2_frozen, {.dp = 2, .tp = 2, .strips = 3, .stage = 3}, 3, 1},
        {&odd_gpt2_dropout, {.tp = 4, .strips = 4, .is_sequence_parallel = true}, 2, 1},
    };
    for (size_t i = 0; i < WEFT_COUNT_OF(variants); i++) {
        ranks_parity_check(*state, &variants[i], true);
        ranks_parity_check(*state, &variants[i], false);
    }
}

static void test_parallel_strips__goldens(void **state)
{
    static const struct {
        const char *name;
        ranks_layout layout;
    } cases[] = {{"gpt2", {.tp = 3, .strips = 4}}, {"llama", {.tp = 2, .strips = 2}}};
    for (size_t i = 0; i < WEFT_COUNT_OF(cases); i++) {
        golden g;
        ranks_case c;
        ranks_result r;
        char why[256] = "";
        ranks_golden_init(&c, &g, *state, cases[i].name, "input_ids");
        run(&r, &c, &cases[i].layout);
        if (!ranks_golden_gradients(&g, &r, why))
            fail_msg("%s: %s", cases[i].name, why);
        ranks_result_fini(&r);
        ranks_case_fini(&c);
        golden_close(&g);
    }
}

int main(void)
{
#define RUN(test)                                                                                  \
    cmocka_unit_test_setup_teardown(test_parallel_strips__##test, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        RUN(tensor_ranks_give_one_ranks_bits),
        RUN(products_give_one_ranks_bits),
        RUN(results_are_near_whole_products),
        RUN(goldens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
