/* Brings the answers of a round to rank 0, which hands them out in the order of prompts. */
#ifndef WEFT_INFER_COLLECT_H
#define WEFT_INFER_COLLECT_H

#include "infer/deliver.h"
#include "parallel/mesh.h"

/** Group g of n_seqs prompts belongs to dp rank g mod dp and runs in round g / dp. */
typedef struct weft_collector {
    weft_mesh *mesh;
    weft_prompts *prompts;
    int64_t n_seqs;  /* prompts of a group */
    int32_t *mine;   /* [n_seqs * 2] new ids and finish of each sequence of this rank's group */
    int32_t *all;    /* [dp * n_seqs * 2] the same of every rank */
    int64_t *left;   /* [dp] ids that have not been sent */
    int64_t *counts; /* [dp] ids of a piece */
    int32_t *piece;  /* this rank's part of one */
    int32_t *pieces; /* rank 0: of every rank */
} weft_collector;

/** @return WEFT_OK | NOMEM */
weft_status
weft_i_collector_init(weft_collector *out, weft_mesh *mesh, weft_prompts *prompts, int64_t n_seqs);
void weft_i_collector_fini(weft_collector *c);

/** The sequences of dp rank `rank` in a round: how many, from *first on. */
int64_t
weft_i_collector_group(const weft_collector *c, int64_t round, int64_t rank, int64_t *first);

/**
 * All groups of the round have ended, each on its rank: on rank 0 they have afterwards.
 *
 * @collective  dp: 1 all_gather of 2 * n_seqs I32 a rank, then gathers of at most 4096 ids a rank
 * @param[in] delivery  rank 0's
 */
weft_status weft_i_collector_round(weft_collector *c, int64_t round, weft_delivery *delivery);

#endif
