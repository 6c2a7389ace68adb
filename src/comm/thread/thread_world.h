/* What the ranks of a thread world share. Inside src/comm/thread only. */
#ifndef WEFT_COMM_THREAD_WORLD_H
#define WEFT_COMM_THREAD_WORLD_H

#include "base/alloc.h"
#include "comm/thread/thread.h"

#include <pthread.h>
#include <stdatomic.h>

#define WEFT_THREAD_NAME_BYTES 64
#define WEFT_THREAD_MAX_LAST 32

/** Life of a call: ranks arrive; then its blocks can be worked on; then its results stand. */
enum { WEFT_THREAD_ARRIVING, WEFT_THREAD_READY, WEFT_THREAD_DONE };

/** A collective, or a matched pair of messages. Reused through its group's free list. */
typedef struct weft_thread_call {
    struct weft_thread_call *next; /* of the group's list, or of its free list */
    struct weft_thread_group *group;
    bool is_pair;
    bool is_dry;    /* buffers are addresses that must not be touched */
    uint64_t index; /* of the collective in its group; pair: the tag */
    int n_members;  /* the group's size, or 2: sender, receiver */
    int n_arrived, n_left;
    int *member;            /* [n_members] ranks of the group */
    bool *is_here;          /* [n_members] */
    weft_message *m;        /* [n_members] */
    const void **send;      /* [n_members] m[i].send, in rank order */
    double ready_s, done_s; /* when the last member had come, and when the results stood */
    int64_t n_blocks;
    atomic_llong next_block;
    atomic_llong n_blocks_left;
    atomic_int state;
} weft_thread_call;

/** Ranks that call each other. */
typedef struct weft_thread_group {
    struct weft_thread_group *next;
    struct weft_thread_world *world;
    int size;
    int *world_rank;  /* [size] */
    bool *has_joined; /* [size] */
    int n_gone;       /* guarded by the world's lock */
    char axis[WEFT_THREAD_NAME_BYTES];
    pthread_mutex_t lock;    /* of all below, and of a call's arrivals */
    weft_thread_call *calls; /* in the order of their first arrival */
    weft_thread_call *free_calls;
    int n_made;    /* calls, in use or free */
    int n_most[2]; /* most calls of one rank on their way at once: collectives, pairs */
} weft_thread_group;

/** Where a rank sleeps, and what others may know of it. */
typedef struct weft_thread_rank {
    pthread_mutex_t lock;
    pthread_cond_t woken;
    atomic_int n_sleeping;
    atomic_bool is_waiting; /* inside wait: silent because of others */
    atomic_ullong progress;
    /* The calls it began last, guarded by lock: "all_reduce 3 of wte over dp". Number k is at k % WEFT_THREAD_MAX_LAST. */
    char last_calls[WEFT_THREAD_MAX_LAST][3 * WEFT_THREAD_NAME_BYTES];
    uint64_t n_last;
} weft_thread_rank;

struct weft_thread_world {
    weft_alloc *alloc;
    int n_ranks;
    bool may_spin;
    double deadline_s;
    uint64_t (*progress)(void *user, int world_rank);
    void *user;
    weft_thread_rank *ranks; /* [n_ranks] */
    pthread_mutex_t lock;    /* of groups and of the cause */
    weft_thread_group *groups;
    atomic_bool has_failed; /* set last, after the cause */
    atomic_int n_working;   /* threads that touch ranks' buffers */
    int failed_rank;
    weft_status cause;
    char message[768];
};

/** Joins (or makes) the group of these members; *rank is the caller's place. */
weft_status weft_i_thread_group_join(weft_thread_group **out,
                                     weft_thread_world *w,
                                     int world_rank,
                                     const int *members,
                                     int n_members,
                                     const char *axis);
void weft_i_thread_group_leave(weft_thread_group *g);

/** Records the first failure and wakes every rank; returns when no thread touches a rank's buffers any more. */
void weft_i_thread_fail(weft_thread_world *w,
                        int world_rank,
                        weft_status status,
                        const char *message);

/** After a failure: waits out the threads that still touch buffers; the status for this rank. */
weft_status weft_i_thread_remote(weft_thread_world *w);

/** Wakes a rank if it sleeps. */
void weft_i_thread_wake(weft_thread_world *w, int world_rank);

/**
 * Waits until the call's state is above `seen`, the world failed, or the ranks it waits for were silent for the
 * deadline. `c` is the caller's. @return WEFT_OK (look again) | TIMEOUT, the message names the missing ranks
 */
weft_status weft_i_thread_sleep(weft_thread_call *call, const weft_comm *c, int seen);

/** The last of its members has come: checks that the messages fit each other and cuts the work. @return WEFT_OK | MISMATCH */
weft_status weft_i_thread_call_prepare(weft_thread_call *call);

/** Works on blocks that nobody has taken, while the world has not failed; the thread of the last block makes it DONE. */
void weft_i_thread_call_work(weft_thread_call *call);

#endif
