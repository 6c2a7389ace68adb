/**
 * Segments: how a model's flat weights and gradients are cut over the data-parallel ranks.
 *
 * A segment is a run of consecutive parameters that are all trained or all frozen. A parameter that several layers use is a
 * segment of its own. Otherwise a segment has parameters of one layer, or (bucket_elems > 0) of as many whole layers in a
 * row as reach bucket_elems. Each segment is cut by tensor/split.h in blocks of WEFT_PARAM_ALIGN_ELEMS elements.
 */
#ifndef WEFT_PARALLEL_SHARD_H
#define WEFT_PARALLEL_SHARD_H

#include "nn/param_part.h"
#include "weft/model.h"

typedef struct weft_segment {
    int64_t first_param, n_params; /* in the model's order */
    int64_t value_first;           /* element of the flat weights */
    int64_t grad_first;            /* of the flat gradients; -1: frozen */
    int64_t n_elems;               /* padding of every parameter included */
    const int64_t *counts;         /* [size] elements of each rank's part; owned by the shards */
    int64_t mine_first, n_mine;    /* this rank's part of the segment */
    int64_t value_shard_first; /* where that part begins in this rank's flat shard of all weights */
    int64_t grad_shard_first;  /* and in its flat shard of trained elements; -1: frozen */
    int first_layer, last_layer; /* lowest and highest layer that uses one of its parameters */
    bool is_shared;              /* one parameter that several layers use */
} weft_segment;

typedef struct weft_shards {
    weft_ctx *ctx;
    weft_model *model;
    int rank, size;
    weft_segment *segments;
    int64_t n_segments;
    int64_t *counts;           /* [n_segments * size] */
    int64_t *segment_of_param; /* [parameters] */
    int64_t n_value_elems;     /* of this rank's shard of all weights */
    int64_t n_grad_elems;      /* of its shard of trained elements */
} weft_shards;

/**
 * @collective  none
 * @param[in] m             laid out (weft_model_lay_out)
 * @param[in] bucket_elems  0: a segment a layer
 * @return      WEFT_OK | NOMEM
 */
weft_status
weft_i_shards_create(weft_shards *out, weft_model *m, int rank, int size, int64_t bucket_elems);
void weft_i_shards_fini(weft_shards *s);

/** Cuts again: rank 0 gets all of every segment, the others nothing. Before parts are made. @collective none */
void weft_i_shards_give_to_root(weft_shards *s);

/** Whose elements a list of parts has, and where they lie. NULL memory: views without data. */
typedef struct weft_parts_options {
    bool is_mine_only; /* this rank's part of every segment; else all of every parameter */
    bool is_trained_only;
    void *values;        /* flat weights */
    bool is_value_shard; /* ... or this rank's shard of them */
    void *grads;         /* flat gradients */
    bool is_grad_shard;
    bool is_state_shard; /* optimizer state has this rank's part only; else all trained elements */
} weft_parts_options;

typedef struct weft_parts {
    weft_part *part;
    int64_t n;
} weft_parts;

/** Parts in flat order, padding left out. @return WEFT_OK | NOMEM */
weft_status weft_i_parts_create(weft_parts *out, const weft_shards *s, const weft_parts_options *o);
void weft_i_parts_fini(weft_parts *p, weft_ctx *ctx);

#endif
