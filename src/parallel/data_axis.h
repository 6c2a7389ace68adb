/**
 * The data-parallel axis of one rank: what data_parallel.c, ddp.c, zero1.c, zero2.c, zero3.c and bucket.c share. Inside
 * src/parallel only.
 *
 * The five methods differ in what is cut over the axis and in how a bucket's gradient is reduced; weft_data_method says
 * that, data_axis.c takes the memory, bucket.c sees when a gradient is complete.
 */
#ifndef WEFT_PARALLEL_DATA_AXIS_H
#define WEFT_PARALLEL_DATA_AXIS_H

#include "parallel/parallel.h"
#include "weft/ext/hooks.h"

struct weft_data_axis;

/** The gradient of one trained segment on its way to a sum over ranks. */
typedef struct weft_bucket {
    const weft_segment *segment;
    float *own; /* [n_mine] this rank's part of the sum */
    float
        *grad; /* [n_elems] this micro-batch's gradient, or the step's so far; NULL: no slot yet */
    int slot;  /* of the ring; -1: `grad` is the flat gradients' or a place of its own */
    unsigned part;     /* of backward that completes it: WEFT_BACKWARD_INPUT or _WEIGHT */
    int64_t n_ready;   /* parameters complete in this micro-batch */
    bool is_issued;    /* its reduction was started in this micro-batch */
    bool is_in_flight; /* `request` is to be waited for */
    bool
        is_guest; /* a copy of another stage's parameter, which sums it: not reduced here (tied.c) */
    bool has_sum; /* `own` holds earlier micro-batches of this step */
    weft_request request;
} weft_bucket;

/** A place in the ring of buckets. */
typedef struct weft_bucket_slot {
    float *data;
    weft_bucket *bucket; /* in it, until its reduction is over; NULL: free */
} weft_bucket_slot;

/** Weights of one layer, gathered. */
typedef struct weft_gather_slot {
    char *data;
    int64_t layer; /* -1: free */
    bool is_in_flight;
    weft_request *requests; /* [most segments of a layer] */
} weft_gather_slot;

/** The segments whose parameters a layer reads, and where each lies in a slot. */
typedef struct weft_gather_unit {
    int64_t *segment; /* [n] ascending */
    int64_t *at;      /* [n] element of the slot */
    int64_t n;
    int64_t n_elems;
} weft_gather_unit;

/** What a method is. */
typedef struct weft_data_method {
    bool is_state_shard, is_grad_shard, is_value_shard;
    bool is_on_root; /* rank 0 has the batch, the loss, the gradients' sum and the optimizer */

    /** Starts the reduction of a complete gradient (bucket->request). */
    weft_status (*reduce)(struct weft_data_axis *a, weft_bucket *b);

    /** After the last reduction of a step; may be NULL. */
    weft_status (*end_step)(struct weft_data_axis *a);

    /** After the optimizer; may be NULL. */
    weft_status (*share_update)(struct weft_data_axis *a);
} weft_data_method;

/** What data_parallel.c keeps for the micro-batches of a round: on rank 0 of all ranks, one after another. */
typedef struct weft_outputs {
    int64_t n_seqs, n_rows;   /* of the largest micro-batch there is room for; 0: none yet */
    int64_t n_cols;           /* vocabulary */
    void *logits;             /* f32 [rows, n_cols] */
    void *grads;              /* theirs, of the model's type; in their place where that can be */
    int32_t *ids, *positions; /* host [n_rows] of this rank's */
    int64_t *samples;         /* host [n_seqs] */
    int64_t *counts;          /* host [size] of a message */
} weft_outputs;

typedef struct weft_data_axis {
    weft_ctx *ctx;
    weft_comm *comm;
    weft_model *model;
    const weft_layout *layout;
    weft_step_record *record; /* of this rank */
    const weft_data_method *method;
    bool is_training;
    bool
        is_by_micro_batch; /* every micro-batch's gradient is made by itself and reduced onto `own` */
    weft_shards shards;
    void *values; /* flat weights, or this rank's shard */
    void *grads;  /* flat gradients, or this rank's shard */
    weft_parts value_parts, state_parts, owned_parts;
    int64_t n_state_elems;

    weft_bucket *buckets; /* in the order in which they are issued */
    int64_t n_buckets;
    unsigned parts;             /* of backward that the action at hand runs */
    int64_t *bucket_of_segment; /* [segments]; -1: frozen */
    bool *is_written;           /* [parameters] in this micro-batch, or step */
    bool is_reducing;           /* this micro-batch's gradients are to be reduced */
    weft_bucket_slot *ring;
    int n_ring;
    int64_t ring_elems;

    weft_gather_unit *units; /* [layers]; ZeRO-3 */
    weft_gather_slot *slots;
    int n_slots;
    int64_t slot_elems;
    int64_t n_requests;    /* of a slot */
    weft_outputs outputs;  /* DataParallel */
    const weft_exec *exec; /* of the run whose passes are going on */

    weft_hooks hooks;
} weft_data_axis;

extern const weft_data_method weft_i_data_parallel_method;
extern const weft_data_method weft_i_ddp_method;
extern const weft_data_method weft_i_zero1_method;
extern const weft_data_method weft_i_zero2_method;
extern const weft_data_method weft_i_zero3_method;

/** data_axis.c. The model is laid out here. @return WEFT_OK | NOMEM */
weft_status
weft_i_data_axis_create(weft_data_axis **out, weft_mesh *mesh, weft_model *model, bool is_training);
void weft_i_data_axis_destroy(weft_data_axis *a);

/* ---- bucket.c ---- */

/** Buckets, their ring and their own parts. After the segments and the memory of gradients. */
weft_status weft_i_buckets_create(weft_data_axis *a);
void weft_i_buckets_destroy(weft_data_axis *a);
void weft_i_buckets_begin_step(weft_data_axis *a);
/** A backward, or one part of a split one, begins; is_last: it is the step's last of that part. */
void weft_i_buckets_begin_action(weft_data_axis *a, unsigned parts, bool is_last);

/** Gradients that nobody wrote count as zeros; what is not reduced yet is. */
weft_status weft_i_buckets_end_action(weft_data_axis *a);

/** Waits for every reduction. */
weft_status weft_i_buckets_end_step(weft_data_axis *a);

/* Hooks. */
weft_status weft_i_bucket_grad_need(void *axis, weft_param *p, weft_grad_target *target);
weft_status weft_i_bucket_grad_ready(void *axis, weft_param *p);

/** Issues what is complete, in the fixed order. Called at the end of a layer's backward. */
weft_status weft_i_buckets_issue(weft_data_axis *a);

/** Starts own = (own, when it holds a sum already) + rank 0's gradient + rank 1's + ... */
weft_status weft_i_bucket_reduce_onto_own(weft_data_axis *a, weft_bucket *b);

/** Updated weights of every bucket to all ranks; zero1.c, also ZeRO-2's. */
weft_status weft_i_zero1_share_update(weft_data_axis *a);

/* ---- data_parallel.c ---- */

/** Room for the outputs of micro-batches of n_seqs sequences of n_tokens; nothing when there is that much. */
weft_status weft_i_data_parallel_reserve(weft_data_axis *a, int64_t n_seqs, int64_t n_tokens);
void weft_i_data_parallel_destroy(weft_data_axis *a);

/** Forward, loss and backward of the micro-batches from number `first` on, one a rank. */
weft_status weft_i_data_parallel_round(weft_data_axis *a,
                                       weft_run *run,
                                       const weft_parallel_pass *pass,
                                       int64_t first);

/* ---- zero3.c ---- */

weft_status weft_i_zero3_create(weft_data_axis *a);
void weft_i_zero3_destroy(weft_data_axis *a);
weft_status weft_i_zero3_layer_begin(weft_data_axis *a, const weft_layer *l, weft_pass pass);
weft_status weft_i_zero3_layer_end(weft_data_axis *a, const weft_layer *l, weft_pass pass);

/** Names the segment in messages: its first parameter. */
const char *weft_i_segment_name(const weft_data_axis *a, const weft_segment *s);

#endif
