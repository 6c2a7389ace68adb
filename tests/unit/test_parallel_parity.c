/*
 * Every layout against one rank, and against PyTorch's float64 values: gradients, weights after SGD, weights after AdamW.
 *
 * Bounds
 *   gradients     3e-5 of the tensor's largest, in both types. Forward and backward of a row do not depend on the rows
 *                 beside it, so layouts differ in the order of fp32 additions alone; in bf16 what is added are the same
 *                 products. N additions in two orders are off by at most 2 N 2^-24 sum |terms|; measured: 3.4e-7, or 2.2e-6
 *                 where a product over other rows takes another kernel.
 *   SGD, fp32     5 steps at lr 0.01: 1e-5 (5 x 0.01 x 3e-5 x the largest gradient is below it).
 *   SGD, bf16     of the masters: 1e-5 + 5 x 0.01 x 2^-7 x G, G the largest gradient. Masters that differ in the last bit may
 *                 round to neighbours, 2^-8 of a weight apart; gradients of the next step then differ by about 2^-8 of
 *                 theirs, twice that at most. Weights: that, and the step of bf16 there (2^-7 of the weight).
 *   AdamW, fp32   99.9 % within 1e-4, all within 5e-3, GPT-2's key biases left out (tests/golden/README.md).
 *   AdamW, bf16   of the masters: a weight that rounds to its neighbour moves gradients by 2^-8 of theirs, and where a
 *                 gradient is no larger than that, AdamW may step either way, by about lr: all within 2 x lr x steps; and 99 %
 *                 within 1e-4.
 */
#include "golden.h"
#include "ranks_case.h"

#include <math.h>

#define STEPS 5
#define GRADIENT_BOUND 3e-5
#define SGD_BOUND 1e-5

typedef struct variant {
    const odd_model *model;
    ranks_layout layout;
    int64_t n_seqs, micro_batch;
} variant;

static void setup(ranks_case *c, scratch *s, const odd_model *m, const char *dtype, bool is_sgd)
{
    ranks_case_init(c, s, m);
    c->options.layout.dtype = dtype;
    c->options.weight_decay = 0.1;
    if (is_sgd) {
        c->options.optimizer = "sgd";
        c->options.lr = 0.01;
        c->options.clip_grad = 0.0;
    }
}

static double largest_gradient(const ranks_result *r)
{
    double largest = 0.0;
    for (int64_t i = 0; i < r->n_elems; i++)
        largest = fmax(largest, fabs((double)r->grad[i]));
    return largest;
}

static bool near_sgd(const ranks_result *one, const ranks_result *r, bool is_bf16, char why[256])
{
    if (!is_bf16)
        return ranks_near_weights(one, r, SGD_BOUND, why);
    const float *a = one->state[WEFT_STATE_MASTER], *b = r->state[WEFT_STATE_MASTER];
    const double bound = SGD_BOUND + 5.0 * 0.01 * ldexp(largest_gradient(one), -7);
    for (int64_t i = 0; i < one->n_elems; i++) {
        const double d = fabs((double)a[i] - (double)b[i]);
        const double w = fabs((double)one->weight[i] - (double)r->weight[i]);
        (void)snprintf(why, 256, "master %lld differs by %.3g, weight by %.3g; at most %.3g",
                       (long long)i, d, w, bound);
        if (!(d <= bound) || !(w <= bound + ldexp(fabs((double)one->weight[i]), -7)))
            return false;
    }
    return true;
}

/* One rank on the same batches, in micro-batches of all sequences or of the same size; then the layout. */
static void check_variant(scratch *s, const variant *v, bool is_bf16, bool is_sgd)
{
    static const ranks_layout alone = {.dp = 1};
    ranks_case c;
    ranks_result one, r;
    char why[256], text[128];
    bool is_near = true;
    setup(&c, s, v->model, is_bf16 ? "bf16" : "fp32", is_sgd);
    ranks_case_batches(&c, v->model->vocab, v->n_seqs, STEPS, 5);
    c.options.layout.micro_batch_size = is_bf16 ? v->micro_batch : v->n_seqs;
    ranks_case_apply(&c, &alone);
    ranks_case_run(&one, &c);
    c.options.layout.micro_batch_size = v->micro_batch;
    ranks_case_apply(&c, &v->layout);
    ranks_case_run(&r, &c);
    is_near = ranks_near_gradients(&one, &r, GRADIENT_BOUND, why) && ranks_all_moved(&r, why);
    if (is_near && is_sgd)
        is_near = near_sgd(&one, &r, is_bf16, why);
    else if (is_near)
        is_near = is_bf16 ? ranks_near_adamw_bf16(&one, &r, c.options.lr, why)
                          : ranks_near_adamw(&one, &r, why);
    if (!is_near)
        fail_msg("%s %s %s, %d sequences in %d, %s: %s", v->model->name, is_bf16 ? "bf16" : "fp32",
                 is_sgd ? "sgd" : "adamw", (int)v->n_seqs, (int)v->micro_batch,
                 ranks_layout_text(&v->layout, text), why);
    for (int i = 0; i < STEPS && !is_bf16; i++)
        CHECK_NEAR(r.outcome[i].loss / one.outcome[i].loss, 1.0, 1e-5);
    ranks_result_fini(&one);
    ranks_result_fini(&r);
    ranks_case_fini(&c);
}

/* Every dp, stage and recompute mode with every model, each pair at least once; both types and both optimizers. */
static const variant variants[] = {
    {&odd_llama, {.dp = 2, .stage = 0, .recompute = "full"}, 7, 1},
    {&odd_llama, {.dp = 3, .stage = 1, .recompute = "selective"}, 7, 2},
    {&odd_llama, {.dp = 4, .stage = 2}, 4, 1},
    {&odd_llama, {.dp = 8, .stage = 3, .recompute = "full"}, 9, 1},
    {&odd_tied, {.dp = 2, .stage = 1}, 5, 2},
    {&odd_tied, {.dp = 3, .stage = 2, .recompute = "full"}, 7, 1},
    {&odd_tied, {.dp = 4, .stage = 3, .recompute = "selective"}, 7, 1},
    {&odd_tied, {.dp = 8, .stage = 0}, 3, 1},
    {&odd_gpt2, {.dp = 2, .stage = 2, .recompute = "selective"}, 4, 2},
    {&odd_gpt2, {.dp = 3, .stage = 3}, 8, 1},
    {&odd_gpt2, {.dp = 4, .stage = 0, .recompute = "full"}, 9, 2},
    {&odd_gpt2, {.dp = 8, .stage = 1, .recompute = "selective"}, 8, 1},
    {&odd_gpt2_dropout, {.dp = 2, .stage = 3, .recompute = "full"}, 7, 2},
    {&odd_gpt2_dropout, {.dp = 3, .stage = 0, .recompute = "selective"}, 5, 1},
    {&odd_gpt2_dropout, {.dp = 4, .stage = 1}, 6, 1},
    {&odd_gpt2_dropout, {.dp = 8, .stage = 2, .recompute = "full"}, 8, 1},
    {&odd_llama_frozen, {.dp = 3, .stage = 3}, 5, 1},
    {&odd_gpt2_frozen, {.dp = 4, .stage = 2}, 5, 1},
    {&odd_small, {.dp = 8, .stage = 3}, 5, 1},
    {&odd_three, {.dp = 8, .stage = 1}, 8, 1},
    {&odd_three, {.dp = 8, .stage = 2}, 9, 1},
};

static void check_all(scratch *s, bool is_bf16, bool is_sgd)
{
    for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++)
        check_variant(s, &variants[i], is_bf16, is_sgd);
}

static void test_parallel_parity__sgd(void **state)
{
    check_all(*state, false, true);
}

static void test_parallel_parity__adamw(void **state)
{
    check_all(*state, false, false);
}

static void test_parallel_parity__bf16_sgd(void **state)
{
    check_all(*state, true, true);
}

static void test_parallel_parity__bf16_adamw(void **state)
{
    check_all(*state, true, false);
}

/* ---- against PyTorch ---- */

/* A golden model, with one batch [1 or 5, B, T] a step from its ids, targets shifted. */
static void setup_golden(ranks_case *c, golden *g, scratch *s, const char *name, const char *ids)
{
    char folder[512];
    golden_open(g, s, name, "golden.safetensors");
    const weft_st_tensor *t = golden_tensor(g, ids);
    const bool has_steps = t->shape.n_dims == 3;
    const int n_steps = has_steps ? (int)t->shape.dim[0] : 1;
    const int64_t n_seqs = t->shape.dim[has_steps ? 1 : 0];
    setup(c, s, NULL, "fp32", false);
    (void)snprintf(c->model, sizeof(c->model), "%s", golden_folder(g, GOLDEN_NEW, folder));
    c->options.seq_length = t->shape.dim[has_steps ? 2 : 1];
    c->options.dropout = 0.0;
    ranks_case_batches(c, 2, n_seqs, n_steps, 1);
    for (int k = 0; k < n_steps; k++) {
        int32_t *in = (int32_t *)(uintptr_t)c->batch[k].ids; /* the case's own */
        int32_t *out = (int32_t *)(uintptr_t)c->batch[k].targets;
        const int64_t n = n_seqs * c->options.seq_length;
        for (int64_t i = 0; i < n; i++) {
            const bool is_last = (i + 1) % c->options.seq_length == 0;
            in[i] = (int32_t)tensor_at(t, k * n + i);
            out[i] = is_last ? -100 : (int32_t)tensor_at(t, k * n + i + 1);
        }
    }
}

static void check_golden_gradients(golden *g, const ranks_result *r, const char *what)
{
    for (int i = 0; i < r->n_params; i++) {
        const ranks_param *p = &r->param[i];
        char name[256];
        double largest = 0.0;
        (void)snprintf(name, sizeof(name), "grad.f64/%s", p->name);
        const weft_st_tensor *want = golden_tensor(g, name);
        assert_int_equal(want->n_elems, p->n);
        for (int64_t j = 0; j < p->n; j++)
            largest = fmax(largest, fabs(tensor_at(want, j)));
        for (int64_t j = 0; j < p->n; j++) {
            const double d = fabs((double)r->grad[p->first + j] - tensor_at(want, j));
            if (!(d <= GRADIENT_BOUND * largest))
                fail_msg("%s, %s: gradient of %s[%lld] is off by %.3g, largest %.3g", g->name, what,
                         p->name, (long long)j, d, largest);
        }
    }
}

/* Gradients of PyTorch's float64 run, on 2, 3, 4 and 8 ranks, a sequence a micro-batch. */
static void test_parallel_parity__gradients_are_pytorchs(void **state)
{
    static const struct {
        const char *name;
        ranks_layout layout[4];
    } cases[] = {
        {"gpt2", {{.dp = 2}, {.dp = 3, .stage = 1}, {.dp = 4, .stage = 3}, {.dp = 8, .stage = 2}}},
        {"llama", {{.dp = 2, .stage = 3}, {.dp = 3}, {.dp = 4, .stage = 1}, {.dp = 8, .stage = 2}}},
        {"gpt2_odd",
         {{.dp = 2, .stage = 2}, {.dp = 3, .stage = 3}, {.dp = 4}, {.dp = 8, .stage = 1}}},
        {"llama_odd",
         {{.dp = 2, .stage = 1}, {.dp = 3, .stage = 2}, {.dp = 4, .stage = 3}, {.dp = 8}}},
        {"gpt2_other", {{.dp = 2, .stage = 3}, {.dp = 3, .stage = 1}}},
        {"llama_bias", {{.dp = 2, .stage = 2}, {.dp = 3, .stage = 3}}},
        {"llama3_rope", {{.dp = 2}, {.dp = 8, .stage = 3}}},
        {"rope_yarn", {{.dp = 2, .stage = 3}}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (int k = 0; k < 4 && cases[i].layout[k].dp > 0; k++) {
            golden g;
            ranks_case c;
            ranks_result r;
            char text[128];
            setup_golden(&c, &g, *state, cases[i].name, "input_ids");
            ranks_case_apply(&c, &cases[i].layout[k]);
            ranks_case_run(&r, &c);
            check_golden_gradients(&g, &r, ranks_layout_text(&cases[i].layout[k], text));
            CHECK_NEAR(r.outcome[0].loss, tensor_at(golden_tensor(&g, "loss.f64"), 0), 5e-6);
            ranks_result_fini(&r);
            ranks_case_fini(&c);
            golden_close(&g);
        }
    }
}

static void check_golden_training(scratch *s, const char *name, const ranks_layout *l)
{
    golden g;
    ranks_case c;
    ranks_result r;
    int64_t n_over = 0;
    char text[128], key[256];
    setup_golden(&c, &g, s, name, "train.input_ids");
    c.has_lr = true;
    for (int k = 0; k < c.n_steps; k++)
        c.lr[k] = tensor_at(golden_tensor(&g, "train.lr"), k);
    ranks_case_apply(&c, l);
    ranks_case_run(&r, &c);
    for (int k = 0; k < c.n_steps; k++) {
        CHECK_NEAR(r.outcome[k].loss, tensor_at(golden_tensor(&g, "train.loss.f64"), k), 5e-6);
        CHECK_NEAR(r.outcome[k].grad_norm, tensor_at(golden_tensor(&g, "train.grad_norm.f64"), k),
                   5e-5);
    }
    for (int i = 0; i < r.n_params; i++) {
        const ranks_param *p = &r.param[i];
        (void)snprintf(key, sizeof(key), "after.param.f32/%s", p->name);
        const weft_st_tensor *want = golden_tensor(&g, key);
        for (int64_t j = 0; j < p->n; j++) {
            const double d = fabs((double)r.weight[p->first + j] - tensor_at(want, j));
            if (golden_is_null(&g, p->name, j))
                continue;
            if (!(d <= 5e-3))
                fail_msg("%s, %s: %s[%lld] is off by %.3g", name, ranks_layout_text(l, text),
                         p->name, (long long)j, d);
            n_over += d <= 1e-4 ? 0 : 1;
        }
    }
    if (n_over * 1000 > r.n_elems)
        fail_msg("%s, %s: %lld of %lld weights are off by over 1e-4", name,
                 ranks_layout_text(l, text), (long long)n_over, (long long)r.n_elems);
    ranks_result_fini(&r);
    ranks_case_fini(&c);
    golden_close(&g);
}

/* Five steps of PyTorch's AdamW. */
static void test_parallel_parity__training_is_pytorchs(void **state)
{
    static const ranks_layout layouts[] = {
        {.dp = 2},
        {.dp = 2, .stage = 3, .recompute = "full"},
        {.dp = 3, .stage = 1},
        {.dp = 4, .stage = 2, .recompute = "selective"},
        {.dp = 8, .stage = 3},
        {.dp = 2, .stage = 1, .is_reproducible = true},
    };
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
        check_golden_training(*state, "gpt2", &layouts[i]);
        check_golden_training(*state, "llama", &layouts[i]);
    }
}

#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(test_parallel_parity__##name, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(sgd),
        TEST(adamw),
        TEST(bf16_sgd),
        TEST(bf16_adamw),
        TEST(gradients_are_pytorchs),
        TEST(training_is_pytorchs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
