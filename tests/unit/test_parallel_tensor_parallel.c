/*
 * Tensor ranks against one rank, on models that divide by nothing: 5 layers, 6 heads on 2 kv heads (copied from tp 3 on,
 * where a rank's heads end inside a group), vocabulary 257, MLP of 77 and 101.
 *
 * Bounds as in ranks_compare.h: gradients 3e-5 of each tensor's largest, 5 steps of SGD 1e-5, of AdamW 99.9 % within
 * 1e-4. In bf16 the partial results of a row-parallel product are rounded before they are added, 2^-9 of each: the same size
 * as every other rounding on the way, of which there are some ten a block. So the distance from fp32 gradients (root
 * of summed squares, a tensor) may not be more than twice that of one rank in bf16 and 2^-8; the loss is within 2^-8.
 */
#include "ranks_parity.h"

#include <math.h>

/* Under the thread sanitizer models are so narrow (odd_model.c) that the roundings of a tensor do not average out. */
#ifdef __SANITIZE_THREAD__
#define BF16_RATIO 4.0
#else
#define BF16_RATIO 2.0
#endif

/* Three kv heads, of which one is copied at tp 4; one kv head, which every rank has. */
#define KV(n)                                                                                      \
    {                                                                                              \
        .name = "kv" #n, .vocab = 53, .hidden = 48, .n_layers = 2, .n_heads = 6, .n_kv_heads = n,  \
        .head_dim = 8, .ffn = 33, .n_positions = 32                                                \
    }
static const odd_model three_kv = KV(3), one_kv = KV(1);
#undef KV

static const ranks_variant variants[] = {
    {&odd_llama, {.tp = 2}, 3, 1},
    {&odd_llama, {.tp = 3, .recompute = "full"}, 3, 2},
    {&odd_llama, {.tp = 4, .recompute = "selective"}, 2, 1},
    {&odd_llama, {.tp = 6}, 1, 1},
    {&odd_tied, {.tp = 2, .recompute = "selective"}, 3, 1},
    {&odd_tied, {.tp = 3}, 2, 1},
    {&odd_tied, {.tp = 4, .recompute = "full"}, 3, 3},
    {&odd_gpt2, {.tp = 2, .recompute = "full"}, 2, 1},
    {&odd_gpt2, {.tp = 4}, 3, 2},
    {&odd_gpt2_dropout, {.tp = 3, .recompute = "selective"}, 3, 1},
    {&odd_gpt2_dropout, {.tp = 5}, 2, 2},
    {&odd_llama_frozen, {.tp = 4}, 2, 1},
    {&odd_gpt2_frozen, {.tp = 3}, 2, 1},
    {&odd_llama, {.tp = 4, .is_sequence_parallel = true}, 3, 1},
    {&odd_tied, {.tp = 3, .is_sequence_parallel = true, .recompute = "full"}, 3, 2},
    {&odd_gpt2_dropout, {.tp = 4, .is_sequence_parallel = true, .recompute = "selective"}, 3, 1},
    {&odd_gpt2_dropout, {.tp = 5, .is_sequence_parallel = true}, 2, 2},
    {&odd_gpt2_frozen, {.tp = 2, .is_sequence_parallel = true}, 2, 1},
    /* with every way of the data axis */
    {&odd_llama, {.dp = 2, .tp = 2}, 5, 1},
    {&odd_llama, {.dp = 2, .tp = 4, .stage = 1}, 3, 1},
    {&odd_tied, {.dp = 2, .tp = 4, .stage = 2, .recompute = "full"}, 5, 1},
    {&odd_llama, {.dp = 2, .tp = 4, .stage = 3}, 5, 1},
    {&odd_gpt2_dropout, {.dp = 3, .tp = 2, .stage = 3, .recompute = "selective"}, 4, 1},
    {&odd_llama, {.dp = 2, .tp = 4, .stage = 2, .is_sequence_parallel = true}, 5, 2},
    {&odd_tied, {.dp = 2, .tp = 3, .stage = 3, .is_sequence_parallel = true}, 3, 1},
    {&odd_gpt2, {.dp = 2, .tp = 2, .stage = 1, .is_sequence_parallel = true}, 3, 1},
    {&odd_llama, {.dp = 2, .tp = 4, .is_reproducible = true}, 3, 1},
    {&three_kv, {.tp = 2}, 2, 1},
    {&three_kv, {.tp = 4}, 2, 1},
    {&three_kv, {.dp = 2, .tp = 4, .stage = 2, .is_sequence_parallel = true}, 3, 1},
    {&one_kv, {.tp = 5, .recompute = "full"}, 2, 1},
    {&one_kv, {.dp = 2, .tp = 2, .stage = 3}, 3, 1},
};

static void test_parallel_tensor_parallel__sgd(void **state)
{
    for (size_t i = 0; i < WEFT_COUNT_OF(variants); i++)
        ranks_parity_check(*state, &variants[i], true);
}

static void test_parallel_tensor_parallel__adamw(void **state)
{
    for (size_t i = 0; i < WEFT_COUNT_OF(variants); i++)
        ranks_parity_check(*state, &variants[i], false);
}

static void run(ranks_result *r, ranks_case *c, const ranks_layout *l)
{
    ranks_case_apply(c, l);
    ranks_case_run(r, c);
}

/* Sums in the same order: the first step's loss with and without sequence parallelism, and ZeRO stages of one layout. */
static void test_parallel_tensor_parallel__same_bits(void **state)
{
    static const ranks_layout plain = {.tp = 4}, cut = {.tp = 4, .is_sequence_parallel = true};
    static const ranks_layout same[][2] = {
        {{.dp = 2, .tp = 2}, {.dp = 2, .tp = 2, .stage = 1}},
        {{.dp = 2, .tp = 4, .stage = 2}, {.dp = 2, .tp = 4, .stage = 3, .recompute = "full"}},
        {{.dp = 2, .tp = 3, .is_sequence_parallel = true},
         {.dp = 2, .tp = 3, .stage = 3, .is_sequence_parallel = true}},
    };
    ranks_case c;
    ranks_result a, b;
    char why[256], text[128];
    ranks_parity_init(&c, *state, &odd_llama, false);
    ranks_case_batches(&c, odd_llama.vocab, 2, RANKS_PARITY_STEPS, 9);
    run(&a, &c, &plain);
    run(&b, &c, &cut);
    assert_memory_equal(&a.outcome[0].loss, &b.outcome[0].loss, sizeof(double));
    ranks_result_fini(&a);
    ranks_result_fini(&b);
    for (size_t i = 0; i < WEFT_COUNT_OF(same); i++) {
        run(&a, &c, &same[i][0]);
        run(&b, &c, &same[i][1]);
        if (!ranks_same_bits(&a, &b, why))
            fail_msg("%s: %s", ranks_layout_text(&same[i][1], text), why);
        ranks_result_fini(&a);
        ranks_result_fini(&b);
    }
    ranks_case_fini(&c);
}

/* Root of the summed squares of two runs' differences in parameter p's gradient, and of a's gradient. */
static double
distance(const ranks_result *a, const ranks_result *b, const ranks_param *p, double *length)
{
    double far = 0.0;
    *length = 0.0;
    for (int64_t i = p->first; i < p->first + p->n; i++) {
        const double x = (double)a->grad[i], d = x - (double)b->grad[i];
        far += d * d;
        *length += x * x;
    }
    *length = sqrt(*length);
    return sqrt(far);
}

/* bf16 on tensor ranks is as far from fp32 as bf16 on one rank is (see above). */
static void test_parallel_tensor_parallel__bf16(void **state)
{
    static const ranks_layout alone = {.dp = 1};
    static const ranks_layout layouts[] = {
        {.tp = 2}, {.tp = 4, .is_sequence_parallel = true}, {.dp = 2, .tp = 3, .stage = 3}};
    ranks_case c;
    ranks_result exact, one, r;
    char why[256], text[128];
    ranks_parity_init(&c, *state, &odd_tied, false);
    ranks_case_batches(&c, odd_tied.vocab, 3, RANKS_PARITY_STEPS, 5);
    run(&exact, &c, &alone);
    c.options.layout.dtype = "bf16";
    run(&one, &c, &alone);
    for (size_t i = 0; i < WEFT_COUNT_OF(layouts); i++) {
        run(&r, &c, &layouts[i]);
        ranks_layout_text(&layouts[i], text);
        for (int k = 0; k < r.n_params; k++) {
            double length = 0.0;
            const double wanted = distance(&exact, &one, &r.param[k], &length);
            const double got = distance(&exact, &r, &r.param[k], &length);
            if (!(got <= BF16_RATIO * wanted + ldexp(length, -8)))
                fail_msg("%s: gradient of %s is off by %.3g (one rank: %.3g), its length %.3g",
                         text, r.param[k].name, got, wanted, length);
        }
        for (int k = 0; k < RANKS_PARITY_STEPS; k++)
            CHECK_NEAR(r.outcome[k].loss / one.outcome[k].loss, 1.0, ldexp(1.0, -8));
        if (!ranks_as_planned(&r, why))
            fail_msg("%s: %s", text, why);
        ranks_result_fini(&r);
    }
    ranks_result_fini(&exact);
    ranks_result_fini(&one);
    ranks_case_fini(&c);
}

/* A cut vocabulary is one softmax: ranks that hold fewer ids than there are sequences, and the smallest models. */
static void test_parallel_tensor_parallel__small_models(void **state)
{
    static const ranks_variant small[] = {
        {&odd_small, {.tp = 2}, 3, 1},
        {&odd_small, {.tp = 2, .is_sequence_parallel = true}, 1, 1},
        {&odd_small, {.dp = 4, .tp = 2, .stage = 3}, 3, 1},
    };
    for (size_t i = 0; i < WEFT_COUNT_OF(small); i++)
        ranks_parity_check(*state, &small[i], true);
}

/* Sequences of 1 and 3 tokens on 4 ranks: some have no row of the stream. */
static void test_parallel_tensor_parallel__fewer_rows_than_ranks(void **state)
{
    static const ranks_layout alone = {.dp = 1};
    static const ranks_layout cut = {.tp = 4, .is_sequence_parallel = true};
    for (int64_t n_tokens = 1; n_tokens <= 3; n_tokens += 2) {
        ranks_case c;
        ranks_result one, r;
        char why[256];
        ranks_parity_init(&c, *state, &odd_gpt2_dropout, true);
        c.options.seq_length = n_tokens;
        ranks_case_batches(&c, odd_gpt2.vocab, 2, 2, 3);
        run(&one, &c, &alone);
        run(&r, &c, &cut);
        if (!ranks_near_gradients(&one, &r, RANKS_GRADIENT_BOUND, why) ||
            !ranks_as_planned(&r, why))
            fail_msg("%d tokens: %s", (int)n_tokens, why);
        ranks_result_fini(&one);
        ranks_result_fini(&r);
        ranks_case_fini(&c);
    }
}

int main(void)
{
#define RUN(test)                                                                                  \
    cmocka_unit_test_setup_teardown(test_parallel_tensor_parallel__##test, scratch_setup,          \
                                    scratch_teardown)
    const struct CMUnitTest tests[] = {
        RUN(sgd),  RUN(adamw),        RUN(same_bits),
        RUN(bf16), RUN(small_models), RUN(fewer_rows_than_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
