/* A layout against one rank (ranks_parity.h). */
#include "ranks_parity.h"

#include <math.h>

void ranks_parity_init(ranks_case *c, scratch *s, const odd_model *m, bool is_sgd)
{
    ranks_case_init(c, s, m);
    c->options.weight_decay = 0.1;
    c->is_watching = true;
    if (is_sgd) {
        c->options.optimizer = "sgd";
        c->options.lr = 0.01;
        c->options.clip_grad = 0.0;
    }
}

bool ranks_as_planned(const ranks_result *r, char why[256])
{
    for (int k = 0; k < r->n_ranks; k++) {
        for (int i = 0; i < (int)WEFT_MEM_CONTROL; i++) {
            if (r->planned[k][i] == r->taken[k][i])
                continue;
            (void)snprintf(why, 256, "rank %d planned %zu bytes of %s and took %zu", k,
                           r->planned[k][i], weft_i_mem_name((weft_mem)i), r->taken[k][i]);
            return false;
        }
        if (r->n_allocs_late[k] != 0) {
            (void)snprintf(why, 256, "rank %d took %d blocks after the first step", k,
                           (int)r->n_allocs_late[k]);
            return false;
        }
        if (memcmp(r->planned_traffic[k], r->traffic[k], sizeof(r->traffic[k])) != 0) {
            (void)snprintf(why, 256, "rank %d sent other bytes than planned", k);
            return false;
        }
    }
    return true;
}

static bool near_one(double a, double b, const char *what, int step, char why[256])
{
    if (fabs(a / b - 1.0) <= 1e-5)
        return true;
    (void)snprintf(why, 256, "%s of step %d is %.9g, of one rank %.9g", what, step + 1, a, b);
    return false;
}

bool ranks_parity_near(const ranks_case *c, const ranks_result *one, char why[256])
{
    const bool is_sgd = strcmp(c->options.optimizer, "sgd") == 0;
    ranks_result r;
    if (ranks_case_try(&r, c) != WEFT_OK) {
        (void)snprintf(why, 256, "%.250s", weft_last_error());
        return false;
    }
    bool is_near =
        ranks_near_gradients(one, &r, RANKS_GRADIENT_BOUND, why) && ranks_all_moved(&r, why) &&
        (is_sgd ? ranks_near_sgd(one, &r, why) : ranks_near_adamw(one, &r, c->options.lr, why)) &&
        ranks_as_planned(&r, why);
    for (int i = 0; i < r.n_steps && is_near; i++)
        is_near = near_one(r.outcome[i].loss, one->outcome[i].loss, "loss", i, why) &&
                  near_one(r.outcome[i].grad_norm, one->outcome[i].grad_norm, "norm", i, why);
    if (is_near && memcmp(one->begin, r.begin, (size_t)one->n_elems * sizeof(float)) != 0) {
        (void)snprintf(why, 256, "fresh weights are not those of one rank");
        is_near = false;
    }
    ranks_result_fini(&r);
    return is_near;
}

bool ranks_parity_holds(scratch *s, const ranks_variant *v, bool is_sgd, char why[256])
{
    static const ranks_layout alone = {.dp = 1};
    ranks_case c;
    ranks_result one;
    ranks_parity_init(&c, s, v->model, is_sgd);
    ranks_case_batches(&c, v->model->vocab, v->n_seqs, RANKS_PARITY_STEPS, 5);
    c.options.layout.micro_batch_size = v->micro_batch;
    ranks_case_apply(&c, &alone);
    ranks_case_run(&one, &c);
    ranks_case_apply(&c, &v->layout);
    const bool is_near = ranks_parity_near(&c, &one, why);
    ranks_result_fini(&one);
    ranks_case_fini(&c);
    return is_near;
}

void ranks_parity_check(scratch *s, const ranks_variant *v, bool is_sgd)
{
    char why[256], text[128];
    if (!ranks_parity_holds(s, v, is_sgd, why))
        fail_msg("%s %s, %s, %d sequences in %d: %s", v->model->name, is_sgd ? "sgd" : "adamw",
                 ranks_layout_text(&v->layout, text), (int)v->n_seqs, (int)v->micro_batch, why);
}
