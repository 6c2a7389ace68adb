/*
 * Running a list of layers: what is kept must not change what comes out. Same bits for recompute modes, for backward whole or
 * split, for several micro-batches in flight, with dropout on; and the calls that hooks see.
 */
#include "check.h"

#include <math.h>
#include <stdlib.h>

#include "base/ctx.h"
#include "nn/model_parts.h"

#define N_SEQS 3
#define N_TOKENS 7
#define ROWS (N_SEQS * N_TOKENS)
#define VOCAB 53

static const weft_config llama = {.family = WEFT_FAMILY_LLAMA,
                                  .vocab_size = VOCAB,
                                  .hidden_size = 24,
                                  .n_layers = 3,
                                  .n_heads = 6,
                                  .n_kv_heads = 2,
                                  .head_dim = 4,
                                  .ffn_size = 20,
                                  .max_positions = 64,
                                  .activation = WEFT_ACTIVATION_SILU,
                                  .norm_eps = 1e-5,
                                  .initializer_range = 0.2,
                                  .has_attention_bias = true,
                                  .attn_dropout = 0.2,
                                  .rope = {.theta = 10000.0, .attention_factor = 1.0}};

static const weft_config gpt2 = {.family = WEFT_FAMILY_GPT2,
                                 .vocab_size = VOCAB,
                                 .hidden_size = 24,
                                 .n_layers = 2,
                                 .n_heads = 3,
                                 .n_kv_heads = 3,
                                 .head_dim = 8,
                                 .ffn_size = 40,
                                 .max_positions = 16,
                                 .activation = WEFT_ACTIVATION_GELU_TANH,
                                 .norm_eps = 1e-5,
                                 .initializer_range = 0.2,
                                 .is_tied = true,
                                 .has_attention_bias = true,
                                 .has_mlp_bias = true,
                                 .is_attn_scaled = true,
                                 .embd_dropout = 0.1,
                                 .resid_dropout = 0.2,
                                 .attn_dropout = 0.3};

static weft_ctx *open_ctx(weft_backend_kind kind)
{
    weft_ctx *ctx = NULL;
    const weft_ctx_options o = {.backend = kind, .n_threads = 2};
    CHECK_OK(weft_ctx_create(&ctx, &o));
    return ctx;
}

static weft_model *open_model(weft_ctx *ctx, const weft_config *c, weft_dtype dtype)
{
    weft_model *m = NULL;
    CHECK_OK(weft_model_from_config(&m, ctx, c, dtype));
    CHECK_OK(weft_model_allocate(m, true));
    CHECK_OK(weft_model_init_weights(m, 7));
    return m;
}

/* The i-th micro-batch: fixed ids, every fifth target not counted. */
static void load(weft_run *r, int slot, int i)
{
    int32_t ids[ROWS];
    int32_t targets[ROWS];
    int64_t samples[N_SEQS];
    for (int k = 0; k < ROWS; k++) {
        ids[k] = (int32_t)((k * 31 + i * 17 + 5) % VOCAB);
        targets[k] = k % 5 == 4 ? -100 : (int32_t)((k * 7 + i * 3 + 1) % VOCAB);
    }
    for (int k = 0; k < N_SEQS; k++)
        samples[k] = i * N_SEQS + k;
    const weft_host_batch b = {
        .n_seqs = N_SEQS, .n_tokens = N_TOKENS, .ids = ids, .targets = targets, .samples = samples};
    CHECK_OK(weft_run_load(r, slot, &b));
}

static weft_run *open_run(weft_model *m, const weft_run_options *chosen)
{
    weft_run *r = NULL;
    weft_run_options o = *chosen;
    o.n_seqs = N_SEQS;
    o.n_tokens = N_TOKENS;
    o.workspace_bytes = (size_t)8 << 20;
    CHECK_OK(weft_run_create(&r, m, &o));
    weft_exec *e = weft_run_exec(r);
    e->is_training = true;
    e->dropout_key[0] = 11;
    e->dropout_key[1] = 12;
    e->loss_scale = 0.01f;
    return r;
}

/* Two micro-batches; all gradients and the second's losses as one array of floats. */
static float *gradients(weft_model *m, const weft_run_options *o, int64_t *n)
{
    weft_run *r = open_run(m, o);
    weft_model_begin_step(m);
    const int slots = o->n_slots;
    for (int i = 0; i < 2; i++) {
        load(r, i % slots, i);
        CHECK_OK(weft_run_forward(r, i % slots));
        if (o->is_split) {
            CHECK_OK(weft_run_backward(r, i % slots, WEFT_BACKWARD_INPUT));
            CHECK_OK(weft_run_backward(r, i % slots, WEFT_BACKWARD_WEIGHT));
        } else {
            CHECK_OK(weft_run_backward(r, i % slots, WEFT_BACKWARD_BOTH));
        }
    }
    CHECK_OK(weft_model_end_step(m));
    *n = m->n_grad_elems + ROWS;
    float *out = malloc((size_t)*n * sizeof(float));
    assert_non_null(out);
    memcpy(out, m->grads, (size_t)m->n_grad_elems * sizeof(float));
    memcpy(out + m->n_grad_elems, weft_run_losses(r, 1 % slots).data, ROWS * sizeof(float));
    weft_run_destroy(r);
    return out;
}

static void check_modes(const weft_config *c, weft_dtype dtype)
{
    weft_ctx *ctx = open_ctx(WEFT_BACKEND_CPU);
    weft_model *m = open_model(ctx, c, dtype);
    const weft_run_options plain = {.n_slots = 1};
    int64_t n = 0;
    float *expected = gradients(m, &plain, &n);
    double size = 0.0;
    for (int64_t i = 0; i < n; i++)
        size += fabs((double)expected[i]);
    assert_true(size > 1.0 && isfinite(size));
    for (int mode = 0; mode < 3; mode++) {
        for (int split = 0; split < 2; split++) {
            const weft_run_options o = {
                .n_slots = 1 + split, .recompute = (weft_recompute)mode, .is_split = split == 1};
            float *got = gradients(m, &o, &n);
            for (int64_t i = 0; i < n; i++) {
                if (memcmp(&got[i], &expected[i], sizeof(float)) != 0)
                    fail_msg("recompute %d split %d: element %lld is %.9g, expected %.9g", mode,
                             split, (long long)i, (double)got[i], (double)expected[i]);
            }
            free(got);
        }
    }
    free(expected);
    weft_model_destroy(m);
    weft_ctx_destroy(ctx);
}

static void test_nn_run__modes_give_the_same_bits(void **state)
{
    (void)state;
    check_modes(&llama, WEFT_DTYPE_F32);
    check_modes(&llama, WEFT_DTYPE_BF16);
    check_modes(&gpt2, WEFT_DTYPE_F32);
    check_modes(&gpt2, WEFT_DTYPE_BF16);
}

/* Sum of the counted token losses times the loss scale, of one micro-batch, in double. */
static double loss_of(weft_run *r)
{
    double sum = 0.0;
    load(r, 0, 0);
    CHECK_OK(weft_run_forward(r, 0));
    CHECK_OK(weft_run_backward(r, 0, WEFT_BACKWARD_BOTH));
    const float *loss = weft_run_losses(r, 0).data;
    for (int i = 0; i < ROWS; i++)
        sum += (double)loss[i];
    return sum * (double)weft_run_exec(r)->loss_scale;
}

/*
 * Central differences of the loss along each parameter's own gradient: (f(w + h d) - f(w - h d)) / 2h = |g| for d = g / |g|.
 * Dropout is on: the mask is a function of position, so the loss is differentiable. fp32 losses are summed to about 1e-6
 * relative; with h |g| near 1e-3 of the loss the quotient is good to a few 1e-3.
 */
static void check_differences(const weft_config *c)
{
    weft_ctx *ctx = open_ctx(WEFT_BACKEND_REFERENCE);
    weft_model *m = open_model(ctx, c, WEFT_DTYPE_F32);
    const weft_run_options o = {.n_slots = 1};
    weft_run *r = open_run(m, &o);
    for (int64_t i = 0; i < weft_model_param_count(m); i++) {
        weft_param *p = weft_model_param(m, i);
        const int64_t n = p->rows * p->cols;
        weft_model_begin_step(m);
        (void)loss_of(r);
        const float *g = p->grad.data;
        float *w = p->value.data;
        float *keep = malloc((size_t)n * sizeof(float));
        float *d = malloc((size_t)n * sizeof(float));
        assert_true(keep != NULL && d != NULL);
        double norm = 0.0;
        for (int64_t k = 0; k < n; k++)
            norm += (double)g[k] * (double)g[k];
        norm = sqrt(norm);
        assert_true(norm > 1e-8);
        for (int64_t k = 0; k < n; k++)
            d[k] = (float)((double)g[k] / norm);
        memcpy(keep, w, (size_t)n * sizeof(float));
        double f[2];
        const double h = 4e-3;
        for (int side = 0; side < 2; side++) {
            for (int64_t k = 0; k < n; k++)
                w[k] = (float)((double)keep[k] + (side == 0 ? h : -h) * (double)d[k]);
            weft_model_begin_step(m);
            f[side] = loss_of(r);
        }
        memcpy(w, keep, (size_t)n * sizeof(float));
        const double slope = (f[0] - f[1]) / (2.0 * h);
        const double bound = 0.01 * norm + 3e-5;
        if (fabs(slope - norm) > bound)
            fail_msg("%s: slope %g, gradient norm %g", p->name, slope, norm);
        free(keep);
        free(d);
    }
    weft_run_destroy(r);
    weft_model_destroy(m);
    weft_ctx_destroy(ctx);
}

static void test_nn_run__gradients_are_slopes_with_dropout(void **state)
{
    (void)state;
    check_differences(&llama);
    check_differences(&gpt2);
}

/* gate and up of one row each: matrices that lie side by side in memory, not to be taken for two vectors. */
static void test_nn_run__a_feed_forward_width_of_one_is_a_matrix(void **state)
{
    weft_config narrow = llama;
    (void)state;
    narrow.hidden_size = 2 * WEFT_PARAM_ALIGN_ELEMS;
    narrow.ffn_size = 1;
    narrow.has_mlp_bias = true;
    check_differences(&narrow);
    check_modes(&narrow, WEFT_DTYPE_F32);
    check_modes(&narrow, WEFT_DTYPE_BF16);
}

/* What hooks saw. */
typedef struct seen {
    int n_need, n_done, n_begin, n_end, n_ready, depth;
    int region[16];
    const weft_model *model;
    int ready_of[128];
    bool is_wrong;
} seen;

static weft_status see_need(void *user, weft_param *p, weft_pass pass)
{
    (void)p;
    (void)pass;
    ((seen *)user)->n_need++;
    return WEFT_OK;
}

static weft_status see_done(void *user, weft_param *p, weft_pass pass)
{
    (void)p;
    (void)pass;
    ((seen *)user)->n_done++;
    return WEFT_OK;
}

static weft_status see_ready(void *user, weft_param *p)
{
    seen *s = user;
    s->n_ready++;
    for (int64_t i = 0; i < s->model->n_params; i++) {
        if (s->model->params[i] == p)
            s->ready_of[i]++;
    }
    return WEFT_OK;
}

static weft_status
see_region(void *user, weft_region_kind kind, weft_pass way, weft_view in, weft_view out)
{
    (void)way;
    ((seen *)user)->region[kind]++;
    if (in.data != out.data)
        ((seen *)user)->is_wrong = true;
    return WEFT_OK;
}

static weft_status see_begin(void *user, const weft_layer *l, weft_pass pass)
{
    seen *s = user;
    (void)l;
    (void)pass;
    s->n_begin++;
    if (s->depth++ != 0)
        s->is_wrong = true;
    return WEFT_OK;
}

static weft_status see_end(void *user, const weft_layer *l, weft_pass pass)
{
    seen *s = user;
    (void)l;
    (void)pass;
    s->n_end++;
    if (--s->depth != 0)
        s->is_wrong = true;
    return WEFT_OK;
}

static void check_hooks(const weft_config *c, weft_recompute mode)
{
    weft_ctx *ctx = open_ctx(WEFT_BACKEND_REFERENCE);
    weft_model *m = open_model(ctx, c, WEFT_DTYPE_F32);
    const weft_run_options plain = {.n_slots = 1, .recompute = mode};
    int64_t n = 0;
    float *expected = gradients(m, &plain, &n);
    seen s = {.model = m};
    weft_hooks h = {.user = &s,
                    .param_need = see_need,
                    .param_done = see_done,
                    .grad_ready = see_ready,
                    .region_start = see_region,
                    .layer_begin = see_begin,
                    .layer_end = see_end};
    weft_hooks *list[1] = {&h};
    weft_run_options hooked = plain;
    hooked.hooks = list;
    hooked.n_hooks = 1;
    float *got = gradients(m, &hooked, &n);
    assert_memory_equal(got, expected, (size_t)n * sizeof(float));
    assert_false(s.is_wrong);
    assert_int_equal(s.n_need, s.n_done);
    assert_int_equal(s.n_begin, 2 * 2 * (int)m->n_layers);
    assert_int_equal(s.n_end, s.n_begin);
    for (int64_t i = 0; i < m->n_params; i++) {
        if (s.ready_of[i] != 2)
            fail_msg("%s was ready %d times in 2 micro-batches", m->params[i]->name, s.ready_of[i]);
    }
    assert_int_equal(s.region[WEFT_REGION_HEAD_INPUT], 2 * 2);
    assert_int_equal(s.region[WEFT_REGION_VOCAB_SUM], 2);
    assert_int_equal(s.region[WEFT_REGION_EMBEDDING_OUT], 2 * 2);
    free(expected);
    free(got);
    weft_model_destroy(m);
    weft_ctx_destroy(ctx);
}

static void test_nn_run__hooks_see_every_use_once_and_change_nothing(void **state)
{
    (void)state;
    for (int mode = 0; mode < 3; mode++) {
        check_hooks(&llama, (weft_recompute)mode);
        check_hooks(&gpt2, (weft_recompute)mode);
    }
}

/* Both micro-batches forward, then both backward (GPipe): the same bits, and every parameter ready once each. */
static void test_nn_run__two_in_flight_are_ready_once_each(void **state)
{
    weft_ctx *ctx = open_ctx(WEFT_BACKEND_REFERENCE);
    weft_model *m = open_model(ctx, &gpt2, WEFT_DTYPE_F32);
    const weft_run_options plain = {.n_slots = 1};
    int64_t n = 0;
    (void)state;
    float *expected = gradients(m, &plain, &n);
    seen s = {.model = m};
    weft_hooks h = {.user = &s, .grad_ready = see_ready};
    weft_hooks *list[1] = {&h};
    const weft_run_options o = {.n_slots = 2, .hooks = list, .n_hooks = 1};
    weft_run *r = open_run(m, &o);
    weft_model_begin_step(m);
    for (int i = 0; i < 2; i++) {
        load(r, i, i);
        CHECK_OK(weft_run_forward(r, i));
    }
    for (int i = 0; i < 2; i++)
        CHECK_OK(weft_run_backward(r, i, WEFT_BACKWARD_BOTH));
    assert_memory_equal(m->grads, expected, (size_t)m->n_grad_elems * sizeof(float));
    for (int64_t i = 0; i < m->n_params; i++) {
        if (s.ready_of[i] != 2)
            fail_msg("%s was ready %d times in 2 micro-batches", m->params[i]->name, s.ready_of[i]);
    }
    free(expected);
    weft_run_destroy(r);
    weft_model_destroy(m);
    weft_ctx_destroy(ctx);
}

static void copy_rows(weft_view to, weft_view from, int64_t cols)
{
    assert_true(to.data != NULL && from.data != NULL);
    assert_int_equal(to.rows, ROWS);
    assert_int_equal(from.rows, ROWS);
    assert_int_equal(to.cols, cols);
    assert_int_equal(from.cols, cols);
    memcpy(to.data, from.data, (size_t)(ROWS * cols) * weft_dtype_bytes(from.dtype));
}

/* The list cut in two behind its second layer, as pipeline stages would have it: the parts' bits are those of the whole. */
static void check_cut(weft_dtype dtype, weft_recompute mode)
{
    const int64_t at = 2;
    weft_ctx *ctx = open_ctx(WEFT_BACKEND_CPU);
    weft_model *m = open_model(ctx, &llama, dtype);
    const weft_run_options plain = {.n_slots = 1, .recompute = mode};
    int64_t n = 0;
    float *expected = gradients(m, &plain, &n);
    weft_model lower = *m; /* views of one model: they own nothing */
    weft_model upper = *m;
    lower.n_layers = at;
    upper.layers = m->layers + at;
    upper.n_layers = m->n_layers - at;
    weft_run_options second = plain;
    second.input_cols = llama.hidden_size;
    weft_run *r1 = open_run(&lower, &plain);
    weft_run *r2 = open_run(&upper, &second);
    assert_null(weft_run_input(r1, 0).data);
    assert_null(weft_run_grad_input(r1).data);
    assert_null(weft_run_grad_output(r2).data);
    weft_model_begin_step(m);
    for (int i = 0; i < 2; i++) {
        load(r1, 0, i);
        load(r2, 0, i);
        CHECK_OK(weft_run_forward(r1, 0));
        copy_rows(weft_run_input(r2, 0), weft_run_output(r1, 0), llama.hidden_size);
        CHECK_OK(weft_run_forward(r2, 0));
        assert_null(weft_run_output(r2, 0).data);
        CHECK_OK(weft_run_backward(r2, 0, WEFT_BACKWARD_BOTH));
        copy_rows(weft_run_grad_output(r1), weft_run_grad_input(r2), llama.hidden_size);
        CHECK_OK(weft_run_backward(r1, 0, WEFT_BACKWARD_BOTH));
    }
    assert_memory_equal(m->grads, expected, (size_t)m->n_grad_elems * sizeof(float));
    assert_memory_equal(weft_run_losses(r2, 0).data, expected + m->n_grad_elems,
                        ROWS * sizeof(float));
    assert_null(weft_run_losses(r1, 0).data);
    free(expected);
    weft_run_destroy(r2);
    weft_run_destroy(r1);
    weft_model_destroy(m);
    weft_ctx_destroy(ctx);
}

static void test_nn_run__a_list_cut_in_two_gives_the_same_bits(void **state)
{
    (void)state;
    for (int mode = 0; mode < 3; mode++) {
        check_cut(WEFT_DTYPE_F32, (weft_recompute)mode);
        check_cut(WEFT_DTYPE_BF16, (weft_recompute)mode);
    }
}

static void test_nn_run__frozen_parameters_get_no_gradient(void **state)
{
    weft_ctx *ctx = open_ctx(WEFT_BACKEND_CPU);
    weft_model *all = open_model(ctx, &llama, WEFT_DTYPE_F32);
    const weft_run_options o = {.n_slots = 1};
    int64_t n = 0;
    (void)state;
    float *unused = gradients(all, &o, &n);
    weft_model *m = NULL;
    int64_t n_matched = 0;
    CHECK_OK(weft_model_from_config(&m, ctx, &llama, WEFT_DTYPE_F32));
    CHECK_OK(weft_model_freeze(m, "model.layers.1.*", &n_matched));
    assert_int_equal(n_matched, 13);
    CHECK_OK(weft_model_freeze(m, "*k_proj*", &n_matched));
    CHECK_OK(weft_model_freeze(m, "model.norm.weight", &n_matched));
    assert_int_equal(n_matched, 1);
    CHECK_OK(weft_model_allocate(m, true));
    CHECK_OK(weft_model_init_weights(m, 7));
    float *frozen = gradients(m, &o, &n);
    assert_true(m->n_grad_elems < all->n_grad_elems);
    for (int64_t i = 0; i < m->n_params; i++) {
        const weft_param *a = all->params[i];
        const weft_param *b = m->params[i];
        if (b->is_frozen) {
            assert_null(b->grad.data);
            continue;
        }
        const float *x = a->grad.data;
        const float *y = b->grad.data;
        for (int64_t k = 0; k < a->rows * a->cols; k++)
            CHECK_NEAR((double)x[k], (double)y[k], 1e-5);
    }
    free(unused);
    free(frozen);
    weft_model_destroy(m);
    weft_model_destroy(all);
    weft_ctx_destroy(ctx);
}

/* What a hook that communicates goes by, in order: layers, and the parameters whose gradients begin or end. */
typedef enum event_kind { LAYER_BEGIN, LAYER_END, GRAD_NEED, GRAD_READY } event_kind;

typedef struct event {
    event_kind kind;
    int64_t number; /* of the layer or parameter */
    int detail;     /* the pass; is_added */
} event;

typedef struct event_log {
    event list[1024];
    int n;
} event_log;

static weft_status note(void *user, event_kind kind, int64_t number, int detail)
{
    event_log *log = user;
    assert_true(log->n < 1024);
    log->list[log->n++] = (event){kind, number, detail};
    return WEFT_OK;
}

static weft_status note_begin(void *user, const weft_layer *l, weft_pass pass)
{
    return note(user, LAYER_BEGIN, l->number, (int)pass);
}

static weft_status note_end(void *user, const weft_layer *l, weft_pass pass)
{
    return note(user, LAYER_END, l->number, (int)pass);
}

static weft_status note_need(void *user, weft_param *p, weft_grad_target *t)
{
    assert_ptr_equal(t->view.data, p->grad.data);
    return note(user, GRAD_NEED, p->number, t->is_added ? 1 : 0);
}

static weft_status note_ready(void *user, weft_param *p)
{
    return note(user, GRAD_READY, p->number, 0);
}

/* The events but those of one kind: needs and readies may interleave, each in the same order and in the same layer. */
static void compare_without(const event_log *a, const event_log *b, event_kind kind)
{
    int j = 0;
    for (int i = 0; i < a->n; i++) {
        if (a->list[i].kind == kind)
            continue;
        while (j < b->n && b->list[j].kind == kind)
            j++;
        assert_true(j < b->n);
        if (a->list[i].kind != b->list[j].kind || a->list[i].number != b->list[j].number ||
            a->list[i].detail != b->list[j].detail)
            fail_msg("event %d: kind %d of %lld (%d), idle: kind %d of %lld (%d)", i,
                     (int)a->list[i].kind, (long long)a->list[i].number, a->list[i].detail,
                     (int)b->list[j].kind, (long long)b->list[j].number, b->list[j].detail);
        j++;
    }
}

static bool is_zero(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (x[i] != 0.0f)
            return false;
    }
    return true;
}

/* A real step of two micro-batches beside one whose rounds are all idle, and one whose second is. */
static void check_idle(const weft_config *c, const char *frozen, weft_recompute mode)
{
    weft_ctx *ctx = open_ctx(WEFT_BACKEND_CPU);
    weft_model *m = NULL;
    event_log *log = calloc(2, sizeof(*log));
    int64_t n = 0;
    assert_non_null(log);
    CHECK_OK(weft_model_from_config(&m, ctx, c, WEFT_DTYPE_F32));
    if (frozen != NULL) {
        CHECK_OK(weft_model_freeze(m, frozen, &n));
        assert_true(n > 0);
    }
    CHECK_OK(weft_model_allocate(m, true));
    CHECK_OK(weft_model_init_weights(m, 7));
    weft_hooks h = {.user = &log[0],
                    .grad_need = note_need,
                    .grad_ready = note_ready,
                    .layer_begin = note_begin,
                    .layer_end = note_end};
    weft_hooks *list[1] = {&h};
    const weft_run_options o = {.n_slots = 1, .recompute = mode, .hooks = list, .n_hooks = 1};
    free(gradients(m, &o, &n)); /* two micro-batches, all gradients written */
    assert_false(is_zero(m->grads, m->n_grad_elems));

    weft_run *r = open_run(m, &o);
    weft_alloc_count before[WEFT_MEM_COUNT];
    weft_alloc_count after;
    for (int k = 0; k < WEFT_MEM_COUNT; k++)
        weft_i_alloc_counts(ctx->alloc, (weft_mem)k, &before[k]);
    h.user = &log[1];
    weft_model_begin_step(m);
    weft_run_exec(r)->is_again = true; /* whatever was left there */
    for (int i = 0; i < 2; i++) {
        CHECK_OK(weft_run_idle(r, WEFT_PASS_FORWARD));
        assert_false(weft_run_exec(r)->is_again);
        CHECK_OK(weft_run_idle(r, WEFT_PASS_BACKWARD));
    }
    assert_int_equal(log[0].n, log[1].n);
    compare_without(&log[0], &log[1], GRAD_NEED);
    compare_without(&log[0], &log[1], GRAD_READY);
    assert_true(is_zero(m->grads, m->n_grad_elems));

    /* After a real micro-batch an idle pass changes no gradient. */
    weft_model_begin_step(m);
    load(r, 0, 0);
    CHECK_OK(weft_run_forward(r, 0));
    CHECK_OK(weft_run_backward(r, 0, WEFT_BACKWARD_BOTH));
    float *expected = malloc((size_t)m->n_grad_elems * sizeof(float));
    assert_non_null(expected);
    memcpy(expected, m->grads, (size_t)m->n_grad_elems * sizeof(float));
    CHECK_OK(weft_run_idle(r, WEFT_PASS_FORWARD));
    CHECK_OK(weft_run_idle(r, WEFT_PASS_BACKWARD));
    assert_memory_equal(m->grads, expected, (size_t)m->n_grad_elems * sizeof(float));
    for (int k = 0; k < WEFT_MEM_COUNT; k++) {
        weft_i_alloc_counts(ctx->alloc, (weft_mem)k, &after);
        assert_int_equal(after.n_calls, before[k].n_calls);
    }
    free(expected);
    weft_run_destroy(r);
    free(log);
    weft_model_destroy(m);
    weft_ctx_destroy(ctx);
}

static void test_nn_run__an_idle_pass_announces_what_a_real_one_does(void **state)
{
    weft_config plain = gpt2;
    (void)state;
    plain.is_tied = false;
    for (int mode = 0; mode < 3; mode++) {
        check_idle(&gpt2, NULL, (weft_recompute)mode);
        check_idle(&llama, NULL, (weft_recompute)mode);
    }
    check_idle(&plain, NULL, WEFT_RECOMPUTE_NONE);
    check_idle(&gpt2, "transformer.wte.weight", WEFT_RECOMPUTE_NONE);
    check_idle(&gpt2, "*.ln_1.*", WEFT_RECOMPUTE_NONE);
    check_idle(&gpt2, "*.bias", WEFT_RECOMPUTE_SELECTIVE);
    check_idle(&llama, "*k_proj*", WEFT_RECOMPUTE_NONE);
    check_idle(&llama, "model.layers.1.*", WEFT_RECOMPUTE_FULL);
    check_idle(&llama, "*norm*", WEFT_RECOMPUTE_NONE);
}

/* Every byte a dry run counts is the byte a real run takes, for every mode, family and type; workspace included. */
static void check_dry(const weft_config *c, weft_dtype dtype, weft_recompute mode, bool is_split)
{
    weft_alloc_count count[2][WEFT_MEM_COUNT];
    size_t peak[2] = {0, 0};
    double flops[2];
    for (int is_real = 0; is_real < 2; is_real++) {
        weft_ctx *ctx = open_ctx(is_real ? WEFT_BACKEND_CPU : WEFT_BACKEND_DRY);
        weft_model *m = open_model(ctx, c, dtype);
        const weft_run_options o = {.n_seqs = N_SEQS,
                                    .n_tokens = N_TOKENS,
                                    .n_slots = 2,
                                    .recompute = mode,
                                    .is_split = is_split,
                                    .workspace_bytes = peak[0]};
        weft_run *r = NULL;
        CHECK_OK(weft_run_create(&r, m, &o));
        weft_run_exec(r)->is_training = true;
        weft_model_begin_step(m);
        load(r, 1, 0);
        CHECK_OK(weft_run_forward(r, 1));
        if (is_split) {
            CHECK_OK(weft_run_backward(r, 1, WEFT_BACKWARD_INPUT));
            CHECK_OK(weft_run_backward(r, 1, WEFT_BACKWARD_WEIGHT));
        } else {
            CHECK_OK(weft_run_backward(r, 1, WEFT_BACKWARD_BOTH));
        }
        peak[is_real] = weft_run_workspace_peak(r);
        flops[is_real] = ctx->backend->n_flops;
        for (int k = 0; k < WEFT_MEM_COUNT; k++)
            weft_i_alloc_counts(ctx->alloc, (weft_mem)k, &count[is_real][k]);
        weft_run_destroy(r);
        weft_model_destroy(m);
        weft_ctx_destroy(ctx);
    }
    assert_int_equal(peak[0], peak[1]);
    assert_int_equal(count[1][WEFT_MEM_WORKSPACE].peak_bytes, peak[0]);
    CHECK_SAME_DOUBLE(flops[0], flops[1]);
    for (int k = 0; k < WEFT_MEM_COUNT; k++) {
        if (k != WEFT_MEM_WORKSPACE && k != WEFT_MEM_CONTROL)
            assert_int_equal(count[0][k].peak_bytes, count[1][k].peak_bytes);
    }
}

static void test_nn_run__dry_counts_what_is_taken(void **state)
{
    (void)state;
    for (int mode = 0; mode < 3; mode++) {
        for (int split = 0; split < 2; split++) {
            check_dry(&llama, WEFT_DTYPE_F32, (weft_recompute)mode, split == 1);
            check_dry(&llama, WEFT_DTYPE_BF16, (weft_recompute)mode, split == 1);
            check_dry(&gpt2, WEFT_DTYPE_F32, (weft_recompute)mode, split == 1);
            check_dry(&gpt2, WEFT_DTYPE_BF16, (weft_recompute)mode, split == 1);
        }
    }
}

static void test_nn_run__a_batch_that_does_not_fit_is_refused(void **state)
{
    weft_ctx *ctx = open_ctx(WEFT_BACKEND_CPU);
    weft_model *m = open_model(ctx, &llama, WEFT_DTYPE_F32);
    weft_run *r = NULL;
    const int32_t ids[ROWS + N_SEQS] = {0};
    const weft_run_options o = {.n_seqs = N_SEQS, .n_tokens = N_TOKENS, .n_slots = 1};
    const weft_host_batch long_batch = {.n_seqs = N_SEQS, .n_tokens = N_TOKENS + 1, .ids = ids};
    const int32_t far[2] = {0, N_TOKENS};
    const weft_host_batch far_batch = {.n_seqs = 1, .n_tokens = 2, .ids = ids, .positions = far};
    (void)state;
    CHECK_OK(weft_run_create(&r, m, &o));
    CHECK_FAILS(weft_run_load(r, 0, &long_batch), WEFT_STATUS_ARG, "3 x 8");
    CHECK_FAILS(weft_run_load(r, 1, &far_batch), WEFT_STATUS_ARG, "slot 1");
    CHECK_FAILS(weft_run_load(r, 0, &far_batch), WEFT_STATUS_ARG, "position 7");
    weft_run_destroy(r);
    weft_model_destroy(m);
    weft_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nn_run__modes_give_the_same_bits),
        cmocka_unit_test(test_nn_run__gradients_are_slopes_with_dropout),
        cmocka_unit_test(test_nn_run__a_feed_forward_width_of_one_is_a_matrix),
        cmocka_unit_test(test_nn_run__hooks_see_every_use_once_and_change_nothing),
        cmocka_unit_test(test_nn_run__two_in_flight_are_ready_once_each),
        cmocka_unit_test(test_nn_run__a_list_cut_in_two_gives_the_same_bits),
        cmocka_unit_test(test_nn_run__frozen_parameters_get_no_gradient),
        cmocka_unit_test(test_nn_run__an_idle_pass_announces_what_a_real_one_does),
        cmocka_unit_test(test_nn_run__dry_counts_what_is_taken),
        cmocka_unit_test(test_nn_run__a_batch_that_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
