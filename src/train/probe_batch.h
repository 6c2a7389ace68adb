/* The batch file of a probe: input_ids and labels, checked, on the host. */
#ifndef WEFT_TRAIN_PROBE_BATCH_H
#define WEFT_TRAIN_PROBE_BATCH_H

#include "base/ctx.h"

typedef struct weft_probe_batch {
    weft_alloc *alloc;
    int64_t n_seqs;
    int64_t n_tokens;
    int32_t *ids;      /* [n_seqs * n_tokens] */
    int32_t *targets;  /* labels one further in the same sequence; -100 at the last place */
    int64_t n_targets; /* that are counted */
} weft_probe_batch;

/**
 * Reads `input_ids` [B, T] and perhaps `labels` [B, T] (I64 or I32; without: the ids) of a safetensors file. Other tensors
 * are warned about.
 *
 * @return WEFT_OK | IO | FORMAT | UNSUPPORTED another type | MISMATCH an id beyond the vocabulary: where it stands | NOMEM
 */
weft_status
weft_i_probe_batch_init(weft_probe_batch *out, weft_ctx *ctx, const char *path, int64_t vocab_size);
void weft_i_probe_batch_fini(weft_probe_batch *b);

#endif
