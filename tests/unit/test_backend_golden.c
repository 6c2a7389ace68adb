/*
 * The cpu backend and the reference set against PyTorch: tests/data/ops_oracle.inc, made by make_ops_oracle.py beside it
 * in fp64 (optimizers: torch.optim in fp32) from inputs that are fp32 numbers.
 *
 * Bounds, in units of EPS = 2^-24 and for results of the order of one: elementwise functions 64 (a few roundings, a
 * vector exp within 4 units, slopes that cancel); norms and attention 128 (sums of up to 30 terms, exponentials of
 * scores); optimizers 8 (fp32 on both sides, fused or not). PyTorch's own fp32 results are about as far from fp64.
 */
#include "op_case.h"

#include "../data/ops_oracle.inc"

#include <math.h>

#define EPS 0x1p-24
#define ELEMENTWISE (64 * EPS)
#define SUMS (128 * EPS)
#define OPTIMIZER (8 * EPS)
#define F32 WEFT_DTYPE_F32

static const weft_backend_kind kinds[2] = {WEFT_BACKEND_REFERENCE, WEFT_BACKEND_CPU};

/* A dense fp32 matrix of these numbers; NULL: zeros. */
static weft_view matrix_of(op_bag *bag, const double *x, int64_t rows, int64_t cols)
{
    const weft_view v = op_matrix(bag, F32, rows, cols, 0);
    for (int64_t i = 0; i < rows * cols; i++)
        op_set(&v, i / cols, i % cols, x != NULL ? x[i] : 0.0);
    return v;
}

static weft_view ids_of(op_bag *bag, const int *x, int64_t rows)
{
    const weft_view v = op_matrix(bag, WEFT_DTYPE_I32, rows, 1, 0);
    for (int64_t i = 0; i < rows; i++)
        op_set(&v, i, 0, x[i]);
    return v;
}

static void check(const char *what, const weft_view *got, const double *want, double bound)
{
    for (int64_t i = 0; i < got->rows * got->cols; i++) {
        const double x = op_get(got, i / got->cols, i % got->cols);
        if (!(fabs(x - want[i]) <= bound * fmax(1.0, fabs(want[i]))))
            fail_msg("%s [%d] is %.9g, PyTorch has %.9g: %g apart, at most %g", what, (int)i, x,
                     want[i], fabs(x - want[i]), bound);
    }
}

typedef void golden_fn(op_rig *rig, op_bag *bag);

static void on_both(golden_fn *fn)
{
    for (int i = 0; i < 2; i++) {
        op_rig rig;
        op_bag bag = {0};
        op_rig_open(&rig, kinds[i], 1);
        fn(&rig, &bag);
        op_bag_empty(&bag);
        op_rig_close(&rig);
    }
}

static void activation(op_rig *rig, op_bag *bag, int kind, bool is_gated)
{
    op_case f = {.op = WEFT_OP_ACTIVATION_FORWARD};
    op_case b = {.op = WEFT_OP_ACTIVATION_BACKWARD};
    weft_activation_forward_args *fa = &f.args.activation_forward;
    weft_activation_backward_args *ba = &b.args.activation_backward;
    fa->kind = (weft_activation)kind;
    fa->x = matrix_of(bag, oracle_act_x, 2, 12);
    fa->y = matrix_of(bag, NULL, 2, 12);
    ba->kind = fa->kind;
    ba->x = fa->x;
    ba->dy = matrix_of(bag, oracle_act_dy, 2, 12);
    ba->dx = matrix_of(bag, NULL, 2, 12);
    if (is_gated) {
        fa->up = matrix_of(bag, oracle_act_up, 2, 12);
        ba->up = fa->up;
        ba->dup = matrix_of(bag, NULL, 2, 12);
    }
    op_case_apply(rig, &f);
    op_case_apply(rig, &b);
    const int64_t at = kind * 24;
    check("activation", &fa->y, (is_gated ? oracle_act_gated_y : oracle_act_y) + at, ELEMENTWISE);
    check("slope", &ba->dx, (is_gated ? oracle_act_gated_dx : oracle_act_dx) + at, ELEMENTWISE);
    if (is_gated)
        check("gradient of up", &ba->dup, oracle_act_gated_dup + at, ELEMENTWISE);
}

static void activations(op_rig *rig, op_bag *bag)
{
    for (int i = 0; i < 8; i++) {
        activation(rig, bag, i / 2, i % 2 != 0);
        op_bag_empty(bag);
    }
}

static void test_backend_golden__activations(void **state)
{
    (void)state;
    on_both(activations);
}

static void norm(op_rig *rig, op_bag *bag, weft_norm_kind kind)
{
    const bool is_layer = kind == WEFT_NORM_LAYER;
    op_case f = {.op = WEFT_OP_NORM_FORWARD};
    op_case b = {.op = WEFT_OP_NORM_BACKWARD_INPUT};
    op_case w = {.op = WEFT_OP_NORM_BACKWARD_WEIGHT};
    weft_norm_forward_args *fa = &f.args.norm_forward;
    weft_norm_backward_input_args *ba = &b.args.norm_backward_input;
    weft_norm_backward_weight_args *wa = &w.args.norm_backward_weight;
    fa->kind = kind;
    fa->eps = 1e-5f;
    fa->x = matrix_of(bag, oracle_norm_x, 3, 7);
    fa->y = matrix_of(bag, NULL, 3, 7);
    fa->gain = matrix_of(bag, oracle_norm_gain, 1, 7);
    fa->rstd = matrix_of(bag, NULL, 3, 1);
    *ba = (weft_norm_backward_input_args){.kind = kind, .x = fa->x, .gain = fa->gain};
    ba->dy = matrix_of(bag, oracle_norm_dy, 3, 7);
    ba->dx = matrix_of(bag, NULL, 3, 7);
    ba->rstd = fa->rstd;
    *wa =
        (weft_norm_backward_weight_args){.kind = kind, .x = fa->x, .dy = ba->dy, .rstd = fa->rstd};
    wa->dgain = matrix_of(bag, NULL, 1, 7);
    if (is_layer) {
        fa->mean = matrix_of(bag, NULL, 3, 1);
        fa->bias = matrix_of(bag, oracle_norm_bias, 1, 7);
        ba->mean = fa->mean;
        wa->mean = fa->mean;
        wa->dbias = matrix_of(bag, NULL, 1, 7);
    }
    op_case_apply(rig, &f);
    op_case_apply(rig, &b);
    op_case_apply(rig, &w);
    check("norm", &fa->y, is_layer ? oracle_layer_y : oracle_rms_y, SUMS);
    check("norm dx", &ba->dx, is_layer ? oracle_layer_dx : oracle_rms_dx, SUMS);
    check("norm dgain", &wa->dgain, is_layer ? oracle_layer_dgain : oracle_rms_dgain, SUMS);
    if (is_layer)
        check("norm dbias", &wa->dbias, oracle_layer_dbias, SUMS);
    /* the residual gradient is added, and may be where the result goes */
    ba->residual = matrix_of(bag, oracle_norm_residual, 3, 7);
    ba->dx = ba->residual;
    double want[21];
    for (int i = 0; i < 21; i++)
        want[i] = (is_layer ? oracle_layer_dx : oracle_rms_dx)[i] + oracle_norm_residual[i];
    op_case_apply(rig, &b);
    check("norm dx + residual", &ba->dx, want, SUMS);
}

static void norms(op_rig *rig, op_bag *bag)
{
    norm(rig, bag, WEFT_NORM_LAYER);
    op_bag_empty(bag);
    norm(rig, bag, WEFT_NORM_RMS);
}

static void test_backend_golden__norms(void **state)
{
    (void)state;
    on_both(norms);
}

static void rotary(op_rig *rig, op_bag *bag)
{
    op_case c = {.op = WEFT_OP_ROPE};
    weft_rope_args *a = &c.args.rope;
    a->x = matrix_of(bag, oracle_rope_x, 4, 16);
    a->head_dim = 8;
    a->positions = ids_of(bag, oracle_rope_positions, 4);
    a->cos = matrix_of(bag, oracle_rope_cos, 16, 4);
    a->sin = matrix_of(bag, oracle_rope_sin, 16, 4);
    op_case_apply(rig, &c);
    check("rope", &a->x, oracle_rope_y, ELEMENTWISE);
    a->x = matrix_of(bag, oracle_rope_dy, 4, 16);
    a->is_inverse = true;
    op_case_apply(rig, &c);
    check("rope backward", &a->x, oracle_rope_dx, ELEMENTWISE);
}

static void test_backend_golden__rope(void **state)
{
    (void)state;
    on_both(rotary);
}

static void attention(op_rig *rig, op_bag *bag)
{
    static const int kv_of_head[4] = {0, 0, 1, 1};
    const weft_attention_shape shape = {.n_seqs = 2,
                                        .q_tokens = 5,
                                        .kv_tokens = 5,
                                        .n_heads = 4,
                                        .n_kv_heads = 2,
                                        .head_dim = 6,
                                        .kv_of_head = kv_of_head,
                                        .scale = (float)(1.0 / sqrt(6.0))};
    op_case f = {.op = WEFT_OP_ATTENTION_FORWARD};
    op_case b = {.op = WEFT_OP_ATTENTION_BACKWARD};
    weft_attention_forward_args *fa = &f.args.attention_forward;
    weft_attention_backward_args *ba = &b.args.attention_backward;
    fa->shape = shape;
    fa->q = matrix_of(bag, oracle_attn_q, 10, 24);
    fa->k = matrix_of(bag, oracle_attn_k, 10, 12);
    fa->v = matrix_of(bag, oracle_attn_v, 10, 12);
    fa->out = matrix_of(bag, NULL, 10, 24);
    fa->lse = matrix_of(bag, NULL, 8, 5);
    *ba = (weft_attention_backward_args){.shape = shape, .q = fa->q, .k = fa->k, .v = fa->v};
    ba->out = fa->out;
    ba->lse = fa->lse;
    ba->dout = matrix_of(bag, oracle_attn_dout, 10, 24);
    ba->dq = matrix_of(bag, NULL, 10, 24);
    ba->dk = matrix_of(bag, NULL, 10, 12);
    ba->dv = matrix_of(bag, NULL, 10, 12);
    op_case_apply(rig, &f);
    op_case_apply(rig, &b);
    check("attention", &fa->out, oracle_attn_out, SUMS);
    check("lse", &fa->lse, oracle_attn_lse, SUMS);
    check("dq", &ba->dq, oracle_attn_dq, SUMS);
    check("dk", &ba->dk, oracle_attn_dk, SUMS);
    check("dv", &ba->dv, oracle_attn_dv, SUMS);
}

static void test_backend_golden__attention(void **state)
{
    (void)state;
    on_both(attention);
}

/* The vocabulary in two parts, of 5 and 4 ids, joined as ranks would join them. */
static void cross_entropy(op_rig *rig, op_bag *bag)
{
    static const int64_t first[2] = {0, 5};
    static const int64_t n_ids[2] = {5, 4};
    const weft_view logits = matrix_of(bag, oracle_xent_logits, 6, 9);
    const weft_view targets = ids_of(bag, oracle_xent_targets, 6);
    weft_xent_stats_args stats[2];
    for (int i = 0; i < 2; i++) {
        op_case c = {.op = WEFT_OP_XENT_STATS};
        c.args.xent_stats.targets = targets;
        c.args.xent_stats.first_id = first[i];
        c.args.xent_stats.max = matrix_of(bag, NULL, 6, 1);
        c.args.xent_stats.sum = matrix_of(bag, NULL, 6, 1);
        c.args.xent_stats.target = matrix_of(bag, NULL, 6, 1);
        const weft_view part = op_matrix(bag, F32, 6, n_ids[i], 0);
        for (int64_t e = 0; e < 6 * n_ids[i]; e++)
            op_set(&part, e / n_ids[i], e % n_ids[i],
                   op_get(&logits, e / n_ids[i], first[i] + e % n_ids[i]));
        c.args.xent_stats.logits = part;
        op_case_apply(rig, &c);
        stats[i] = c.args.xent_stats;
    }
    const weft_view max = matrix_of(bag, NULL, 6, 1);
    for (int64_t r = 0; r < 6; r++)
        op_set(&max, r, 0, fmax(op_get(&stats[0].max, r, 0), op_get(&stats[1].max, r, 0)));
    for (int i = 0; i < 2; i++) {
        op_case c = {.op = WEFT_OP_XENT_RESCALE};
        c.args.xent_rescale = (weft_xent_rescale_args){stats[i].sum, stats[i].max, max};
        op_case_apply(rig, &c);
    }
    for (int64_t r = 0; r < 6; r++) {
        op_set(&stats[0].sum, r, 0, op_get(&stats[0].sum, r, 0) + op_get(&stats[1].sum, r, 0));
        op_set(&stats[0].target, r, 0,
               op_get(&stats[0].target, r, 0) + op_get(&stats[1].target, r, 0));
    }
    op_case loss = {.op = WEFT_OP_XENT_LOSS};
    loss.args.xent_loss = (weft_xent_loss_args){matrix_of(bag, NULL, 6, 1), max, stats[0].sum,
                                                stats[0].target, targets};
    op_case_apply(rig, &loss);
    check("loss", &loss.args.xent_loss.loss, oracle_xent_loss, SUMS);
    for (int i = 0; i < 2; i++) {
        op_case c = {.op = WEFT_OP_XENT_GRAD};
        double want[30];
        for (int64_t e = 0; e < 6 * n_ids[i]; e++)
            want[e] = oracle_xent_grad[e / n_ids[i] * 9 + first[i] + e % n_ids[i]];
        c.args.xent_grad = (weft_xent_grad_args){
            stats[i].logits, stats[i].logits, max, stats[0].sum, targets, first[i], 0.2f};
        op_case_apply(rig, &c);
        check("gradient of logits", &c.args.xent_grad.dlogits, want, SUMS);
    }
}

static void test_backend_golden__cross_entropy_of_a_cut_vocabulary(void **state)
{
    (void)state;
    on_both(cross_entropy);
}

/* Weights in fp32, then as a bf16 copy of an fp32 master: the master must walk the same way. */
static void adamw(op_rig *rig, op_bag *bag)
{
    for (int has_master = 0; has_master < 2; has_master++) {
        op_case c = {.op = WEFT_OP_ADAMW};
        weft_adamw_args *a = &c.args.adamw;
        a->x = matrix_of(bag, oracle_opt_start, 1, 11);
        if (has_master != 0) {
            a->master = a->x;
            a->x = op_matrix(bag, WEFT_DTYPE_BF16, 1, 11, 0);
        }
        a->m = matrix_of(bag, NULL, 1, 11);
        a->v = matrix_of(bag, NULL, 1, 11);
        a->lr = 0.01;
        a->beta1 = 0.9;
        a->beta2 = 0.999;
        a->eps = 1e-8;
        a->decay = 0.1;
        a->grad_scale = 1.0f;
        for (int t = 1; t <= 3; t++) {
            a->grad = matrix_of(bag, oracle_opt_grad + (t - 1) * 11, 1, 11);
            a->bias1 = 1.0 - pow(0.9, t);
            a->bias2 = 1.0 - pow(0.999, t);
            op_case_apply(rig, &c);
        }
        const weft_view *weights = has_master != 0 ? &a->master : &a->x;
        check("AdamW weights", weights, oracle_adamw_p, OPTIMIZER);
        check("AdamW first moment", &a->m, oracle_adamw_m, OPTIMIZER);
        check("AdamW second moment", &a->v, oracle_adamw_v, OPTIMIZER);
        for (int64_t i = 0; has_master != 0 && i < 11; i++) {
            const double p = op_get(&a->master, 0, i);
            assert_true(fabs(op_get(&a->x, 0, i) - p) <= 0x1p-8 * fabs(p));
        }
    }
}

static void test_backend_golden__adamw_three_steps(void **state)
{
    (void)state;
    on_both(adamw);
}

static void sgd(op_rig *rig, op_bag *bag)
{
    for (int has_momentum = 0; has_momentum < 2; has_momentum++) {
        op_case c = {.op = WEFT_OP_SGD};
        weft_sgd_args *a = &c.args.sgd;
        a->x = matrix_of(bag, oracle_opt_start, 1, 11);
        a->lr = 0.01f;
        a->decay = 0.1f;
        a->grad_scale = 2.0f; /* gradients are halved for it: exact */
        if (has_momentum != 0) {
            a->momentum = 0.9f;
            a->m = matrix_of(bag, NULL, 1, 11);
        }
        for (int t = 0; t < 3; t++) {
            a->grad = matrix_of(bag, oracle_opt_grad + t * 11, 1, 11);
            for (int64_t i = 0; i < 11; i++)
                op_set(&a->grad, 0, i, op_get(&a->grad, 0, i) / 2.0);
            op_case_apply(rig, &c);
        }
        check("SGD weights", &a->x, has_momentum != 0 ? oracle_momentum_p : oracle_sgd_p,
              OPTIMIZER);
        if (has_momentum != 0)
            check("SGD momentum", &a->m, oracle_momentum_m, OPTIMIZER);
    }
}

static void test_backend_golden__sgd_three_steps(void **state)
{
    (void)state;
    on_both(sgd);
}

/* First step from zero by hand: m = g / 10, v = g^2 / 1000, m / bias1 = g, sqrt(v / bias2) = |g|: the weight moves by
 * lr * sign(g) after it shrank by lr * decay. */
static void first_step(op_rig *rig, op_bag *bag)
{
    static const double start[3] = {1.0, -2.0, 0.5};
    static const double grad[3] = {4.0, 0.25, -1.0};
    static const double want[3] = {1.0 * 0.95 - 0.5, -2.0 * 0.95 - 0.5, 0.5 * 0.95 + 0.5};
    op_case c = {.op = WEFT_OP_ADAMW};
    weft_adamw_args *a = &c.args.adamw;
    a->x = matrix_of(bag, start, 1, 3);
    a->grad = matrix_of(bag, grad, 1, 3);
    a->m = matrix_of(bag, NULL, 1, 3);
    a->v = matrix_of(bag, NULL, 1, 3);
    a->lr = 0.5;
    a->beta1 = 0.9;
    a->beta2 = 0.999;
    a->eps = 0.0;
    a->decay = 0.1;
    a->bias1 = 1.0 - 0.9;
    a->bias2 = 1.0 - 0.999;
    a->grad_scale = 1.0f;
    op_case_apply(rig, &c);
    check("AdamW by hand", &a->x, want, OPTIMIZER);
}

static void test_backend_golden__adamw_first_step_by_hand(void **state)
{
    (void)state;
    on_both(first_step);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_backend_golden__activations),
        cmocka_unit_test(test_backend_golden__norms),
        cmocka_unit_test(test_backend_golden__rope),
        cmocka_unit_test(test_backend_golden__attention),
        cmocka_unit_test(test_backend_golden__cross_entropy_of_a_cut_vocabulary),
        cmocka_unit_test(test_backend_golden__adamw_three_steps),
        cmocka_unit_test(test_backend_golden__sgd_three_steps),
        cmocka_unit_test(test_backend_golden__adamw_first_step_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
