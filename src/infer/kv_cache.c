/*
 * The cache of keys and values (contract: kv_cache.h).
 *
 * One block of memory: for each layer the keys of all sequences, then the values. Sequences that run together lie one
 * after another from the front; when one finishes the last takes its place.
 */
#include "infer/kv_cache.h"

#include "backend/run_op.h"
#include "base/ctx.h"
#include "nn/models/slice.h"

#include <string.h>

static weft_status take_lists(weft_kv_cache *c)
{
    void *block = NULL;
    WEFT_TRY(weft_i_alloc_new(c->ctx->alloc, (size_t)c->n_list, sizeof(weft_kv), &block));
    c->whole = block;
    WEFT_TRY(weft_i_alloc_new(c->ctx->alloc, (size_t)c->n_list, sizeof(weft_kv), &block));
    c->part = block;
    return WEFT_OK;
}

static void place_layers(weft_kv_cache *c, const weft_model *m)
{
    const weft_dtype dtype = weft_model_dtype(m);
    const int64_t rows = c->n_seqs * c->capacity;
    const int64_t cols = weft_i_model_kv_cols(m);
    const size_t n_bytes = (size_t)rows * (size_t)cols * weft_dtype_bytes(dtype);
    char *at = c->memory;

    for (int64_t i = 0; i < c->n_list; i++) {
        if (!weft_i_model_is_block(m, i))
            continue;
        c->whole[i] = (weft_kv){.k = weft_view_make(at, dtype, rows, cols),
                                .v = weft_view_make(at + n_bytes, dtype, rows, cols),
                                .capacity = c->capacity};
        at += 2 * n_bytes;
    }
}

weft_status
weft_i_kv_cache_init(weft_kv_cache *out, weft_model *m, int64_t n_seqs, int64_t capacity)
{
    weft_kv_cache c = {.ctx = weft_model_ctx(m),
                       .n_list = weft_model_layer_count(m),
                       .n_seqs = n_seqs,
                       .capacity = capacity};
    const size_t n_bytes = weft_i_model_kv_bytes(m, n_seqs * capacity);
    weft_backend *b = c.ctx->backend;
    weft_status st = WEFT_OK;

    memset(out, 0, sizeof(*out));
    WEFT_TRY_GOTO(st, take_lists(&c), out);
    if (n_bytes > 0) {
        WEFT_TRY_GOTO(
            st, b->ops->mem_get(b, WEFT_MEM_CACHE, n_bytes, "cache of keys and values", &c.memory),
            out);
        place_layers(&c, m);
    }
out:
    if (st == WEFT_OK)
        *out = c;
    else
        weft_i_kv_cache_fini(&c);
    return st;
}

void weft_i_kv_cache_fini(weft_kv_cache *c)
{
    if (c->ctx == NULL)
        return;
    c->ctx->backend->ops->mem_put(c->ctx->backend, c->memory);
    weft_i_alloc_put(c->ctx->alloc, c->whole);
    weft_i_alloc_put(c->ctx->alloc, c->part);
    memset(c, 0, sizeof(*c));
}

weft_kv *weft_i_kv_cache_from(weft_kv_cache *c, int64_t first)
{
    for (int64_t i = 0; i < c->n_list; i++) {
        c->part[i] = c->whole[i];
        if (c->whole[i].k.data == NULL)
            continue;
        const int64_t rows = (c->n_seqs - first) * c->capacity;
        c->part[i].k = weft_view_rows(c->whole[i].k, first * c->capacity, rows);
        c->part[i].v = weft_view_rows(c->whole[i].v, first * c->capacity, rows);
    }
    return c->part;
}

weft_status weft_i_kv_cache_move(weft_kv_cache *c, int64_t to, int64_t from, int64_t n_tokens)
{
    if (to == from || n_tokens == 0)
        return WEFT_OK;
    for (int64_t i = 0; i < c->n_list; i++) {
        const weft_view both[] = {c->whole[i].k, c->whole[i].v};
        for (size_t k = 0; k < WEFT_COUNT_OF(both) && both[k].data != NULL; k++) {
            const weft_copy_args copy = {.dst = weft_view_rows(both[k], to * c->capacity, n_tokens),
                                         .src =
                                             weft_view_rows(both[k], from * c->capacity, n_tokens)};
            WEFT_TRY(weft_i_op_run(c->ctx->backend, WEFT_OP_COPY, &copy, NULL));
        }
    }
    return WEFT_OK;
}
