/*
 * Five AdamW steps against PyTorch's: losses, gradient norms, parameters and moments (tests/golden/README.md has the
 * bounds and why parameters need their own).
 */
#include "golden.h"
#include "one_rank.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/ctx.h"
#include "train/plan.h"
#include "train/trainer.h"

#define STEPS 5

typedef struct setup {
    golden g;
    weft_ctx *ctx;
    weft_mesh *mesh;
    weft_source source;
    weft_trainer *trainer;
    int64_t n_seqs, n_tokens;
    int32_t *ids, *targets;
    float *values; /* of one parameter */
} setup;

static void *take(setup *u, int64_t n, size_t size)
{
    void *block = NULL;
    expect_ok(weft_i_alloc_new(u->ctx->alloc, (size_t)n, size, &block));
    return block;
}

static void open_setup(setup *u, void **state, const char *model, weft_backend_kind backend)
{
    const weft_ctx_options options = {.backend = backend, .n_threads = 2};
    char folder[512];
    weft_train_options o;
    weft_train_settings settings;
    weft_train_plan plan;

    memset(u, 0, sizeof(*u));
    golden_open(&u->g, *state, model, "golden.safetensors");
    expect_ok(weft_ctx_create(&u->ctx, &options));
    u->mesh = one_rank_mesh(u->ctx);
    expect_ok(
        weft_i_source_open(&u->source, u->ctx, golden_folder(&u->g, GOLDEN_NEW, folder), "fp32"));
    const weft_st_tensor *ids = golden_tensor(&u->g, "train.input_ids");
    assert_int_equal(ids->shape.dim[0], STEPS);
    u->n_seqs = ids->shape.dim[1];
    u->n_tokens = ids->shape.dim[2];
    weft_train_options_init(&o);
    o.layout.micro_batch_size = u->n_seqs;
    o.layout.global_batch_size = u->n_seqs;
    o.seq_length = u->n_tokens;
    o.train_steps = STEPS;
    o.lr_schedule = "constant";
    o.weight_decay = 0.1;
    o.adam_beta1 = 0.9;
    o.adam_beta2 = 0.95;
    o.adam_eps = 1e-8;
    o.clip_grad = 1.0;
    expect_ok(weft_i_train_settings_make(&settings, &o, &u->source.hf.config));
    expect_ok(weft_i_train_plan_make(&plan, u->mesh, &u->source, &settings, NULL));
    expect_ok(
        weft_i_trainer_create(&u->trainer, u->mesh, &u->source, &settings, plan.workspace_bytes));
    u->ids = take(u, u->n_seqs * u->n_tokens, sizeof(int32_t));
    u->targets = take(u, u->n_seqs * u->n_tokens, sizeof(int32_t));
    u->values = take(u, 65536, sizeof(float));
}

static void close_setup(setup *u)
{
    weft_i_alloc_put(u->ctx->alloc, u->ids);
    weft_i_alloc_put(u->ctx->alloc, u->targets);
    weft_i_alloc_put(u->ctx->alloc, u->values);
    weft_i_trainer_destroy(u->trainer);
    weft_i_source_close(&u->source, u->ctx);
    weft_i_mesh_destroy(u->mesh);
    weft_ctx_destroy(u->ctx);
    golden_close(&u->g);
}

static void run_step(setup *u, int64_t step)
{
    const weft_st_tensor *ids = golden_tensor(&u->g, "train.input_ids");
    const int64_t n = u->n_seqs * u->n_tokens;
    const weft_train_batch batch = {
        .n_seqs = u->n_seqs, .n_tokens = u->n_tokens, .ids = u->ids, .targets = u->targets};
    weft_train_outcome out;

    for (int64_t i = 0; i < n; i++) {
        const int64_t at = step * n + i;
        u->ids[i] = (int32_t)tensor_at(ids, at);
        u->targets[i] = (i + 1) % u->n_tokens == 0 ? -100 : (int32_t)tensor_at(ids, at + 1);
    }
    u->trainer->settings.schedule.lr = tensor_at(golden_tensor(&u->g, "train.lr"), step);
    expect_ok(weft_i_trainer_step(u->trainer, step + 1, &batch, &out));
    const double loss = tensor_at(golden_tensor(&u->g, "train.loss.f64"), step);
    const double norm = tensor_at(golden_tensor(&u->g, "train.grad_norm.f64"), step);
    if (!(fabs(out.loss - loss) <= 5e-6) || !(fabs(out.grad_norm - norm) <= 5e-5))
        fail_msg("step %lld: loss %.9f, should be %.9f; gradient norm %.9f, should be %.9f",
                 (long long)step + 1, out.loss, loss, out.grad_norm, norm);
}

/* Largest difference of one parameter's values (or state) from PyTorch's; counts those over 1e-4. */
static double
compare(setup *u, const weft_param *p, weft_view v, const char *prefix, int64_t *n_over)
{
    char name[256];
    const int64_t n = p->rows * p->cols;
    weft_backend *b = u->ctx->backend;
    double worst = 0.0;

    (void)snprintf(name, sizeof(name), "%s/%s", prefix, p->name);
    const weft_st_tensor *want = golden_tensor(&u->g, name);
    assert_int_equal(want->n_elems, n);
    assert_true(n <= 65536);
    expect_ok(b->ops->copy_to_host(b, u->values, v.data, (size_t)n * sizeof(float)));
    for (int64_t i = 0; i < n; i++) {
        const double d = fabs((double)u->values[i] - tensor_at(want, i));
        if (golden_is_null(&u->g, p->name, i))
            continue;
        worst = fmax(worst, d);
        *n_over += !(d <= 1e-4);
    }
    return worst;
}

static void check_state(setup *u)
{
    const weft_optimizer *o = u->trainer->optimizer;
    weft_model *m = u->trainer->model;
    int64_t n_over = 0;
    int64_t n_elems = 0;
    int64_t unused = 0;

    for (int64_t i = 0; i < weft_model_param_count(m); i++) {
        const weft_param *p = weft_model_param(m, i);
        const int64_t n = p->rows * p->cols;
        const double worst = compare(u, p, p->value, "after.param.f32", &n_over);
        if (!(worst <= 5e-3))
            fail_msg("%s after %d steps is off by %.3g", p->name, STEPS, worst);
        const weft_view m1 = weft_i_optimizer_state(o, WEFT_STATE_EXP_AVG, p->grad_first, n);
        const weft_view m2 = weft_i_optimizer_state(o, WEFT_STATE_EXP_AVG_SQ, p->grad_first, n);
        const double first = compare(u, p, m1, "after.exp_avg.f32", &unused);
        const double second = compare(u, p, m2, "after.exp_avg_sq.f32", &unused);
        if (!(first <= 1e-6) || !(second <= 1e-7))
            fail_msg("moments of %s are off by %.3g and %.3g", p->name, first, second);
        n_elems += n;
    }
    if (!(n_over * 1000 <= n_elems))
        fail_msg("%lld of %lld elements are off by more than 1e-4", (long long)n_over,
                 (long long)n_elems);
}

static void check_model(void **state, const char *model, weft_backend_kind backend)
{
    setup u;
    open_setup(&u, state, model, backend);
    for (int64_t k = 0; k < STEPS; k++)
        run_step(&u, k);
    check_state(&u);
    close_setup(&u);
}

static void test_golden_train__gpt2_on_cpu(void **state)
{
    check_model(state, "gpt2", WEFT_BACKEND_CPU);
}

static void test_golden_train__gpt2_on_reference(void **state)
{
    check_model(state, "gpt2", WEFT_BACKEND_REFERENCE);
}

static void test_golden_train__llama_on_cpu(void **state)
{
    check_model(state, "llama", WEFT_BACKEND_CPU);
}

static void test_golden_train__llama_on_reference(void **state)
{
    check_model(state, "llama", WEFT_BACKEND_REFERENCE);
}

int main(void)
{
#define RUN(test)                                                                                  \
    cmocka_unit_test_setup_teardown(test_golden_train__##test, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {RUN(gpt2_on_cpu), RUN(gpt2_on_reference), RUN(llama_on_cpu),
                                       RUN(llama_on_reference)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
