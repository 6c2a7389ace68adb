/* Cuts of a model's items into stages against every possible cut. */
#include "check.h"

#include "parallel/stage_cut.h"

#include <math.h>

static const weft_config models[] = {
    {.family = WEFT_FAMILY_LLAMA,
     .hidden_size = 64,
     .n_heads = 4,
     .n_kv_heads = 2,
     .head_dim = 16,
     .ffn_size = 176,
     .vocab_size = 257,
     .n_layers = 7},
    {.family = WEFT_FAMILY_GPT2,
     .hidden_size = 8,
     .n_heads = 2,
     .n_kv_heads = 2,
     .head_dim = 4,
     .ffn_size = 32,
     .vocab_size = 50257,
     .n_layers = 6},
    {.family = WEFT_FAMILY_LLAMA,
     .hidden_size = 64,
     .n_heads = 4,
     .n_kv_heads = 4,
     .head_dim = 16,
     .ffn_size = 256,
     .vocab_size = 2,
     .n_layers = 9},
};

/* FLOPs of one token's forward: a copied row, the products of a block, those of the head. */
static double flops(const weft_config *c, int64_t item, double n_tokens)
{
    const double h = (double)c->hidden_size, q = (double)(c->n_heads * c->head_dim);
    const double kv = (double)(c->n_kv_heads * c->head_dim);
    const double mlp = (c->family == WEFT_FAMILY_GPT2 ? 2 : 3) * (double)c->ffn_size;
    if (item == 0)
        return h;
    if (item > c->n_layers)
        return 2 * h * (double)c->vocab_size;
    return 2 * h * (2 * q + 2 * kv + mlp) + 2 * q * n_tokens;
}

/* The least largest part of every cut of the items from `first` on into n parts. */
static double least(const weft_config *c, double n_tokens, int64_t first, int n)
{
    const int64_t n_items = c->n_layers + 2;
    double part = 0.0, best = (double)INFINITY;
    if (n == 1) {
        for (int64_t i = first; i < n_items; i++)
            part += flops(c, i, n_tokens);
        return part;
    }
    for (int64_t end = first + 1; end <= n_items - (n - 1); end++) {
        part += flops(c, end - 1, n_tokens);
        best = fmin(best, fmax(part, least(c, n_tokens, end, n - 1)));
    }
    return best;
}

static double largest(const weft_config *c, double n_tokens, const weft_stage_cut *cut)
{
    double most = 0.0;
    for (int k = 0; k < cut->n; k++) {
        double part = 0.0;
        assert_true(cut->first[k] < cut->first[k + 1]);
        for (int64_t i = cut->first[k]; i < cut->first[k + 1]; i++)
            part += flops(c, i, n_tokens);
        most = fmax(most, part);
    }
    return most;
}

static void test_parallel_stage_cut__no_cut_is_better(void **state)
{
    (void)state;
    static const int64_t n_tokens[] = {1, 100, 4096};
    weft_alloc *alloc = NULL;
    CHECK_OK(weft_i_alloc_create(&alloc, false, 0));
    for (size_t m = 0; m < WEFT_COUNT_OF(models); m++) {
        const weft_config *c = &models[m];
        for (size_t t = 0; t < WEFT_COUNT_OF(n_tokens); t++) {
            for (int n = 1; n <= c->n_layers + 2; n++) {
                weft_stage_cut cut;
                CHECK_OK(weft_i_stage_cut_make(&cut, alloc, c, n_tokens[t], n, ""));
                assert_int_equal(cut.first[0], 0);
                assert_int_equal(cut.first[n], c->n_layers + 2);
                const double got = largest(c, (double)n_tokens[t], &cut);
                const double want = least(c, (double)n_tokens[t], 0, n);
                if (got != want)
                    fail_msg("model %d, %d tokens, %d parts: the largest is %g, not %g", (int)m,
                             (int)n_tokens[t], n, got, want);
                weft_i_stage_cut_fini(&cut);
            }
        }
    }
    weft_i_alloc_destroy(alloc);
}

/* Equal parts leave what is over to the later stages, which have fewer micro-batches in flight. */
static void test_parallel_stage_cut__later_parts_are_longer(void **state)
{
    (void)state;
    weft_alloc *alloc = NULL;
    weft_stage_cut cut;
    weft_config c = models[2];
    c.n_layers = 7;
    CHECK_OK(weft_i_alloc_create(&alloc, false, 0));
    CHECK_OK(weft_i_stage_cut_make(&cut, alloc, &c, 16, 3, ""));
    /* a part of three blocks there has to be, with the head or without */
    assert_int_equal(cut.first[1], 3);
    assert_int_equal(cut.first[2], 6);
    weft_i_stage_cut_fini(&cut);
    weft_i_alloc_destroy(alloc);
}

/* As many stages as a deep model has blocks: work grows with items and stages, not with their square. */
static void test_parallel_stage_cut__many_items(void **state)
{
    (void)state;
    weft_alloc *alloc = NULL;
    weft_stage_cut cut;
    weft_config c = models[0];
    c.n_layers = 4000;
    CHECK_OK(weft_i_alloc_create(&alloc, false, 0));
    CHECK_OK(weft_i_stage_cut_make(&cut, alloc, &c, 16, 1000, ""));
    for (int k = 1; k < 999; k++)
        assert_in_range(cut.first[k + 1] - cut.first[k], 1, 5);
    weft_i_stage_cut_fini(&cut);
    weft_i_alloc_destroy(alloc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parallel_stage_cut__no_cut_is_better),
        cmocka_unit_test(test_parallel_stage_cut__later_parts_are_longer),
        cmocka_unit_test(test_parallel_stage_cut__many_items),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
