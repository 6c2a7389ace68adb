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
};

#endif
