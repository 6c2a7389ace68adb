/*
 * The backward operations of the reference set against differences of its own forward operations, and adjoint pairs
 * against each other. With test_backend_ops this holds the cpu backend too.
 *
 * The gradient of L = sum(weight * output) over one input element is compared with the five-point difference
 * (8 (L(h) - L(-h)) - (L(2h) - L(-2h))) / 12 h, h = 2^-5, whose own error is h^4 |L'''''| / 30, about 1e-7 for functions of
 * the order of one, plus the fp32 rounding of the outputs, EPS * n_outputs^(1/2) * 1.5 / h, about 5e-5 for the 30 outputs an
 * element reaches here. BOUND is ten times that; a wrong term is of the order of one.
 */
#include "op_case.h"

#include <math.h>

#define BOUND 5e-4
#define F32 WEFT_DTYPE_F32

typedef struct slope {
    op_rig *rig;
    const op_case *forward;
    const weft_view *output; /* of the forward case */
    const weft_view *weight; /* of each output */
} slope;

static double loss_at(const slope *s, const weft_view *x, int64_t r, int64_t c, double value)
{
    const double kept = op_get(x, r, c);
    double sum = 0.0;
    op_set(x, r, c, value);
    op_case_apply(s->rig, s->forward);
    op_set(x, r, c, kept);
    for (int64_t e = 0; e < s->output->rows * s->output->cols; e++) {
        const int64_t row = e / s->output->cols;
        const int64_t col = e % s->output->cols;
        sum += op_get(s->output, row, col) * op_get(s->weight, row, col);
    }
    return sum;
}

/* Every element of x against its gradient. */
static void check_slope(const slope *s, const char *what, const weft_view *x, const weft_view *dx)
{
    const double h = 0x1p-5;
    for (int64_t e = 0; e < x->rows * x->cols; e++) {
        const int64_t r = e / x->cols;
        const int64_t c = e % x->cols;
        const double at = op_get(x, r, c);
        const double near = loss_at(s, x, r, c, at + h) - loss_at(s, x, r, c, at - h);
        const double far = loss_at(s, x, r, c, at + 2 * h) - loss_at(s, x, r, c, at - 2 * h);
        const double want = (8.0 * near - far) / (12.0 * h);
        const double got = op_get(dx, r, c);
        if (!(fabs(got - want) <= BOUND * fmax(1.0, fabs(want))))
            fail_msg("%s [%d, %d] is %.9g, differences give %.9g", what, (int)r, (int)c, got, want);
    }
}

/* x rounded to multiples of 2^-12, so that x + h is exact. */
static weft_view grid_matrix(op_bag *bag, int64_t rows, int64_t cols, int64_t pad)
{
    const weft_view v = op_random(bag, F32, rows, cols, pad, 1.0, 0.0);
    for (int64_t e = 0; e < rows * cols; e++)
        op_set(&v, e / cols, e % cols, rint(op_get(&v, e / cols, e % cols) * 4096.0) / 4096.0);
    return v;
}

typedef struct fixture {
    op_rig rig;
    op_bag bag;
} fixture;

static void open_fixture(fixture *f)
{
    memset(f, 0, sizeof(*f));
    f->bag.seed = 42;
    op_rig_open(&f->rig, WEFT_BACKEND_REFERENCE, 1);
}

static void close_fixture(fixture *f)
{
    op_bag_empty(&f->bag);
    op_rig_close(&f->rig);
}

static void test_backend_gradients__norms(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        fixture f;
        open_fixture(&f);
        op_case forward = {.op = WEFT_OP_NORM_FORWARD};
        op_case input = {.op = WEFT_OP_NORM_BACKWARD_INPUT};
        op_case weight = {.op = WEFT_OP_NORM_BACKWARD_WEIGHT};
        weft_norm_forward_args *fa = &forward.args.norm_forward;
        weft_norm_backward_input_args *ia = &input.args.norm_backward_input;
        weft_norm_backward_weight_args *wa = &weight.args.norm_backward_weight;
        fa->kind = kind == 0 ? WEFT_NORM_LAYER : WEFT_NORM_RMS;
        fa->eps = 1e-2f;
        fa->x = grid_matrix(&f.bag, 3, 9, 2);
        fa->y = op_matrix(&f.bag, F32, 3, 9, 0);
        fa->gain = grid_matrix(&f.bag, 1, 9, 0);
        fa->rstd = op_matrix(&f.bag, F32, 3, 1, 0);
        ia->kind = fa->kind;
        ia->x = fa->x;
        ia->gain = fa->gain;
        ia->dy = grid_matrix(&f.bag, 3, 9, 1);
        ia->dx = op_matrix(&f.bag, F32, 3, 9, 3);
        ia->rstd = fa->rstd;
        wa->kind = fa->kind;
        wa->x = fa->x;
        wa->dy = ia->dy;
        wa->dgain = op_matrix(&f.bag, F32, 1, 9, 0);
        wa->rstd = fa->rstd;
        if (kind == 0) {
            fa->mean = op_matrix(&f.bag, F32, 3, 1, 0);
            fa->bias = grid_matrix(&f.bag, 1, 9, 0);
            ia->mean = fa->mean;
            wa->mean = fa->mean;
            wa->dbias = op_matrix(&f.bag, F32, 1, 9, 0);
        }
        op_case_apply(&f.rig, &forward);
        op_case_apply(&f.rig, &input);
        op_case_apply(&f.rig, &weight);
        const slope s = {&f.rig, &forward, &fa->y, &ia->dy};
        check_slope(&s, "dx", &fa->x, &ia->dx);
        check_slope(&s, "dgain", &fa->gain, &wa->dgain);
        if (kind == 0)
            check_slope(&s, "dbias", &fa->bias, &wa->dbias);
        close_fixture(&f);
    }
}

static void test_backend_gradients__activations(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        fixture f;
        open_fixture(&f);
        op_case forward = {.op = WEFT_OP_ACTIVATION_FORWARD};
        op_case backward = {.op = WEFT_OP_ACTIVATION_BACKWARD};
        weft_activation_forward_args *fa = &forward.args.activation_forward;
        weft_activation_backward_args *ba = &backward.args.activation_backward;
        fa->kind = (weft_activation)(i / 2);
        fa->x = grid_matrix(&f.bag, 3, 5, 0);
        for (int64_t e = 0; e < 15; e++) { /* away from the corner of ReLU */
            const double x = op_get(&fa->x, e / 5, e % 5);
            op_set(&fa->x, e / 5, e % 5, fabs(x) < 0.125 ? 0.125 : x);
        }
        fa->y = op_matrix(&f.bag, F32, 3, 5, 0);
        ba->kind = fa->kind;
        ba->x = fa->x;
        ba->dy = grid_matrix(&f.bag, 3, 5, 0);
        ba->dx = op_matrix(&f.bag, F32, 3, 5, 0);
        if (i % 2 != 0) {
            fa->up = grid_matrix(&f.bag, 3, 5, 0);
            ba->up = fa->up;
            ba->dup = op_matrix(&f.bag, F32, 3, 5, 0);
        }
        op_case_apply(&f.rig, &backward);
        const slope s = {&f.rig, &forward, &fa->y, &ba->dy};
        check_slope(&s, "dx", &fa->x, &ba->dx);
        if (i % 2 != 0)
            check_slope(&s, "dup", &fa->up, &ba->dup);
        close_fixture(&f);
    }
}

/* Two sequences, 3 query heads on 2 kv heads crossed over, with and without dropout of the probabilities. */
static void test_backend_gradients__attention(void **state)
{
    static const int kv_of_head[3] = {1, 0, 1};
    (void)state;
    for (int has_dropout = 0; has_dropout < 2; has_dropout++) {
        fixture f;
        open_fixture(&f);
        weft_attention_shape shape = {.n_seqs = 2,
                                      .q_tokens = 5,
                                      .kv_tokens = 5,
                                      .n_heads = 3,
                                      .n_kv_heads = 2,
                                      .head_dim = 4,
                                      .kv_of_head = kv_of_head,
                                      .scale = 0.5f};
        if (has_dropout != 0) {
            shape.dropout = (weft_dropout){.p = 0.3f, .key = {1, 2}, .site = 3, .first_elem = 1};
            shape.dropout.position = op_ids(&f.bag, WEFT_DTYPE_I32, 10, 0, 100);
            shape.dropout.sample = op_ids(&f.bag, WEFT_DTYPE_I64, 10, 0, 100);
        }
        op_case forward = {.op = WEFT_OP_ATTENTION_FORWARD};
        op_case backward = {.op = WEFT_OP_ATTENTION_BACKWARD};
        weft_attention_forward_args *fa = &forward.args.attention_forward;
        weft_attention_backward_args *ba = &backward.args.attention_backward;
        fa->shape = shape;
        fa->q = grid_matrix(&f.bag, 10, 12, 0);
        fa->k = grid_matrix(&f.bag, 10, 8, 1);
        fa->v = grid_matrix(&f.bag, 10, 8, 2);
        fa->out = op_matrix(&f.bag, F32, 10, 12, 0);
        fa->lse = op_matrix(&f.bag, F32, 6, 5, 0);
        *ba = (weft_attention_backward_args){.shape = shape, .q = fa->q, .k = fa->k, .v = fa->v};
        ba->dout = grid_matrix(&f.bag, 10, 12, 3);
        ba->out = fa->out;
        ba->lse = fa->lse;
        ba->dq = op_matrix(&f.bag, F32, 10, 12, 0);
        ba->dk = op_matrix(&f.bag, F32, 10, 8, 0);
        ba->dv = op_matrix(&f.bag, F32, 10, 8, 0);
        op_case_apply(&f.rig, &forward);
        op_case_apply(&f.rig, &backward);
        const slope s = {&f.rig, &forward, &fa->out, &ba->dout};
        check_slope(&s, "dq", &fa->q, &ba->dq);
        check_slope(&s, "dk", &fa->k, &ba->dk);
        check_slope(&s, "dv", &fa->v, &ba->dv);
        close_fixture(&f);
    }
}

/* Loss of a row = max + log(sum) - target, written as a function of the logits by two operations. */
static double xent_loss(fixture *f, const op_case *stats, const op_case *loss)
{
    double sum = 0.0;
    op_case_apply(&f->rig, stats);
    op_case_apply(&f->rig, loss);
    for (int64_t r = 0; r < loss->args.xent_loss.loss.rows; r++)
        sum += op_get(&loss->args.xent_loss.loss, r, 0);
    return sum;
}

static void test_backend_gradients__cross_entropy(void **state)
{
    static const int targets[5] = {3, 9, -100, 4, 3};
    const double h = 0x1p-5;
    fixture f;
    (void)state;
    open_fixture(&f);
    op_case stats = {.op = WEFT_OP_XENT_STATS};
    op_case loss = {.op = WEFT_OP_XENT_LOSS};
    op_case grad = {.op = WEFT_OP_XENT_GRAD};
    weft_xent_stats_args *sa = &stats.args.xent_stats;
    sa->logits = grid_matrix(&f.bag, 5, 7, 2);
    sa->targets = op_matrix(&f.bag, WEFT_DTYPE_I32, 5, 1, 0);
    for (int64_t r = 0; r < 5; r++)
        op_set(&sa->targets, r, 0, targets[r]);
    sa->first_id = 3;
    sa->max = op_matrix(&f.bag, F32, 5, 1, 0);
    sa->sum = op_matrix(&f.bag, F32, 5, 1, 0);
    sa->target = op_matrix(&f.bag, F32, 5, 1, 0);
    loss.args.xent_loss = (weft_xent_loss_args){op_matrix(&f.bag, F32, 5, 1, 0), sa->max, sa->sum,
                                                sa->target, sa->targets};
    (void)xent_loss(&f, &stats, &loss);
    grad.args.xent_grad = (weft_xent_grad_args){
        op_matrix(&f.bag, F32, 5, 7, 0), sa->logits, sa->max, sa->sum, sa->targets, 3, 1.0f};
    op_case_apply(&f.rig, &grad);
    for (int64_t e = 0; e < 35; e++) {
        double value[4];
        const double at = op_get(&sa->logits, e / 7, e % 7);
        for (int i = 0; i < 4; i++) {
            static const double step[4] = {1.0, -1.0, 2.0, -2.0};
            op_set(&sa->logits, e / 7, e % 7, at + step[i] * h);
            value[i] = xent_loss(&f, &stats, &loss);
        }
        op_set(&sa->logits, e / 7, e % 7, at);
        const double want = (8.0 * (value[0] - value[1]) - (value[2] - value[3])) / (12.0 * h);
        CHECK_NEAR(op_get(&grad.args.xent_grad.dlogits, e / 7, e % 7), want, BOUND);
    }
    close_fixture(&f);
}

static double inner(const weft_view *a, const weft_view *b)
{
    double sum = 0.0;
    for (int64_t e = 0; e < a->rows * a->cols; e++)
        sum += op_get(a, e / a->cols, e % a->cols) * op_get(b, e / a->cols, e % a->cols);
    return sum;
}

static weft_view copy_of(op_bag *bag, const weft_view *x)
{
    const weft_view v = op_matrix(bag, x->dtype, x->rows, x->cols, x->ld - x->cols);
    for (int64_t e = 0; e < x->rows * x->cols; e++)
        op_set(&v, e / x->cols, e % x->cols, op_get(x, e / x->cols, e % x->cols));
    return v;
}

/* <A x, y> = <x, A^T y> for the linear operations. */
static void test_backend_gradients__rope_inverse_is_its_adjoint(void **state)
{
    fixture f;
    op_case c = {.op = WEFT_OP_ROPE};
    (void)state;
    open_fixture(&f);
    const weft_view x = grid_matrix(&f.bag, 4, 12, 0);
    const weft_view y = grid_matrix(&f.bag, 4, 12, 0);
    weft_rope_args *a = &c.args.rope;
    a->head_dim = 6;
    a->positions = op_ids(&f.bag, WEFT_DTYPE_I32, 4, 0, 9);
    a->cos = op_random(&f.bag, F32, 9, 3, 0, 1.0, 0.0); /* any numbers will do */
    a->sin = op_random(&f.bag, F32, 9, 3, 0, 1.0, 0.0);
    a->x = copy_of(&f.bag, &x);
    op_case_apply(&f.rig, &c);
    const double forward = inner(&a->x, &y);
    a->x = copy_of(&f.bag, &y);
    a->is_inverse = true;
    op_case_apply(&f.rig, &c);
    CHECK_NEAR(inner(&a->x, &x), forward, 1e-5);
    close_fixture(&f);
}

static void test_backend_gradients__embedding_backward_is_its_adjoint(void **state)
{
    fixture f;
    op_case forward = {.op = WEFT_OP_EMBEDDING_FORWARD};
    op_case backward = {.op = WEFT_OP_EMBEDDING_BACKWARD};
    (void)state;
    open_fixture(&f);
    weft_embedding_forward_args *fa = &forward.args.embedding_forward;
    weft_embedding_backward_args *ba = &backward.args.embedding_backward;
    fa->table = grid_matrix(&f.bag, 6, 5, 0);
    fa->ids = op_ids(&f.bag, WEFT_DTYPE_I32, 20, 2, 10);
    fa->first_id = 4;
    fa->y = op_matrix(&f.bag, F32, 20, 5, 0);
    ba->dy = grid_matrix(&f.bag, 20, 5, 0);
    ba->ids = fa->ids;
    ba->first_id = 4;
    ba->dtable = op_matrix(&f.bag, F32, 6, 5, 0);
    op_case_apply(&f.rig, &forward);
    op_case_apply(&f.rig, &backward);
    CHECK_NEAR(inner(&fa->y, &ba->dy), inner(&fa->table, &ba->dtable), 1e-4);
    close_fixture(&f);
}

/* The mask is the same forward and backward, keeps about 1 - p, and scales what it keeps. */
static void test_backend_gradients__dropout_keeps_its_share_and_is_its_adjoint(void **state)
{
    fixture f;
    op_case c = {.op = WEFT_OP_DROPOUT};
    int n_kept = 0;
    (void)state;
    open_fixture(&f);
    weft_dropout_args *a = &c.args.dropout;
    a->x = grid_matrix(&f.bag, 50, 100, 0);
    a->y = op_matrix(&f.bag, F32, 50, 100, 0);
    a->dropout = (weft_dropout){.p = 0.25f, .key = {7, 8}, .site = 9};
    a->dropout.position = op_ids(&f.bag, WEFT_DTYPE_I32, 50, 0, 1000);
    a->dropout.sample = op_ids(&f.bag, WEFT_DTYPE_I64, 50, 0, 1000);
    op_case_apply(&f.rig, &c);
    for (int64_t e = 0; e < 5000; e++) {
        const double x = op_get(&a->x, e / 100, e % 100);
        const double y = op_get(&a->y, e / 100, e % 100);
        if (y == 0.0)
            continue;
        n_kept++;
        CHECK_NEAR(y, x / 0.75, 1e-6);
    }
    assert_in_range(n_kept, 3750 - 123, 3750 + 123); /* four deviations of 30.6 */
    const weft_view x = a->x;
    const weft_view y = a->y;
    a->x = grid_matrix(&f.bag, 50, 100, 0);
    a->y = op_matrix(&f.bag, F32, 50, 100, 0);
    op_case_apply(&f.rig, &c);
    CHECK_NEAR(inner(&y, &a->x), inner(&x, &a->y), 1e-3);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_backend_gradients__norms),
        cmocka_unit_test(test_backend_gradients__activations),
        cmocka_unit_test(test_backend_gradients__attention),
        cmocka_unit_test(test_backend_gradients__cross_entropy),
        cmocka_unit_test(test_backend_gradients__rope_inverse_is_its_adjoint),
        cmocka_unit_test(test_backend_gradients__embedding_backward_is_its_adjoint),
        cmocka_unit_test(test_backend_gradients__dropout_keeps_its_share_and_is_its_adjoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
