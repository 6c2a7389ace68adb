/* The transport whose ranks are threads of one process: creation. The calls themselves are weft/ext/comm.h's. */
#ifndef WEFT_COMM_THREAD_H
#define WEFT_COMM_THREAD_H

#include "weft/ext/comm.h"

typedef struct weft_thread_world weft_thread_world;

/** Zero-initialise, then set what differs from the defaults in brackets. */
typedef struct weft_thread_options {
    /* [120] of silence of the ranks a call waits for; <= 0: the default. The rank whose call ends by it writes the last
       calls of every rank it missed to the log of its context. */
    double deadline_s;

    /**
     * A number that grows as long as the rank works; NULL: only communication calls and weft_i_thread_pulse count.
     * Called from other ranks' threads, so it must read atomically.
     */
    uint64_t (*progress)(void *user, int world_rank);
    void *user;
} weft_thread_options;

/**
 * The state that `n_ranks` threads share. It must outlive their communicators; blocks come from ctx's allocator.
 *
 * @collective  none: created once, before the ranks' threads
 * @param[in] options  NULL for the defaults
 * @return      WEFT_OK | ARG | NOMEM
 */
weft_status weft_i_thread_world_create(weft_thread_world **out,
                                       weft_ctx *ctx,
                                       int n_ranks,
                                       const weft_thread_options *options);

/** After the last communicator is gone. NULL is fine. */
void weft_i_thread_world_destroy(weft_thread_world *w);

/** Says that a rank is at work (a backend operation, a block of a file). One add; any thread. @collective none */
void weft_i_thread_pulse(weft_thread_world *w, int world_rank);

/** Whether a rank failed; one load. @collective none */
bool weft_i_thread_world_has_failed(const weft_thread_world *w);

/**
 * What a rank that is not in a call learns of a failure, for weft_ctx.alive. No calls' buffers are touched any more when
 * it says REMOTE, so they may be freed.
 *
 * @collective  none
 * @return      WEFT_OK (one load) | REMOTE another rank failed, with its message | what this rank itself failed with
 */
weft_status weft_i_thread_check(weft_thread_world *w, int world_rank);

/**
 * The first failure: its status and rank; WEFT_OK and -1 while there is none. The message goes to the calling thread's
 * weft_last_error. @collective none
 */
weft_status weft_i_thread_world_cause(weft_thread_world *w, int *world_rank);

/**
 * This rank's communicator over some ranks of the world, in the order given; its rank is its place among them.
 *
 * @collective  logical: every member makes it with the same members and axis, and calls of equal (members, axis) in the
 *              same order; no one waits
 * @param[in] ctx         this rank's own
 * @param[in] members     [n_members] world ranks, each once, among them world_rank; NULL: all of the world in order
 * @param[in] axis        borrowed for the life of the communicator
 * @return      WEFT_OK | ARG | NOMEM
 */
weft_status weft_i_thread_comm_create(weft_comm **out,
                                      weft_thread_world *w,
                                      weft_ctx *ctx,
                                      int world_rank,
                                      const int *members,
                                      int n_members,
                                      const char *axis);

#endif
