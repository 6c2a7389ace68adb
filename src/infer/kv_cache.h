/* Keys and values of the tokens read so far, for a batch of sequences; a row of places for each. */
#ifndef WEFT_INFER_KV_CACHE_H
#define WEFT_INFER_KV_CACHE_H

#include "weft/model.h"

typedef struct weft_kv_cache {
    weft_ctx *ctx;
    void *memory;
    weft_kv
        *whole;    /* [n_list]: one for each layer of the list; those without attention have none */
    weft_kv *part; /* the same, of some sequences */
    int64_t n_list;
    int64_t n_seqs;
    int64_t capacity; /* tokens of a sequence */
} weft_kv_cache;

/**
 * Takes memory for n_seqs x capacity tokens in every block of m, which may be a part of a model.
 *
 * @return WEFT_OK | NOMEM
 */
weft_status
weft_i_kv_cache_init(weft_kv_cache *out, weft_model *m, int64_t n_seqs, int64_t capacity);
void weft_i_kv_cache_fini(weft_kv_cache *c);

/** The cache from sequence `first` on, as a pass over first, first + 1, ... wants it. Valid until the next call. */
weft_kv *weft_i_kv_cache_from(weft_kv_cache *c, int64_t first);

/** Sequence `to` becomes a copy of the first n_tokens of sequence `from`. */
weft_status weft_i_kv_cache_move(weft_kv_cache *c, int64_t to, int64_t from, int64_t n_tokens);

#endif
