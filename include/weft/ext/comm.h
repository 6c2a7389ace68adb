/**
 * The contract of a communicator: a group of ranks, collectives and messages between them. For people who add a
 * transport (threads, MPI, NCCL) or a wrapper (count, check, trace, fault, pace).
 *
 * Every call is one struct, weft_message, and goes through two functions, start and wait. So a wrapper sees all calls
 * in one place and can stack on any transport, and every call can overlap with computation.
 *
 * Rules
 *  1. All ranks of a group make the same calls in the same order, except SEND and RECV, which pair by (peer, tag).
 *  2. `send` and `recv` are backend memory (or host memory with is_host). In place (recv == send, or the rank's own part of
 *     the whole buffer) is allowed where the comment says so.
 *  3. A request starts after what its backend's queue holds; wait orders the queue behind it and blocks the host only
 *     where the backend must.
 *  4. Reductions add in rank order on self, thread and mpi, so their bits agree; a transport that adds in its own order
 *     says so in is_ordered.
 *  5. A failing rank aborts its communicators; calls of the others return REMOTE with that rank's message.
 *  6. Buffers and counts stay as they are from start until wait returns. A SEND may wait until its RECV has come.
 */
#ifndef WEFT_EXT_COMM_H
#define WEFT_EXT_COMM_H

#include <stdbool.h>
#include <stdint.h>

#include "weft/context.h"
#include "weft/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

/** n ranks; V the whole buffer of n_elems; V_r rank r's part, counts[r] elements at the sum of the counts before it. */
typedef enum weft_comm_op {
    WEFT_COMM_ALL_REDUCE, /* recv [V] = reduction of every rank's send [V]; in place */
    WEFT_COMM_REDUCE_SCATTER, /* recv [V_r] = rank r's part of the reduction of send [V]; in place in the whole */
    WEFT_COMM_ALL_GATHER, /* recv [V] = every rank's send [V_r] one after another; in place in the whole */
    WEFT_COMM_BROADCAST, /* recv [V] = root's send [V]; in place */
    WEFT_COMM_REDUCE,    /* root's recv [V] = reduction of every rank's send [V]; in place */
    WEFT_COMM_GATHER,    /* root's recv [V] = every rank's send [V_r] */
    WEFT_COMM_SCATTER,   /* recv [V_r] = root's send's part r */
    WEFT_COMM_ALL_TO_ALL, /* recv's part from rank i = rank i's send's part for me: counts to, recv_counts from; sent: the
                             counts' sum less the part that stays */
    WEFT_COMM_SEND, /* send [V] to peer */
    WEFT_COMM_RECV, /* recv [V] from peer */
    WEFT_COMM_BARRIER,
    WEFT_COMM_OP_COUNT
} weft_comm_op;

typedef enum weft_reduction { WEFT_REDUCTION_SUM, WEFT_REDUCTION_MAX } weft_reduction;

/** One call. Zero-initialise, then set what the operation needs. */
typedef struct weft_message {
    weft_comm_op op;
    weft_dtype dtype; /* F32, BF16; I64 and I32 for host numbers */
    weft_reduction reduction;
    const void *send;
    void *recv;
    int64_t n_elems; /* of the whole */
    const int64_t
        *counts; /* [size] parts; NULL: an even cut, the first n_elems % size ranks one more */
    const int64_t
        *recv_counts; /* [size], ALL_TO_ALL; NULL with counts: the even cut's part from each */
    int peer;         /* root, or the other end of SEND and RECV */
    int tag;          /* SEND and RECV: f(micro-batch, chunk, direction) */
    bool is_host;     /* send and recv are host memory */
    bool
        is_added; /* REDUCE_SCATTER: the sum starts from what recv holds: ((recv + rank 0's) + rank 1's) + ...; then
                      recv and send must not overlap */
    const char *tensor; /* what is sent, for messages and traces */
} weft_message;

typedef struct weft_comm weft_comm;

/** A call on its way; the caller's storage, filled by start. */
typedef struct weft_request {
    weft_message message;
    uint64_t sequence; /* number of the call on this communicator */
    /* Of the monotonic clock, set by the transport. started: by start. ready: by wait, when the last rank had come; a
       transport that does not know says when it started here. ended: by wait, when the results stood. wrap/pace moves
       ready and ended to the stated times. */
    double started_seconds, ready_seconds, ended_seconds;
    void *impl;
} weft_request;

typedef struct weft_comm_ops {
    const char *name;
    bool is_ordered; /* reductions add in rank order */

    /** Begins a call. `request` must stay where it is until wait returns. @return WEFT_OK | ARG | REMOTE | MISMATCH */
    weft_status (*start)(weft_comm *c, const weft_message *m, weft_request *request);

    /** Ends it. @return WEFT_OK | REMOTE | TIMEOUT with the ranks that are missing from which call */
    weft_status (*wait)(weft_comm *c, weft_request *request);

    /** Tells every rank that this one failed; never blocks. */
    void (*abort)(weft_comm *c, weft_status status, const char *message);

    void (*destroy)(weft_comm *c);
} weft_comm_ops;

/** Common head of every communicator; a transport embeds it as its first member. */
struct weft_comm {
    const weft_comm_ops *ops;
    weft_ctx *ctx;
    int rank, size;
    const char *axis; /* name of the mesh axis this group lies along: "world", "dp", ... */
    uint64_t n_calls;
    const int
        *world_rank; /* [size] of each rank of the group, as messages call it; NULL: as here */
};

/** start and wait in one. @collective the group: the message's operation */
WEFT_API weft_status weft_comm_call(weft_comm *c, const weft_message *m);

/** A group of one rank: every call is a copy or nothing. @collective none */
WEFT_API weft_status weft_comm_self_create(weft_comm **out, weft_ctx *ctx, const char *axis);
WEFT_API void weft_comm_destroy(weft_comm *c);

#ifdef __cplusplus
}
#endif
#endif
