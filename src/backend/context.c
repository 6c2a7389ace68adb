/*
 * Makes and ends a context: allocator, pool of threads, backend. It lives here because this layer is the lowest that
 * knows the backends; base/ctx.h only holds the parts.
 *
 * Parts are made in the order allocator, context, pool, backend and ended in reverse, so each may use those before it.
 */
#include "weft/context.h"
#include "backend/backends.h"
#include "backend/cpu/threads.h"
#include "base/env.h"

static weft_status create_backend(weft_ctx *ctx, const weft_ctx_options *o)
{
    switch (o->backend) {
    case WEFT_BACKEND_CPU:
        return weft_i_backend_cpu_create(&ctx->backend, ctx);
    case WEFT_BACKEND_REFERENCE:
        return weft_i_backend_reference_create(&ctx->backend, ctx);
    case WEFT_BACKEND_DRY:
        return weft_i_backend_dry_create(&ctx->backend, ctx, o->dry_of);
    }
    WEFT_FAIL(WEFT_STATUS_ARG, "backend %d is none of weft_backend_kind", (int)o->backend);
}

weft_status weft_ctx_create(weft_ctx **out, const weft_ctx_options *options)
{
    static const weft_ctx_options defaults = {.backend = WEFT_BACKEND_CPU};
    const weft_ctx_options *o = options != NULL ? options : &defaults;
    const int n_threads = o->n_threads != 0 ? o->n_threads : weft_i_env_processors();
    weft_alloc *alloc = NULL;
    weft_ctx *ctx = NULL;
    void *block = NULL;
    weft_status st = WEFT_OK;

    *out = NULL;
    WEFT_TRY(weft_i_alloc_create(&alloc, o->backend == WEFT_BACKEND_DRY, o->memory_limit_bytes));
    WEFT_TRY_GOTO(st, weft_i_alloc_new(alloc, 1, sizeof(*ctx), &block), out);
    ctx = block;
    ctx->alloc = alloc;
    ctx->log = o->log;
    ctx->log_user = o->log_user;
    ctx->log_level = o->log != NULL ? o->log_level : WEFT_LOG_SILENT;
    WEFT_TRY_GOTO(st, weft_i_pool_create(&ctx->pool, alloc, n_threads, weft_i_cpu_thread_start),
                  out);
    WEFT_TRY_GOTO(st, create_backend(ctx, o), out);
out:
    if (st == WEFT_OK)
        *out = ctx;
    else if (ctx != NULL)
        weft_ctx_destroy(ctx);
    else
        weft_i_alloc_destroy(alloc);
    return st;
}

void weft_ctx_destroy(weft_ctx *ctx)
{
    if (ctx == NULL)
        return;
    weft_alloc *alloc = ctx->alloc;
    if (ctx->backend != NULL)
        ctx->backend->ops->destroy(ctx->backend);
    weft_i_pool_destroy(ctx->pool);
    weft_i_alloc_put(alloc, ctx);
    weft_i_alloc_destroy(alloc);
}
