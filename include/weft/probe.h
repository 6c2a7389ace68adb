/**
 * Probing: one forward (and backward) pass on a given batch, everything it computes written to a file. Every layout,
 * type and backend is compared through it.
 */
#ifndef WEFT_PROBE_H
#define WEFT_PROBE_H

#include "weft/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The fields are the long options of `weft probe`; a required one is not NULL. */
typedef struct weft_probe_options {
    weft_layout_options layout;
    const char *model; /* required: folder, or config.json (fresh weights) */
    const char *
        batch; /* required: safetensors with input_ids [B,T] and perhaps labels [B,T], I64 or I32 */
    bool grads;      /* also grad/NAME for every tensor of the checkpoint */
    const char *out; /* required: safetensors to write */
} weft_probe_options;

typedef struct weft_probe_result {
    double loss; /* mean over the counted targets */
    int64_t
        n_targets; /* counted targets: labels that are not -100, shifted by one inside each sequence */
    int64_t n_sequences;
    int64_t seq_length;
    int64_t n_grads; /* gradient tensors written */
    double seconds;
} weft_probe_result;

/**
 * Runs the pass and writes `logits` [B,T,V] F32, `token_loss` [B,T-1] F32, `loss` [1] F32 and, when asked,
 * `grad/NAME` F32 with the name and shape of the checkpoint's tensor.
 *
 * @collective  whole world
 * @param[in] ctx_options  log, log_user, log_level are used; the rest comes from `options->layout`. NULL: no log
 * @return      WEFT_OK | ARG | IO | FORMAT | UNSUPPORTED | MISMATCH an id beyond the vocabulary | NOMEM | NUMERIC |
 *              LAYOUT
 */
WEFT_API weft_status weft_probe_run(weft_probe_result *out,
                                    const weft_probe_options *options,
                                    const weft_ctx_options *ctx_options);

#ifdef __cplusplus
}
#endif
#endif
