/**
 * A fixed set of worker threads that run numbered blocks.
 *
 * Which thread runs which block never matters: blocks are cut by the caller from sizes alone, so a result does not
 * depend on the number of threads. The calling thread works too (worker 0). One thread means a plain loop.
 */
#ifndef WEFT_BASE_POOL_H
#define WEFT_BASE_POOL_H

#include "base/alloc.h"

typedef struct weft_pool weft_pool;

/** One block: `block` in [0, n_blocks), `worker` in [0, n_threads) for per-thread scratch. */
typedef void weft_pool_fn(void *user, int64_t block, int worker);

/** Called once in every worker thread (and in the creating thread) before any block; may be NULL. */
typedef void weft_pool_start_fn(void);

/** @return WEFT_OK | ARG n_threads < 1 or > 1024 | NOMEM */
weft_status
weft_i_pool_create(weft_pool **out, weft_alloc *alloc, int n_threads, weft_pool_start_fn *start);
void weft_i_pool_destroy(weft_pool *p);
int weft_i_pool_threads(const weft_pool *p);

/**
 * Runs all blocks and returns when the last is done. Blocks are taken from a shared counter in order. Only one
 * thread at a time may call it on one pool. A waiting worker spins for about 20 microseconds, then sleeps.
 */
void weft_i_pool_run(weft_pool *p, int64_t n_blocks, weft_pool_fn *fn, void *user);

#endif
