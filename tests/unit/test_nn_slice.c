/*
 * Slices of a model: what the ranks of a tensor axis hold covers every element, each has one owner, and the pieces say
 * truly where an element of the full tensor lies here.
 */
#include "check.h"

#include "nn/model_parts.h"
#include "nn/models/slice.h"
#include "nn/param_part.h"
#include "tensor/split.h"

#include <stdlib.h>
#include <string.h>

#define MAX_TP 12

typedef struct shape_case {
    const char *name;
    weft_family family;
    int64_t vocab, n_heads, n_kv_heads, head_dim, ffn;
    bool is_tied, has_bias;
} shape_case;

static const shape_case cases[] = {
    {"grouped", WEFT_FAMILY_LLAMA, 257, 6, 2, 8, 40, false, true},
    {"one kv head", WEFT_FAMILY_LLAMA, 53, 12, 1, 4, 37, true, false},
    {"three kv heads", WEFT_FAMILY_LLAMA, 53, 6, 3, 8, 64, false, false},
    {"fused", WEFT_FAMILY_GPT2, 257, 6, 6, 4, 50, true, true},
};

static weft_config config_of(const shape_case *s)
{
    const weft_config c = {
        .family = s->family,
        .vocab_size = s->vocab,
        .hidden_size = s->n_heads * s->head_dim,
        .n_layers = 2,
        .n_heads = s->n_heads,
        .n_kv_heads = s->n_kv_heads,
        .head_dim = s->head_dim,
        .ffn_size = s->ffn,
        .max_positions = 32,
        .norm_eps = 1e-5,
        .initializer_range = 0.02,
        .is_tied = s->is_tied,
        .has_attention_bias = s->has_bias,
        .has_mlp_bias = s->has_bias,
        .activation =
            s->family == WEFT_FAMILY_GPT2 ? WEFT_ACTIVATION_GELU_TANH : WEFT_ACTIVATION_SILU,
    };
    return c;
}

/* Heads, columns and ids cut evenly, the first ranks one more: by hand, not by what parallel/ does. */
static weft_model_slice slice_of(const weft_config *c, int tp, int rank)
{
    weft_model_slice s = weft_i_slice_whole(c);
    s.first_head = weft_i_split_first(c->n_heads, 1, tp, rank);
    s.n_heads = weft_i_split_count(c->n_heads, 1, tp, rank);
    s.first_ffn = weft_i_split_first(c->ffn_size, 1, tp, rank);
    s.n_ffn = weft_i_split_count(c->ffn_size, 1, tp, rank);
    s.first_id = weft_i_split_first(c->vocab_size, 1, tp, rank);
    s.n_ids = weft_i_split_count(c->vocab_size, 1, tp, rank);
    s.is_first = rank == 0;
    for (int r = 1; r < tp; r++)
        s.is_kv_copied |=
            weft_i_split_first(c->n_heads, 1, tp, r) % (c->n_heads / c->n_kv_heads) != 0;
    return s;
}

static weft_ctx *new_ctx(void)
{
    const weft_ctx_options o = {.backend = WEFT_BACKEND_REFERENCE, .n_threads = 1};
    weft_ctx *ctx = NULL;
    assert_int_equal(weft_ctx_create(&ctx, &o), WEFT_OK);
    return ctx;
}

/* Counts holders and owners of every element of parameter `name` in the slices' models. */
static void
count_holders(weft_model *const *m, int tp, const char *name, int *holders, int *owners, int64_t n)
{
    memset(holders, 0, (size_t)n * sizeof(int));
    memset(owners, 0, (size_t)n * sizeof(int));
    for (int r = 0; r < tp; r++) {
        const weft_param *p = weft_model_find_param(m[r], name);
        int64_t n_seen = 0;
        weft_stretch s;
        assert_non_null(p);
        weft_stretch_walk walk = weft_i_stretch_begin(p, 0, p->rows * p->cols);
        while (weft_i_stretch_next(&walk, &s)) {
            assert_int_equal(s.local, n_seen); /* no hole */
            n_seen += s.n;
            for (int64_t i = 0; i < s.n; i++) {
                holders[s.full + i]++;
                owners[s.full + i] += s.is_owned ? 1 : 0;
            }
        }
        assert_int_equal(n_seen, p->rows * p->cols);
    }
}

static void check_coverage(const shape_case *s, int tp)
{
    const weft_config c = config_of(s);
    weft_ctx *ctx = new_ctx();
    weft_model *m[MAX_TP] = {NULL};
    weft_model *whole = NULL;
    assert_int_equal(weft_model_from_config(&whole, ctx, &c, WEFT_DTYPE_F32), WEFT_OK);
    for (int r = 0; r < tp; r++) {
        const weft_model_slice slice = slice_of(&c, tp, r);
        assert_int_equal(weft_i_model_from_slice(&m[r], ctx, &c, WEFT_DTYPE_F32, &slice), WEFT_OK);
        assert_int_equal(weft_model_param_count(m[r]), weft_model_param_count(whole));
    }
    for (int64_t i = 0; i < weft_model_param_count(whole); i++) {
        const weft_param *p = weft_model_param(whole, i);
        const int64_t n = p->full_rows * p->full_cols;
        int *holders = malloc((size_t)n * sizeof(int));
        int *owners = malloc((size_t)n * sizeof(int));
        assert_int_equal(p->n_pieces, 1);
        assert_true(p->piece[0].is_owned && p->rows == p->full_rows && p->cols == p->full_cols);
        count_holders(m, tp, p->name, holders, owners, n);
        for (int64_t k = 0; k < n; k++) {
            const weft_grad_kind kind = weft_model_find_param(m[0], p->name)->grad_kind;
            if (owners[k] != 1 || holders[k] < 1 || (kind == WEFT_GRAD_SPLIT && holders[k] != 1) ||
                (kind == WEFT_GRAD_SAME && holders[k] != tp))
                fail_msg("%s tp %d: %s[%d] has %d holders and %d owners", s->name, tp, p->name,
                         (int)k, holders[k], owners[k]);
        }
        free(owners);
        free(holders);
    }
    for (int r = 0; r < tp; r++)
        weft_model_destroy(m[r]);
    weft_model_destroy(whole);
    weft_ctx_destroy(ctx);
}

static void test_nn_slice__every_element_has_one_owner(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (int tp = 1; tp <= cases[i].n_heads; tp++)
            check_coverage(&cases[i], tp);
    }
}

static void check_fresh(const shape_case *s, int tp)
{
    const weft_config c = config_of(s);
    weft_ctx *ctx = new_ctx();
    weft_model *whole = NULL;
    assert_int_equal(weft_model_from_config(&whole, ctx, &c, WEFT_DTYPE_F32), WEFT_OK);
    assert_int_equal(weft_model_allocate(whole, false), WEFT_OK);
    assert_int_equal(weft_model_init_weights(whole, 7), WEFT_OK);
    for (int r = 0; r < tp; r++) {
        const weft_model_slice slice = slice_of(&c, tp, r);
        weft_model *m = NULL;
        assert_int_equal(weft_i_model_from_slice(&m, ctx, &c, WEFT_DTYPE_F32, &slice), WEFT_OK);
        assert_int_equal(weft_model_allocate(m, false), WEFT_OK);
        assert_int_equal(weft_model_init_weights(m, 7), WEFT_OK);
        for (int64_t i = 0; i < weft_model_param_count(m); i++) {
            const weft_param *p = weft_model_param(m, i);
            const float *here = p->value.data;
            const float *all = weft_model_param(whole, i)->value.data;
            weft_stretch t;
            weft_stretch_walk walk = weft_i_stretch_begin(p, 0, p->rows * p->cols);
            while (weft_i_stretch_next(&walk, &t))
                assert_memory_equal(here + t.local, all + t.full, (size_t)t.n * sizeof(float));
        }
        weft_model_destroy(m);
    }
    weft_model_destroy(whole);
    weft_ctx_destroy(ctx);
}

/* A18: the same numbers in every slice. */
static void test_nn_slice__fresh_weights_are_those_of_the_whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        check_fresh(&cases[i], 2);
        check_fresh(&cases[i], 4);
    }
}

/* The first query head's group is counted once: 6 heads, 2 kv heads, 4 slices of 2, 2, 1, 1 heads. */
static void test_nn_slice__kv_heads_follow_the_queries(void **state)
{
    static const int64_t first[] = {0, 0, 1, 1}, n[] = {1, 2, 1, 1};
    const weft_config c = config_of(&cases[0]);
    (void)state;
    for (int r = 0; r < 4; r++) {
        const weft_model_slice s = slice_of(&c, 4, r);
        int64_t got_first = -1, got_n = -1;
        weft_i_slice_kv(&s, &c, &got_first, &got_n);
        assert_int_equal(got_first, first[r]);
        assert_int_equal(got_n, n[r]);
        assert_true(s.is_kv_copied);
    }
}

/* A stage without the embedding has a tied head's table, and does not own it. */
static void test_nn_slice__items_are_a_part_of_the_list(void **state)
{
    const weft_config c = config_of(&cases[3]);
    weft_ctx *ctx = new_ctx();
    weft_model_slice s = weft_i_slice_whole(&c);
    weft_model *m = NULL;
    (void)state;
    s.first_item = 2;
    s.n_items = 2;
    assert_int_equal(weft_i_model_from_slice(&m, ctx, &c, WEFT_DTYPE_F32, &s), WEFT_OK);
    assert_int_equal(weft_model_layer_count(m), 2);
    assert_non_null(weft_model_find_param(m, "transformer.h.1.ln_1.weight"));
    assert_null(weft_model_find_param(m, "transformer.h.0.ln_1.weight"));
    assert_null(weft_model_find_param(m, "transformer.wpe.weight"));
    const weft_param *table = weft_model_find_param(m, "transformer.wte.weight");
    assert_non_null(table);
    assert_false(table->piece[0].is_owned);
    weft_model_destroy(m);
    s.n_items = 3;
    assert_int_equal(weft_i_model_from_slice(&m, ctx, &c, WEFT_DTYPE_F32, &s), WEFT_STATUS_ARG);
    assert_null(m);
    weft_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nn_slice__every_element_has_one_owner),
        cmocka_unit_test(test_nn_slice__fresh_weights_are_those_of_the_whole),
        cmocka_unit_test(test_nn_slice__kv_heads_follow_the_queries),
        cmocka_unit_test(test_nn_slice__items_are_a_part_of_the_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
