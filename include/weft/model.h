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

/**
 * An empty model that computes in `dtype`. `ctx` must outlive it.
 *
 * @collective  none
 * @return      WEFT_OK | UNSUPPORTED a type other than F32 and BF16 | NOMEM
 */
WEFT_API weft_status weft_model_create(weft_model **out, weft_ctx *ctx, weft_dtype dtype);

/** Frees layers, parameters and memory; runs of the model must be gone. NULL is fine. @collective none */
WEFT_API void weft_model_destroy(weft_model *m);

/**
 * Builds the list of a family: embedding, blocks, final norm + head. Takes no memory for weights yet.
 *
 * @collective  none
 * @return      WEFT_OK | UNSUPPORTED a type other than F32 and BF16, or a family weft does not build | NOMEM
 */
WEFT_API weft_status weft_model_from_config(weft_model **out,
                                            weft_ctx *ctx,
                                            const weft_config *config,
                                            weft_dtype dtype);

/**
 * Adds a parameter of full size rows x cols (1-D: rows = 1, n_dims = 1), held whole. Matrices decay and are drawn normal
 * with std 0.02, vectors do neither (zeros); change that in *out before allocate.
 *
 * @collective  none
 * @param[out] out  borrowed, stable for the model's life
 * @return      WEFT_OK | ARG a name that is taken or too long, a size below 1, or a model that is allocated already | NOMEM
 */
WEFT_API weft_status weft_model_add_param(
    weft_model *m, const char *name, int n_dims, int64_t rows, int64_t cols, weft_param **out);

/**
 * Appends a layer.
 *
 * @collective  none
 * @param[in] ops        borrowed for the model's life
 * @param[in] take_data  the layer's own, freed by ops->destroy; also when the call fails
 * @param[in] cols_out   columns of its y; 0 for a last layer that has none
 * @param[in] params     [n_params] those it reads and writes gradients of, in the order in which its backward ends their
 *                       gradients (weft_run_idle announces them in this order); the list is copied
 * @return      WEFT_OK | NOMEM
 */
WEFT_API weft_status weft_model_add_layer(weft_model *m,
                                          const weft_layer_ops *ops,
                                          void *take_data,
                                          int64_t cols_out,
                                          weft_param *const *params,
                                          int n_params);

/** Every parameter starts at a multiple of this many elements: 64 bytes in bf16, 128 in fp32. */
#define WEFT_PARAM_ALIGN_ELEMS 32

/* What is there; pointers are borrowed, NULL where there is none of that number or name. @collective none */
WEFT_API int64_t weft_model_param_count(const weft_model *m);
WEFT_API weft_param *weft_model_param(weft_model *m, int64_t i); /* in the order they were added */
WEFT_API weft_param *weft_model_find_param(weft_model *m, const char *name);
WEFT_API int64_t weft_model_layer_count(const weft_model *m);
WEFT_API weft_layer *weft_model_layer(weft_model *m, int64_t i);
WEFT_API int64_t
weft_model_element_count(const weft_model *m); /* of all parameters, whole tensors, tied once */
WEFT_API weft_dtype weft_model_dtype(const weft_model *m);
WEFT_API weft_ctx *weft_model_ctx(const weft_model *m);
WEFT_API const weft_config *
weft_model_config(const weft_model *m); /* that it was built from; zeros for a list of one's own */

/**
 * Freezes every parameter whose name matches the glob; *n_matched counts them.
 *
 * @collective  none
 * @return      WEFT_OK also when none matched | ARG the model is allocated already
 */
WEFT_API weft_status weft_model_freeze(weft_model *m, const char *glob, int64_t *n_matched);

/**
 * Takes memory for weights and, when is_training, for the gradients (fp32) of what is not frozen.
 *
 * @collective  none
 * @return      WEFT_OK | ARG a second time | NOMEM
 */
WEFT_API weft_status weft_model_allocate(weft_model *m, bool is_training);

/**
 * The first half of allocate: fixes where every parameter lies in the flat weights and, when is_training, in the flat
 * gradients (value_first, grad_first), in the order they were added, each on a multiple of WEFT_PARAM_ALIGN_ELEMS elements. For
 * whoever keeps the memory itself (sharded weights or gradients); the second half is then weft_model_attach.
 *
 * @collective  none
 * @return      WEFT_OK | ARG a second time
 */
WEFT_API weft_status weft_model_lay_out(weft_model *m, bool is_training);

/** Elements of the flat weights and of the flat gradients, padding included. After lay_out. @collective none */
WEFT_API int64_t weft_model_value_elems(const weft_model *m);
WEFT_API int64_t weft_model_grad_elems(const weft_model *m);

/**
 * Points the parameters' views into flat blocks of the caller's: weights in the model's type, gradients f32. NULL: the
 * views keep their shape and have no data, and a hook gives it (param_need or layer_begin; grad_need). May be called again.
 * Whoever places a layer's weights or gradients elsewhere keeps neighbours neighbours: products over q, k, v take adjacent ones
 * in one go, which rounds otherwise than one by one.
 *
 * @collective  none
 */
WEFT_API void weft_model_attach(weft_model *m, void *values, void *grads);

/**
 * Draws every weight as f(seed, name, element of the full tensor), the same in every layout. After allocate.
 *
 * @collective  none
 * @return      WEFT_OK | DEVICE
 */
WEFT_API weft_status weft_model_init_weights(weft_model *m, uint64_t seed);

/** A step begins: the first gradient written to each parameter overwrites. @collective none */
WEFT_API void weft_model_begin_step(weft_model *m);

/**
 * A step's gradients are complete: parameters that got none get zeros, where their gradients have memory here.
 *
 * @collective  none
 * @return      WEFT_OK | DEVICE
 */
WEFT_API weft_status weft_model_end_step(weft_model *m);

/** Zero-initialise, then set. */
typedef struct weft_run_options {
    int64_t n_seqs;      /* largest micro-batch */
    int64_t n_tokens;    /* longest sequence */
    int64_t n_positions; /* rows of the rotary tables: positions a batch may name; 0: n_tokens */
    int64_t
        input_cols; /* columns of the first layer's x, for a list that is a part of a model; 0: it has none */
    int n_slots; /* micro-batches in flight; 0: forward only */
    int n_before_input; /* of them, most whose backward's INPUT part is still to come; 0: all of them. is_split alone */
    weft_recompute recompute;
    bool
        is_split; /* INPUT and WEIGHT of backward run as two calls: GRADIENT items get room in the slot */
    weft_hooks **hooks;
    int n_hooks;
    /* which of a micro-batch's rows the residual stream has here: [*first, *first + *n); n grows with rows. NULL: all */
    void (*stream_rows)(const void *user, int64_t rows, int64_t *first, int64_t *n);
    const void *stream_user;
    size_t workspace_bytes; /* what a dry run found; a dry context ignores it */
    weft_run *
        workspace_of; /* another run, outliving this one, whose workspace is used: they never work at once; NULL */
} weft_run_options;

/**
 * Takes memory for the slots, the rotary tables and the workspace: all that passes need. The model must be allocated.
 *
 * @collective  none
 * @return      WEFT_OK | ARG no sequence, token or layer | NOMEM
 */
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

/**
 * Copies a micro-batch into a slot (slot 0 of a forward-only run). Ids are not checked against the vocabulary.
 *
 * @collective  none
 * @return      WEFT_OK | ARG a batch larger than the run, no such slot, a position beyond the rotary tables | DEVICE
 */
WEFT_API weft_status weft_run_load(weft_run *r, int slot, const weft_host_batch *batch);

/**
 * Rotary tables of rows [first, first + n) as a sequence of `length` positions has them (only `dynamic` scaling depends on
 * it). weft_run_create fills all rows for n_tokens. Without rotary positions it does nothing.
 *
 * @collective  none
 * @return      WEFT_OK | NOMEM | DEVICE
 */
WEFT_API weft_status weft_run_fill_rope(weft_run *r, int64_t first, int64_t n, int64_t length);

/** The settings that passes use (dropout key, loss scale, where logits go); change them between passes. @collective none */
WEFT_API weft_exec *weft_run_exec(weft_run *r);

/**
 * Forward through all layers, keeping in the slot what backward needs. Takes no memory.
 *
 * @collective  none of its own; whatever the run's hooks do
 * @return      WEFT_OK | ARG a run without slots | INTERNAL workspace beyond workspace_bytes | DEVICE | what hooks return
 */
WEFT_API weft_status weft_run_forward(weft_run *r, int slot);

/**
 * Backward through all layers, last to first; the last layer computes the token losses here when training
 * (docs/architecture.md). Takes no memory.
 *
 * @collective  none of its own; whatever the run's hooks do
 * @param[in] parts  WEFT_BACKWARD_BOTH, or INPUT and later WEIGHT of the same slot (is_split)
 * @return      as weft_run_forward
 */
WEFT_API weft_status weft_run_backward(weft_run *r, int slot, unsigned parts);

/**
 * Forward of slot 0 keeping nothing: evaluation, probing, generation. Token losses if exec->is_loss_wanted. A list that is a
 * part of a model reads weft_run_input(run, 0) and leaves weft_run_output(run, 0).
 *
 * @collective  none of its own; whatever the run's hooks do
 * @param[in,out] kv  [layers] cache that keys and values are appended to (a layer without one: k not given); NULL: none
 * @return      as weft_run_forward
 */
WEFT_API weft_status weft_run_forward_only(weft_run *r, weft_kv *kv);

/**
 * A pass without a micro-batch, for a rank that has none while others do: layer_begin and layer_end of every layer in the
 * pass's order and, backward (both parts in one), zeros into every gradient that nothing was written to yet, announced as
 * the layer would (grad_need, grad_ready; the order is that of its list of parameters). Computes nothing else.
 *
 * @collective  none of its own; the same calls of hooks that communicate as a pass with a micro-batch
 * @return      WEFT_OK | DEVICE | what hooks return
 */
WEFT_API weft_status weft_run_idle(weft_run *r, weft_pass pass);

/** The backward half of weft_run_idle for one part of a backward that is split. @collective as weft_run_idle */
WEFT_API weft_status weft_run_idle_backward(weft_run *r, unsigned parts);

/** f32 [rows, 1]: token losses of the slot's micro-batch after backward (or forward_only with losses). @collective none */
WEFT_API weft_view weft_run_losses(const weft_run *r, int slot);

/**
 * Boundary of the list, for lists that are a part of a model: input (first layer's x, to be filled before forward), output
 * (last layer's y), and their gradients (that of the output to be filled before backward). In the model's type; those of a
 * slot [rows of its micro-batch, columns], the gradients [rows of the largest, columns]; of the stream's rows where it is
 * cut. Not given where the list has none.
 *
 * @collective  none
 */
WEFT_API weft_view weft_run_input(const weft_run *r, int slot);
WEFT_API weft_view weft_run_output(const weft_run *r, int slot);
WEFT_API weft_view weft_run_grad_input(const weft_run *r);
WEFT_API weft_view weft_run_grad_output(const weft_run *r);

/**
 * Other places for the boundary's gradients from the next backward on (a pipeline sends one while the next is made): at
 * least as large as the run's own; a view that is not given leaves the run's own.
 *
 * @collective  none
 */
WEFT_API void weft_run_bind_gradients(weft_run *r, weft_view grad_output, weft_view grad_input);

/** Highest workspace used so far, in bytes: what workspace_bytes must be. @collective none */
WEFT_API size_t weft_run_workspace_peak(const weft_run *r);

#ifdef __cplusplus
}
#endif
#endif
