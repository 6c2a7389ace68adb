/*
 * Slices of a family's model (contract: slice.h).
 *
 * Source: Shoeybi et al., Megatron-LM, arXiv:1909.08053, sec. 3 (which matrix is cut along which dimension).
 *
 * Who owns a kv head that several slices have: the one with the first query head that uses it, so ownership follows from a
 * slice alone.
 * Communication: none. Leaves to others: which slice is whose (tensor/split.c, parallel/).
 */
#include "nn/models/slice.h"

#include "base/ctx.h"
#include "base/error.h"
#include "nn/model_parts.h"
#include "nn/models/families.h"
#include "tensor/split.h"

weft_model_slice weft_i_slice_whole(const weft_config *c)
{
    const weft_model_slice s = {.n_items = c->n_layers + 2,
                                .n_heads = c->n_heads,
                                .n_ffn = c->ffn_size,
                                .n_ids = c->vocab_size,
                                .is_first = true};
    return s;
}

const weft_model_slice *weft_i_model_slice(const weft_model *m)
{
    return &m->slice;
}

static int64_t heads_of_kv(const weft_config *c)
{
    return c->n_heads / c->n_kv_heads;
}

void weft_i_slice_kv(const weft_model_slice *s, const weft_config *c, int64_t *first, int64_t *n)
{
    *first = s->first_head / heads_of_kv(c);
    *n = (s->first_head + s->n_heads - 1) / heads_of_kv(c) + 1 - *first;
}

int64_t weft_i_model_kv_cols(const weft_model *m)
{
    int64_t first = 0;
    int64_t n = 0;
    weft_i_slice_kv(&m->slice, &m->config, &first, &n);
    return n * m->config.head_dim;
}

bool weft_i_model_is_block(const weft_model *m, int64_t i)
{
    const int64_t number = m->slice.first_item + i;
    return number > 0 && number <= m->config.n_layers;
}

size_t weft_i_model_kv_bytes(const weft_model *m, int64_t n_tokens)
{
    int64_t n_blocks = 0;
    for (int64_t i = 0; i < m->n_layers; i++)
        n_blocks += weft_i_model_is_block(m, i) ? 1 : 0;
    return 2 * (size_t)n_blocks * (size_t)(n_tokens * weft_i_model_kv_cols(m)) *
           weft_dtype_bytes(m->dtype);
}

/* ---- strips ---- */

/* Where strip i of the whole model starts among its kv heads, MLP columns or ids. */
static int64_t
strip_first(const weft_model_slice *s, const weft_config *c, weft_strip_kind kind, int64_t i)
{
    const int64_t n[WEFT_STRIP_KINDS] = {[WEFT_STRIP_KV] = c->n_kv_heads,
                                         [WEFT_STRIP_FFN] = c->ffn_size,
                                         [WEFT_STRIP_IDS] = c->vocab_size};
    return weft_i_split_first(n[kind], 1, (int)s->n_all_strips, (int)i);
}

void weft_i_slice_from_strips(weft_model_slice *s, const weft_config *c)
{
    const int64_t end = s->first_strip + s->n_strips;
    s->first_head = strip_first(s, c, WEFT_STRIP_KV, s->first_strip) * heads_of_kv(c);
    s->n_heads = strip_first(s, c, WEFT_STRIP_KV, end) * heads_of_kv(c) - s->first_head;
    s->first_ffn = strip_first(s, c, WEFT_STRIP_FFN, s->first_strip);
    s->n_ffn = strip_first(s, c, WEFT_STRIP_FFN, end) - s->first_ffn;
    s->first_id = strip_first(s, c, WEFT_STRIP_IDS, s->first_strip);
    s->n_ids = strip_first(s, c, WEFT_STRIP_IDS, end) - s->first_id;
}

/* Ends of the strips here, counted from the slice's first kv head, MLP column or id. */
static weft_status list_strips(weft_model *m)
{
    const weft_model_slice *s = &m->slice;
    if (s->n_strips == 0)
        return WEFT_OK;
    WEFT_TRY(weft_i_alloc_array(m->ctx->alloc, WEFT_STRIP_KINDS * s->n_strips, sizeof(int64_t),
                                &m->strip_ends));
    for (int kind = 0; kind < WEFT_STRIP_KINDS; kind++) {
        const int64_t first = strip_first(s, &m->config, (weft_strip_kind)kind, s->first_strip);
        for (int64_t i = 0; i < s->n_strips; i++)
            m->strip_ends[kind * s->n_strips + i] =
                strip_first(s, &m->config, (weft_strip_kind)kind, s->first_strip + i + 1) - first;
    }
    return WEFT_OK;
}

/* ---- pieces ---- */

void weft_i_slice_cut(weft_param *p, int dim, const weft_slice_range *ranges, int n_ranges)
{
    int64_t at = 0;
    p->n_pieces = 0;
    for (int i = 0; i < n_ranges; i++) {
        const weft_slice_range *r = &ranges[i];
        weft_param_piece *last = p->n_pieces > 0 ? &p->piece[p->n_pieces - 1] : NULL;
        if (r->n == 0)
            continue;
        if (last != NULL && ranges[i - 1].first + ranges[i - 1].n == r->first &&
            last->is_owned == r->is_owned) {
            *(dim == 0 ? &last->rows : &last->cols) += r->n;
            at += r->n;
            continue;
        }
        weft_param_piece piece = {
            .rows = p->full_rows, .cols = p->full_cols, .is_owned = r->is_owned};
        if (dim == 0) {
            piece.full_row = r->first;
            piece.row = at;
            piece.rows = r->n;
        } else {
            piece.full_col = r->first;
            piece.col = at;
            piece.cols = r->n;
        }
        at += r->n;
        WEFT_ASSERT(p->n_pieces < WEFT_PARAM_PIECES);
        p->piece[p->n_pieces++] = piece;
    }
    if (dim == 0)
        p->rows = at;
    else
        p->cols = at;
    p->grad_kind = WEFT_GRAD_SPLIT;
}

void weft_i_slice_same(weft_param *p, const weft_model_slice *s)
{
    p->grad_kind = WEFT_GRAD_SAME;
    for (int i = 0; i < p->n_pieces; i++)
        p->piece[i].is_owned = s->is_first;
}

void weft_i_slice_stream(weft_param *p, const weft_model_slice *s)
{
    weft_i_slice_same(p, s);
    if (s->is_sequence_parallel && s->n_all_strips == 0)
        p->grad_kind = WEFT_GRAD_PARTIAL;
}

void weft_i_slice_cut_kv(weft_param *p, int dim, const weft_model_slice *s, const weft_config *c)
{
    int64_t first = 0;
    int64_t n = 0;
    weft_i_slice_kv(s, c, &first, &n);
    const int64_t d = c->head_dim;
    const int64_t n_foreign = s->first_head % heads_of_kv(c) != 0 ? 1 : 0;
    const weft_slice_range ranges[2] = {{first * d, n_foreign * d, false},
                                        {(first + n_foreign) * d, (n - n_foreign) * d, true}};
    weft_i_slice_cut(p, dim, ranges, 2);
    if (s->is_kv_copied) {
        p->grad_kind = WEFT_GRAD_PARTIAL;
        p->partial_unit = d;
    }
}

/* ---- building ---- */

static bool is_inside(int64_t first, int64_t n, int64_t all)
{
    return first >= 0 && n >= 1 && n <= all && first <= all - n;
}

static weft_status check(const weft_model_slice *s, const weft_config *c)
{
    if (is_inside(s->first_item, s->n_items, c->n_layers + 2) &&
        is_inside(s->first_head, s->n_heads, c->n_heads) &&
        is_inside(s->first_ffn, s->n_ffn, c->ffn_size) &&
        is_inside(s->first_id, s->n_ids, c->vocab_size))
        return WEFT_OK;
    WEFT_FAIL(
        WEFT_STATUS_ARG,
        "a slice of %lld items, %lld heads, %lld MLP columns and %lld ids is empty or reaches "
        "beyond the model",
        (long long)s->n_items, (long long)s->n_heads, (long long)s->n_ffn, (long long)s->n_ids);
}

static weft_status build(weft_model *m, const weft_config *c, const weft_model_slice *s)
{
    switch (c->family) {
    case WEFT_FAMILY_GPT2:
        return weft_i_gpt2_build(m, c, s);
    case WEFT_FAMILY_LLAMA:
        m->has_rope = true;
        return weft_i_llama_build(m, c, s);
    default:
        WEFT_FAIL(WEFT_STATUS_UNSUPPORTED, "family %d is none weft builds", (int)c->family);
    }
}

weft_status weft_i_model_from_slice(weft_model **out,
                                    weft_ctx *ctx,
                                    const weft_config *config,
                                    weft_dtype dtype,
                                    const weft_model_slice *slice)
{
    weft_model *m = NULL;
    *out = NULL;
    WEFT_TRY(weft_model_create(&m, ctx, dtype));
    m->config = *config;
    m->slice = *slice;
    if (m->slice.n_items == 0)
        m->slice.n_items = config->n_layers + 2 - slice->first_item;
    weft_status st = check(&m->slice, config);
    if (st == WEFT_OK)
        st = list_strips(m);
    if (st == WEFT_OK)
        st = build(m, config, &m->slice);
    if (st != WEFT_OK) {
        weft_model_destroy(m);
        return st;
    }
    *out = m;
    return WEFT_OK;
}
