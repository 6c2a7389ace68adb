/**
 * Events of one rank for a Chrome/Perfetto trace (the "Trace Event Format", JSON array of complete events). All ranks of a
 * process share the monotonic clock, so their events line up.
 */
#ifndef WEFT_BASE_TRACE_H
#define WEFT_BASE_TRACE_H

#include "base/alloc.h"
#include "base/error.h"

typedef struct weft_trace weft_trace;

/** One event: a span of time on a line ("compute", "dp", ...) of a rank. */
typedef struct weft_trace_event {
    const char *name;      /* copied, cut to 96 bytes: "forward block 3", "reduce_scatter" */
    const char *line;      /* borrowed for the trace's life: the thread's name in the viewer */
    double start_s, end_s; /* monotonic clock */
    const char *tensor;    /* copied, cut; NULL: none */
    const char *axis;      /* borrowed; NULL: none */
    int64_t bytes;         /* -1: none */
} weft_trace_event;

/** Before the ranks begin: whether PATH can be written; removes what an earlier run left there. @return WEFT_OK | IO */
weft_status weft_i_trace_prepare(const char *path);

/** Opens PATH.rank-R for the events of rank R; a fixed buffer, so that adding takes no memory. @return WEFT_OK | IO | NOMEM */
weft_status
weft_i_trace_create(weft_trace **out, weft_alloc *alloc, const char *path, int rank, int n_ranks);

/** Never fails: what cannot be written is reported by finish. NULL trace: nothing. Any thread of the rank. */
void weft_i_trace_add(weft_trace *t, const weft_trace_event *event);

/** Writes what is left and closes the rank's file. @return WEFT_OK | IO */
weft_status weft_i_trace_finish(weft_trace *t);

/** After every rank's finish, on rank 0: joins the ranks' files into PATH and removes them. @return WEFT_OK | IO */
weft_status weft_i_trace_join(weft_alloc *alloc, const char *path, int n_ranks);
void weft_i_trace_destroy(weft_trace *t);

#endif
