/**
 * The context everything hangs off: allocator, log sink, threads. There are no globals, so two contexts in one
 * program (a run and its dry run, or two ranks) do not know of each other.
 */
#ifndef WEFT_CONTEXT_H
#define WEFT_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weft/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_ctx weft_ctx;

typedef enum weft_log_level {
    WEFT_LOG_DEBUG,
    WEFT_LOG_INFO,
    WEFT_LOG_WARN,
    WEFT_LOG_ERROR,
    WEFT_LOG_SILENT
} weft_log_level;

/** Receives one line, without newline. Called from the thread that logs. */
typedef void weft_log_fn(void *user, weft_log_level level, const char *line);

/** How operations are carried out. */
typedef enum weft_backend_kind {
    WEFT_BACKEND_CPU,       /* oneDNN and weft's own kernels */
    WEFT_BACKEND_REFERENCE, /* plain loops, the oracle of every fast kernel */
    WEFT_BACKEND_DRY /* computes nothing: counts bytes and FLOPs as another would need them */
} weft_backend_kind;

/** Zero-initialise, then set what differs from the defaults in brackets. */
typedef struct weft_ctx_options {
    weft_backend_kind backend; /* [cpu] */
    weft_backend_kind dry_of;  /* the one that the dry backend stands for: [cpu] or reference */
    int n_threads;             /* threads of this rank; [0: all processors this process may use] */
    size_t memory_limit_bytes; /* refuse to take more than this for tensors; [0: no limit] */
    weft_log_fn *log;          /* [NULL: nothing is logged] */
    void *log_user;
    weft_log_level log_level; /* least level passed on; [0: DEBUG, so set it] */
} weft_ctx_options;

/**
 * @collective  none
 * @param[in] options  NULL for the defaults
 * @return      WEFT_OK | ARG | NOMEM | DEVICE the backend could not start
 */
WEFT_API weft_status weft_ctx_create(weft_ctx **out, const weft_ctx_options *options);
WEFT_API void weft_ctx_destroy(weft_ctx *ctx);

#ifdef __cplusplus
}
#endif
#endif
