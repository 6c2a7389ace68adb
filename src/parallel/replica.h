/* A model with weights as this rank's layout holds them: for evaluation, probing and generation. */
#ifndef WEFT_PARALLEL_REPLICA_H
#define WEFT_PARALLEL_REPLICA_H

#include "nn/models/load.h"
#include "parallel/parallel.h"

typedef struct weft_replica {
    weft_model *model;
    weft_parallel *parallel;
} weft_replica;

/**
 * Builds the source's model, takes its memory, fills it (fresh weights from `seed` where the source has none; a dry context
 * fills nothing) and shares the weights.
 *
 * @collective  every rank: that of weft_i_parallel_share_weights
 * @return      WEFT_OK | what building, loading and sharing fail with
 */
weft_status weft_i_replica_create(
    weft_replica *out, weft_mesh *mesh, const weft_source *source, bool is_training, uint64_t seed);
void weft_i_replica_destroy(weft_replica *r);

#endif
