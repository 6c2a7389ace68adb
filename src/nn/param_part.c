/*
 * Parts of parameters (contract: param_part.h).
 *
 * A local tensor is covered by rectangles of the full one. Where a rectangle is as wide as both tensors its rows follow one
 * another in both and make one stretch; else every row of it is one.
 *
 * Communication: none. Leaves to others: who holds which part (parallel/shard.c).
 */
#include "nn/param_part.h"

#include "backend/run_op.h"
#include "base/ctx.h"
#include "base/error.h"
#include "base/rng.h"
#include "base/str.h"

/* A dense matrix as one row. */
static weft_view as_row(weft_view v)
{
    return weft_view_make(v.data, v.dtype, 1, v.rows * v.cols);
}

weft_part weft_i_part_whole(weft_model *m, int64_t i)
{
    weft_param *p = weft_model_param(m, i);
    const weft_part part = {.param = p,
                            .number = i,
                            .n = p->rows * p->cols,
                            .value = as_row(p->value),
                            .grad = p->grad_first >= 0 ? as_row(p->grad) : weft_view_none(),
                            .state_first = -1};
    return part;
}

weft_status weft_i_part_list(weft_part **out, weft_model *m)
{
    const int64_t n = weft_model_param_count(m);
    WEFT_TRY(weft_i_alloc_array(weft_model_ctx(m)->alloc, n, sizeof(**out), out));
    for (int64_t i = 0; i < n; i++)
        (*out)[i] = weft_i_part_whole(m, i);
    return WEFT_OK;
}

weft_stretch_walk weft_i_stretch_begin(const weft_param *param, int64_t first, int64_t n)
{
    const weft_stretch_walk walk = {.param = param, .next = first, .end = first + n};
    return walk;
}

/* The piece's first run that begins at local element `from` or later; false when there is none before `end`. */
static bool run_of_piece(const weft_param *p,
                         const weft_param_piece *piece,
                         int64_t from,
                         int64_t end,
                         weft_stretch *out)
{
    const bool is_dense = piece->cols == p->cols && piece->cols == p->full_cols;
    int64_t row = from / p->cols;
    int64_t col = from % p->cols;
    if (row < piece->row) {
        row = piece->row;
        col = piece->col;
    } else if (col >= piece->col + piece->cols) {
        row++;
        col = piece->col;
    }
    col = WEFT_MAX(col, piece->col);
    const int64_t local = row * p->cols + col;
    if (row >= piece->row + piece->rows || local >= end)
        return false;
    const int64_t n =
        is_dense ? (piece->row + piece->rows) * p->cols - local : piece->col + piece->cols - col;
    const int64_t full_row = piece->full_row + row - piece->row;
    *out = (weft_stretch){.local = local,
                          .full = full_row * p->full_cols + piece->full_col + col - piece->col,
                          .n = WEFT_MIN(n, end - local),
                          .is_owned = piece->is_owned};
    return true;
}

static bool first_run(const weft_stretch_walk *walk, int64_t from, weft_stretch *out)
{
    bool is_found = false;
    weft_stretch s;
    for (int i = 0; i < walk->param->n_pieces && from < walk->end; i++) {
        if (!run_of_piece(walk->param, &walk->param->piece[i], from, walk->end, &s))
            continue;
        if (!is_found || s.local < out->local)
            *out = s;
        is_found = true;
    }
    return is_found;
}

bool weft_i_stretch_next(weft_stretch_walk *walk, weft_stretch *out)
{
    weft_stretch s;
    if (!first_run(walk, walk->next, out))
        return false;
    walk->next = out->local + out->n;
    while (first_run(walk, walk->next, &s) && s.local == out->local + out->n &&
           s.full == out->full + out->n && s.is_owned == out->is_owned) {
        out->n += s.n;
        walk->next += s.n;
    }
    return true;
}

weft_status weft_i_part_init(weft_backend *b, const weft_part *part, weft_view to, uint64_t seed)
{
    const weft_param *p = part->param;
    char name[WEFT_PARAM_NAME_BYTES + 8];
    weft_stretch s;
    if (p->init != WEFT_INIT_NORMAL) {
        const weft_fill_args a = {.x = to, .value = p->init == WEFT_INIT_ONES ? 1.0f : 0.0f};
        return weft_i_op_run(b, WEFT_OP_FILL, &a, NULL);
    }
    WEFT_TRY(weft_i_str_print(name, sizeof(name), "init/%s", p->name));
    const weft_rng_key key = weft_i_rng_key(seed, name);
    weft_stretch_walk walk = weft_i_stretch_begin(p, part->first, part->n);
    while (weft_i_stretch_next(&walk, &s)) {
        const weft_init_normal_args a = {.x = weft_view_cols(to, s.local - part->first, s.n),
                                         .key = {key.word[0], key.word[1]},
                                         .first = (uint64_t)s.full,
                                         .row_step = (uint64_t)s.n,
                                         .std = p->init_std};
        WEFT_TRY(weft_i_op_run(b, WEFT_OP_INIT_NORMAL, &a, NULL));
    }
    return WEFT_OK;
}
