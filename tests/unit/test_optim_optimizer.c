/*
 * Optimizers on spans, against the formulas worked out here in double: decay per span, master weights, memory; and the
 * norm and factor of clipping. On the plain-loop backend.
 */
#include "check.h"

#include "base/ctx.h"
#include "optim/clip.h"
#include "optim/optimizer.h"
#include "tensor/convert.h"

#include <math.h>

#define N_A 5
#define N_B 3
#define N (N_A + N_B)

static const float start[N] = {1.0f, -2.0f, 0.5f, 3.0f, -0.25f, 1.5f, -1.0f, 0.75f};
static const float grads[3][N] = {
    {0.1f, -0.2f, 0.3f, 0.0f, 1.0f, -1.0f, 0.5f, 0.25f},
    {-0.1f, 0.4f, 0.3f, 0.0f, -2.0f, 1.0f, 0.5f, 0.125f},
    {0.7f, 0.2f, -0.3f, 1e-3f, 0.5f, 3.0f, -0.5f, 2.0f},
};

static weft_ctx *open_ctx(void)
{
    weft_ctx *ctx = NULL;
    const weft_ctx_options o = {.backend = WEFT_BACKEND_REFERENCE, .n_threads = 1};
    CHECK_OK(weft_ctx_create(&ctx, &o));
    return ctx;
}

/* One array of weights and one of gradients as two spans: the first decays. */
static void make_spans(weft_span *span, void *value, weft_dtype dtype, float *grad)
{
    const weft_view v = weft_view_make(value, dtype, 1, N);
    const weft_view g = weft_view_make(grad, WEFT_DTYPE_F32, 1, N);
    span[0] = (weft_span){weft_view_cols(v, 0, N_A), weft_view_cols(g, 0, N_A), 0, true};
    span[1] = (weft_span){weft_view_cols(v, N_A, N_B), weft_view_cols(g, N_A, N_B), N_A, false};
}

/* AdamW as the paper and PyTorch state it, in double. */
static void adamw_by_hand(double *p, double *m, double *v, int step, double decay, double scale)
{
    const double lr = 0.01, b1 = 0.9, b2 = 0.95, eps = 1e-8;
    for (int i = 0; i < N; i++) {
        const double g = (double)grads[step - 1][i] * scale;
        p[i] *= 1.0 - lr * (i < N_A ? decay : 0.0);
        m[i] = b1 * m[i] + (1.0 - b1) * g;
        v[i] = b2 * v[i] + (1.0 - b2) * g * g;
        p[i] -=
            lr * (m[i] / (1.0 - pow(b1, step))) / (sqrt(v[i]) / sqrt(1.0 - pow(b2, step)) + eps);
    }
}

static void run_adamw(weft_dtype dtype, double tolerance)
{
    weft_ctx *ctx = open_ctx();
    float value[N], grad[N];
    uint16_t half[N];
    double p[N], m[N] = {0}, v[N] = {0};
    weft_span span[2];
    for (int i = 0; i < N; i++) {
        value[i] = start[i];
        half[i] = weft_i_f32_to_bf16(start[i]);
        p[i] = (double)start[i];
    }
    const bool is_half = dtype == WEFT_DTYPE_BF16;
    make_spans(span, is_half ? (void *)half : (void *)value, dtype, grad);
    const weft_optimizer_options options = {.kind = WEFT_OPTIMIZER_ADAMW,
                                            .beta1 = 0.9,
                                            .beta2 = 0.95,
                                            .eps = 1e-8,
                                            .weight_decay = 0.5};
    weft_optimizer *o = NULL;
    CHECK_OK(weft_i_optimizer_create(&o, ctx, &options, span, 2, N));
    CHECK_OK(weft_i_optimizer_fill_master(o, NULL));
    assert_int_equal(o->state[WEFT_STATE_MASTER].data != NULL, is_half);
    weft_alloc_count count;
    weft_i_alloc_counts(ctx->alloc, WEFT_MEM_OPTIMIZER, &count);
    assert_int_equal(count.now_bytes, (is_half ? 3u : 2u) * 64u); /* N floats fill half a line */
    const uint64_t n_calls = count.n_calls;
    for (int step = 1; step <= 3; step++) {
        memcpy(grad, grads[step - 1], sizeof(grad));
        const weft_optimizer_step s = {.step = step, .lr = 0.01, .grad_scale = 0.5};
        CHECK_OK(weft_i_optimizer_apply(o, NULL, &s));
        adamw_by_hand(p, m, v, step, 0.5, 0.5);
    }
    const float *master = o->state[WEFT_STATE_MASTER].data;
    for (int i = 0; i < N; i++) {
        CHECK_NEAR(is_half ? (double)master[i] : (double)value[i], p[i], tolerance);
        if (is_half)
            assert_int_equal(half[i], weft_i_f32_to_bf16(master[i]));
    }
    weft_i_alloc_counts(ctx->alloc, WEFT_MEM_OPTIMIZER, &count);
    assert_int_equal(count.n_calls, n_calls);
    weft_i_optimizer_destroy(o);
    weft_ctx_destroy(ctx);
}

static void test_optim_optimizer__adamw_fp32(void **state)
{
    (void)state;
    run_adamw(WEFT_DTYPE_F32, 1e-6);
}

static void test_optim_optimizer__adamw_bf16_steps_the_master_weights(void **state)
{
    (void)state;
    run_adamw(WEFT_DTYPE_BF16, 1e-6); /* the start values are exact in bf16 */
}

static void test_optim_optimizer__sgd_with_momentum(void **state)
{
    (void)state;
    weft_ctx *ctx = open_ctx();
    float value[N], grad[N];
    double p[N], m[N] = {0};
    weft_span span[2];
    for (int i = 0; i < N; i++) {
        value[i] = start[i];
        p[i] = (double)start[i];
    }
    make_spans(span, value, WEFT_DTYPE_F32, grad);
    const weft_optimizer_options options = {
        .kind = WEFT_OPTIMIZER_SGD, .momentum = 0.9, .weight_decay = 0.1};
    weft_optimizer *o = NULL;
    CHECK_OK(weft_i_optimizer_create(&o, ctx, &options, span, 2, N));
    for (int step = 1; step <= 3; step++) {
        memcpy(grad, grads[step - 1], sizeof(grad));
        const weft_optimizer_step s = {.step = step, .lr = 0.1, .grad_scale = 1.0};
        CHECK_OK(weft_i_optimizer_apply(o, NULL, &s));
        for (int i = 0; i < N; i++) {
            const double g = (double)grads[step - 1][i] + (i < N_A ? 0.1 : 0.0) * p[i];
            m[i] = 0.9 * m[i] + g;
            p[i] -= 0.1 * m[i];
        }
    }
    for (int i = 0; i < N; i++)
        CHECK_NEAR((double)value[i], p[i], 1e-6);
    weft_i_optimizer_destroy(o);
    weft_ctx_destroy(ctx);
}

static void test_optim_optimizer__plain_sgd_keeps_nothing(void **state)
{
    (void)state;
    weft_ctx *ctx = open_ctx();
    float value[N], grad[N];
    weft_span span[2];
    memcpy(value, start, sizeof(value));
    memcpy(grad, grads[0], sizeof(grad));
    make_spans(span, value, WEFT_DTYPE_F32, grad);
    const weft_optimizer_options options = {.kind = WEFT_OPTIMIZER_SGD};
    weft_optimizer *o = NULL;
    CHECK_OK(weft_i_optimizer_create(&o, ctx, &options, span, 2, N));
    weft_alloc_count count;
    weft_i_alloc_counts(ctx->alloc, WEFT_MEM_OPTIMIZER, &count);
    assert_int_equal(count.now_bytes, 0);
    const weft_optimizer_step s = {.step = 1, .lr = 0.5, .grad_scale = 2.0};
    CHECK_OK(weft_i_optimizer_apply(o, NULL, &s));
    for (int i = 0; i < N; i++)
        CHECK_NEAR((double)value[i], (double)start[i] - (double)grads[0][i], 1e-6);
    weft_i_optimizer_destroy(o);
    weft_ctx_destroy(ctx);
}

static void test_optim_optimizer__bad_options_are_refused(void **state)
{
    (void)state;
    weft_optimizer_kind kind;
    CHECK_FAILS(weft_i_optimizer_kind_from_name(&kind, "adam"), WEFT_STATUS_ARG, "adam");
    weft_optimizer_options o = {.beta1 = 0.9, .beta2 = 1.0};
    CHECK_FAILS(weft_i_optimizer_check(&o), WEFT_STATUS_ARG, "adam_beta2 1");
    o = (weft_optimizer_options){.eps = 0.0};
    CHECK_FAILS(weft_i_optimizer_check(&o), WEFT_STATUS_ARG, "adam_eps 0");
    o = (weft_optimizer_options){.eps = 1e-8, .weight_decay = -1.0};
    CHECK_FAILS(weft_i_optimizer_check(&o), WEFT_STATUS_ARG, "weight_decay -1");
    o = (weft_optimizer_options){.kind = WEFT_OPTIMIZER_SGD, .momentum = (double)NAN};
    CHECK_FAILS(weft_i_optimizer_check(&o), WEFT_STATUS_ARG, "sgd_momentum");
}

static void test_optim_optimizer__clipping(void **state)
{
    (void)state;
    weft_ctx *ctx = open_ctx();
    float a[2] = {3.0f, 4.0f};
    float b[3] = {1e25f, 0.0f, 12.0f};
    weft_sum sum;
    weft_i_sum_init(&sum);
    CHECK_OK(
        weft_i_clip_add_squares(&sum, ctx->backend, NULL, weft_view_make(a, WEFT_DTYPE_F32, 1, 2)));
    CHECK_SAME_DOUBLE(weft_i_clip_norm(&sum), 5.0);
    CHECK_SAME_DOUBLE(weft_i_clip_scale(5.0, 0.0), 1.0);
    CHECK_SAME_DOUBLE(weft_i_clip_scale(5.0, 10.0), 1.0);
    CHECK_SAME_DOUBLE(weft_i_clip_scale(5.0, 1.0), 1.0 / (5.0 + 1e-6));
    /* A square that a float could not hold is no overflow here. */
    CHECK_OK(
        weft_i_clip_add_squares(&sum, ctx->backend, NULL, weft_view_make(b, WEFT_DTYPE_F32, 1, 3)));
    CHECK_NEAR(weft_i_clip_norm(&sum) / (double)b[0], 1.0, 1e-12);
    a[0] = NAN;
    CHECK_OK(
        weft_i_clip_add_squares(&sum, ctx->backend, NULL, weft_view_make(a, WEFT_DTYPE_F32, 1, 2)));
    assert_true(isnan(weft_i_clip_norm(&sum)));
    weft_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_optim_optimizer__adamw_fp32),
        cmocka_unit_test(test_optim_optimizer__adamw_bf16_steps_the_master_weights),
        cmocka_unit_test(test_optim_optimizer__sgd_with_momentum),
        cmocka_unit_test(test_optim_optimizer__plain_sgd_keeps_nothing),
        cmocka_unit_test(test_optim_optimizer__bad_options_are_refused),
        cmocka_unit_test(test_optim_optimizer__clipping),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
