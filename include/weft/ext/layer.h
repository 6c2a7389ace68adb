/**
 * Layers and parameters: what a model is made of. For people who write a layer of their own; weft's own layers use
 * nothing else (and share helpers of src/nn).
 *
 * A layer turns x [rows, C] into y [rows, C'] and back. It is single-device code: it reads no rank, and no element of a
 * tensor (every look at data is an operation of the backend, so a dry run is complete). What it keeps between forward
 * and backward it declares as items; weft_run decides for each item whether it stays in the activation slot or is
 * computed again into workspace, and hands the layer a view either way.
 */
#ifndef WEFT_EXT_LAYER_H
#define WEFT_EXT_LAYER_H

#include "weft/ext/backend.h"
#include "weft/ext/hooks.h"

#ifdef __cplusplus
extern "C" {
#endif

struct weft_arena; /* base/arena.h */

#define WEFT_PARAM_NAME_BYTES 192
#define WEFT_PARAM_PIECES 4

/** How fresh weights are drawn. */
typedef enum weft_param_init { WEFT_INIT_NORMAL, WEFT_INIT_ONES, WEFT_INIT_ZEROS } weft_param_init;

/** How a gradient behaves over the tensor axis. */
typedef enum weft_grad_kind {
    WEFT_GRAD_SPLIT,  /* each rank has its own slice */
    WEFT_GRAD_SAME,   /* every rank computes the whole, equal */
    WEFT_GRAD_PARTIAL /* to be summed over the ranks that hold it, before the data axis reduces it */
} weft_grad_kind;

/** A rectangle of the full tensor and where it lies here. A 1-D tensor is one row. */
typedef struct weft_param_piece {
    int64_t full_row, full_col; /* in the full tensor */
    int64_t row, col;           /* in the local one */
    int64_t rows, cols;
    bool is_owned; /* false: another rank also holds it and counts it (norm, optimizer, files) */
} weft_param_piece;

/** One parameter: its description, and where it is now. */
typedef struct weft_param {
    char name[WEFT_PARAM_NAME_BYTES]; /* as in the Hugging Face file */
    int n_dims;                       /* 1 or 2, as in the file */
    int64_t full_rows, full_cols;
    int64_t rows, cols; /* here */
    weft_param_piece piece[WEFT_PARAM_PIECES];
    int n_pieces;
    weft_grad_kind grad_kind;
    int64_t
        partial_unit; /* PARTIAL: rows (1-D: columns) of what slices share (a kv head); 0: they share all of it */
    weft_param_init init;
    double init_std;
    bool is_decayed; /* weight decay applies: matrices and embeddings */
    bool is_frozen;  /* no gradient, no optimizer state */
    bool
        is_apart; /* another stage of a pipeline has a copy: it is divided by itself, not with its neighbours */
    int64_t number; /* in the model's order */
    int n_uses;     /* layers here that write its gradient (2 when tied) */

    int64_t value_first; /* element number in the flat weights */
    int64_t grad_first;  /* element number in the flat gradients; -1 when frozen */
    weft_view value;     /* [rows, cols] of the model's type */
    weft_view grad;      /* [rows, cols] f32 */
    bool has_grad;       /* written since the step began */
    int n_uses_left;     /* in this micro-batch */
} weft_param;

/** Sizes a layer computes its own sizes from. rows differ between the stream and the inside under sequence parallelism. */
typedef struct weft_layer_shape {
    int64_t n_seqs;
    int64_t n_tokens;    /* of a sequence, inside */
    int64_t rows_stream; /* of the residual stream */
    int64_t rows_inside; /* n_seqs * n_tokens */
    int64_t first_row;   /* of the residual stream, among those inside */
    bool is_stream_cut;  /* the stream has a part of the rows only, be it all of them by chance */
    weft_dtype dtype;    /* of the model */
} weft_layer_shape;

enum {
    WEFT_ITEM_CHEAP =
        1, /* `recompute` makes it again from items that are kept (selective recompute) */
    WEFT_ITEM_FOR_INPUT = 2,  /* backward's INPUT part reads it */
    WEFT_ITEM_FOR_WEIGHT = 4, /* backward's WEIGHT part reads it */
    WEFT_ITEM_GRADIENT = 8,   /* written by backward's INPUT part, read by its WEIGHT part */
    WEFT_ITEM_SPLIT =
        16, /* with GRADIENT: given only when backward runs as two calls; else the view is not given */
    WEFT_ITEM_RESULT = 32 /* an output that outlives backward (token losses): always in the slot */
};

#define WEFT_LAYER_ITEMS 24

typedef struct weft_item {
    const char *name;
    int64_t rows, cols;
    weft_dtype dtype;
    unsigned flags;
} weft_item;

/** The micro-batch: views in backend memory, the host's numbers beside them. */
typedef struct weft_batch {
    int64_t n_seqs;
    int64_t n_tokens;
    weft_view ids;           /* I32 [n_seqs * n_tokens, 1] */
    weft_view targets;       /* I32, already shifted by one; -100 is not counted */
    weft_view positions;     /* I32 */
    weft_view samples;       /* I64: number of the row's sample in the run */
    const int64_t *q_offset; /* host [n_seqs]: with a cache, tokens already in it; else NULL */
    const int64_t
        *kv_length; /* host [n_seqs]: with a cache, tokens in it after this pass; else NULL */
} weft_batch;

/** Keys and values of one layer, for generation: [n_seqs * capacity, n_kv_heads * head_dim]. */
typedef struct weft_kv {
    weft_view k, v;
    int64_t capacity;
} weft_kv;

/** What operations run in: made by weft_run, passed to every layer call. */
typedef struct weft_exec {
    weft_backend *backend;
    struct weft_arena *workspace;
    weft_hooks **hooks;
    int n_hooks;
    weft_pass pass;
    unsigned parts;      /* of a BACKWARD pass: WEFT_BACKWARD_INPUT, _WEIGHT or _BOTH */
    bool is_recomputing; /* backward runs parts of forward again */
    bool is_training;    /* dropout acts */
    bool is_again;       /* a forward that only fills the items again: the output is not needed */
    bool is_loss_wanted; /* forward of the last layer computes token losses (evaluation) */
    weft_layer_shape shape; /* of the pass's micro-batch */
    uint32_t dropout_key[2];
    float
        loss_scale; /* every token's gradient is multiplied by this: 1 / counted tokens of the global batch */
    weft_view
        logits; /* f32 [rows, vocabulary]: where the head writes its logits; not given: nowhere */
    weft_view rope_cos,
        rope_sin; /* f32 [positions, head_dim / 2]; not given without rotary positions */
    weft_view
        grad_logits; /* of the model's type [rows, vocabulary]: backward of the head starts from these instead of
                              computing the loss (DataParallel: rank 0 computed it); not given: it computes the loss */
    const int64_t *head_rows; /* host [n_head_rows]: the head works on these rows only; NULL: all */
    int64_t n_head_rows;
} weft_exec;

/** What one call of a layer works on. */
typedef struct weft_layer_io {
    const struct weft_layer *layer;
    weft_exec *exec;
    const weft_batch *batch;
    weft_layer_shape shape;
    weft_view x;  /* input; not given for the first layer of a model */
    weft_view y;  /* output; not given for the last */
    weft_view dx; /* gradient of x, to be written */
    weft_view dy; /* gradient of y; must stay as it is */
    weft_view item[WEFT_LAYER_ITEMS];
    weft_kv *kv; /* generation; else NULL */
} weft_layer_io;

enum { WEFT_BACKWARD_INPUT = 1, WEFT_BACKWARD_WEIGHT = 2, WEFT_BACKWARD_BOTH = 3 };

struct weft_layer;

/**
 * What a layer can do. No function communicates by itself; the calls of weft_exec_* below lead to hooks, which may. All
 * return WEFT_OK or what the operation or hook that failed returned.
 */
typedef struct weft_layer_ops {
    const char *kind; /* "block", "embedding", ... */

    /** Writes the items (at most WEFT_LAYER_ITEMS) and their number, from sizes alone. */
    weft_status (*items)(const struct weft_layer *l,
                         const weft_layer_shape *shape,
                         weft_item *item,
                         int *n_items);

    /** y and all items that are not GRADIENT from x. With exec->is_again y need not be written. */
    weft_status (*forward)(struct weft_layer *l, weft_layer_io *io);

    /** The CHEAP items again, from the others. NULL when there are none. */
    weft_status (*recompute)(struct weft_layer *l, weft_layer_io *io);

    /**
     * `parts`: INPUT writes dx (when given) and the GRADIENT items; WEIGHT writes the parameters' gradients from them; BOTH
     * does the two in one go, weight products where they hide communication. Same operations on the same values in
     * each case, so the same bits. A layer may do its weight gradients with INPUT (then WEIGHT alone does nothing).
     */
    weft_status (*backward)(struct weft_layer *l, weft_layer_io *io, unsigned parts);

    /**
     * Whether the pass that exec stands for (pass, is_again, is_loss_wanted, logits) reads the layer's parameters: what
     * is not read need not be gathered. NULL: every pass does.
     */
    bool (*is_reading)(const struct weft_layer *l, const weft_exec *exec);

    /** Its weight gradients are made with INPUT; WEIGHT alone does nothing (embedding, head). */
    bool has_weights_with_input;

    void (*destroy)(struct weft_layer *l);
} weft_layer_ops;

typedef struct weft_layer {
    const weft_layer_ops *ops;
    void *data; /* the layer's own; destroy frees it */
    weft_ctx *ctx;
    int number;       /* in the model's whole list */
    int64_t cols_out; /* columns of y */
    weft_param *const
        *params; /* borrowed: what it reads, in the order in which backward ends the gradients */
    int n_params;
} weft_layer;

/**
 * Runs an operation with workspace from exec's stack (given back before it returns).
 *
 * @collective  none
 * @param[in] args  the operation's struct of weft/ext/backend.h
 * @return      WEFT_OK | ARG operands that do not fit each other | INTERNAL workspace beyond what was planned | DEVICE
 */
WEFT_API weft_status weft_exec_op(weft_exec *e, weft_op op, const void *args);

/**
 * Workspace until weft_exec_reset to an earlier mark: a dense matrix, contents arbitrary.
 *
 * @collective  none
 * @return      WEFT_OK | INTERNAL workspace beyond what was planned
 */
WEFT_API weft_status
weft_exec_view(weft_exec *e, weft_dtype dtype, int64_t rows, int64_t cols, weft_view *out);
WEFT_API size_t weft_exec_mark(const weft_exec *e);
WEFT_API void weft_exec_reset(weft_exec *e, size_t mark);

/**
 * Around every read of a parameter (several parameters: need all, then done all). p->value is valid in between.
 *
 * @collective  none of its own; whatever the hooks param_need and param_done do
 * @return      WEFT_OK | what a hook returns
 */
WEFT_API weft_status weft_exec_need(weft_exec *e, weft_param *p);
WEFT_API weft_status weft_exec_done(weft_exec *e, weft_param *p);

/**
 * Around every write of a parameter's gradient: begin says where and whether to add. Not called for frozen parameters.
 *
 * @collective  none of its own; whatever the hooks grad_need and grad_ready do
 * @return      WEFT_OK | what a hook returns
 */
WEFT_API weft_status weft_exec_grad_begin(weft_exec *e, weft_param *p, weft_grad_target *out);
WEFT_API weft_status weft_exec_grad_end(weft_exec *e, weft_param *p);

/**
 * Around a region; *out is `in` when no hook has anything to do, and lies in workspace when a hook changed the shape.
 * Between the two calls do what does not depend on *out.
 *
 * @collective  none of its own; whatever the hooks of regions do
 * @return      WEFT_OK | INTERNAL workspace beyond what was planned | what a hook returns
 */
WEFT_API weft_status weft_exec_region_start(
    weft_exec *e, weft_region_kind kind, weft_pass way, weft_view in, weft_view *out);
WEFT_API weft_status weft_exec_region_finish(
    weft_exec *e, weft_region_kind kind, weft_pass way, weft_view in, weft_view out);

#ifdef __cplusplus
}
#endif
#endif
