/**
 * Which slice of a family's model is built here. Whoever divides a model fills one (parallel/); the families only read it.
 *
 * A slice has some query heads, the kv heads that these use, some columns of the MLP, some rows of the vocabulary, and
 * everything else whole; or some items of the list; or both.
 */
#ifndef WEFT_NN_MODELS_SLICE_H
#define WEFT_NN_MODELS_SLICE_H

#include "weft/model.h"

typedef struct weft_model_slice {
    int64_t first_item;          /* of the list embedding | blocks | final norm + head */
    int64_t n_items;             /* 0: all of it */
    int64_t first_head, n_heads; /* query heads */
    int64_t first_ffn, n_ffn;    /* columns of the MLP's inside */
    int64_t first_id, n_ids;     /* rows of the vocabulary */
    bool
        is_first; /* owns what every slice beside this one has whole: norms, row biases, positions */
    bool
        is_kv_copied; /* a kv head of the model lies in several slices: gradients of keys and values are partial everywhere */
    int64_t n_all_strips;          /* that the whole model's products are computed in; 0: whole */
    int64_t first_strip, n_strips; /* of them those here */
    bool is_sequence_parallel;     /* norms see a part of the tokens: their gradients are partial */
} weft_model_slice;

/** All of the model. */
weft_model_slice weft_i_slice_whole(const weft_config *c);

/**
 * weft_model_from_config for a slice: full names and shapes, and of every parameter the pieces that lie here. The whole slice
 * builds what weft_model_from_config does.
 *
 * @collective  none
 * @return      as weft_model_from_config; ARG a slice that is empty or reaches beyond the model
 */
weft_status weft_i_model_from_slice(weft_model **out,
                                    weft_ctx *ctx,
                                    const weft_config *config,
                                    weft_dtype dtype,
                                    const weft_model_slice *slice);

/**
 * Strips: the model's kv groups (heads that share keys and values), MLP columns and ids are dealt out to n_all strips, and
 * a slice is a run of strips. Its products are computed strip by strip, so that a strip's numbers are the same in whatever
 * slice it lies.
 */
typedef enum weft_strip_kind {
    WEFT_STRIP_KV, /* heads of keys and values, and with each the query heads that use it */
    WEFT_STRIP_FFN,
    WEFT_STRIP_IDS,
    WEFT_STRIP_KINDS
} weft_strip_kind;

/** The slice's heads, MLP columns and ids, those of its strips: first_strip, n_strips and n_all_strips are given. */
void weft_i_slice_from_strips(weft_model_slice *s, const weft_config *c);

/** What m was built as; the whole for a list of one's own (zeros). */
const weft_model_slice *weft_i_model_slice(const weft_model *m);

/** The kv heads that the slice's query heads use: [first, first + n). */
void weft_i_slice_kv(const weft_model_slice *s, const weft_config *c, int64_t *first, int64_t *n);

/** Columns of a layer's keys (and of its values) here. */
int64_t weft_i_model_kv_cols(const weft_model *m);

/** Whether item i of the list built here is a block: the whole list is embedding, blocks, head. */
bool weft_i_model_is_block(const weft_model *m, int64_t i);

/** Keys and values of n_tokens in all blocks here. */
size_t weft_i_model_kv_bytes(const weft_model *m, int64_t n_tokens);

/* ---- for the families ---- */

/** A run of rows or columns of the full tensor. */
typedef struct weft_slice_range {
    int64_t first, n;
    bool is_owned;
} weft_slice_range;

/** Leaves of parameter p the rows (dim 0) or columns (dim 1) of the ranges, one after another; the rest lies elsewhere. */
void weft_i_slice_cut(weft_param *p, int dim, const weft_slice_range *ranges, int n_ranges);

/** p is here whole, as in every slice beside this one: only the first owns it. */
void weft_i_slice_same(weft_param *p, const weft_model_slice *s);

/** As weft_i_slice_same, for what sees the residual stream's tokens alone (norms; in strips they see all tokens). */
void weft_i_slice_stream(weft_param *p, const weft_model_slice *s);

/** p has `dim` = kv heads x head_dim: leaves those here. */
void weft_i_slice_cut_kv(weft_param *p, int dim, const weft_model_slice *s, const weft_config *c);

#endif
