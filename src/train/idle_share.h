/* The share of a step in which the ranks of a pipeline do nothing: measured, and simulated with the same stage times. */
#ifndef WEFT_TRAIN_IDLE_SHARE_H
#define WEFT_TRAIN_IDLE_SHARE_H

#include "base/step_record.h"
#include "parallel/layout.h"

/** What one rank's actions took in a step. */
typedef struct weft_rank_times {
    int64_t stage;      /* place on the pipeline's axis */
    int64_t n_forwards; /* of all its chunks */
    int64_t span_ns;    /* from the first one's start to the last one's end */
    int64_t chunk_ns[WEFT_STEP_CHUNKS][WEFT_STEP_ACTIONS];
} weft_rank_times;

typedef struct weft_idle_share {
    bool is_known;    /* false: no pipeline, or no step */
    double measured;  /* 1 - mean of the ranks' own work / longest span */
    double simulated; /* the same of the simulated schedule */
    double span_ms, simulated_ms;
    int64_t n_micro_batches;
} weft_idle_share;

/**
 * @collective  none
 * @param[in] ranks      [layout->n_ranks]
 * @param[in] message_s  an edge between two stages, where it is stated; else 0
 * @return      WEFT_OK | NOMEM
 */
weft_status weft_i_idle_share_find(weft_idle_share *out,
                                   weft_alloc *alloc,
                                   const weft_layout *layout,
                                   const weft_rank_times *ranks,
                                   double message_s);

/** Seconds that a message is stated to take, of n_calls of sent_bytes in all; 0 for a run that is not paced. */
double weft_i_idle_share_message(const weft_layout *layout, int64_t sent_bytes, int64_t n_calls);

#endif
