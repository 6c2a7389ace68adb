/**
 * Communicators that stand before another one and see every call. They stack in any order on any transport.
 *
 * A wrapper takes over the communicator it is given (also when creating it fails, which destroys it) and has its rank,
 * size, axis and context.
 */
#ifndef WEFT_COMM_WRAP_H
#define WEFT_COMM_WRAP_H

#include "base/step_record.h"
#include "base/trace.h"
#include "weft/ext/comm.h"

/** Calls that started, and bytes sent by weft's convention (weft_i_comm_sent_bytes). */
typedef struct weft_comm_count {
    uint64_t n_calls;
    uint64_t sent_bytes;
} weft_comm_count;

/** Counts calls and bytes by operation. @collective none @return WEFT_OK | NOMEM */
weft_status weft_i_count_create(weft_comm **out, weft_comm *take_inner);

/** @param counter  from weft_i_count_create  @param op  OP_COUNT: the sum of all */
weft_comm_count weft_i_count_get(const weft_comm *counter, weft_comm_op op);

/** Begins anew, at the start of a step. */
void weft_i_count_reset(weft_comm *counter);

/**
 * Compares each collective over the ranks before it starts: number, operation, type, whole count, reduction, start of the
 * sum, root, split, axis and tensor. Where they differ every rank gets MISMATCH, naming the ranks that differ from most, and
 * their calls.
 *
 * It makes start wait for all ranks, so with it a program must not need a message between a collective's start and the
 * same start on another rank. Pairs are checked by their transport, and by weft_i_check_end_step.
 *
 * @collective  the group: 1 all_reduce of 22 I64 before each collective, 1 all_gather more on a mismatch
 * @param take_duplicate  a second communicator of the same ranks for these; NULL: they go over take_inner
 * @return      WEFT_OK | NOMEM
 */
weft_status weft_i_check_create(weft_comm **out, weft_comm *take_inner, weft_comm *take_duplicate);

/**
 * A step ends: every SEND that was started here since the last one has its RECV on the peer, and the reverse. Where they
 * differ every rank gets MISMATCH, naming the pair and both numbers. Counts begin anew.
 *
 * @collective  the group: 1 all_to_all of 1 I64 for each pair, 1 all_gather of 3 I64 a rank
 * @param checked  from weft_i_check_create
 * @return      WEFT_OK | MISMATCH | REMOTE | TIMEOUT
 */
weft_status weft_i_check_end_step(weft_comm *checked);

typedef enum weft_fault_kind {
    WEFT_FAULT_NONE,
    WEFT_FAULT_FAIL,  /* start returns IO */
    WEFT_FAULT_DELAY, /* start comes delay_s late */
    WEFT_FAULT_LOSE /* a SEND is never made; any other call is made delay_s late, when it is waited for */
} weft_fault_kind;

/** What goes wrong on this rank. */
typedef struct weft_fault {
    weft_fault_kind kind;
    uint64_t at_call; /* counted from 0 */
    double delay_s;
    uint64_t *n_calls; /* the count, shared with other wrappers of this rank; NULL: its own */
} weft_fault;

/** Lets one call of this rank go wrong, for tests. @collective none @return WEFT_OK | NOMEM */
weft_status weft_i_fault_create(weft_comm **out, weft_comm *take_inner, const weft_fault *fault);

/**
 * Seconds in calls since the last reset. blocked: inside start and wait, whatever for: late ranks, messages, the work of a
 * reduction. moving: of calls that move tensors, from when the last rank had come to the end, added up. exposed: the part of
 * `moving` that this rank spent inside wait, so that 1 - exposed / moving was hidden.
 */
typedef struct weft_comm_seconds {
    double blocked, moving, exposed;
} weft_comm_seconds;

/**
 * Writes one event a call, on the line named after the axis: from its start to its end (a paced call's stated end), with
 * tensor, axis and bytes sent by the convention. It also measures, with t NULL nothing but that. The outermost wrapper.
 *
 * @collective  none
 * @param t     outlives it; NULL: measures only
 * @return      WEFT_OK | NOMEM
 */
weft_status weft_i_trace_comm_create(weft_comm **out, weft_comm *take_inner, weft_trace *t);

/** Calls that carry tensors are recorded too, with the time in which they moved. @param record  outlives it; NULL: no more */
void weft_i_trace_comm_record(weft_comm *traced, weft_step_record *record);

/** @param traced  from weft_i_trace_comm_create */
weft_comm_seconds weft_i_trace_comm_seconds(const weft_comm *traced);

void weft_i_trace_comm_reset(weft_comm *traced);

#define WEFT_PACE_MAX_BUSY 32

/** Time that calls took on a link; monotonic clock. */
typedef struct weft_pace_busy {
    double from, to;
} weft_pace_busy;

/** The link of one rank, shared by its communicators, used by one thread. Zero-initialise, then set the first two. */
typedef struct weft_pace_link {
    double latency_s;   /* of a message */
    double bytes_per_s; /* <= 0: without limit */
    int n_busy;
    weft_pace_busy busy[WEFT_PACE_MAX_BUSY]; /* in order, apart */
} weft_pace_link;

/**
 * Holds each call back until the time at which a stated link would have carried it. A call takes the link for
 * latency_s + bytes / bytes_per_s, bytes the larger of what this rank sends and receives by the convention (one step, however
 * the transport moves it). It begins when its last rank has come and the link is free, whatever the order of waiting: it
 * gets the gaps that calls waited for earlier have left. wait sleeps till the end and stays alive meanwhile
 * (weft_i_ctx_alive). Messages of the host (is_host: control) and groups of one rank are not held back.
 *
 * After wait request->ended_seconds is that end and ready_seconds so long before it as the call takes the link.
 *
 * @collective  none
 * @param link  outlives it
 * @return      WEFT_OK | NOMEM | what weft_i_ctx_alive returns
 */
weft_status weft_i_pace_comm_create(weft_comm **out, weft_comm *take_inner, weft_pace_link *link);

#endif
