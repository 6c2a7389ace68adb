/**
 * OUT/metrics.jsonl: a JSON object a line, one for each step (fields: docs/formats.md), written by the rank that runs the
 * trainer, and by nothing else.
 */
#ifndef WEFT_TRAIN_METRICS_H
#define WEFT_TRAIN_METRICS_H

#include "base/file.h"
#include "weft/train.h"

typedef struct weft_metrics {
    weft_writer file;
} weft_metrics;

/**
 * Opens PATH for appending. Lines of steps after `last_step`, and a last line that was cut off, are dropped first, so that
 * a resumed run's file has each step once; 0 empties it.
 *
 * @return WEFT_OK | IO
 */
weft_status weft_i_metrics_open(weft_metrics *m, const char *path, int64_t last_step);

/** Appends a step's line in one write. Takes no memory. */
weft_status weft_i_metrics_write(weft_metrics *m, const weft_train_step *step);

/** Syncs and closes; fine when it was never opened. */
weft_status weft_i_metrics_close(weft_metrics *m);

/** The line, without the line's end, into out. ARG when it does not fit. */
weft_status weft_i_metrics_line(char *out, size_t size, const weft_train_step *step);

#endif
