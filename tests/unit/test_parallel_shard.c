/* Segments and parts: whose elements they are, on any number of ranks; joined they are the whole again, bit by bit. */
#include "check.h"

#include <stdlib.h>

#include "base/ctx.h"
#include "parallel/shard.h"

static weft_ctx *open_ctx(void)
{
    weft_ctx *ctx = NULL;
    const weft_ctx_options o = {.backend = WEFT_BACKEND_CPU, .n_threads = 1};
    CHECK_OK(weft_ctx_create(&ctx, &o));
    return ctx;
}

/* ---- lists of one's own ---- */

static weft_status
no_items(const weft_layer *l, const weft_layer_shape *shape, weft_item *item, int *n_items)
{
    (void)l;
    (void)shape;
    (void)item;
    *n_items = 0;
    return WEFT_OK;
}

static const weft_layer_ops nothing = {.kind = "nothing", .items = no_items};

static weft_param *add(weft_model *m, const char *name, int64_t n)
{
    weft_param *p = NULL;
    CHECK_OK(weft_model_add_param(m, name, 1, 1, n, &p));
    return p;
}

static void layer(weft_model *m, weft_param *const *list, int n)
{
    CHECK_OK(weft_model_add_layer(m, &nothing, NULL, 1, list, n));
}

/* table (layers 0 and 3), a0 a1 | b0 b1 | c0, an unused one at the end; c0's layer is 3 too. */
static weft_model *open_list(weft_ctx *ctx, const char *frozen)
{
    weft_model *m = NULL;
    int64_t n = 0;
    CHECK_OK(weft_model_create(&m, ctx, WEFT_DTYPE_F32));
    weft_param *table = add(m, "table", 100);
    weft_param *a[3] = {add(m, "a0", 3), add(m, "a1", 40), table};
    layer(m, a, 3);
    weft_param *b[2] = {add(m, "b0", 64), add(m, "b1", 1)};
    layer(m, b, 2);
    layer(m, NULL, 0);
    weft_param *c[2] = {table, add(m, "c0", 33)};
    layer(m, c, 2);
    (void)add(m, "unused", 5);
    if (frozen != NULL) {
        CHECK_OK(weft_model_freeze(m, frozen, &n));
        assert_true(n > 0);
    }
    CHECK_OK(weft_model_lay_out(m, true));
    return m;
}

typedef struct expected {
    int64_t first_param, n_params, value_first, grad_first, n_elems;
    int first_layer, last_layer;
    bool is_shared;
} expected;

static void
check_segments(weft_ctx *ctx, const char *frozen, int64_t bucket, const expected *e, int64_t n)
{
    weft_model *m = open_list(ctx, frozen);
    weft_shards s;
    CHECK_OK(weft_i_shards_create(&s, m, 0, 1, bucket));
    assert_int_equal(s.n_segments, n);
    for (int64_t i = 0; i < n; i++) {
        const weft_segment *g = &s.segments[i];
        assert_int_equal(g->first_param, e[i].first_param);
        assert_int_equal(g->n_params, e[i].n_params);
        assert_int_equal(g->value_first, e[i].value_first);
        assert_int_equal(g->grad_first, e[i].grad_first);
        assert_int_equal(g->n_elems, e[i].n_elems);
        assert_int_equal(g->first_layer, e[i].first_layer);
        assert_int_equal(g->last_layer, e[i].last_layer);
        assert_int_equal(g->is_shared, e[i].is_shared);
        for (int64_t k = 0; k < g->n_params; k++)
            assert_int_equal(s.segment_of_param[g->first_param + k], i);
    }
    weft_i_shards_fini(&s);
    weft_model_destroy(m);
}

/* Padded lengths: table 128, a0 32, a1 64, b0 64, b1 32, c0 64, unused 32. */
static void test_parallel_shard__segments_are_layers_and_shared_ones_stand_alone(void **state)
{
    const expected e[] = {{0, 1, 0, 0, 128, 0, 3, true},
                          {1, 2, 128, 128, 96, 0, 0, false},
                          {3, 2, 224, 224, 96, 1, 1, false},
                          {5, 2, 320, 320, 96, 3, 3, false}};
    weft_ctx *ctx = open_ctx();
    (void)state;
    check_segments(ctx, NULL, 0, e, 4);
    weft_ctx_destroy(ctx);
}

static void test_parallel_shard__buckets_join_whole_layers(void **state)
{
    const expected two[] = {{0, 1, 0, 0, 128, 0, 3, true},
                            {1, 4, 128, 128, 192, 0, 1, false},
                            {5, 2, 320, 320, 96, 3, 3, false}};
    const expected all[] = {{0, 1, 0, 0, 128, 0, 3, true}, {1, 6, 128, 128, 288, 0, 3, false}};
    weft_ctx *ctx = open_ctx();
    (void)state;
    check_segments(ctx, NULL, 97, two, 3);
    check_segments(ctx, NULL, 192, two, 3);
    check_segments(ctx, NULL, 193, all, 2);
    weft_ctx_destroy(ctx);
}

static void test_parallel_shard__frozen_and_trained_never_share_a_segment(void **state)
{
    const expected b_frozen[] = {{0, 1, 0, 0, 128, 0, 3, true},
                                 {1, 2, 128, 128, 96, 0, 0, false},
                                 {3, 2, 224, -1, 96, 1, 1, false},
                                 {5, 2, 320, 224, 96, 3, 3, false}};
    const expected mixed[] = {{0, 1, 0, 0, 128, 0, 3, true},    {1, 1, 128, 128, 32, 0, 0, false},
                              {2, 1, 160, -1, 64, 0, 0, false}, {3, 1, 224, 160, 64, 1, 1, false},
                              {4, 1, 288, -1, 32, 1, 1, false}, {5, 2, 320, 224, 96, 3, 3, false}};
    const expected table[] = {{0, 1, 0, -1, 128, 0, 3, true}, {1, 6, 128, 0, 288, 0, 3, false}};
    weft_ctx *ctx = open_ctx();
    (void)state;
    check_segments(ctx, "b*", 1000, b_frozen, 4);
    check_segments(ctx, "?1", 0, mixed, 6);
    check_segments(ctx, "?1", 1000, mixed, 6);
    check_segments(ctx, "table", 1000, table, 2);
    weft_ctx_destroy(ctx);
}

/* ---- cutting and joining ---- */

/* Puts every rank's parts where they belong in the whole; also that memory shards and flat blocks agree. */
static void check_joined(weft_model *m, int size, int64_t bucket)
{
    weft_ctx *ctx = weft_model_ctx(m);
    const int64_t n_values = weft_model_value_elems(m);
    float *flat = calloc((size_t)n_values, sizeof(float));
    int *times = calloc((size_t)n_values, sizeof(int));
    int64_t n_shard = 0;
    int64_t n_real = 0;
    assert_true(flat != NULL && times != NULL);
    for (int64_t i = 0; i < n_values; i++)
        flat[i] = (float)i + 0.25f;
    for (int r = 0; r < size; r++) {
        weft_shards s;
        weft_parts in_flat;
        weft_parts in_shard;
        CHECK_OK(weft_i_shards_create(&s, m, r, size, bucket));
        float *shard = calloc((size_t)s.n_value_elems + 1, sizeof(float));
        assert_non_null(shard);
        for (int64_t k = 0; k < s.n_segments; k++) {
            const weft_segment *g = &s.segments[k];
            int64_t before = 0;
            for (int q = 0; q < r; q++)
                before += g->counts[q];
            assert_int_equal(g->mine_first, before);
            assert_int_equal(g->n_mine, g->counts[r]);
            assert_true(g->n_mine % WEFT_PARAM_ALIGN_ELEMS == 0);
            memcpy(shard + g->value_shard_first, flat + g->value_first + g->mine_first,
                   (size_t)g->n_mine * sizeof(float));
        }
        const weft_parts_options a = {.is_mine_only = true, .values = flat, .grads = flat};
        const weft_parts_options b = {.is_mine_only = true,
                                      .values = shard,
                                      .is_value_shard = true,
                                      .grads = shard,
                                      .is_grad_shard = true,
                                      .is_state_shard = true};
        CHECK_OK(weft_i_parts_create(&in_flat, &s, &a));
        CHECK_OK(weft_i_parts_create(&in_shard, &s, &b));
        assert_int_equal(in_flat.n, in_shard.n);
        for (int64_t i = 0; i < in_flat.n; i++) {
            const weft_part *p = &in_flat.part[i];
            const weft_part *q = &in_shard.part[i];
            assert_true(p->n >= 1 && p->first >= 0);
            assert_true(p->first + p->n <= p->param->rows * p->param->cols);
            assert_ptr_equal(p->param, weft_model_param(m, p->number));
            assert_int_equal(p->value.cols, p->n);
            assert_memory_equal(p->value.data, q->value.data, (size_t)p->n * sizeof(float));
            assert_ptr_equal(p->value.data, flat + p->param->value_first + p->first);
            assert_int_equal(p->state_first, p->param->grad_first + p->first);
            assert_ptr_equal(p->grad.data, flat + p->state_first);
            assert_ptr_equal(q->grad.data, shard + q->state_first);
            assert_true(q->state_first + q->n <= s.n_grad_elems);
            for (int64_t k = 0; k < p->n; k++)
                times[p->param->value_first + p->first + k]++;
            n_real += p->n;
        }
        n_shard += s.n_value_elems;
        weft_i_parts_fini(&in_shard, ctx);
        weft_i_parts_fini(&in_flat, ctx);
        weft_i_shards_fini(&s);
        free(shard);
    }
    assert_int_equal(n_shard, n_values);
    assert_int_equal(n_real, weft_model_element_count(m));
    for (int64_t i = 0; i < weft_model_param_count(m); i++) {
        const weft_param *p = weft_model_param(m, i);
        const int64_t end =
            i + 1 < weft_model_param_count(m) ? weft_model_param(m, i + 1)->value_first : n_values;
        for (int64_t k = p->value_first; k < end; k++)
            assert_int_equal(times[k], k < p->value_first + p->rows * p->cols ? 1 : 0);
    }
    free(times);
    free(flat);
}

/* Models of 57 to 60 elements, and parameters that are smaller than the group: every element on one rank, none twice. */
static void test_parallel_shard__parts_of_all_ranks_are_the_whole(void **state)
{
    weft_ctx *ctx = open_ctx();
    (void)state;
    for (int64_t n = 57; n <= 60; n++) {
        weft_model *m = NULL;
        CHECK_OK(weft_model_create(&m, ctx, WEFT_DTYPE_F32));
        weft_param *list[3] = {add(m, "u", 8), add(m, "v", n - 9), add(m, "w", 1)};
        layer(m, list, 3);
        CHECK_OK(weft_model_lay_out(m, true));
        for (int size = 1; size <= 5; size++)
            check_joined(m, size, 0);
        weft_model_destroy(m);
    }
    weft_model *m = open_list(ctx, NULL);
    for (int size = 1; size <= 9; size++) {
        check_joined(m, size, 0);
        check_joined(m, size, 100);
    }
    weft_model_destroy(m);
    weft_ctx_destroy(ctx);
}

/* Norms of 4 elements on 8 ranks: seven of them have nothing, and that is fine. */
static void test_parallel_shard__ranks_without_a_share_have_no_parts(void **state)
{
    weft_ctx *ctx = open_ctx();
    weft_model *m = NULL;
    (void)state;
    CHECK_OK(weft_model_create(&m, ctx, WEFT_DTYPE_BF16));
    for (int i = 0; i < 3; i++) {
        char name[8];
        (void)snprintf(name, sizeof(name), "n%d", i);
        weft_param *p = add(m, name, 4);
        layer(m, &p, 1);
    }
    CHECK_OK(weft_model_lay_out(m, true));
    for (int r = 0; r < 8; r++) {
        weft_shards s;
        weft_parts parts;
        const weft_parts_options o = {.is_mine_only = true, .is_value_shard = true};
        CHECK_OK(weft_i_shards_create(&s, m, r, 8, 0));
        CHECK_OK(weft_i_parts_create(&parts, &s, &o));
        assert_int_equal(s.n_segments, 3);
        assert_int_equal(parts.n, r == 0 ? 3 : 0);
        assert_int_equal(s.n_value_elems, r == 0 ? 96 : 0);
        assert_int_equal(s.n_grad_elems, s.n_value_elems);
        for (int64_t i = 0; i < parts.n; i++) {
            assert_null(parts.part[i].value.data);
            assert_int_equal(parts.part[i].value.cols, 4);
            assert_int_equal(parts.part[i].value.dtype, WEFT_DTYPE_BF16);
        }
        weft_i_parts_fini(&parts, ctx);
        weft_i_shards_fini(&s);
    }
    weft_model_destroy(m);
    weft_ctx_destroy(ctx);
}

static void test_parallel_shard__frozen_parts_have_no_gradient_and_no_state(void **state)
{
    weft_ctx *ctx = open_ctx();
    weft_model *m = open_list(ctx, "?1");
    weft_shards s;
    weft_parts all;
    weft_parts trained;
    (void)state;
    CHECK_OK(weft_i_shards_create(&s, m, 1, 2, 0));
    float *grads = calloc((size_t)s.n_grad_elems, sizeof(float));
    assert_non_null(grads);
    const weft_parts_options o = {
        .is_mine_only = true, .grads = grads, .is_grad_shard = true, .is_state_shard = true};
    weft_parts_options t = o;
    t.is_trained_only = true;
    CHECK_OK(weft_i_parts_create(&all, &s, &o));
    CHECK_OK(weft_i_parts_create(&trained, &s, &t));
    int64_t n_trained = 0;
    int64_t at = 0;
    for (int64_t i = 0; i < all.n; i++) {
        const weft_part *p = &all.part[i];
        assert_int_equal(p->param->is_frozen, p->grad.data == NULL);
        assert_int_equal(p->param->is_frozen, p->state_first == -1);
        if (p->param->is_frozen)
            continue;
        assert_true(p->state_first >= at);
        at = p->state_first + p->n;
        assert_int_equal(trained.part[n_trained].number, p->number);
        n_trained++;
    }
    assert_int_equal(trained.n, n_trained);
    assert_true(n_trained > 0 && n_trained < all.n && at <= s.n_grad_elems);
    weft_i_parts_fini(&trained, ctx);
    weft_i_parts_fini(&all, ctx);
    weft_i_shards_fini(&s);
    free(grads);
    weft_model_destroy(m);
    weft_ctx_destroy(ctx);
}

/* The families' lists: a segment a layer, the tied table alone, every layer's parameters together. */
static void check_family(weft_family family, bool is_tied, int64_t n_segments)
{
    const weft_config c = {.family = family,
                           .vocab_size = 53,
                           .hidden_size = 24,
                           .n_layers = 3,
                           .n_heads = 3,
                           .n_kv_heads = 3,
                           .head_dim = 8,
                           .ffn_size = 40,
                           .max_positions = 16,
                           .activation = WEFT_ACTIVATION_SILU,
                           .norm_eps = 1e-5,
                           .initializer_range = 0.2,
                           .is_tied = is_tied,
                           .has_attention_bias = true,
                           .has_mlp_bias = true,
                           .rope = {.theta = 10000.0, .attention_factor = 1.0}};
    weft_ctx *ctx = open_ctx();
    weft_model *m = NULL;
    weft_shards s;
    CHECK_OK(weft_model_from_config(&m, ctx, &c, WEFT_DTYPE_F32));
    CHECK_OK(weft_model_lay_out(m, true));
    CHECK_OK(weft_i_shards_create(&s, m, 2, 4, 0));
    assert_int_equal(s.n_segments, n_segments);
    for (int64_t k = 0; k < s.n_segments; k++)
        assert_int_equal(s.segments[k].is_shared, is_tied && k == 0);
    weft_i_shards_fini(&s);
    for (int size = 1; size <= 8; size += size == 1 ? 2 : 5) {
        check_joined(m, size, 0);
        check_joined(m, size, 5000);
    }
    weft_model_destroy(m);
    weft_ctx_destroy(ctx);
}

static void test_parallel_shard__families_have_a_segment_a_layer(void **state)
{
    (void)state;
    check_family(WEFT_FAMILY_GPT2, true, 6);   /* table, positions, 3 blocks, final norm */
    check_family(WEFT_FAMILY_GPT2, false, 5);  /* embedding, 3 blocks, head */
    check_family(WEFT_FAMILY_LLAMA, true, 5);  /* table, 3 blocks, final norm */
    check_family(WEFT_FAMILY_LLAMA, false, 5); /* embedding, 3 blocks, head */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parallel_shard__segments_are_layers_and_shared_ones_stand_alone),
        cmocka_unit_test(test_parallel_shard__buckets_join_whole_layers),
        cmocka_unit_test(test_parallel_shard__frozen_and_trained_never_share_a_segment),
        cmocka_unit_test(test_parallel_shard__parts_of_all_ranks_are_the_whole),
        cmocka_unit_test(test_parallel_shard__ranks_without_a_share_have_no_parts),
        cmocka_unit_test(test_parallel_shard__frozen_parts_have_no_gradient_and_no_state),
        cmocka_unit_test(test_parallel_shard__families_have_a_segment_a_layer),
    };
    return cmocka_run_group_tests_name("parallel_shard", tests, NULL, NULL);
}
