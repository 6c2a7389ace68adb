/**
 * What trainer, evaluation, probing and generation see of the parallel methods: one object a rank, made by hybrid.c, which
 * composes the methods that the layout asks for. With one rank it is there too and does nothing but the passes.
 */
#ifndef WEFT_PARALLEL_PARALLEL_H
#define WEFT_PARALLEL_PARALLEL_H

#include "base/sum.h"
#include "parallel/mesh.h"
#include "parallel/shard.h"

typedef struct weft_parallel weft_parallel;

/**
 * The part of the model that this rank's place in the mesh has.
 *
 * @collective  none
 * @return      as weft_model_from_config
 */
weft_status weft_i_parallel_model(weft_model **out,
                                  const weft_mesh *mesh,
                                  const weft_config *config,
                                  weft_dtype dtype);

/**
 * Takes memory for weights and, when training, gradients, as the methods divide them, and for buffers of communication.
 * Weights are not filled yet.
 *
 * @collective  logical: every rank with the same model and layout
 * @param[in] mesh   outlives it
 * @param[in] model  of weft_i_parallel_model (or a list of one's own where there is no model axis), frozen, neither laid out
 *                   nor allocated; outlives it
 * @return      WEFT_OK | NOMEM | ARG
 */
weft_status
weft_i_parallel_create(weft_parallel **out, weft_mesh *mesh, weft_model *model, bool is_training);
void weft_i_parallel_destroy(weft_parallel *p);
weft_mesh *weft_i_parallel_mesh(const weft_parallel *p);

/**
 * The run of this rank's part of the model: hooks, the stream's rows, input_cols, is_split and the number of slots (over 0)
 * are chosen here. Of a pipeline with chunks it is the first chunk's, whose workspace the others use and whose exec they
 * follow.
 *
 * @collective  none
 * @param[out] out       the caller destroys it before the parallel object
 * @param[in]  n_rounds  micro-batches of a step on a rank, at most: what may be in flight follows from it
 * @return      as weft_run_create
 */
weft_status weft_i_parallel_run_create(weft_run **out,
                                       weft_parallel *p,
                                       const weft_run_options *options,
                                       int64_t n_rounds);

/** The part of the model that is here; of a pipeline with chunks the first one. Borrowed. */
weft_model *weft_i_parallel_part(const weft_parallel *p);

/**
 * Hooks, the stream's rows and input_cols of a run of weft_i_parallel_part, for who leads a pipeline's messages itself
 * (generation); borrowed.
 */
void weft_i_parallel_run_options(weft_parallel *p, weft_run_options *options);

/* Lists of parts; borrowed, fixed for its life. */
const weft_parts *weft_i_parallel_values(const weft_parallel *p); /* weights that lie here */
const weft_parts *
weft_i_parallel_states(const weft_parallel *p); /* what the optimizer here updates */
const weft_parts *
weft_i_parallel_owned(const weft_parallel *p); /* every element on one rank: norms, files */

/** Elements of the optimizer's state here, padding included. */
int64_t weft_i_parallel_state_elems(const weft_parallel *p);

/** Whether this rank fills its weights itself (from files, or fresh); else they come with share_weights. */
bool weft_i_parallel_is_source(const weft_parallel *p);

/**
 * Weights from those who filled them to those who did not: once, before the first step (DDP, ZeRO-1, ZeRO-2: from dp
 * rank 0).
 *
 * @collective  dp: a broadcast a segment, or nothing
 */
weft_status weft_i_parallel_share_weights(weft_parallel *p);

/**
 * Room for what training passes with micro-batches of at most n_seqs sequences of n_tokens exchange (DataParallel: outputs
 * and their gradients); the other methods need none. A training pass sees to it itself: this is for who wants nothing taken
 * after the beginning.
 *
 * @collective  none
 * @return      WEFT_OK | NOMEM | UNSUPPORTED a list of layers that is no model of a family
 */
weft_status weft_i_parallel_reserve(weft_parallel *p, int64_t n_seqs, int64_t n_tokens);

/**
 * Whether this rank needs the global batch. DataParallel: rank 0 reads and scatters; the others pass sizes, and positions
 * and samples where rank 0 does, but only rank 0's contents are read, and ids and targets may be NULL.
 */
bool weft_i_parallel_is_reader(const weft_parallel *p);

/** The reader's value for those who do not read. @collective dp: 1 broadcast of 1 I64, or nothing where all read */
weft_status weft_i_parallel_from_reader(weft_parallel *p, int64_t *value);

/** A micro-batch that is done: what the caller may take from it. */
typedef struct weft_micro_batch {
    int64_t number;            /* j in its global batch */
    int64_t first_seq, n_seqs; /* sequences of the global batch */
    weft_view losses;          /* f32 [n_seqs * n_tokens, 1]; not given when no loss was wanted */
    weft_view logits;          /* f32 [rows, vocabulary]; not given when pass->logits was not */
} weft_micro_batch;

/** A pass over one global batch. */
typedef struct weft_parallel_pass {
    const weft_host_batch *batch; /* the global batch: n_seqs sequences */
    int64_t micro_batch;          /* sequences in a micro-batch, at most */
    weft_view
        logits; /* f32 [micro_batch * n_tokens, vocabulary] to leave logits in; not given: none */
    weft_status (*done)(
        void *user,
        const weft_micro_batch *mb); /* after each that ended here; may be NULL. DataParallel: of
                                                        all ranks', on rank 0, once its loss is there */
    void *user;
} weft_parallel_pass;

/**
 * Forward and backward of every micro-batch of a step, gradients added up over micro-batches and ranks: on return those
 * of the owned parts (and of the states' parts) are complete. exec->loss_scale and the other settings of the run are the
 * caller's.
 *
 * @collective  as the methods do (docs/methods)
 * @return      WEFT_OK | what layers, hooks and calls return
 */
weft_status
weft_i_parallel_train_pass(weft_parallel *p, weft_run *run, const weft_parallel_pass *pass);

/** Forward alone, nothing kept; losses when exec->is_loss_wanted. @collective as the methods do */
weft_status
weft_i_parallel_forward_pass(weft_parallel *p, weft_run *run, const weft_parallel_pass *pass);

/** For passes of `run` that the caller makes itself (generation, weft_run_idle). @collective none */
void weft_i_parallel_bind(weft_parallel *p, weft_run *run);

/** After the optimizer: the updated weights to where the next step reads them. @collective as the methods do */
weft_status weft_i_parallel_share_update(weft_parallel *p);

/**
 * Adds up n exact sums and n_counts whole numbers over all ranks, the same result on every rank. Each contribution is given
 * by one rank: the one that a micro-batch was delivered to (weft_parallel_pass.done), the owner of an element.
 *
 * @collective  dp (with model axes: world): 1 all_reduce of n * (WEFT_SUM_BINS + 1) + n_counts I64
 */
weft_status
weft_i_parallel_add_up(weft_parallel *p, weft_sum *sums, int n, int64_t *counts, int n_counts);

/** Rank 0's value for everybody ("stop after this step"). @collective world: 1 broadcast of 1 I64 */
weft_status weft_i_parallel_from_rank0(weft_parallel *p, int64_t *value);

/** The largest value of all ranks. @collective world: 1 all_reduce of 1 I64 */
weft_status weft_i_parallel_largest(weft_parallel *p, int64_t *value);

#endif
