/**
 * Hooks: the only way a parallel method, a tracer or a counter touches the layers. They observe, or supply memory and
 * communication; nn/ works the same with none. Every function is optional.
 *
 * A run holds a list of hooks. Methods that come before (need, begin, start) run in list order, those that come after
 * (ready, done, end, finish) in reverse.
 */
#ifndef WEFT_EXT_HOOKS_H
#define WEFT_EXT_HOOKS_H

#include <stdbool.h>

#include "weft/ext/view.h"

#ifdef __cplusplus
extern "C" {
#endif

struct weft_param;
struct weft_layer;

/** What a layer is being run for. A recompute and its backward are one pass (BACKWARD) for the hooks. */
typedef enum weft_pass { WEFT_PASS_FORWARD, WEFT_PASS_BACKWARD } weft_pass;

/**
 * Named points where a value crosses a boundary that a method may have cut. On one rank out is in. `way` is the
 * direction of the data, not the pass: a forward that is run again for backward crosses the FORWARD way.
 *   ENTER_COLUMN  before a column-parallel product: forward copies (or gathers tokens), backward sums (or scatters) dx
 *   LEAVE_ROW     after a row-parallel product: forward sums (or scatters tokens), backward copies (or gathers) dy
 *   VOCAB_MAX, VOCAB_SUM, VOCAB_TARGET  [rows, 1] f32 of a vocabulary cut over ranks: max, sum, sum
 *   HEAD_INPUT    the head's input: forward as ENTER_COLUMN; its backward is the head's input gradient
 *   EMBEDDING_OUT after the vocabulary-parallel embedding: forward sums (or scatters), backward copies (or gathers)
 *   LOGITS        f32 logits of a vocabulary cut over ranks, where somebody wants them: forward gathers the columns
 *   NORM_ROWS     what a norm's weight gradient reads, where it must see all rows: forward gathers
 * Of products in strips (--tp-strips) what enters a sum is the strips' results, one below the other.
 *   ATTENTION_KV, DISPATCH, COMBINE  reserved for context and expert parallelism
 */
typedef enum weft_region_kind {
    WEFT_REGION_ENTER_COLUMN,
    WEFT_REGION_LEAVE_ROW,
    WEFT_REGION_VOCAB_MAX,
    WEFT_REGION_VOCAB_SUM,
    WEFT_REGION_VOCAB_TARGET,
    WEFT_REGION_HEAD_INPUT,
    WEFT_REGION_EMBEDDING_OUT,
    WEFT_REGION_LOGITS,
    WEFT_REGION_NORM_ROWS,
    WEFT_REGION_ATTENTION_KV,
    WEFT_REGION_DISPATCH,
    WEFT_REGION_COMBINE
} weft_region_kind;

/** Where a gradient goes and how. */
typedef struct weft_grad_target {
    weft_view view; /* f32, the parameter's local shape */
    bool is_added;  /* add to what is there, or overwrite */
} weft_grad_target;

/**
 * One member of the list. A hook may communicate: every rank then runs the same layers in the same order, so the calls
 * match. What it returns, but for WEFT_OK, ends the pass and is the pass's result.
 */
typedef struct weft_hooks {
    void *user;

    /** Before a layer reads parameter p: p->value must be valid afterwards. */
    weft_status (*param_need)(void *user, struct weft_param *p, weft_pass pass);

    /** After its last read in this pass of this layer. */
    weft_status (*param_done)(void *user, struct weft_param *p, weft_pass pass);

    /** Before a layer writes p's gradient; *target holds the run's own choice and may be replaced. */
    weft_status (*grad_need)(void *user, struct weft_param *p, weft_grad_target *target);

    /** p's gradient for this micro-batch is complete (a parameter used twice: after the second). */
    weft_status (*grad_ready)(void *user, struct weft_param *p);

    /** Shape of a region's result for an input of this shape; *out starts as a copy of in (data NULL). */
    weft_status (*region_shape)(
        void *user, weft_region_kind kind, weft_pass way, weft_view in, weft_view *out);

    /**
     * Begins a region: `out` has the shape region_shape gave, and is `in` itself when no hook changed the shape. Between
     * start and finish the layer runs what does not depend on out.
     */
    weft_status (*region_start)(
        void *user, weft_region_kind kind, weft_pass way, weft_view in, weft_view out);
    weft_status (*region_finish)(
        void *user, weft_region_kind kind, weft_pass way, weft_view in, weft_view out);

    weft_status (*layer_begin)(void *user, const struct weft_layer *l, weft_pass pass);
    weft_status (*layer_end)(void *user, const struct weft_layer *l, weft_pass pass);
} weft_hooks;

#ifdef __cplusplus
}
#endif
#endif
