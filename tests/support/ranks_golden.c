/* Golden models on ranks (ranks_golden.h). */
#include "ranks_golden.h"

#include <math.h>

void ranks_golden_init(ranks_case *c, golden *g, scratch *s, const char *name, const char *ids)
{
    char folder[512];
    golden_open(g, s, name, "golden.safetensors");
    const weft_st_tensor *t = golden_tensor(g, ids);
    const bool has_steps = t->shape.n_dims == 3;
    const int n_steps = has_steps ? (int)t->shape.dim[0] : 1;
    const int64_t n_seqs = t->shape.dim[has_steps ? 1 : 0];
    ranks_case_init(c, s, NULL);
    (void)snprintf(c->model, sizeof(c->model), "%s", golden_folder(g, GOLDEN_NEW, folder));
    c->options.seq_length = t->shape.dim[has_steps ? 2 : 1];
    c->options.dropout = 0.0;
    c->options.weight_decay = 0.1;
    ranks_case_batches(c, 2, n_seqs, n_steps, 1);
    const int64_t n = n_seqs * c->options.seq_length;
    for (int k = 0; k < n_steps; k++) {
        int32_t *in = (int32_t *)(uintptr_t)c->batch[k].ids; /* the case's own */
        int32_t *out = (int32_t *)(uintptr_t)c->batch[k].targets;
        for (int64_t i = 0; i < n; i++) {
            const bool is_last = (i + 1) % c->options.seq_length == 0;
            in[i] = (int32_t)tensor_at(t, k * n + i);
            out[i] = is_last ? -100 : (int32_t)tensor_at(t, k * n + i + 1);
        }
    }
    c->has_lr = has_steps;
    for (int k = 0; k < n_steps && has_steps; k++)
        c->lr[k] = tensor_at(golden_tensor(g, "train.lr"), k);
}

static bool near(double a, double b, double bound, const char *what, int step, char why[256])
{
    (void)snprintf(why, 256, "%s of step %d is %.9g, should be %.9g", what, step + 1, a, b);
    return fabs(a - b) <= bound;
}

bool ranks_golden_gradients(const golden *g, const ranks_result *r, char why[256])
{
    char key[256];
    const double loss = tensor_at(golden_tensor(g, "loss.f64"), 0);
    if (!near(r->outcome[0].loss, loss, 5e-6, "loss", 0, why))
        return false;
    for (int i = 0; i < r->n_params; i++) {
        const ranks_param *p = &r->param[i];
        double largest = 0.0;
        (void)snprintf(key, sizeof(key), "grad.f64/%s", p->name);
        const weft_st_tensor *want = golden_tensor(g, key);
        assert_int_equal(want->n_elems, p->n);
        for (int64_t j = 0; j < p->n; j++)
            largest = fmax(largest, fabs(tensor_at(want, j)));
        for (int64_t j = 0; j < p->n; j++) {
            const double d = fabs((double)r->grad[p->first + j] - tensor_at(want, j));
            (void)snprintf(why, 256, "gradient of %.120s[%lld] is off by %.3g, largest %.3g",
                           p->name, (long long)j, d, largest);
            if (!(d <= RANKS_GRADIENT_BOUND * largest))
                return false;
        }
    }
    return true;
}

static bool near_steps(const golden *g, const ranks_result *r, char why[256])
{
    const weft_st_tensor *loss = golden_tensor(g, "train.loss.f64");
    const weft_st_tensor *norm = golden_tensor(g, "train.grad_norm.f64");
    for (int k = 0; k < r->n_steps; k++) {
        if (!near(r->outcome[k].loss, tensor_at(loss, k), 5e-6, "loss", k, why) ||
            !near(r->outcome[k].grad_norm, tensor_at(norm, k), 5e-5, "norm", k, why))
            return false;
    }
    return true;
}

bool ranks_golden_training(const golden *g, const ranks_result *r, char why[256])
{
    char key[256];
    int64_t n_over = 0;
    double worst = 0.0;
    if (!near_steps(g, r, why))
        return false;
    for (int i = 0; i < r->n_params; i++) {
        const ranks_param *p = &r->param[i];
        (void)snprintf(key, sizeof(key), "after.param.f32/%s", p->name);
        const weft_st_tensor *want = golden_tensor(g, key);
        assert_int_equal(want->n_elems, p->n);
        for (int64_t j = 0; j < p->n; j++) {
            const double d = fabs((double)r->weight[p->first + j] - tensor_at(want, j));
            if (golden_is_null(g, p->name, j))
                continue;
            worst = d <= worst ? worst : d;
            n_over += d <= 1e-4 ? 0 : 1;
        }
    }
    (void)snprintf(why, 256, "%lld of %lld weights are off by over 1e-4, one by %.3g",
                   (long long)n_over, (long long)r->n_elems, worst);
    return worst <= 5e-3 && n_over * 1000 <= r->n_elems;
}
