/**
 * Results of weft's calls: every call that can fail returns a weft_status and leaves one line of text.
 *
 * Zero is success, failures are negative. The text belongs to the calling thread and stays valid until that
 * thread's next failing call. The library never ends the program and never prints.
 */
#ifndef WEFT_STATUS_H
#define WEFT_STATUS_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define WEFT_API __attribute__((visibility("default")))
#else
#define WEFT_API
#endif

/** What kind of failure it was; the program's exit code follows from it (docs/architecture.md). */
typedef enum weft_status {
    WEFT_OK = 0,
    WEFT_STATUS_ARG = -1,         /* an argument out of its range: the caller's mistake */
    WEFT_STATUS_NOMEM = -2,       /* memory ran out, or would */
    WEFT_STATUS_IO = -3,          /* a file or a stream could not be read or written */
    WEFT_STATUS_FORMAT = -4,      /* a file is damaged or says what cannot be */
    WEFT_STATUS_UNSUPPORTED = -5, /* asked for by name and not in weft */
    WEFT_STATUS_MISMATCH = -6,    /* two things that must agree do not */
    WEFT_STATUS_LAYOUT = -7,      /* a parallel layout this model or batch cannot take */
    WEFT_STATUS_REMOTE = -8,      /* another rank failed; the message is that rank's */
    WEFT_STATUS_TIMEOUT = -9,     /* a rank stopped answering */
    WEFT_STATUS_DEVICE = -10,     /* the backend's library or device failed */
    WEFT_STATUS_NUMERIC = -11,    /* a loss or a gradient is not finite */
    WEFT_STATUS_INTERNAL = -12    /* a bug in weft */
} weft_status;

/**
 * Text of the last failure in this thread: one line, no newline, "" when nothing failed yet.
 *
 * @collective  none
 * @return      borrowed, valid until this thread's next failing call
 */
WEFT_API const char *weft_last_error(void);

/**
 * Whether this thread's last failure came once the steps of a run had begun (training steps, batches of an evaluation,
 * tokens): the input was fine, the run failed, whatever the status. The program then exits with 5.
 *
 * @collective  none
 */
WEFT_API bool weft_last_error_is_of_run(void);

/**
 * Name of a status, e.g. "FORMAT".
 *
 * @collective  none
 * @return      a static string; "UNKNOWN" for a value that is no status
 */
WEFT_API const char *weft_status_name(weft_status status);

#ifdef __cplusplus
}
#endif
#endif
