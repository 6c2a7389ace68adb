/**
 * Models as lists of layers, and weft_run, which runs such a list forward and backward.
 *
 * Two ways to a model: weft_model_from_config builds a Hugging Face family; weft_model_create with weft_model_add_param
 * and weft_model_add_layer builds a list of your own (examples/own_layers.c). Either way: allocate, then weights
 * (weft_model_init_weights, or a loader), then a run.
 */
#ifndef WEFT_MODEL_H
#define WEFT_MODEL_H

#include "weft/config.h"
#include "weft/ext/layer.h"
#include "weft/train.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_model weft_model;
typedef struct weft_run weft_run;

/** An empty model that computes in `dtype` (F32 or BF16). */
WEFT_API weft_status weft_model_create(weft_model **out, weft_ctx *ctx, weft_dtype dtype);

/** Frees layers, parameters and memory. NULL is fine. */
WEFT_API void weft_model_destroy(weft_model *m);

/**
 * Builds the list of a family: embedding, blocks, final norm + head.
 *
 * @return WEFT_OK | UNSUPPORTED | NOMEM
 */
WEFT_API weft_status weft_model_from_config(weft_model **out,
                                            weft_ctx *ctx,
                                            const weft_config *config,
                                            weft_dtype dtype);

/**
 * Adds a parameter of full size rows x cols (1-D: rows = 1, n_dims = 1), held whole. Borrowed pointer, stable for the
 * model's life. ARG when the name is taken or the model is allocated already.
 */
WEFT_API weft_status weft_model_add_param(
    weft_model *m, const char *name, int n_dims, int64_t rows, int64_t cols, weft_param **out);

/** Appends a layer; the model owns it (ops->destroy frees `data`). `params` are those it reads, copied. */
WEFT_API weft_status weft_model_add_layer(weft_model *m,
                                          const weft_layer_ops *ops,
                                          void *take_data,
                                          int64_t cols_out,
                                          weft_param *const *params,
                                          int n_params);

WEFT_API int64_t weft_model_param_count(const weft_model *m);
WEFT_API weft_param *weft_model_param(weft_model *m, int64_t i); /* in the order they were added */
WEFT_API weft_param *weft_model_find_param(weft_model *m, const char *name);
WEFT_API int64_t weft_model_layer_count(const weft_model *m);
WEFT_API weft_layer *weft_model_layer(weft_model *m, int64_t i);
WEFT_API int64_t
weft_model_element_count(const weft_model *m); /* of all parameters, whole tensors, tied once */
WEFT_API weft_dtype weft_model_dtype(const weft_model *m);
WEFT_API weft_ctx *weft_model_ctx(const weft_model *m);

/** Freezes every parameter whose name matches the glob; *n_matched counts them. Before allocate. */
WEFT_API weft_status weft_model_freeze(weft_model *m, const char *glob, int64_t *n_matched);

/** Takes memory for weights and, when is_training, for the gradients of what is not frozen. */
WEFT_API weft_status weft_model_allocate(weft_model *m, bool is_training);

/** Draws every weight as f(seed, name, element), the same in every layout. */
WEFT_API weft_status weft_model_init_weights(weft_model *m, uint64_t seed);

/** A step begins: the first gradient written to each parameter overwrites. */
WEFT_API void weft_model_begin_step(weft_model *m);

/** A step's gradients are complete: parameters that got none get zeros. */
WEFT_API weft_status weft_model_end_step(weft_model *m);

/** Zero-initialise, then set. */
typedef struct weft_run_options {
    int64_t n_seqs;      /* largest micro-batch */
    int64_t n_tokens;    /* longest sequence */
    int64_t n_positions; /* rows of the rotary tables: positions a batch may name; 0: n_tokens */
    int64_t
        input_cols; /* columns of the first layer's x, for a list that is a part of a model; 0: it has none */
    int n_slots; /* micro-batches in flight; 0: forward only */
    weft_recompute recompute;
    bool
        is_split; /* backward_input and backward_weight run apart: GRADIENT items get room in the slot */
    weft_hooks **hooks;
    int n_hooks;
    size_t workspace_bytes; /* what a dry run found; a dry context ignores it */
} weft_run_options;

/** Takes memory for the slots and the workspace. */
WEFT_API weft_status weft_run_create(weft_run **out,
                                     weft_model *m,
                                     const weft_run_options *options);
WEFT_API void weft_run_destroy(weft_run *r);

/** What a pass works on, on the host. n_seqs and n_tokens up to the run's. */
typedef struct weft_host_batch {
    int64_t n_seqs;
    int64_t n_tokens;
    const int32_t *ids;       /* [n_seqs * n_tokens] */
    const int32_t *targets;   /* shifted by one already; NULL: none */
    const int32_t *positions; /* NULL: 0 .. n_tokens - 1 in each sequence */
    const int64_t *samples;   /* [n_seqs] numbers of the samples in the run (dropout); NULL: 0 .. */
    const int64_t *q_offset;  /* [n_seqs], with a cache */
    const int64_t *kv_length; /* [n_seqs], with a cache */
} weft_host_batch;

/** Copies a micro-batch into a slot (slot 0 of a forward-only run). */
WEFT_API weft_status weft_run_load(weft_run *r, int slot, const weft_host_batch *batch);

/**
 * Rotary tables of rows [first, first + n) as a sequence of `length` positions has them (only `dynamic` scaling depends on
 * it). weft_run_create fills all rows for n_tokens.
 */
WEFT_API weft_status weft_run_fill_rope(weft_run *r, int64_t first, int64_t n, int64_t length);

/** The settings that passes use (dropout key, loss scale, where logits go); change them between passes. */
WEFT_API weft_exec *weft_run_exec(weft_run *r);

/** Forward through all layers, keeping in the slot what backward needs. */
WEFT_API weft_status weft_run_forward(weft_run *r, int slot);

/** Backward through all layers; the last layer computes the token losses here when training (docs/architecture.md). */
WEFT_API weft_status weft_run_backward(weft_run *r, int slot, unsigned parts);

/** Forward keeping nothing: evaluation, probing, generation (kv [layers] or NULL). Token losses if exec->is_loss_wanted. */
WEFT_API weft_status weft_run_forward_only(weft_run *r, weft_kv *kv);

/** f32 [rows, 1]: token losses of the slot's micro-batch after backward (or forward_only with losses). */
WEFT_API weft_view weft_run_losses(const weft_run *r, int slot);

/** Boundary of the list, for lists that are a part of a model: input (first layer's x), output, and their gradients. */
WEFT_API weft_view weft_run_input(const weft_run *r, int slot);
WEFT_API weft_view weft_run_output(const weft_run *r, int slot);
WEFT_API weft_view weft_run_grad_input(const weft_run *r);
WEFT_API weft_view weft_run_grad_output(const weft_run *r);

/** Highest workspace used so far. */
WEFT_API size_t weft_run_workspace_peak(const weft_run *r);

#ifdef __cplusplus
}
#endif
#endif
