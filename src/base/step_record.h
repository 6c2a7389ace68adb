/**
 * What one rank did in a step: when its actions ran, and when its messages moved. Times are always added up; the single events
 * are kept where room was taken for them, so that recording takes no memory.
 */
#ifndef WEFT_BASE_STEP_RECORD_H
#define WEFT_BASE_STEP_RECORD_H

#include "base/alloc.h"
#include "base/error.h"

/** The first four in the order of weft_action_kind. */
typedef enum weft_step_kind {
    WEFT_STEP_FORWARD,
    WEFT_STEP_BACKWARD, /* input and weight gradients in one */
    WEFT_STEP_INPUT,
    WEFT_STEP_WEIGHT,
    WEFT_STEP_OPTIMIZER,
    WEFT_STEP_MESSAGE,   /* between stages and slices of a layer */
    WEFT_STEP_REDUCTION, /* over the data-parallel ranks */
    WEFT_STEP_COUNT
} weft_step_kind;

#define WEFT_STEP_ACTIONS 4 /* kinds that are actions of a schedule */
#define WEFT_STEP_CHUNKS                                                                           \
    16 /* chunks of a stage whose times are kept apart; those behind are with the last */

/** Whole numbers, so that they travel as one message. */
typedef struct weft_step_event {
    int64_t kind, micro_batch, chunk; /* micro_batch -1: none */
    int64_t start_ns, end_ns;         /* monotonic clock, which the ranks of a process share */
} weft_step_event;

/** Zero-initialise: nothing is recorded before a step begins. */
typedef struct weft_step_record {
    weft_alloc *alloc;
    weft_step_event *events; /* [capacity]; NULL: times alone */
    int64_t n, capacity;
    bool is_open;                                          /* a step goes on */
    int64_t n_lost;                                        /* events without room */
    int64_t chunk_ns[WEFT_STEP_CHUNKS][WEFT_STEP_ACTIONS]; /* of this step */
    int64_t n_actions[WEFT_STEP_ACTIONS];
    int64_t first_ns, last_ns; /* of all actions; equal: none */
    int64_t open_ns;           /* the action that is running began then */
} weft_step_record;

/** Room for that many events of a step. @collective none @return WEFT_OK | NOMEM */
weft_status weft_i_step_record_reserve(weft_step_record *r, weft_alloc *alloc, int64_t capacity);
void weft_i_step_record_fini(weft_step_record *r);

/** A step begins: what was recorded of the last one is gone. */
void weft_i_step_record_reset(weft_step_record *r);

/** It ends: what comes now (evaluation, saving) is none of its own. */
void weft_i_step_record_close(weft_step_record *r);

/** An action begins to compute; what it waited for is behind it. */
void weft_i_step_record_begin(weft_step_record *r);

/** It has ended. micro_batch: its number in the global batch. */
void weft_i_step_record_end(weft_step_record *r,
                            weft_step_kind kind,
                            int64_t micro_batch,
                            int64_t chunk);

/** Something else that took that time (monotonic clock). */
void weft_i_step_record_add(weft_step_record *r, weft_step_kind kind, double start_s, double end_s);

#endif
