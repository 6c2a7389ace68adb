/* Reads a step's samples into one global batch on the host. */
#ifndef WEFT_TRAIN_TRAIN_BATCH_H
#define WEFT_TRAIN_TRAIN_BATCH_H

#include "data/dataset.h"
#include "train/trainer.h"

typedef struct weft_batch_reader {
    weft_alloc *alloc;
    const weft_sampler *sampler; /* NULL in a dry run, or where nobody reads: every id is 0 */
    int64_t n_seqs;
    int64_t n_tokens;
    int32_t *ids;
    int32_t *targets;
    int32_t *window; /* [n_tokens + 1] */
    uint64_t hash;   /* FNV-1a 64 over the windows of the last batch read */
} weft_batch_reader;

/** Takes the host's room for one global batch. On failure there is nothing to finish. */
weft_status weft_i_batch_reader_init(weft_batch_reader *r,
                                     weft_alloc *alloc,
                                     const weft_sampler *sampler,
                                     int64_t n_seqs,
                                     int64_t n_tokens);
void weft_i_batch_reader_fini(weft_batch_reader *r);

/** Samples [first, first + n_seqs) of the run; valid until the next read. Takes no memory. */
weft_status
weft_i_batch_reader_read(weft_batch_reader *r, int64_t first_sample, weft_train_batch *out);

#endif
