/* Reads prompts into the cache and adds ids to them, a group of sequences at a time. */
#ifndef WEFT_INFER_DECODE_H
#define WEFT_INFER_DECODE_H

#include "infer/deliver.h"
#include "infer/kv_cache.h"
#include "infer/sampling.h"
#include "nn/models/load.h"

#define WEFT_STOP_IDS 16

/** Zero-initialise, then set. */
typedef struct weft_decoder_options {
    weft_sampling sampling;
    int32_t stop[WEFT_STOP_IDS]; /* ids that end a sequence */
    int n_stop;
    int64_t n_ids;                            /* ids below this may be chosen */
    int64_t n_seqs;                           /* sequences that run together, at most */
    const weft_generate_callbacks *callbacks; /* should_stop; NULL: none */
} weft_decoder_options;

typedef struct weft_decoder weft_decoder;

/**
 * Plans the passes by a dry run, loads the model and takes all memory.
 *
 * @param[in] prompts  outlives the decoder
 * @return    WEFT_OK | NOMEM | what loading fails with
 */
weft_status weft_i_decoder_create(weft_decoder **out,
                                  weft_ctx *ctx,
                                  weft_source *source,
                                  const weft_prompts *prompts,
                                  const weft_decoder_options *options,
                                  uint64_t seed);
void weft_i_decoder_destroy(weft_decoder *d);

/**
 * Runs sequences [first, first + n) to their ends, n at most n_seqs.
 *
 * @param[out] is_stopped  should_stop said so; the sequences were ended with STOPPED
 * @return     WEFT_OK | NUMERIC | what an operation fails with
 */
weft_status weft_i_decoder_run(
    bool *is_stopped, weft_decoder *d, weft_sequence *first, int64_t n, weft_delivery *delivery);

/** Seconds spent on prompts and on the tokens after the first, and how many tokens came. */
void weft_i_decoder_times(const weft_decoder *d, weft_generate_result *out);

#endif
