/*
 * A global batch on the host: n_seqs windows of seq_length + 1 tokens, split into inputs and targets shifted by one.
 *
 * Invariant: which ids a step sees depends on the number of its first sample alone (the sampler keeps no state), so a
 * resumed run reads what the straight run would have read; the hash shows it.
 */
#include "train/train_batch.h"

#include <string.h>

#define FNV_OFFSET UINT64_C(0xcbf29ce484222325)
#define FNV_PRIME UINT64_C(0x100000001b3)

weft_status weft_i_batch_reader_init(weft_batch_reader *r,
                                     weft_alloc *alloc,
                                     const weft_sampler *sampler,
                                     int64_t n_seqs,
                                     int64_t n_tokens)
{
    weft_status st = WEFT_OK;
    *r = (weft_batch_reader){
        .alloc = alloc, .sampler = sampler, .n_seqs = n_seqs, .n_tokens = n_tokens};
    WEFT_TRY_GOTO(st, weft_i_alloc_array(alloc, n_seqs * n_tokens, sizeof(int32_t), &r->ids), out);
    WEFT_TRY_GOTO(st, weft_i_alloc_array(alloc, n_seqs * n_tokens, sizeof(int32_t), &r->targets),
                  out);
    WEFT_TRY_GOTO(st, weft_i_alloc_array(alloc, n_tokens + 1, sizeof(int32_t), &r->window), out);
out:
    if (st != WEFT_OK)
        weft_i_batch_reader_fini(r);
    return st;
}

void weft_i_batch_reader_fini(weft_batch_reader *r)
{
    if (r->alloc == NULL)
        return;
    weft_i_alloc_put(r->alloc, r->ids);
    weft_i_alloc_put(r->alloc, r->targets);
    weft_i_alloc_put(r->alloc, r->window);
    *r = (weft_batch_reader){.alloc = NULL};
}

/* FNV-1a over the four bytes of each id, lowest first. */
static uint64_t add_hash(uint64_t hash, const int32_t *ids, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        for (int byte = 0; byte < 4; byte++) {
            hash ^= ((uint32_t)ids[i] >> (8 * byte)) & 0xffu;
            hash *= FNV_PRIME;
        }
    }
    return hash;
}

weft_status
weft_i_batch_reader_read(weft_batch_reader *r, int64_t first_sample, weft_train_batch *out)
{
    const size_t n_bytes = (size_t)r->n_tokens * sizeof(int32_t);
    r->hash = FNV_OFFSET;
    for (int64_t i = 0; i < r->n_seqs && r->sampler != NULL; i++) {
        WEFT_TRY(weft_i_sampler_read(r->sampler, first_sample + i, r->window));
        memcpy(r->ids + i * r->n_tokens, r->window, n_bytes);
        memcpy(r->targets + i * r->n_tokens, r->window + 1, n_bytes);
        r->hash = add_hash(r->hash, r->window, r->n_tokens + 1);
    }
    *out = (weft_train_batch){
        .n_seqs = r->n_seqs,
        .n_tokens = r->n_tokens,
        .ids = r->ids,
        .targets = r->targets,
        .first_sample = first_sample,
    };
    return WEFT_OK;
}
