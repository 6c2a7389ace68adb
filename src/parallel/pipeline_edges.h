/* The inside of a pipeline: micro-batches in flight, messages on their way. For pipeline.c and pipeline_forward.c alone. */
#ifndef WEFT_PARALLEL_PIPELINE_EDGES_H
#define WEFT_PARALLEL_PIPELINE_EDGES_H

#include "parallel/pipeline.h"

#define WEFT_PIPELINE_RING 2  /* gradients on their way, each direction */
#define WEFT_PIPELINE_AHEAD 2 /* actions whose messages are posted before their turn */

/* A micro-batch in a chunk. */
typedef struct weft_flight {
    int64_t micro_batch; /* -1: the slot is free */
    bool is_receiving, is_sending;
    weft_request received, sent;
} weft_flight;

/* A gradient on its way. */
typedef struct weft_place {
    void *data;
    int64_t micro_batch;
    int chunk;
    bool is_taken; /* posted and not yet used (in), or being sent (out) */
    weft_request request;
} weft_place;

struct weft_pipeline {
    weft_ctx *ctx;
    weft_mesh *mesh;
    weft_comm *comm;
    weft_pipeline_options o;
    weft_actions list;
    int64_t n_listed;     /* micro-batches of the list; 0: none yet */
    weft_flight *flights; /* [n_chunks * n_slots] */
    int n_slots;          /* most of a chunk's run */
    weft_place in[WEFT_PIPELINE_RING], out[WEFT_PIPELINE_RING];
    const weft_parallel_pass *pass;
};

enum { WEFT_TOWARDS_END, WEFT_TOWARDS_BEGIN };

/** Micro-batch i of this rank's list as one of the global batch; n_seqs 0: this rank has none. */
weft_micro_batch weft_i_edges_part(const weft_pipeline *p, int64_t micro_batch);
bool weft_i_edges_is_idle(const weft_pipeline *p, int64_t micro_batch);

/** A SEND or RECV of activations (towards the end) or their gradients, without its buffer. */
weft_message weft_i_edges_message(
    const weft_pipeline *p, weft_comm_op op, int64_t micro_batch, int chunk, int way);

/** The slot that holds the micro-batch in the chunk, a free one for -1; -1: there is none. */
int weft_i_edges_slot(const weft_pipeline *p, int chunk, int64_t micro_batch);
weft_flight *weft_i_edges_flight(const weft_pipeline *p, int chunk, int slot);

/** Posts the messages of the actions from number i on, as far as there is room. */
weft_status weft_i_edges_post(weft_pipeline *p, int64_t i);

/** The gradient that was posted for; NULL: none. */
weft_place *weft_i_edges_place(weft_place *ring, int64_t micro_batch, int chunk);

/** A place for the gradient of the input: a free one, else the one that was sent first. */
weft_status weft_i_edges_place_out(weft_pipeline *p, weft_place **out);

/** Everything that was sent has been received. */
weft_status weft_i_edges_wait(weft_pipeline *p);

/* ---- pipeline.c ---- */

/** The pass that goes on is of this chunk, with the settings of the first one's run. */
void weft_i_pipeline_set_exec(const weft_pipeline *p, weft_chunk *c);

/** What the last stage made of a micro-batch, to the caller of the pass. */
weft_status weft_i_pipeline_deliver(
    weft_pipeline *p, const weft_chunk *c, int64_t micro_batch, weft_view logits, weft_view losses);

#endif
