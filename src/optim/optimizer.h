/**
 * Optimizers on flat spans: what they keep, and the step. Spans are told by the caller; nothing here knows parameters,
 * layers or ranks.
 */
#ifndef WEFT_OPTIM_OPTIMIZER_H
#define WEFT_OPTIM_OPTIMIZER_H

#include "base/arena.h"
#include "weft/ext/backend.h"

typedef enum weft_optimizer_kind { WEFT_OPTIMIZER_ADAMW, WEFT_OPTIMIZER_SGD } weft_optimizer_kind;

typedef struct weft_optimizer_options {
    weft_optimizer_kind kind;
    double beta1, beta2, eps; /* adamw */
    double momentum;          /* sgd; 0: none, and no state for it */
    double weight_decay;      /* of spans that are decayed */
} weft_optimizer_options;

/** A run of elements that lie one after another in weights, gradients and state, and decay alike. */
typedef struct weft_span {
    weft_view value; /* [1, n] of the model's type */
    weft_view grad;  /* [1, n] f32 */
    int64_t first;   /* element of the state where it begins */
    bool is_decayed;
} weft_span;

/** What an optimizer keeps for every element, each one flat block of memory (kind OPTIMIZER). */
typedef enum weft_state {
    WEFT_STATE_MASTER,     /* fp32 weights, for models that compute in bf16 */
    WEFT_STATE_EXP_AVG,    /* adamw: mean of gradients */
    WEFT_STATE_EXP_AVG_SQ, /* adamw: mean of squared gradients */
    WEFT_STATE_MOMENTUM,   /* sgd with momentum */
    WEFT_STATE_COUNT
} weft_state;

typedef struct weft_optimizer {
    weft_ctx *ctx;
    weft_optimizer_options options;
    weft_span *spans; /* copied */
    int64_t n_spans;
    int64_t n_elems;                   /* of each block */
    weft_view state[WEFT_STATE_COUNT]; /* f32 [1, n_elems]; not given where it is not kept */
} weft_optimizer;

/** What one step is told. */
typedef struct weft_optimizer_step {
    int64_t step; /* 1-based: the bias corrections of adamw */
    double lr;
    double grad_scale; /* of clipping */
} weft_optimizer_step;

/** @return WEFT_OK | ARG none of adamw, sgd */
weft_status weft_i_optimizer_kind_from_name(weft_optimizer_kind *out, const char *name);

/** "adamw", "sgd". */
const char *weft_i_optimizer_name(weft_optimizer_kind kind);

/** Names of the state in files: "master", "exp_avg", "exp_avg_sq", "momentum". */
const char *weft_i_state_name(weft_state state);

/** @return WEFT_OK | ARG the option, its value and what is allowed */
weft_status weft_i_optimizer_check(const weft_optimizer_options *options);

/**
 * Takes all memory the optimizer will ever have; moments are zeros. The master weights are not filled yet.
 *
 * @collective  none
 * @param[in] spans    [n_spans], copied; views stay valid for the optimizer's life
 * @param[in] n_elems  of the state: beyond every span
 * @return      WEFT_OK | NOMEM
 */
weft_status weft_i_optimizer_create(weft_optimizer **out,
                                    weft_ctx *ctx,
                                    const weft_optimizer_options *options,
                                    const weft_span *spans,
                                    int64_t n_spans,
                                    int64_t n_elems);
void weft_i_optimizer_destroy(weft_optimizer *o);

/** The master weights from the model's, once these are there. Nothing to do for fp32. */
weft_status weft_i_optimizer_fill_master(weft_optimizer *o, weft_arena *workspace);

/** One update of all spans: weights (and master weights) and state. */
weft_status
weft_i_optimizer_apply(weft_optimizer *o, weft_arena *workspace, const weft_optimizer_step *step);

/** The update of one span; adamw.c and sgd.c. */
weft_status weft_i_adamw_apply(weft_optimizer *o,
                               weft_arena *workspace,
                               const weft_span *span,
                               const weft_optimizer_step *step);
weft_status weft_i_sgd_apply(weft_optimizer *o,
                             weft_arena *workspace,
                             const weft_span *span,
                             const weft_optimizer_step *step);

/** The part of a state that belongs to n elements from `first`; not given where the state is not kept. */
weft_view
weft_i_optimizer_state(const weft_optimizer *o, weft_state state, int64_t first, int64_t n);

#endif
