/* The flow macros and the thread's error text. A message is set once, where the fault is seen; callers pass it on. */
#ifndef WEFT_BASE_ERROR_H
#define WEFT_BASE_ERROR_H

#include "base/compiler.h"
#include "weft/status.h"

/** Sets this thread's message (printf form, one line, cut at 1023 bytes) and returns `code`. */
weft_status weft_i_error_set(weft_status code, const char *fmt, ...) WEFT_PRINTF(2, 3);

/** Puts "PREFIX: " before this thread's message, for the rare caller that knows a name the callee did not. */
weft_status weft_i_error_prefix(weft_status code, const char *fmt, ...) WEFT_PRINTF(2, 3);

/** Marks this thread's message as a run's, once steps had begun; the next weft_i_error_set takes the mark away. */
void weft_i_error_mark_run(void);

/** A broken promise of our own: reports file and line to stderr and aborts. Only in builds with WEFT_ASSERTS. */
WEFT_NORETURN void weft_i_assert_failed(const char *expr, const char *file, int line);

#define WEFT_FAIL(...) return weft_i_error_set(__VA_ARGS__)

#define WEFT_TRY(call)                                                                             \
    do {                                                                                           \
        const weft_status weft_try_ = (call);                                                      \
        if (weft_try_ != WEFT_OK)                                                                  \
            return weft_try_;                                                                      \
    } while (0)

/* `st` must be a weft_status variable of the caller; `label` is its one exit. */
#define WEFT_TRY_GOTO(st, call, label)                                                             \
    do {                                                                                           \
        (st) = (call);                                                                             \
        if ((st) != WEFT_OK)                                                                       \
            goto label;                                                                            \
    } while (0)

#ifdef WEFT_ASSERTS
#define WEFT_ASSERT(cond) ((cond) ? (void)0 : weft_i_assert_failed(#cond, __FILE__, __LINE__))
#else
#define WEFT_ASSERT(cond) ((void)0)
#endif

#endif
