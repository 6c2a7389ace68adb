/* The backends there are, and the one place that makes a context (context.c). */
#ifndef WEFT_BACKEND_BACKENDS_H
#define WEFT_BACKEND_BACKENDS_H

#include "base/ctx.h"
#include "weft/ext/backend.h"

weft_status weft_i_backend_cpu_create(weft_backend **out, weft_ctx *ctx);
weft_status weft_i_backend_reference_create(weft_backend **out, weft_ctx *ctx);

/** Counts; its workspace sizes are the answers of backend `of` (cpu or reference) for ctx->pool's number of threads. */
weft_status weft_i_backend_dry_create(weft_backend **out, weft_ctx *ctx, weft_backend_kind of);

/** What a dry run of this backend stands for. */
weft_backend_kind weft_i_backend_kind(const weft_backend *b);

#endif
