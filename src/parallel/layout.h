/* A layout of ranks: what the options ask for, resolved and checked. */
#ifndef WEFT_PARALLEL_LAYOUT_H
#define WEFT_PARALLEL_LAYOUT_H

#include "base/pace_spec.h"
#include "parallel/schedule.h"
#include "weft/config.h"
#include "weft/train.h"

typedef struct weft_layout {
    int dp, tp, pp, n_ranks; /* n_ranks = dp * tp * pp */
    char rank_order[12];     /* "tp-dp-pp": the axis that varies fastest first */
    weft_schedule_kind schedule;
    int n_chunks;              /* of a stage */
    int n_stage_chunks;        /* the same if pp were over 1; 0: schedule and chunks do not fit */
    const char *stage_layers;  /* borrowed: items of each part; "" balanced */
    bool is_data_parallel;     /* --strategy data-parallel */
    bool is_sequence_parallel; /* with tp > 1 only */
    int n_strips;              /* --tp-strips: of the whole tensor axis; 0: whole products */
    int zero_stage;
    bool has_prefetch;
    int64_t bucket_bytes;
    bool is_overlapped;
    bool is_reproducible;
    const weft_pace *
        pace; /* borrowed; NULL: not paced. The caller sets it (formats/pace_file.h reads --pace) */
    const char *trace; /* borrowed: a file; "" none */
    double comm_timeout_s;
} weft_layout;

/**
 * Resolves --dp --tp --pp --ranks (ranks fills dp), and refuses what cannot be: one message with the arithmetic and the
 * nearest layouts that work. Options that have nothing to act on with one rank pass. out->pace is NULL.
 *
 * @collective  none
 * @return      WEFT_OK | LAYOUT ranks is no multiple of tp * pp, or not dp * tp * pp; data-parallel ranks with a ZeRO
 *              stage, with tp or pp; chunks without interleaved; another number of stage_layers | ARG
 */
weft_status weft_i_layout_make(weft_layout *out, const weft_layout_options *o);

/**
 * Whether the model can be divided so: before anything of it is allocated.
 *
 * @collective  none
 * @return      WEFT_OK | LAYOUT more tensor ranks than heads, MLP columns or ids, or than strips; more strips than
 *              kv heads; more stages than items
 */
weft_status weft_i_layout_check_model(const weft_layout *l, const weft_config *c);

#endif
