/* A picture of what ranks did when: a row a rank, a bar an action, as SVG text. */
#ifndef WEFT_PARALLEL_TIMELINE_H
#define WEFT_PARALLEL_TIMELINE_H

#include "base/str.h"

/** In the order of weft_step_kind. */
typedef enum weft_bar_kind {
    WEFT_BAR_FORWARD,
    WEFT_BAR_BACKWARD,
    WEFT_BAR_INPUT,
    WEFT_BAR_WEIGHT,
    WEFT_BAR_OPTIMIZER,
    WEFT_BAR_COMM,   /* of activations: between stages, inside layers */
    WEFT_BAR_REDUCE, /* over the data-parallel ranks */
    WEFT_BAR_COUNT
} weft_bar_kind;

typedef struct weft_bar {
    int row;
    weft_bar_kind kind;
    int micro_batch; /* shown in the bar; -1: none */
    int chunk;       /* shades of the colour: chunks of a rank */
    double start, end;
} weft_bar;

typedef struct weft_timeline {
    const char *title;
    const char *note; /* below the title: idle share and how it was found; may say 'paced' */
    const char *unit; /* of the axis: "", "ms" */
    int n_rows;
    const char *row_word;         /* "rank": rows are named "rank 0", ... */
    const char *const *row_notes; /* [n_rows] below each row's name; NULL: none */
    const weft_bar *bars;
    int64_t n_bars;
    int n_chunks;
} weft_timeline;

/** Adds the picture to `out`. COMM and REDUCE are thin lines below the row's others. @return WEFT_OK | NOMEM */
weft_status weft_i_timeline_svg(weft_str *out, const weft_timeline *t);

#endif
