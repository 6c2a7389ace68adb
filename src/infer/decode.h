/* Reads prompts into the cache and adds ids to them, a group of sequences on every rank at a time. */
#ifndef WEFT_INFER_DECODE_H
#define WEFT_INFER_DECODE_H

#include "infer/deliver.h"
#include "infer/kv_cache.h"
#include "infer/sampling.h"
#include "nn/models/load.h"
#include "parallel/plan_forward.h"

#define WEFT_STOP_IDS 16

/** Zero-initialise, then set. */
typedef struct weft_decoder_options {
    weft_sampling sampling;
    int32_t stop[WEFT_STOP_IDS]; /* ids that end a sequence */
    int n_stop;
    int64_t n_ids;                            /* ids below this may be chosen */
    int64_t n_seqs;                           /* sequences that run together on a rank, at most */
    const weft_generate_callbacks *callbacks; /* should_stop; NULL: none, as on all ranks but 0 */
} weft_decoder_options;

typedef struct weft_decoder weft_decoder;

/**
 * Plans the passes by a dry run, loads the model as this rank's layout holds it and takes all memory.
 *
 * @collective  world: 1 agreement, then that of weft_i_replica_create
 * @param[in] mesh     outlives the decoder
 * @param[in] prompts  outlives the decoder; the same on all ranks
 * @return    WEFT_OK | NOMEM | what loading fails with
 */
weft_status weft_i_decoder_create(weft_decoder **out,
                                  weft_mesh *mesh,
                                  weft_source *source,
                                  const weft_prompts *prompts,
                                  const weft_decoder_options *options,
                                  uint64_t seed);
void weft_i_decoder_destroy(weft_decoder *d);

/**
 * Runs sequences [first, first + n) to their ends, n at most n_seqs; a rank without any (n 0) runs as many passes as the
 * others.
 *
 * @collective  world: 1 all_reduce of 1 I64 before every pass; what the methods gather in a pass
 * @param[out] is_stopped  should_stop of rank 0 said so, the same on every rank; the sequences were ended with STOPPED
 * @return     WEFT_OK | NUMERIC | what an operation fails with
 */
weft_status weft_i_decoder_run(
    bool *is_stopped, weft_decoder *d, weft_sequence *first, int64_t n, weft_delivery *delivery);

/** What this rank did so far: seconds spent on prompts and on the tokens after the first, tokens that came, passes. */
void weft_i_decoder_times(const weft_decoder *d, weft_generate_result *out);

/** What the dry run found. */
const weft_pass_memory *weft_i_decoder_memory(const weft_decoder *d);

#endif
