/**
 * The contract of a backend: memory, and a table of operations. For people who add a backend or write a layer.
 *
 * An operation is a number (weft_op), an argument struct (weft_OP_args), and a function in the backend's table. One
 * table, one signature: so a backend that only counts, a tracer, or a reference set is another table, and the
 * workspace and the FLOPs of an operation are asked for with the very arguments it will run with.
 *
 * Rules for all operations
 *  1. Matrices are weft_view; "f32" means the view's dtype must be F32, "any" means F32 or BF16. A model computes in one
 *     of the two; all `any` views of one call have the same dtype unless said otherwise.
 *  2. Arithmetic is fp32 inside whatever the storage; results are rounded once, to nearest even.
 *  3. "overwrites" / "adds": what happens to the output. Where `is_added` exists, false overwrites, true adds.
 *  4. Outputs never overlap inputs unless the comment says "may be".
 *  5. `workspace` has at least workspace_bytes(op, args) bytes, 64-byte aligned, contents arbitrary before and after.
 *     It depends on the shapes in the arguments alone, never on pointers or data (NULL data is fine when asking, but
 *     optional views must be given or not given as in the call).
 *  6. No result depends on the number of threads.
 *  7. Operations are queued in order and may finish later; copy_to_host, the host results of *_SUM*, FIND_NONFINITE
 *     and sync wait. Host arrays in the arguments (marked "host") are read before the call returns.
 *  8. Bad arguments are a bug of the caller: ARG with the operation's name and the shapes.
 */
#ifndef WEFT_EXT_BACKEND_H
#define WEFT_EXT_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "weft/config.h"
#include "weft/ext/memory.h"
#include "weft/ext/view.h"

#ifdef __cplusplus
extern "C" {
#endif

struct weft_sum; /* base/sum.h: exact, order-free accumulator */

typedef enum weft_op {
    WEFT_OP_FILL,
    WEFT_OP_COPY,
    WEFT_OP_ADD,
    WEFT_OP_SCALE,
    WEFT_OP_INIT_NORMAL,
    WEFT_OP_GATHER_ROWS,
    WEFT_OP_SUM,
    WEFT_OP_SUM_SQUARES,
    WEFT_OP_FIND_NONFINITE,
    WEFT_OP_GEMM,
    WEFT_OP_COLUMN_SUM,
    WEFT_OP_EMBEDDING_FORWARD,
    WEFT_OP_EMBEDDING_BACKWARD,
    WEFT_OP_NORM_FORWARD,
    WEFT_OP_NORM_BACKWARD_INPUT,
    WEFT_OP_NORM_BACKWARD_WEIGHT,
    WEFT_OP_ACTIVATION_FORWARD,
    WEFT_OP_ACTIVATION_BACKWARD,
    WEFT_OP_RESIDUAL,
    WEFT_OP_DROPOUT,
    WEFT_OP_ROPE,
    WEFT_OP_ATTENTION_FORWARD,
    WEFT_OP_ATTENTION_BACKWARD,
    WEFT_OP_XENT_STATS,
    WEFT_OP_XENT_RESCALE,
    WEFT_OP_XENT_LOSS,
    WEFT_OP_XENT_GRAD,
    WEFT_OP_ADAMW,
    WEFT_OP_SGD,
    WEFT_OP_COUNT
} weft_op;

/** FILL: x[r, c] = value. x: F32, BF16, or I32 (value is then a whole number). */
typedef struct weft_fill_args {
    weft_view x;
    float value;
} weft_fill_args;

/** COPY: dst = src, converting between F32, BF16 and F16 (or I32/I64 to the same type). Shapes equal, ld may differ. */
typedef struct weft_copy_args {
    weft_view dst;
    weft_view src;
} weft_copy_args;

/** ADD: dst = a + b, rounded to dst's type; each of F32 or BF16, types may differ. dst may be a or b. */
typedef struct weft_add_args {
    weft_view dst;
    weft_view a;
    weft_view b;
} weft_add_args;

/** SCALE: x = x * factor. x: any; may be strided. */
typedef struct weft_scale_args {
    weft_view x;
    float factor;
} weft_scale_args;

/**
 * INIT_NORMAL: x[r, c] = std * normal(key, first + r * row_step + c), drawn and scaled in double and rounded once to x's
 * type (any). `first` and `row_step` are in elements of the full tensor, so a slice draws what the whole would.
 */
typedef struct weft_init_normal_args {
    weft_view x;
    uint32_t key[2]; /* weft_i_rng_key(seed, "init/" NAME) */
    uint64_t first;
    uint64_t row_step;
    double std;
} weft_init_normal_args;

/** GATHER_ROWS: dst[i, :] = src[row[i], :]. row: host, [dst.rows]. any. */
typedef struct weft_gather_rows_args {
    weft_view dst;
    weft_view src;
    const int64_t *row;
} weft_gather_rows_args;

/** SUM: adds every element of x (f32) to *sum. SUM_SQUARES: adds every square. Exact; result on the host (waits). */
typedef struct weft_sum_args {
    weft_view x;
    struct weft_sum *sum; /* host */
} weft_sum_args;

/** FIND_NONFINITE: index r * cols + c of the first element (any) that is not finite, -1 when there is none (waits). */
typedef struct weft_find_nonfinite_args {
    weft_view x;
    int64_t *index; /* host */
} weft_find_nonfinite_args;

/**
 * GEMM: C = op(A) op(B) + bias, or C += ... with is_added.
 *   op(A): [M, K] = A [M, K], or A^T with A stored [K, M] when is_a_transposed; op(B): [K, N] likewise; C [M, N].
 *   A, B: any, same type; C: any (F32 with BF16 A, B is how gradients are accumulated); bias [1, N] of B's type or F32,
 *   or not given. Accumulation in fp32 over all of K in one piece; with is_added the old C is added in fp32, once.
 *   Output tiles are a fixed grid that depends on shapes, types and transpositions alone, never on threads; K is never cut.
 *   M, N or K may be 0 (K = 0: the bias or zeros, or with is_added C and the bias).
 */
typedef struct weft_gemm_args {
    weft_view c;
    weft_view a;
    weft_view b;
    weft_view bias;
    bool is_a_transposed;
    bool is_b_transposed;
    bool is_added;
} weft_gemm_args;

/** COLUMN_SUM: out[0, c] (+)= sum over r of x[r, c]: a bias gradient. x: any; out f32 [1, cols]. */
typedef struct weft_column_sum_args {
    weft_view out;
    weft_view x;
    bool is_added;
} weft_column_sum_args;

/**
 * EMBEDDING_FORWARD: y[r, :] (+)= table[ids[r] - first_id, :]; an id outside [first_id, first_id + table.rows) gives zeros
 * (another rank's rows). ids: I32 [rows, 1]. y, table: any. is_added: adds to y (position table after token table).
 */
typedef struct weft_embedding_forward_args {
    weft_view y;
    weft_view table;
    weft_view ids;
    int64_t first_id;
    bool is_added;
} weft_embedding_forward_args;

/**
 * EMBEDDING_BACKWARD: dtable[ids[r] - first_id, :] += dy[r, :] for every row in order of r; with is_added false dtable is
 * zeroed first. dtable f32, dy any. Ids outside the table are skipped.
 */
typedef struct weft_embedding_backward_args {
    weft_view dtable;
    weft_view dy;
    weft_view ids;
    int64_t first_id;
    bool is_added;
} weft_embedding_backward_args;

typedef enum weft_norm_kind { WEFT_NORM_LAYER, WEFT_NORM_RMS } weft_norm_kind;

/**
 * NORM_FORWARD: LayerNorm y = (x - mean) * rstd * gain + bias (Ba et al. 2016), or RMSNorm y = x * rstd * gain (Zhang,
 * Sennrich 2019). rstd = 1 / sqrt(var + eps). mean [rows, 1] f32 (LAYER only) and rstd [rows, 1] f32 are written. gain, bias
 * [1, cols] any; bias only for LAYER, and optional.
 */
typedef struct weft_norm_forward_args {
    weft_norm_kind kind;
    float eps;
    weft_view y;
    weft_view mean;
    weft_view rstd;
    weft_view x;
    weft_view gain;
    weft_view bias;
} weft_norm_forward_args;

/**
 * NORM_BACKWARD_INPUT: dx = (gradient of the norm's input) + residual. residual is optional and any; dx may be residual or dy.
 */
typedef struct weft_norm_backward_input_args {
    weft_norm_kind kind;
    weft_view dx;
    weft_view dy;
    weft_view residual;
    weft_view x;
    weft_view gain;
    weft_view mean;
    weft_view rstd;
} weft_norm_backward_input_args;

/** NORM_BACKWARD_WEIGHT: dgain [1, cols] f32 (+)= sum_r dy * xhat; dbias f32 (optional) (+)= sum_r dy. */
typedef struct weft_norm_backward_weight_args {
    weft_norm_kind kind;
    weft_view dgain;
    weft_view dbias;
    weft_view dy;
    weft_view x;
    weft_view mean;
    weft_view rstd;
    bool is_added;
} weft_norm_backward_weight_args;

/** ACTIVATION_FORWARD: y = act(x), or act(x) * up when up is given (gated MLP). any. y may be x. */
typedef struct weft_activation_forward_args {
    weft_activation kind;
    weft_view y;
    weft_view x;
    weft_view up;
} weft_activation_forward_args;

/** ACTIVATION_BACKWARD: dx = dy * act'(x) [* up]; dup = dy * act(x) when up is given. any. dx or dup may be dy. */
typedef struct weft_activation_backward_args {
    weft_activation kind;
    weft_view dx;
    weft_view dup;
    weft_view dy;
    weft_view x;
    weft_view up;
} weft_activation_backward_args;

/**
 * A dropout mask as a pure function of where an element is: element e of a row is kept when word e % 4 of
 *   philox(key, {e / 4, position, low 32 bits of sample, (sample >> 32) << 24 | site})
 * is at least p * 2^32; kept values are multiplied by 1 / (1 - p). src/backend/dropout_mask.h is the one definition for
 * all backends. site < 2^24, sample < 2^40. p = 0 means no dropout and the views need not be given.
 */
typedef struct weft_dropout {
    float p;
    uint32_t key[2];    /* of the seed and the step */
    uint32_t site;      /* layer * 4 + place: a number per dropout in the model */
    weft_view position; /* I32 [rows, 1]: position of each row in its sample */
    weft_view sample;   /* I64 [rows, 1]: global number of each row's sample in the run */
    int64_t first_elem; /* number of column 0 in the full row */
} weft_dropout;

/** RESIDUAL: y = residual + dropout(x + bias). any; bias [1, cols] optional; residual optional. y may be x or residual. */
typedef struct weft_residual_args {
    weft_view y;
    weft_view x;
    weft_view bias;
    weft_view residual;
    weft_dropout dropout;
} weft_residual_args;

/** DROPOUT: y = dropout(x), forward and backward alike. any. y may be x. */
typedef struct weft_dropout_args {
    weft_view y;
    weft_view x;
    weft_dropout dropout;
} weft_dropout_args;

/**
 * ROPE: rotates each head of x in place: pairs (i, i + head_dim / 2) by angle position * frequency i, from tables cos and sin
 * f32 [n_positions, head_dim / 2]. x: [rows, n_heads * head_dim], any. positions I32 [rows, 1]. is_inverse: backward.
 * Source: Su et al. 2021 (arXiv:2104.09864) in the half-split form of Hugging Face files.
 */
typedef struct weft_rope_args {
    weft_view x;
    int64_t head_dim;
    weft_view positions;
    weft_view cos;
    weft_view sin;
    bool is_inverse;
} weft_rope_args;

/** Shape of causal grouped-query attention over n_seqs sequences laid one after another. */
typedef struct weft_attention_shape {
    int64_t n_seqs;
    int64_t q_tokens;  /* rows of q per sequence */
    int64_t kv_tokens; /* rows of k and v per sequence: the stride between sequences */
    int64_t n_heads;
    int64_t n_kv_heads;
    int64_t head_dim;
    const int *kv_of_head; /* host [n_heads] */
    const int64_t
        *q_offset; /* host [n_seqs]: query i sits at key index q_offset + i; NULL: all 0 */
    const int64_t
        *kv_length; /* host [n_seqs]: keys that exist (<= kv_tokens); NULL: all kv_tokens */
    float scale;    /* scores are multiplied by this */
    weft_dropout
        dropout; /* of the probabilities: rows as q; element = (first_elem + head) * 2^16 + key position;
                                  keys beyond 65,535 with dropout are UNSUPPORTED */
} weft_attention_shape;

/**
 * ATTENTION_FORWARD: query i of a sequence sees keys 0 .. q_offset + i (and < kv_length). out [n_seqs * q_tokens, n_heads *
 * head_dim]; q the same; k, v [n_seqs * kv_tokens, n_kv_heads * head_dim]; any. lse f32 [n_seqs * n_heads, q_tokens]: log of
 * the sum of exp(scale * score), optional. A query that sees no key gives zeros and lse = -inf. Tiled with a running
 * maximum: no T x T matrix exists. Source: Dao et al. 2022 (arXiv:2205.14135), 2023 (arXiv:2307.08691).
 */
typedef struct weft_attention_forward_args {
    weft_attention_shape shape;
    weft_view out;
    weft_view lse;
    weft_view q;
    weft_view k;
    weft_view v;
} weft_attention_forward_args;

/** ATTENTION_BACKWARD: dq, dk, dv overwritten; q_offset 0 and whole kv only. dq may not be q. */
typedef struct weft_attention_backward_args {
    weft_attention_shape shape;
    weft_view dq;
    weft_view dk;
    weft_view dv;
    weft_view dout;
    weft_view out;
    weft_view lse;
    weft_view q;
    weft_view k;
    weft_view v;
} weft_attention_backward_args;

/**
 * Cross-entropy in steps, so that a vocabulary cut over ranks can put its reductions between them.
 * logits f32 [rows, V local]; targets I32 [rows, 1] global ids, -100 = not counted; max, sum, target f32 [rows, 1].
 * XENT_STATS: max = largest local logit, sum = sum of exp(logit - max), target = the target's logit, 0 when it is not local.
 */
typedef struct weft_xent_stats_args {
    weft_view max;
    weft_view sum;
    weft_view target;
    weft_view logits;
    weft_view targets;
    int64_t first_id;
} weft_xent_stats_args;

/** XENT_RESCALE: sum = sum * exp(local_max - max), after max was reduced. [rows, 1] f32. */
typedef struct weft_xent_rescale_args {
    weft_view sum;
    weft_view local_max;
    weft_view max;
} weft_xent_rescale_args;

/** XENT_LOSS: loss [rows, 1] f32 = max + log(sum) - target; 0 where the target is -100. */
typedef struct weft_xent_loss_args {
    weft_view loss;
    weft_view max;
    weft_view sum;
    weft_view target;
    weft_view targets;
} weft_xent_loss_args;

/** XENT_GRAD: dlogits = (exp(logit - max) / sum - [id is target]) * scale, zero rows for -100. dlogits any; may be logits. */
typedef struct weft_xent_grad_args {
    weft_view dlogits;
    weft_view logits;
    weft_view max;
    weft_view sum;
    weft_view targets;
    int64_t first_id;
    float scale;
} weft_xent_grad_args;

/**
 * ADAMW on n = x.rows * x.cols elements in one pass (Loshchilov, Hutter, arXiv:1711.05101; PyTorch's order):
 *   g = grad * grad_scale; p = p * (1 - lr * decay); m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2;
 *   p = p - lr * (m / bias1) / (sqrt(v) / sqrt(bias2) + eps).   bias1 = 1 - beta1^t, bias2 = 1 - beta2^t.
 * master f32 is p when given and x (any) gets its rounding; else x (f32) is p. grad, m, v f32. All dense [1, n].
 */
typedef struct weft_adamw_args {
    weft_view x;
    weft_view master;
    weft_view grad;
    weft_view m;
    weft_view v;
    double lr, beta1, beta2, eps,
        decay; /* double: 1 - 0.999f is off by 1e-5, PyTorch's 1 - 0.999 is not */
    double bias1, bias2;
    float grad_scale;
} weft_adamw_args;

/**
 * SGD (PyTorch's): g = grad * grad_scale + decay * p; momentum > 0: m = momentum m + g, g = m (m starts at 0);
 * p = p - lr g.
 */
typedef struct weft_sgd_args {
    weft_view x;
    weft_view master;
    weft_view grad;
    weft_view m; /* not given when momentum is 0 */
    float lr, momentum, decay;
    float grad_scale;
} weft_sgd_args;

typedef struct weft_backend weft_backend;
typedef weft_status weft_op_fn(weft_backend *b, const void *args, void *workspace);

typedef struct weft_backend_ops {
    const char *name;
    weft_op_fn *run[WEFT_OP_COUNT];

    /** Memory, counted in the context's allocator under `kind` (weft_mem); zeroed, 64-byte aligned. */
    weft_status (*mem_get)(weft_backend *b, int kind, size_t n_bytes, const char *what, void **out);
    void (*mem_put)(weft_backend *b, void *block);

    /** Bytes of workspace an operation needs; a multiple of 64. */
    weft_status (*workspace_bytes)(weft_backend *b, weft_op op, const void *args, size_t *out);

    /** Host <-> backend memory; both wait. */
    weft_status (*copy_to_host)(weft_backend *b, void *host, const void *device, size_t n_bytes);
    weft_status (*copy_from_host)(weft_backend *b, void *device, const void *host, size_t n_bytes);
    weft_status (*sync)(weft_backend *b);
    void (*destroy)(weft_backend *b);
} weft_backend_ops;

/** Common head of every backend; a backend embeds it as its first member. */
struct weft_backend {
    const weft_backend_ops *ops;
    weft_ctx *ctx;
    uint64_t n_ops; /* operations begun: what a peer watches to see that this rank is alive */
    double n_flops; /* counted by weft_op_flops as operations are run */
};

/** Floating-point operations of one call, a multiply-add as two; of attention the pairs that are seen. @collective none */
WEFT_API double weft_op_flops(weft_op op, const void *args);

/** "gemm", "norm_forward", ...; "unknown" for a number that is none. @collective none */
WEFT_API const char *weft_op_name(weft_op op);

/** Bytes of the argument struct of an operation; 0 for a number that is none. @collective none */
WEFT_API size_t weft_op_args_bytes(weft_op op);

#ifdef __cplusplus
}
#endif
#endif
