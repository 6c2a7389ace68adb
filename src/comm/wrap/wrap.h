/**
 * Communicators that stand before another one and see every call. They stack in any order on any transport.
 *
 * A wrapper takes over the communicator it is given (also when creating it fails, which destroys it) and has its rank,
 * size, axis and context.
 */
#ifndef WEFT_COMM_WRAP_H
#define WEFT_COMM_WRAP_H

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
 * Compares each collective over the ranks before it starts: number, operation, type, whole count, reduction, root, split,
 * axis and tensor. Where they differ every rank gets MISMATCH, naming the ranks that differ from most, and their calls.
 *
 * It makes start wait for all ranks, so with it a program must not need a message between a collective's start and the
 * same start on another rank. Pairs are checked by their transport alone.
 *
 * @collective  the group: 1 all_reduce of 20 I64 before each collective, 1 all_gather more on a mismatch
 * @param take_duplicate  a second communicator of the same ranks for these; NULL: they go over take_inner
 * @return      WEFT_OK | NOMEM
 */
weft_status weft_i_check_create(weft_comm **out, weft_comm *take_inner, weft_comm *take_duplicate);

typedef enum weft_fault_kind {
    WEFT_FAULT_NONE,
    WEFT_FAULT_FAIL,  /* start returns IO */
    WEFT_FAULT_DELAY, /* start comes delay_s late */
    WEFT_FAULT_LOSE /* a SEND is never made; any other call is made delay_s late, when it is waited for */
} weft_fault_kind;

/** What goes wrong on this rank. */
typedef struct weft_fault {
    weft_fault_kind kind;
    uint64_t at_call; /* counted from 0 in this wrapper */
    double delay_s;
} weft_fault;

/** Lets one call of this rank go wrong, for tests. @collective none @return WEFT_OK | NOMEM */
weft_status weft_i_fault_create(weft_comm **out, weft_comm *take_inner, const weft_fault *fault);

#endif
