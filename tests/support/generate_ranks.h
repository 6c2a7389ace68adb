/* Generations that can be looked into: a decoder on every rank, and what each rank did, planned, took and sent. */
#ifndef WEFT_TESTS_GENERATE_RANKS_H
#define WEFT_TESTS_GENERATE_RANKS_H

#include "generate_case.h"

#include "parallel/mesh.h"

#define GENERATE_RANKS_MOST 8

typedef struct generate_rank {
    int64_t n_forwards;
    int64_t n_ids;         /* new ones of its first prompt */
    size_t planned, taken; /* bytes, control memory apart */
    size_t cache_bytes;
    uint64_t n_blocks; /* taken while it ran */
    weft_traffic traffic[WEFT_AXIS_COUNT];
} generate_rank;

typedef struct generate_ranks {
    weft_generate_options options; /* prompts as ids; no top_k, no top_p */
    bool is_dealt;                 /* rank r runs prompt r by itself; else all run all */
    generate_rank rank[GENERATE_RANKS_MOST];
} generate_ranks;

/* Runs the options' layout. Fails the test where a rank fails. */
void generate_ranks_run(generate_ranks *c);

#endif
