/* Starts the ranks of a run as threads of this process, waits for them, and says whose failure came first. */
#ifndef WEFT_PARALLEL_RANKS_H
#define WEFT_PARALLEL_RANKS_H

#include "parallel/mesh.h"

/** What a rank runs. It returns its own status; when it fails it calls weft_i_mesh_fail before it frees anything. */
typedef weft_status weft_rank_fn(void *user, weft_mesh *mesh);

/**
 * One thread a rank, each with a context, a mesh and fn(user, mesh). With one rank fn runs on the calling thread. A rank
 * that fails ends the communicators of all; ranks that then do not return within 8 s are left behind, with their memory and
 * what `user` points to, which they may still read.
 * With layout->trace every rank writes a trace, and they are joined at the end, also of a run that failed.
 * Threads a rank has: layout option, else processors / ranks, at least 1; it warns when ranks times threads exceed the
 * processors and they were asked for.
 *
 * @collective  starts the world
 * @param[in] layout   resolved
 * @param[in] options  the same that the command was given (backend, threads)
 * @param[in] like     log sink; only rank 0 of the world logs below ERROR; NULL: none
 * @return      WEFT_OK | the first failing rank's status; the message names the rank unless all failed alike. Once a rank
 *              had called weft_i_mesh_begin the failure is the run's (weft_last_error_is_of_run)
 */
weft_status weft_i_ranks_run(const weft_layout *layout,
                             const weft_layout_options *options,
                             const weft_ctx_options *like,
                             weft_rank_fn *fn,
                             void *user);

/**
 * Ends what a rank alone can see, before a collective: every rank passes its own status and gets WEFT_OK when all are,
 * else the lowest failing rank's status and message (its own code on every rank, "rank N: " before its message unless all
 * ranks failed alike).
 *
 * @collective  world: 1 all_reduce of 1 I64; on a failure 1 broadcast and 1 all_reduce more
 */
weft_status weft_i_mesh_agree(weft_mesh *m, weft_status st);

/**
 * The outcome of what rank 0 does for all (its folder, its lock): its status and message on every rank, as they would be on one
 * rank. `st` is read on rank 0.
 *
 * @collective  world: 1 broadcast of 129 I64
 */
weft_status weft_i_mesh_agree_on_rank0(weft_mesh *m, weft_status st);

/** One thing on which all ranks must agree before the first step. */
typedef struct weft_agreed {
    const char *what;  /* "version", "config", "model header", "data", "options" */
    const char *value; /* any text; compared by hash, shown shortened */
} weft_agreed;

/**
 * Compares over all ranks; where one differs from most it is named, with both values.
 *
 * @collective  world: 1 all_gather of n I64 a rank; on a difference those of 512 I64 a rank that it takes to reach it
 * @return      WEFT_OK | MISMATCH on every rank
 */
weft_status weft_i_mesh_compare(weft_mesh *m, const weft_agreed *items, int n);

/** x [n] becomes the sum over all ranks. @collective world: 1 all_reduce of n I64 */
weft_status weft_i_mesh_sum(weft_mesh *m, int64_t *x, int n);

/** The largest value along the axis, on every rank there. @collective axis: 1 all_reduce of 1 I64; one rank: none */
weft_status weft_i_mesh_largest(weft_mesh *m, weft_axis axis, int64_t *value, const char *what);

/** all [world_size * n] on rank 0 becomes every rank's mine [n], in rank order. @collective world: 1 gather of I64 */
weft_status weft_i_mesh_gather(weft_mesh *m, const int64_t *mine, int64_t *all, int64_t n);

/** Rank 0's bytes for everybody; n_bytes is a multiple of 4. @collective world: 1 broadcast of n_bytes / 4 I32 */
weft_status weft_i_mesh_from_rank0(weft_mesh *m, void *bytes, size_t n_bytes, const char *what);

#endif
