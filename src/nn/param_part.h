/**
 * Parts of parameters: a run of a parameter's local elements (row-major, 0 .. rows * cols) that a rank holds. Loading,
 * drawing fresh weights, the optimizer, norms and files work on lists of parts, so none of them knows a method.
 */
#ifndef WEFT_NN_PARAM_PART_H
#define WEFT_NN_PARAM_PART_H

#include "weft/model.h"

typedef struct weft_part {
    weft_param *param;
    int64_t number;   /* of the parameter in its model */
    int64_t first, n; /* local elements [first, first + n) of the parameter; n >= 1 */
    weft_view
        value; /* [1, n] of the model's type; not given where weights are not kept here between passes */
    weft_view grad;      /* [1, n] f32; not given for frozen parameters and in forward-only runs */
    int64_t state_first; /* element of this rank's optimizer state; -1: none */
} weft_part;

/** All of parameter i where the model keeps it (value and grad as its views say), without optimizer state. */
weft_part weft_i_part_whole(weft_model *m, int64_t i);

/** That of every parameter, in the model's order; put back with weft_i_alloc_put. @return WEFT_OK | NOMEM */
weft_status weft_i_part_list(weft_part **out, weft_model *m);

/** A run of elements that lie one after another both here and in the full tensor. */
typedef struct weft_stretch {
    int64_t local; /* first element, of the parameter's local ones */
    int64_t full;  /* first element in the full tensor (row-major) */
    int64_t n;
    bool is_owned; /* as the piece it lies in */
} weft_stretch;

/** Walks local elements [first, first + n) of a parameter in order, as few stretches as its pieces allow. */
typedef struct weft_stretch_walk {
    const weft_param *param;
    int64_t next, end;
} weft_stretch_walk;

weft_stretch_walk weft_i_stretch_begin(const weft_param *param, int64_t first, int64_t n);

/** @return false at the end. Elements that no piece covers are passed over. */
bool weft_i_stretch_next(weft_stretch_walk *walk, weft_stretch *out);

/** Fresh weights of a part into `to` [1, n]: f(seed, name, element of the full tensor). @return WEFT_OK | DEVICE */
weft_status weft_i_part_init(weft_backend *b, const weft_part *part, weft_view to, uint64_t seed);

#endif
