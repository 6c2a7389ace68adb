/*
 * The head apart from the loss: logits out of a training forward, gradients of logits into backward; and which passes read
 * a layer's parameters. Several chunks of rows: with this vocabulary a chunk has 256.
 */
#include "check.h"

#include <stdlib.h>

#include "backend/run_op.h"
#include "base/ctx.h"
#include "nn/model_parts.h"

#define N_SEQS 2
#define N_TOKENS 150
#define ROWS (N_SEQS * N_TOKENS)
#define VOCAB 16411
#define SMALL_VOCAB 53

static const weft_config tiny = {.family = WEFT_FAMILY_GPT2,
                                 .vocab_size = VOCAB,
                                 .hidden_size = 8,
                                 .n_layers = 2,
                                 .n_heads = 2,
                                 .n_kv_heads = 2,
                                 .head_dim = 4,
                                 .ffn_size = 12,
                                 .max_positions = N_TOKENS,
                                 .activation = WEFT_ACTIVATION_GELU_TANH,
                                 .norm_eps = 1e-5,
                                 .initializer_range = 0.5,
                                 .is_tied = true,
                                 .has_attention_bias = true,
                                 .has_mlp_bias = true,
                                 .is_attn_scaled = true,
                                 .resid_dropout = 0.2};

static weft_ctx *open_ctx(void)
{
    weft_ctx *ctx = NULL;
    const weft_ctx_options o = {.backend = WEFT_BACKEND_CPU, .n_threads = 2};
    CHECK_OK(weft_ctx_create(&ctx, &o));
    return ctx;
}

static weft_model *open_model(weft_ctx *ctx, const weft_config *c, weft_dtype t, const char *frozen)
{
    weft_model *m = NULL;
    int64_t n = 0;
    CHECK_OK(weft_model_from_config(&m, ctx, c, t));
    if (frozen != NULL)
        CHECK_OK(weft_model_freeze(m, frozen, &n));
    CHECK_OK(weft_model_allocate(m, true));
    CHECK_OK(weft_model_init_weights(m, 3));
    return m;
}

static weft_run *open_run(weft_model *m, weft_recompute mode, weft_hooks **hooks, int n_hooks)
{
    weft_run *r = NULL;
    int32_t ids[ROWS];
    int32_t targets[ROWS];
    const int64_t vocab = m->config.vocab_size;
    const weft_run_options o = {.n_seqs = N_SEQS,
                                .n_tokens = N_TOKENS,
                                .n_slots = 1,
                                .recompute = mode,
                                .hooks = hooks,
                                .n_hooks = n_hooks,
                                .workspace_bytes = (size_t)64 << 20};
    CHECK_OK(weft_run_create(&r, m, &o));
    weft_exec *e = weft_run_exec(r);
    e->is_training = true;
    e->dropout_key[0] = 5;
    e->loss_scale = 0.01f;
    for (int i = 0; i < ROWS; i++) {
        ids[i] = (int32_t)((i * 131 + 7) % vocab);
        targets[i] = i % 5 == 4 ? -100 : (int32_t)((i * 71 + 1) % vocab);
    }
    const weft_host_batch b = {
        .n_seqs = N_SEQS, .n_tokens = N_TOKENS, .ids = ids, .targets = targets};
    CHECK_OK(weft_run_load(r, 0, &b));
    return r;
}

static void *get(size_t n, size_t size)
{
    void *p = calloc(n, size);
    assert_non_null(p);
    return p;
}

static void run_op(weft_ctx *ctx, weft_op op, const void *args)
{
    CHECK_OK(weft_i_op_run(ctx->backend, op, args, NULL));
}

/* What rank 0 of DataParallel does with gathered logits: token losses, and the gradient in the model's type. */
static void loss_of(weft_model *m, weft_run *r, weft_view logits, float *loss, weft_view dlogits)
{
    float *stats = get(3 * ROWS, sizeof(float));
    const weft_view max = weft_view_make(stats, WEFT_DTYPE_F32, ROWS, 1);
    const weft_view sum = weft_view_make(stats + ROWS, WEFT_DTYPE_F32, ROWS, 1);
    const weft_view target = weft_view_make(stats + 2 * ROWS, WEFT_DTYPE_F32, ROWS, 1);
    int32_t targets[ROWS];
    for (int i = 0; i < ROWS; i++)
        targets[i] = i % 5 == 4 ? -100 : (int32_t)((i * 71 + 1) % m->config.vocab_size);
    const weft_view t = weft_view_make(targets, WEFT_DTYPE_I32, ROWS, 1);
    const weft_xent_stats_args s = {
        .max = max, .sum = sum, .target = target, .logits = logits, .targets = t};
    const weft_xent_loss_args l = {.loss = weft_view_make(loss, WEFT_DTYPE_F32, ROWS, 1),
                                   .max = max,
                                   .sum = sum,
                                   .target = target,
                                   .targets = t};
    const weft_xent_grad_args g = {.dlogits = dlogits,
                                   .logits = logits,
                                   .max = max,
                                   .sum = sum,
                                   .targets = t,
                                   .scale = weft_run_exec(r)->loss_scale};
    run_op(m->ctx, WEFT_OP_XENT_STATS, &s);
    run_op(m->ctx, WEFT_OP_XENT_LOSS, &l);
    run_op(m->ctx, WEFT_OP_XENT_GRAD, &g);
    free(stats);
}

static bool all_bytes(const void *p, size_t n, unsigned char value)
{
    const unsigned char *b = p;
    for (size_t i = 0; i < n; i++) {
        if (b[i] != value)
            return false;
    }
    return true;
}

static void check_given_gradient(weft_dtype dtype, weft_recompute mode, const char *frozen)
{
    const size_t n_logits = (size_t)ROWS * VOCAB;
    weft_ctx *ctx = open_ctx();
    weft_model *m = open_model(ctx, &tiny, dtype, frozen);
    weft_run *r = open_run(m, mode, NULL, 0);
    weft_exec *e = weft_run_exec(r);
    const size_t n_grads = (size_t)m->n_grad_elems;
    float *fused = get(n_grads, sizeof(float));
    float loss[ROWS];
    const weft_view logits =
        weft_view_make(get(n_logits, sizeof(float)), WEFT_DTYPE_F32, ROWS, VOCAB);
    const weft_view given =
        weft_view_make(get(n_logits, weft_dtype_bytes(dtype)), dtype, ROWS, VOCAB);
    const weft_view losses = weft_run_losses(r, 0);

    weft_model_begin_step(m);
    CHECK_OK(weft_run_forward(r, 0));
    CHECK_OK(weft_run_backward(r, 0, WEFT_BACKWARD_BOTH));
    CHECK_OK(weft_model_end_step(m));
    memcpy(fused, m->grads, n_grads * sizeof(float));
    assert_false(all_bytes(fused, n_grads * sizeof(float), 0));

    e->logits = logits;
    CHECK_OK(weft_run_forward(r, 0));
    loss_of(m, r, logits, loss, given);
    assert_memory_equal(loss, losses.data, sizeof(loss));

    memset(m->grads, 0xA5, n_grads * sizeof(float));
    memset(logits.data, 0xA5, n_logits * sizeof(float));
    memset(losses.data, 0xA5, sizeof(loss));
    e->grad_logits = given;
    weft_model_begin_step(m);
    CHECK_OK(weft_run_backward(r, 0, WEFT_BACKWARD_BOTH));
    CHECK_OK(weft_model_end_step(m));
    for (int64_t i = 0; i < m->n_params; i++) {
        const weft_param *p = m->params[i];
        if (p->grad_first >= 0)
            assert_memory_equal(p->grad.data, fused + p->grad_first,
                                (size_t)(p->rows * p->cols) * sizeof(float));
    }
    assert_true(all_bytes(logits.data, n_logits * sizeof(float), 0xA5));
    assert_true(all_bytes(losses.data, sizeof(loss), 0xA5));
    free(given.data);
    free(logits.data);
    free(fused);
    weft_run_destroy(r);
    weft_model_destroy(m);
    weft_ctx_destroy(ctx);
}

static void test_nn_head__a_given_gradient_of_logits_gives_the_same_bits(void **state)
{
    (void)state;
    check_given_gradient(WEFT_DTYPE_F32, WEFT_RECOMPUTE_NONE, NULL);
    check_given_gradient(WEFT_DTYPE_F32, WEFT_RECOMPUTE_FULL, NULL);
    check_given_gradient(WEFT_DTYPE_BF16, WEFT_RECOMPUTE_NONE, NULL);
    check_given_gradient(WEFT_DTYPE_BF16, WEFT_RECOMPUTE_SELECTIVE, NULL);
    check_given_gradient(WEFT_DTYPE_F32, WEFT_RECOMPUTE_NONE, "*wte*");
    check_given_gradient(WEFT_DTYPE_BF16, WEFT_RECOMPUTE_NONE, "*ln_f*");
}

/* ---- a layer's weights come before it and go after it, each time to another place ---- */

typedef struct gathered {
    weft_model *m;
    weft_exec *exec;
    const char *flat; /* all weights */
    char *ring[2];
    size_t ring_bytes;
    int n_begun, n_read;
} gathered;

static bool is_used(const weft_layer *l, const weft_param *p)
{
    for (int i = 0; i < l->n_params; i++) {
        if (l->params[i] == p)
            return true;
    }
    return false;
}

static weft_status gather_layer(void *user, const weft_layer *l, weft_pass pass)
{
    gathered *g = user;
    const size_t size = weft_dtype_bytes(g->m->dtype);
    char *at = g->ring[g->n_begun++ % 2];
    assert_int_equal(g->exec->pass, pass);
    if (l->ops->is_reading != NULL && !l->ops->is_reading(l, g->exec))
        return WEFT_OK;
    g->n_read++;
    for (int64_t i = 0; i < g->m->n_params; i++) {
        weft_param *p = g->m->params[i];
        if (!is_used(l, p))
            continue;
        p->value.data = at;
        memcpy(at, g->flat + (size_t)p->value_first * size, (size_t)(p->rows * p->cols) * size);
        at += (size_t)(p->rows * p->cols + WEFT_PARAM_ALIGN_ELEMS - 1) / WEFT_PARAM_ALIGN_ELEMS *
              WEFT_PARAM_ALIGN_ELEMS * size;
    }
    return WEFT_OK;
}

/* NaN in either type where the weights were. */
static weft_status drop_layer(void *user, const weft_layer *l, weft_pass pass)
{
    gathered *g = user;
    (void)pass;
    memset(g->ring[(g->n_begun - 1) % 2], 0xFF, g->ring_bytes);
    for (int i = 0; i < l->n_params; i++)
        l->params[i]->value.data = NULL;
    return WEFT_OK;
}

static void check_gathered(weft_family family, bool is_tied, weft_dtype dtype, weft_recompute mode)
{
    weft_config c = tiny;
    c.family = family;
    c.is_tied = is_tied;
    c.vocab_size = SMALL_VOCAB;
    c.rope = (weft_rope){.theta = 10000.0, .attention_factor = 1.0};
    weft_ctx *ctx = open_ctx();
    weft_model *m = open_model(ctx, &c, dtype, NULL);
    weft_run *whole = open_run(m, mode, NULL, 0);
    const size_t n_grads = (size_t)m->n_grad_elems;
    float *expected = get(n_grads, sizeof(float));
    weft_model_begin_step(m);
    CHECK_OK(weft_run_forward(whole, 0));
    CHECK_OK(weft_run_backward(whole, 0, WEFT_BACKWARD_BOTH));
    memcpy(expected, m->grads, n_grads * sizeof(float));
    weft_run_exec(whole)->is_loss_wanted = true;
    CHECK_OK(weft_run_forward_only(whole, NULL));
    float losses[ROWS];
    memcpy(losses, weft_run_losses(whole, 0).data, sizeof(losses));

    gathered g = {.m = m, .flat = m->values};
    g.ring_bytes = (size_t)m->n_value_elems * weft_dtype_bytes(dtype);
    g.ring[0] = get(g.ring_bytes, 1);
    g.ring[1] = get(g.ring_bytes, 1);
    weft_hooks h = {.user = &g, .layer_begin = gather_layer, .layer_end = drop_layer};
    weft_hooks *list[1] = {&h};
    weft_run *r = open_run(m, mode, list, 1);
    const int n_layers = (int)m->n_layers;
    g.exec = weft_run_exec(r);
    weft_model_attach(m, NULL, m->grads);
    weft_model_begin_step(m);
    CHECK_OK(weft_run_forward(r, 0));
    assert_int_equal(g.n_read, n_layers - 1); /* the head computes nothing in forward */
    CHECK_OK(weft_run_backward(r, 0, WEFT_BACKWARD_BOTH));
    assert_int_equal(g.n_read, 2 * (n_layers - 1)); /* the embedding reads nothing in backward */
    assert_memory_equal(m->grads, expected, n_grads * sizeof(float));
    g.exec->is_loss_wanted = true;
    CHECK_OK(weft_run_forward_only(r, NULL));
    assert_int_equal(g.n_read, 2 * (n_layers - 1) + n_layers);
    assert_memory_equal(weft_run_losses(r, 0).data, losses, sizeof(losses));
    free(g.ring[0]);
    free(g.ring[1]);
    free(expected);
    weft_run_destroy(r);
    weft_run_destroy(whole);
    weft_model_destroy(m);
    weft_ctx_destroy(ctx);
}

static void test_nn_head__layers_read_weights_where_and_when_they_say(void **state)
{
    (void)state;
    for (int mode = 0; mode < 3; mode++) {
        check_gathered(WEFT_FAMILY_GPT2, true, WEFT_DTYPE_F32, (weft_recompute)mode);
        check_gathered(WEFT_FAMILY_LLAMA, false, WEFT_DTYPE_F32, (weft_recompute)mode);
        check_gathered(WEFT_FAMILY_LLAMA, true, WEFT_DTYPE_BF16, (weft_recompute)mode);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nn_head__a_given_gradient_of_logits_gives_the_same_bits),
        cmocka_unit_test(test_nn_head__layers_read_weights_where_and_when_they_say),
    };
    return cmocka_run_group_tests_name("nn_head", tests, NULL, NULL);
}
