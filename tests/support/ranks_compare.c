/* Comparing runs on ranks (ranks_compare.h). */
#include "ranks_compare.h"

#include <math.h>

#include "comm/message.h"

#define SGD_BOUND 1e-5

static const char *element_name(const ranks_result *r, int64_t at, char out[192])
{
    for (int i = 0; i < r->n_params; i++) {
        const ranks_param *p = &r->param[i];
        if (at >= p->first && at < p->first + p->n)
            (void)snprintf(out, 192, "%.150s[%lld]", p->name, (long long)(at - p->first));
    }
    return out;
}

static bool
same_array(const ranks_result *r, const char *what, const float *a, const float *b, char why[256])
{
    char name[192] = "";
    for (int64_t i = 0; i < r->n_elems; i++) {
        if (memcmp(&a[i], &b[i], sizeof(float)) == 0)
            continue;
        (void)snprintf(why, 256, "%s of %.150s: %.9g and %.9g", what, element_name(r, i, name),
                       (double)a[i], (double)b[i]);
        return false;
    }
    return true;
}

bool ranks_same_bits(const ranks_result *a, const ranks_result *b, char why[256])
{
    (void)snprintf(why, 256, "not of one kind");
    if (a->n_elems != b->n_elems || a->n_steps != b->n_steps)
        return false;
    for (int i = 0; i < a->n_steps; i++) {
        const weft_train_outcome *x = &a->outcome[i], *y = &b->outcome[i];
        if (memcmp(&x->loss, &y->loss, sizeof(double)) == 0 &&
            memcmp(&x->grad_norm, &y->grad_norm, sizeof(double)) == 0 &&
            x->n_targets == y->n_targets)
            continue;
        (void)snprintf(why, 256, "step %d: loss %.17g and %.17g, norm %.17g and %.17g", i + 1,
                       x->loss, y->loss, x->grad_norm, y->grad_norm);
        return false;
    }
    for (int k = 0; k < (int)WEFT_STATE_COUNT; k++) {
        if (!same_array(a, weft_i_state_name((weft_state)k), a->state[k], b->state[k], why))
            return false;
    }
    return same_array(a, "weight", a->weight, b->weight, why);
}

bool ranks_is_null(const ranks_param *p, int64_t i)
{
    const char *const end = strstr(p->name, "attn.c_attn.bias");
    return end != NULL && i >= p->n / 3 && i < p->n / 3 * 2;
}

bool ranks_near_gradients(const ranks_result *a, const ranks_result *b, double bound, char why[256])
{
    for (int i = 0; i < a->n_params; i++) {
        const ranks_param *p = &a->param[i];
        double largest = 0.0, worst = 0.0;
        int64_t at = 0;
        for (int64_t j = p->first; j < p->first + p->n; j++) {
            const double d = fabs((double)a->grad[j] - (double)b->grad[j]);
            largest = fmax(largest, fabs((double)a->grad[j]));
            if (!(d <= worst)) {
                worst = d;
                at = j - p->first;
            }
        }
        if (worst <= bound * largest && (largest > 0.0 || p->is_frozen))
            continue;
        (void)snprintf(why, 256,
                       "gradient of %.100s[%lld] is off by %.3g, largest %.3g: %.3g of it, at "
                       "most %.3g",
                       p->name, (long long)at, worst, largest, worst / largest, bound);
        return false;
    }
    return true;
}

static bool near_weights(const ranks_result *a, const ranks_result *b, double bound, char why[256])
{
    char name[192] = "";
    for (int64_t i = 0; i < a->n_elems; i++) {
        if (fabs((double)a->weight[i] - (double)b->weight[i]) <= bound)
            continue;
        (void)snprintf(why, 256, "%.150s: %.9g and %.9g, at most %.3g apart",
                       element_name(a, i, name), (double)a->weight[i], (double)b->weight[i], bound);
        return false;
    }
    return true;
}

bool ranks_near_sgd(const ranks_result *one, const ranks_result *r, char why[256])
{
    const float *a = one->state[WEFT_STATE_MASTER], *b = r->state[WEFT_STATE_MASTER];
    double largest = 0.0;
    char name[192] = "";
    if (!one->is_bf16)
        return near_weights(one, r, SGD_BOUND, why);
    for (int64_t i = 0; i < one->n_elems; i++)
        largest = fmax(largest, fabs((double)one->grad[i]));
    const double bound = SGD_BOUND + one->n_steps * 0.01 * ldexp(largest, -7);
    for (int64_t i = 0; i < one->n_elems; i++) {
        const double d = fabs((double)a[i] - (double)b[i]);
        const double w = fabs((double)one->weight[i] - (double)r->weight[i]);
        if (d <= bound && w <= bound + ldexp(fabs((double)one->weight[i]), -7))
            continue;
        (void)snprintf(why, 256, "%.120s: masters differ by %.3g, weights by %.3g; at most %.3g",
                       element_name(one, i, name), d, w, bound);
        return false;
    }
    return true;
}

/* Counts differences of a and b over 1e-4; *worst is the largest. */
static int64_t
count_over(const ranks_result *r, const float *a, const float *b, int64_t *n, double *worst)
{
    int64_t n_over = 0;
    *worst = 0.0;
    *n = 0;
    for (int i = 0; i < r->n_params; i++) {
        const ranks_param *p = &r->param[i];
        for (int64_t j = 0; j < p->n; j++) {
            if (ranks_is_null(p, j))
                continue;
            const double d = fabs((double)a[p->first + j] - (double)b[p->first + j]);
            *worst = d <= *worst ? *worst : d;
            n_over += d <= 1e-4 ? 0 : 1;
            (*n)++;
        }
    }
    return n_over;
}

bool ranks_near_adamw(const ranks_result *one, const ranks_result *r, double lr, char why[256])
{
    const float *a = one->is_bf16 ? one->state[WEFT_STATE_MASTER] : one->weight;
    const float *b = one->is_bf16 ? r->state[WEFT_STATE_MASTER] : r->weight;
    int64_t n = 0;
    double worst = 0.0;
    const int64_t n_over = count_over(one, a, b, &n, &worst);
    (void)snprintf(why, 256, "%lld of %lld elements are off by over 1e-4, one by %.3g",
                   (long long)n_over, (long long)n, worst);
    if (one->is_bf16)
        return worst <= 2.0 * lr * one->n_steps && n_over * 100 <= n;
    return worst <= 5e-3 && n_over * 1000 <= n;
}

bool ranks_all_moved(const ranks_result *r, char why[256])
{
    for (int i = 0; i < r->n_params; i++) {
        const ranks_param *p = &r->param[i];
        /* Of bf16 models the masters: a small step rounds to the weight it came from. */
        const float *after = r->is_bf16 && !p->is_frozen ? r->state[WEFT_STATE_MASTER] : r->weight;
        const bool has_moved =
            memcmp(r->begin + p->first, after + p->first, (size_t)p->n * sizeof(float)) != 0;
        if (has_moved != p->is_frozen)
            continue;
        (void)snprintf(why, 256, "%.120s is %s and has %s", p->name,
                       p->is_frozen ? "frozen" : "trained", has_moved ? "moved" : "not moved");
        return false;
    }
    return true;
}

/* ---- closed forms ---- */

static bool
same_traffic(const weft_traffic *got, const weft_traffic *want, const char *what, char why[256])
{
    for (int op = 0; op < (int)WEFT_COMM_OP_COUNT; op++) {
        if (got->n_calls[op] == want->n_calls[op] && got->sent_bytes[op] == want->sent_bytes[op])
            continue;
        (void)snprintf(why, 256, "%s: %llu %s of %llu bytes in all, should be %llu of %llu", what,
                       (unsigned long long)got->n_calls[op], weft_i_comm_op_name((weft_comm_op)op),
                       (unsigned long long)got->sent_bytes[op],
                       (unsigned long long)want->n_calls[op],
                       (unsigned long long)want->sent_bytes[op]);
        return false;
    }
    return true;
}

static bool same_bytes(size_t got, size_t want, const char *what, int kind, char why[256])
{
    (void)snprintf(why, 256, "%s %s: %zu bytes, should be %zu", what,
                   weft_i_mem_name((weft_mem)kind), got, want);
    return got == want;
}

static bool as_formulas_on(const ranks_result *r, const zero_case *z, int rank, char why[256])
{
    const weft_traffic none = {{0}, {0}};
    weft_traffic sent;
    size_t want[WEFT_MEM_COUNT], total = 0;
    zero_memory(want, z, rank);
    zero_traffic(&sent, z, rank);
    for (int kind = 0; kind < (int)WEFT_MEM_CONTROL; kind++) {
        const bool is_formula =
            kind == (int)WEFT_MEM_PARAMETERS || kind == (int)WEFT_MEM_GRADIENTS ||
            kind == (int)WEFT_MEM_OPTIMIZER || kind == (int)WEFT_MEM_COMMUNICATION;
        const size_t wanted = is_formula ? want[kind] : r->planned[rank][kind];
        total += r->taken[rank][kind];
        if (!same_bytes(r->planned[rank][kind], wanted, "planned", kind, why) ||
            !same_bytes(r->taken[rank][kind], wanted, "taken", kind, why))
            return false;
    }
    if (r->first_peak[rank] != total || r->n_allocs_late[rank] != 0) {
        (void)snprintf(why, 256,
                       "peak %zu after the first step, %zu after the last; %llu blocks in between",
                       r->first_peak[rank], total, (unsigned long long)r->n_allocs_late[rank]);
        return false;
    }
    return z->dp == 1 ||
           (same_traffic(&r->traffic[rank][WEFT_AXIS_DP], &sent, "sent over dp", why) &&
            same_traffic(&r->planned_traffic[rank][WEFT_AXIS_DP], &sent, "planned over dp", why) &&
            same_traffic(&r->planned_traffic[rank][WEFT_AXIS_WORLD], &none, "planned over world",
                         why));
}

bool ranks_as_formulas(const ranks_result *r, const zero_case *z, char why[256])
{
    char text[256];
    for (int rank = 0; rank < r->n_ranks; rank++) {
        if (as_formulas_on(r, z, rank, text))
            continue;
        (void)snprintf(why, 256, "rank %d: %.200s", rank, text);
        return false;
    }
    return true;
}
