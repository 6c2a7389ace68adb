/*
 * Segments and parts (contract: shard.h).
 *
 * A parameter's home is the one layer that lists it. One that no layer lists has the home of the parameter before it; one
 * that several list has none and makes a segment of its own.
 *
 * Invariants
 *  1. Segments cover all parameters in their order, once; every segment's length is a multiple of WEFT_PARAM_ALIGN_ELEMS.
 *  2. Within a segment gradients lie as the weights do: one offset turns the one into the other.
 *  3. Parts are f(shards, options) alone: every rank that asks for the same gets the same.
 * Communication: none. Leaves to others: when a segment is gathered or reduced.
 */
#include "parallel/shard.h"

#include "base/ctx.h"
#include "base/error.h"
#include "tensor/split.h"

/* ---- which layers use a parameter ---- */

typedef struct home {
    int first_layer, last_layer; /* -1: none lists it */
} home;

static void find_homes(home *homes, weft_model *m)
{
    const int64_t n = weft_model_param_count(m);
    for (int64_t i = 0; i < n; i++)
        homes[i] = (home){-1, -1};
    for (int64_t k = 0; k < weft_model_layer_count(m); k++) {
        const weft_layer *l = weft_model_layer(m, k);
        for (int j = 0; j < l->n_params; j++) {
            home *h = &homes[l->params[j]->number];
            h->first_layer = h->first_layer < 0 ? (int)k : h->first_layer;
            h->last_layer = (int)k;
        }
    }
    int before = 0;
    for (int64_t i = 0; i < n; i++) {
        if (homes[i].first_layer < 0)
            homes[i] = (home){before, before};
        before = homes[i].last_layer;
    }
}

/* ---- segments ---- */

static int64_t padded(const weft_param *p)
{
    const int64_t n = p->rows * p->cols + WEFT_PARAM_ALIGN_ELEMS - 1;
    return n / WEFT_PARAM_ALIGN_ELEMS * WEFT_PARAM_ALIGN_ELEMS;
}

static bool is_trained(const weft_param *p)
{
    return p->grad_first >= 0;
}

/* Used by several layers, or copied in another stage. */
static bool is_alone(const weft_param *p, const home *h)
{
    return h->first_layer != h->last_layer || p->is_apart;
}

/* Whether parameter p with home h goes on with segment s, whose last layer so far is s->last_layer. */
static bool
is_joined(const weft_segment *s, const weft_param *p, const home *h, int64_t bucket_elems)
{
    if (s->is_shared || is_alone(p, h) || is_trained(p) != (s->grad_first >= 0))
        return false;
    if (h->last_layer == s->last_layer)
        return true;
    return h->last_layer > s->last_layer && s->n_elems < bucket_elems;
}

static weft_segment begin_segment(const weft_param *p, int64_t i, const home *h)
{
    const weft_segment s = {.first_param = i,
                            .value_first = p->value_first,
                            .grad_first = p->grad_first,
                            .first_layer = h->first_layer,
                            .last_layer = h->last_layer,
                            .is_shared = is_alone(p, h)};
    return s;
}

/* Appends parameter i to the last segment, or begins one. */
static weft_status add_param(weft_shards *out, int64_t i, const home *h, int64_t bucket_elems)
{
    const weft_param *p = weft_model_param(out->model, i);
    weft_segment *s = out->n_segments > 0 ? &out->segments[out->n_segments - 1] : NULL;
    if (s == NULL || !is_joined(s, p, h, bucket_elems)) {
        s = &out->segments[out->n_segments++];
        *s = begin_segment(p, i, h);
    }
    if (p->value_first != s->value_first + s->n_elems ||
        (is_trained(p) && p->grad_first != s->grad_first + s->n_elems))
        WEFT_FAIL(WEFT_STATUS_INTERNAL, "%s does not lie behind the parameters before it", p->name);
    s->n_params++;
    s->n_elems += padded(p);
    s->last_layer = WEFT_MAX(s->last_layer, h->last_layer);
    out->segment_of_param[i] = out->n_segments - 1;
    return WEFT_OK;
}

/* Cuts every segment over the first n_holders ranks and lays this rank's parts one after another. */
static void cut(weft_shards *out, int n_holders)
{
    out->n_value_elems = 0;
    out->n_grad_elems = 0;
    for (int64_t k = 0; k < out->n_segments; k++) {
        weft_segment *s = &out->segments[k];
        int64_t *counts = &out->counts[k * out->size];
        for (int r = 0; r < out->size; r++)
            counts[r] = r < n_holders
                            ? weft_i_split_count(s->n_elems, WEFT_PARAM_ALIGN_ELEMS, n_holders, r)
                            : 0;
        s->counts = counts;
        s->mine_first =
            out->rank < n_holders
                ? weft_i_split_first(s->n_elems, WEFT_PARAM_ALIGN_ELEMS, n_holders, out->rank)
                : s->n_elems;
        s->n_mine = counts[out->rank];
        s->value_shard_first = out->n_value_elems;
        out->n_value_elems += s->n_mine;
        s->grad_shard_first = -1;
        if (s->grad_first >= 0) {
            s->grad_shard_first = out->n_grad_elems;
            out->n_grad_elems += s->n_mine;
        }
    }
}

weft_status
weft_i_shards_create(weft_shards *out, weft_model *m, int rank, int size, int64_t bucket_elems)
{
    weft_ctx *ctx = weft_model_ctx(m);
    const int64_t n = weft_model_param_count(m);
    home *homes = NULL;
    weft_status st = WEFT_OK;
    *out = (weft_shards){.ctx = ctx, .model = m, .rank = rank, .size = size};
    WEFT_TRY_GOTO(st, weft_i_alloc_array(ctx->alloc, n, sizeof(*homes), &homes), out);
    WEFT_TRY_GOTO(st, weft_i_alloc_array(ctx->alloc, n, sizeof(int64_t), &out->segment_of_param),
                  out);
    WEFT_TRY_GOTO(st, weft_i_alloc_array(ctx->alloc, n, sizeof(weft_segment), &out->segments), out);
    find_homes(homes, m);
    for (int64_t i = 0; i < n; i++)
        WEFT_TRY_GOTO(st, add_param(out, i, &homes[i], bucket_elems), out);
    WEFT_TRY_GOTO(
        st, weft_i_alloc_array(ctx->alloc, out->n_segments * size, sizeof(int64_t), &out->counts),
        out);
    cut(out, size);
out:
    weft_i_alloc_put(ctx->alloc, homes);
    if (st != WEFT_OK)
        weft_i_shards_fini(out);
    return st;
}

void weft_i_shards_give_to_root(weft_shards *s)
{
    cut(s, 1);
}

void weft_i_shards_fini(weft_shards *s)
{
    if (s->ctx == NULL)
        return;
    weft_i_alloc_put(s->ctx->alloc, s->counts);
    weft_i_alloc_put(s->ctx->alloc, s->segments);
    weft_i_alloc_put(s->ctx->alloc, s->segment_of_param);
    *s = (weft_shards){.ctx = NULL};
}

/* ---- parts ---- */

static weft_view at_element(void *block, weft_dtype dtype, int64_t first, int64_t n)
{
    void *data = NULL;
    if (block != NULL)
        data = (char *)block + (size_t)first * weft_dtype_bytes(dtype);
    return weft_view_make(data, dtype, 1, n);
}

/* The part of parameter i that the options ask for; false when it is empty. */
static bool make_part(weft_part *out, const weft_shards *s, int64_t i, const weft_parts_options *o)
{
    const weft_segment *g = &s->segments[s->segment_of_param[i]];
    weft_param *p = weft_model_param(s->model, i);
    const int64_t before = p->value_first - g->value_first; /* of the segment, in either block */
    int64_t first = 0;
    int64_t end = p->rows * p->cols;
    if (o->is_trained_only && g->grad_first < 0)
        return false;
    if (o->is_mine_only) {
        first = WEFT_MAX(first, g->mine_first - before);
        end = WEFT_MIN(end, g->mine_first + g->n_mine - before);
    }
    if (first >= end)
        return false;
    const int64_t in_segment = before + first;
    const int64_t in_mine = in_segment - g->mine_first;
    const int64_t value =
        o->is_value_shard ? g->value_shard_first + in_mine : g->value_first + in_segment;
    *out =
        (weft_part){.param = p,
                    .number = i,
                    .first = first,
                    .n = end - first,
                    .value = at_element(o->values, weft_model_dtype(s->model), value, end - first),
                    .grad = weft_view_none(),
                    .state_first = -1};
    if (g->grad_first < 0)
        return true;
    const int64_t in_shard = g->grad_shard_first + in_mine;
    const int64_t in_whole = g->grad_first + in_segment;
    out->grad =
        at_element(o->grads, WEFT_DTYPE_F32, o->is_grad_shard ? in_shard : in_whole, end - first);
    out->state_first = o->is_state_shard ? in_shard : in_whole;
    return true;
}

weft_status weft_i_parts_create(weft_parts *out, const weft_shards *s, const weft_parts_options *o)
{
    const int64_t n = weft_model_param_count(s->model);
    weft_part part;
    int64_t count = 0;
    *out = (weft_parts){.n = 0};
    /* A shard has only this rank's elements. */
    WEFT_ASSERT(o->is_mine_only || s->size == 1 ||
                !(o->is_value_shard || o->is_grad_shard || o->is_state_shard));
    for (int64_t i = 0; i < n; i++)
        count += make_part(&part, s, i, o) ? 1 : 0;
    WEFT_TRY(weft_i_alloc_array(s->ctx->alloc, count, sizeof(weft_part), &out->part));
    for (int64_t i = 0; i < n; i++) {
        if (make_part(&part, s, i, o))
            out->part[out->n++] = part;
    }
    return WEFT_OK;
}

void weft_i_parts_fini(weft_parts *p, weft_ctx *ctx)
{
    weft_i_alloc_put(ctx->alloc, p->part);
    *p = (weft_parts){.n = 0};
}
