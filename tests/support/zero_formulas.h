/*
 * What DDP and ZeRO 1 to 3 take and send, in closed form from a model's list of parameters (odd_model.h): the formulas of
 * Rajbhandari et al. (arXiv:1910.02054), with weft's bytes a parameter, its padding and its order of segments. Written
 * apart from the library, to be compared with what it does, to the byte.
 */
#ifndef WEFT_TESTS_ZERO_FORMULAS_H
#define WEFT_TESTS_ZERO_FORMULAS_H

#include "odd_model.h"

#include "parallel/mesh.h"
#include "weft/ext/memory.h"

typedef struct zero_case {
    const odd_model *model;
    int dp, stage;
    bool is_reproducible, has_prefetch, is_overlapped;
    double bucket_mb;
    bool is_bf16;
    int n_moments;    /* fp32 numbers the optimizer keeps an element: adamw 2, sgd 0 or 1 */
    int64_t n_rounds; /* micro-batches of the busiest rank */
} zero_case;

/* Bytes of the kinds PARAMETERS, GRADIENTS, OPTIMIZER, COMMUNICATION on a rank; the others are left 0. */
void zero_memory(size_t out[WEFT_MEM_COUNT], const zero_case *z, int rank);

/* What a step of the trainer sends over dp, by kind of call; sizes over 1. */
void zero_traffic(weft_traffic *out, const zero_case *z, int rank);

#endif
