/* A picture of what ranks did when: a row a rank, a bar an action, as SVG text. */
#ifndef WEFT_PARALLEL_TIMELINE_H
#define WEFT_PARALLEL_TIMELINE_H

#include "base/step_record.h"
#include "base/str.h"

typedef struct weft_bar {
    int row;
    weft_step_kind kind;
    int micro_batch; /* shown in the bar; -1: none */
    int chunk;       /* shades of the colour: chunks of a rank */
    double start, end;
} weft_bar;

typedef struct weft_timeline {
    const char *title;
    const char *note; /* below the title: idle share and how it was found; may say 'paced' */
    const char *unit; /* of the axis: "", "ms" */
    int n_rows;       /* ranks */
    const char *const *row_notes; /* [n_rows] below each row's name; NULL: none */
    const weft_bar *bars;
    int64_t n_bars;
    int n_chunks;
} weft_timeline;

/** Adds the picture to `out`. MESSAGE and REDUCTION are thin lines below the row's others. @return WEFT_OK | NOMEM */
weft_status weft_i_timeline_svg(weft_str *out, const weft_timeline *t);

#endif
