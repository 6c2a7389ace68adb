/*
 * Training steps of a model on ranks that are threads, below weft_train_run: the same trainer, on batches made by hand; what
 * every rank ends with is gathered in the test's memory. So that any layout can be compared with any other.
 */
#ifndef WEFT_TESTS_RANKS_CASE_H
#define WEFT_TESTS_RANKS_CASE_H

#include "check.h"
#include "odd_model.h"
#include "zero_formulas.h"

#include "optim/optimizer.h"
#include "parallel/mesh.h"
#include "train/trainer.h"
#include "weft/train.h"

#define RANKS_MOST 8
#define RANKS_STEPS 20
#define RANKS_PARAMS 192

/* Under sanitizers, which are slow, tests of many layouts take every third. */
#ifdef WEFT_SANITIZED
#define RANKS_STRIDE 3
#else
#define RANKS_STRIDE 1
#endif

/* The thread sanitizer does not see what oneDNN reads and writes; test_train_run has ranks on it all the same. */
#ifdef __SANITIZE_THREAD__
#define RANKS_BACKEND "reference"
#else
#define RANKS_BACKEND "cpu"
#endif

typedef struct ranks_case {
    weft_alloc *
        alloc; /* of the batches; its own, so that a test that fails leaves nothing in the scratch */
    char model[512];            /* config.json, or a folder */
    weft_train_options options; /* layout and all; no data, no out */
    int n_steps;
    weft_train_batch batch[RANKS_STEPS];
    double lr[RANKS_STEPS]; /* of each step, when has_lr; else the schedule's */
    bool has_lr;
    bool
        is_asking; /* after each step rank 0 tells all whether to go on, as the training loop does */
    bool is_watching; /* replicas are compared after each step, not after the last alone */
} ranks_case;

typedef struct ranks_param {
    char name[WEFT_PARAM_NAME_BYTES];
    int64_t first, n; /* elements of the arrays below */
    int n_dims;
    bool is_frozen;
} ranks_param;

/* What came out. Arrays of all elements of all parameters in order, without padding; zeros where there is none. */
typedef struct ranks_result {
    weft_alloc *alloc; /* of the arrays */
    int n_ranks;
    bool is_bf16;
    ranks_param param[RANKS_PARAMS];
    int n_params;
    int64_t n_elems;
    int n_steps;
    int n_empty_warnings;                    /* log lines that speak of a step without targets */
    weft_train_outcome outcome[RANKS_STEPS]; /* of rank 0; checked to be every rank's */
    float *begin;                            /* weights before the first step */
    float *grad;                             /* gradients of the first step */
    float *weight;                           /* weights at the end (bf16 widened) */
    float *state[WEFT_STATE_COUNT];
    /* of each rank */
    size_t planned[RANKS_MOST][WEFT_MEM_COUNT];
    size_t taken[RANKS_MOST][WEFT_MEM_COUNT]; /* peak after the last step */
    size_t first_peak[RANKS_MOST];            /* of all device kinds after the first step */
    uint64_t n_allocs_late[RANKS_MOST]; /* blocks of any kind handed out after the first step */
    weft_traffic planned_traffic[RANKS_MOST][WEFT_AXIS_COUNT];
    weft_traffic traffic[RANKS_MOST]
                        [WEFT_AXIS_COUNT]; /* of the last step; checked to be each step's */
} ranks_result;

/* Layout of one rank, fp32, AdamW at 1e-3 with clipping at 1, constant, sequences of 12, a thread a rank. */
void ranks_case_init(ranks_case *c, scratch *s, const odd_model *m);

/* Of the given sizes; every token drawn from `seed`; every 7th target or so masked. Freed by ranks_case_fini. */
void ranks_case_batches(ranks_case *c, int64_t vocab, int64_t n_seqs, int n_steps, uint64_t seed);
void ranks_case_fini(ranks_case *c);

void ranks_case_layout(ranks_case *c, int64_t dp, int64_t stage, bool is_reproducible);

/* A layout, in few words; what is zero is as by default. */
typedef struct ranks_layout {
    int dp, stage, tp, pp, chunks, strips;
    const char *schedule, *stage_layers; /* NULL: 1f1b, balanced */
    bool is_sequence_parallel, is_reproducible, has_no_prefetch, is_not_overlapped;
    double bucket_mb;
    int n_threads;
    const char *recompute;
} ranks_layout;

/* Sets all that a ranks_layout speaks of. */
void ranks_layout_apply(weft_layout_options *o, const ranks_layout *l);
void ranks_case_apply(ranks_case *c, const ranks_layout *l);

/* "dp 3, stage 2, reproducible, ..." */
const char *ranks_layout_text(const ranks_layout *l, char out[128]);

/* Runs; fails the test when a rank fails, when ranks disagree on an outcome, or replicas on a weight. */
void ranks_case_run(ranks_result *r, const ranks_case *c);

/* The same, but returns the status; on a failure *r holds nothing to free. */
weft_status ranks_case_try(ranks_result *r, const ranks_case *c);
void ranks_result_fini(ranks_result *r);

/* The closed forms' view of the case. */
zero_case ranks_case_formula(const ranks_case *c, const odd_model *m);

#endif
