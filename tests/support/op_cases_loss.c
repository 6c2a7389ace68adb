/* Cases of the four steps of cross-entropy. */
#include "op_case.h"

#include <inttypes.h>

#include "backend/reference/ref_ops.h"

#define F32 WEFT_DTYPE_F32

static const int64_t sizes[][3] = {
    {1, 1, 0},    {3, 17, 0},   {17, 3, 5},   {0, 5, 0},
    {257, 64, 0}, {33, 257, 7}, {5, 3000, 0}, {130, 97, 31},
};
#define N_SIZES ((int)WEFT_COUNT_OF(sizes))
#define FIRST_ID 40

static void label(op_case *out, const char *name, int index)
{
    const int64_t *s = sizes[index % N_SIZES];
    (void)snprintf(out->label, sizeof(out->label),
                   "%s case %d: [%" PRId64 ", %" PRId64 "] pad %" PRId64, name, index, s[0], s[1],
                   s[2]);
    out->n_terms = s[1];
}

/* Ids before, in and after the local part, and rows that do not count. */
static weft_view make_targets(op_bag *bag, int64_t rows, int64_t cols)
{
    const weft_view ids = op_ids(bag, WEFT_DTYPE_I32, rows, FIRST_ID - 2, cols + 4);
    for (int64_t r = 2; r < rows; r += 5)
        op_set(&ids, r, 0, -100.0);
    return ids;
}

/* The second half of the cases has logits far from zero, where exp(logit) alone would overflow. */
static void make_stats_of(int index, op_bag *bag, weft_xent_stats_args *a)
{
    const int64_t *s = sizes[index % N_SIZES];
    a->logits = op_random(bag, F32, s[0], s[1], s[2], 5.0, index / N_SIZES % 2 == 0 ? 0.0 : 300.0);
    a->targets = make_targets(bag, s[0], s[1]);
    a->max = op_matrix(bag, F32, s[0], 1, 0);
    a->sum = op_matrix(bag, F32, s[0], 1, 0);
    a->target = op_matrix(bag, F32, s[0], 1, 0);
    a->first_id = FIRST_ID;
}

static void make_stats(int index, op_bag *bag, op_case *out)
{
    label(out, "xent_stats", index);
    make_stats_of(index, bag, &out->args.xent_stats);
}

static void make_rescale(int index, op_bag *bag, op_case *out)
{
    const int64_t rows = sizes[index % N_SIZES][0];
    weft_xent_rescale_args *a = &out->args.xent_rescale;
    label(out, "xent_rescale", index);
    a->sum = op_random(bag, F32, rows, 1, 0, 1.0, 100.0);
    a->local_max = op_random(bag, F32, rows, 1, 0, 10.0, 0.0);
    a->max = op_matrix(bag, F32, rows, 1, 0);
    for (int64_t r = 0; r < rows; r++)
        op_set(&a->max, r, 0, op_get(&a->local_max, r, 0) + (double)op_below(bag, 3) * 8.0);
}

static void make_loss(int index, op_bag *bag, op_case *out)
{
    weft_xent_stats_args stats = {0};
    weft_xent_loss_args *a = &out->args.xent_loss;
    label(out, "xent_loss", index);
    make_stats_of(index, bag, &stats);
    CHECK_OK(weft_i_ref_xent_stats(NULL, &stats, NULL));
    a->loss = op_matrix(bag, F32, stats.max.rows, 1, 0);
    a->max = stats.max;
    a->sum = stats.sum;
    a->target = stats.target;
    a->targets = stats.targets;
}

/* Then two types of the gradient, and the gradient on the logits. */
static void make_grad(int index, op_bag *bag, op_case *out)
{
    const int way = index / N_SIZES / 2;
    weft_xent_stats_args stats = {0};
    weft_xent_grad_args *a = &out->args.xent_grad;
    label(out, "xent_grad", index);
    make_stats_of(index, bag, &stats);
    CHECK_OK(weft_i_ref_xent_stats(NULL, &stats, NULL));
    a->logits = stats.logits;
    a->max = stats.max;
    a->sum = stats.sum;
    a->targets = stats.targets;
    a->first_id = FIRST_ID;
    a->scale = 1.0f / 3.0f;
    a->dlogits = way == 2 ? stats.logits
                          : op_matrix(bag, way == 0 ? F32 : WEFT_DTYPE_BF16, stats.logits.rows,
                                      stats.logits.cols, 2 * sizes[index % N_SIZES][2]);
}

const op_maker op_makers_loss[WEFT_OP_COUNT] = {
    [WEFT_OP_XENT_STATS] = {2 * N_SIZES, make_stats},
    [WEFT_OP_XENT_RESCALE] = {2 * N_SIZES, make_rescale},
    [WEFT_OP_XENT_LOSS] = {2 * N_SIZES, make_loss},
    [WEFT_OP_XENT_GRAD] = {6 * N_SIZES, make_grad},
};
