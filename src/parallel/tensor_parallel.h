/**
 * The tensor axis of one rank: which slice of the model is its own, and the hooks that make the slices one model. Inside
 * src/parallel only.
 */
#ifndef WEFT_PARALLEL_TENSOR_PARALLEL_H
#define WEFT_PARALLEL_TENSOR_PARALLEL_H

#include "nn/models/slice.h"
#include "parallel/mesh.h"
#include "weft/ext/hooks.h"

/** Heads, MLP columns and ids of tensor rank `rank` of the layout's tp; all items. */
weft_model_slice weft_i_tensor_slice(const weft_config *c, const weft_layout *l, int rank);

typedef struct weft_tensor_axis {
    weft_hooks hooks;
    weft_ctx *ctx;
    weft_comm *comm;
    weft_model *model;
    const weft_layout *layout; /* the mesh's */
    bool is_sequence_parallel;
    bool is_training;
    weft_exec *exec;   /* of the run whose passes are going on */
    const char *layer; /* names the layer at hand in messages: a parameter of it */
    weft_request request;
    bool is_in_flight;
    int64_t *counts; /* [size] of the call in flight, or of the next */

    weft_view gathered; /* of a sum of strips in flight: those of all ranks, one below the other */

    /* partial gradients */
    bool is_reducing; /* the action at hand completes them */
    int64_t *copied;  /* [n_copied] kv heads that several ranks have, ascending */
    int64_t n_copied;
    weft_view *grad; /* [parameters] where the gradient was written */
    bool *is_ready;  /* [parameters] complete, and not summed yet */
    float *sum;      /* [sum_elems] those of a layer, one after another */
    int64_t sum_elems;
} weft_tensor_axis;

/**
 * @collective  none
 * @param[in] model  built as this rank's slice; its parameters are frozen already
 * @return      WEFT_OK | NOMEM
 */
weft_status weft_i_tensor_axis_create(weft_tensor_axis **out,
                                      weft_mesh *mesh,
                                      weft_model *model,
                                      bool is_training);
void weft_i_tensor_axis_destroy(weft_tensor_axis *a);

/** A backward (or a part of a split one) begins; is_reducing: its gradients are the step's last, or are reduced at once. */
void weft_i_tensor_begin_action(weft_tensor_axis *a, bool is_reducing);

/* ---- shared with sequence_parallel.c ---- */

/** Begins the axis' call; weft_i_tensor_wait ends it. One at a time. */
weft_status weft_i_tensor_start(weft_tensor_axis *a, const weft_message *m);
weft_status weft_i_tensor_wait(weft_tensor_axis *a);

/* ---- strip_sums.c ---- */

/** Whether a region of this kind, this way, adds up strips (weft_layout.n_strips > 0). */
bool weft_i_strip_sum_has(const weft_tensor_axis *a, weft_region_kind kind, weft_pass way);

/** Rows of the sum: those of one strip, or of them those of the stream here (sequence parallelism). */
void weft_i_strip_sum_shape(const weft_tensor_axis *a,
                            weft_region_kind kind,
                            weft_view in,
                            weft_view *out);

/** out = the sum of all strips' rows; in [strips here * rows, C]. @collective tp: 1 all_gather, between the two */
weft_status weft_i_strip_sum_start(weft_tensor_axis *a, weft_view in);
weft_status weft_i_strip_sum_finish(weft_tensor_axis *a, weft_region_kind kind, weft_view out);

/* ---- partial_gradients.c ---- */

weft_status weft_i_partial_create(weft_tensor_axis *a);
void weft_i_partial_destroy(weft_tensor_axis *a);

/** Sums the partial gradients of layer l that are complete over the ranks. @collective tp: 1 all_reduce, or nothing */
weft_status weft_i_partial_sum(weft_tensor_axis *a, const weft_layer *l);

/* ---- sequence_parallel.c ---- */

/** The rows of the stream on this rank, of a micro-batch with `rows`: weft_run_options.stream_rows, user: the axis. */
void weft_i_sequence_rows(const void *axis, int64_t rows, int64_t *first, int64_t *n);

/** Whether a region of this kind changes between a part of the rows and all of them. */
bool weft_i_sequence_has(const weft_tensor_axis *a, weft_region_kind kind);
void weft_i_sequence_shape(const weft_tensor_axis *a,
                           weft_region_kind kind,
                           weft_pass way,
                           weft_view *out);
weft_status weft_i_sequence_start(
    weft_tensor_axis *a, weft_region_kind kind, weft_pass way, weft_view in, weft_view out);

#endif
