/**
 * What every rank of a layout has: its place, layers, heads, columns, ids, parameters, bytes by kind, and what it sends in a
 * step. Found by a dry run of each rank's training; nothing is started or taken.
 */
#ifndef WEFT_PLACEMENT_H
#define WEFT_PLACEMENT_H

#include "weft/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Fields are the long options of `weft layout`. */
typedef struct weft_placement_options {
    weft_layout_options layout;
    const char *model;     /* folder or config.json */
    int64_t seq_length;    /* 0: min(max_positions, 256) */
    const char *optimizer; /* ["adamw"] sgd */
    double sgd_momentum;   /* [0] */
    bool json;
} weft_placement_options;

/** Numbers first ... first + n - 1. */
typedef struct weft_placement_range {
    int64_t first, n;
} weft_placement_range;

/** Items of the model's list on a rank: one group a chunk, one without a pipeline. */
typedef struct weft_placement_chunk {
    int64_t stage; /* its number in model order, chunks counted */
    bool has_embedding, has_head;
    weft_placement_range blocks; /* n 0: none */
    char text[96];               /* "embedding, blocks 0-5" */
} weft_placement_chunk;

/** What a rank sends in one step over one axis by one operation. */
typedef struct weft_placement_traffic {
    const char *axis, *op;
    int64_t n_calls, sent_bytes;
} weft_placement_traffic;

#define WEFT_PLACEMENT_KINDS 8
#define WEFT_PLACEMENT_TRAFFIC 48

typedef struct weft_placement_rank {
    int64_t rank, dp, tp, pp;
    weft_placement_chunk *chunks; /* [n_chunks] */
    int64_t n_chunks;
    weft_placement_range heads, kv_heads, mlp_columns, ids;
    int64_t n_params; /* elements that its layers use */
    int64_t n_held;   /* of them those that lie here (ZeRO stage 3: its share) */
    int64_t bytes[WEFT_PLACEMENT_KINDS];
    int64_t total_bytes;
    double step_flops;
    weft_placement_traffic traffic[WEFT_PLACEMENT_TRAFFIC]; /* without zero entries */
    int64_t n_traffic, sent_bytes;
} weft_placement_rank;

typedef struct weft_placement {
    int64_t n_ranks, dp, tp, pp, n_chunks, zero_stage;
    const char *schedule, *rank_order, *strategy; /* "" without */
    int64_t n_strips; /* of the tensor axis (--tp-strips); 0: whole products */
    bool is_sequence_parallel, is_reproducible;
    const char *family, *dtype;
    int64_t n_params; /* of the model, a tied one once */
    int64_t seq_length, micro_batch, global_batch,
        n_micro_batches;                     /* the last: of a rank in a step */
    const char *kinds[WEFT_PLACEMENT_KINDS]; /* names of bytes[] */
    const weft_placement_rank *ranks;        /* [n_ranks] */
} weft_placement;

/**
 * @collective  none
 * @param[in] done  gets the result, valid inside alone
 * @return      WEFT_OK | LAYOUT what cannot be, with the arithmetic and what works nearby, before anything is taken | ARG |
 *              IO | FORMAT | UNSUPPORTED | NOMEM
 */
WEFT_API weft_status weft_placement_run(const weft_placement_options *options,
                                        void (*done)(void *user, const weft_placement *p),
                                        void *user);

#ifdef __cplusplus
}
#endif
#endif
