/* Inside of weft_ctx. Created by src/backend/context.c, which knows the backends; this layer only holds the parts. */
#ifndef WEFT_BASE_CTX_H
#define WEFT_BASE_CTX_H

#include "base/alloc.h"
#include "base/pool.h"
#include "weft/context.h"

struct weft_backend; /* include/weft/ext/backend.h */

struct weft_ctx {
    weft_alloc *alloc;
    weft_pool *pool;
    struct weft_backend *backend;
    weft_log_fn *log;
    void *log_user;
    weft_log_level log_level;
    /* Set by whoever runs several ranks; NULL with one. Told of every operation and block of a file; not WEFT_OK: the
       world has failed, give up (REMOTE). */
    weft_status (*alive)(void *user);
    void *alive_user;
};

/** Tells the other ranks that this one is at work. @return WEFT_OK | REMOTE another rank failed */
static inline weft_status weft_i_ctx_alive(const weft_ctx *ctx)
{
    return ctx->alive != NULL ? ctx->alive(ctx->alive_user) : WEFT_OK;
}

/**
 * Sleeps until the monotonic clock shows `when`, and tells the others now and then that this rank is at work.
 *
 * @return WEFT_OK | REMOTE another rank failed meanwhile
 */
weft_status weft_i_ctx_sleep_until(const weft_ctx *ctx, double when);

#endif
