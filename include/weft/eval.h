/**
 * Evaluation: the loss of a model on text, every target counted once, the short last sequence and batch included.
 */
#ifndef WEFT_EVAL_H
#define WEFT_EVAL_H

#include "weft/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The fields are the long options of `weft eval`; a required one is not NULL. */
typedef struct weft_eval_options {
    weft_layout_options layout;
    const char *model; /* required: folder */
    const char **data; /* required: text or token files, one stream in the order given */
    size_t n_data;
    const char *tokenizer; /* ["byte"] */
    int64_t seq_length;    /* 0: min(max_positions, 256) */
    int64_t max_tokens;    /* 0: all; else only that many targets from the start */
    const char *output;    /* ["text"] json: what the program prints; the call does not read it */
} weft_eval_options;

typedef struct weft_eval_result {
    double loss;       /* mean over the targets, nats */
    double perplexity; /* exp(loss) */
    double
        bits_per_byte; /* sum of losses / ln 2 / bytes the targets stand for; NaN when those are not known */
    int64_t n_targets;
    int64_t n_tokens; /* of the stream */
    double seconds;
} weft_eval_result;

typedef struct weft_eval_callbacks {
    void *user;
    void (*progress)(void *user,
                     int64_t n_targets_done,
                     int64_t n_targets);        /* after each batch; may be NULL */
    void (*note)(void *user, const char *line); /* may be NULL */
    bool (*should_stop)(
        void *user); /* polled once a batch; the result then covers what was done; may be NULL */
} weft_eval_callbacks;

/**
 * @collective  whole world
 * @param[in] callbacks  NULL: none
 * @return      WEFT_OK | ARG | IO | FORMAT fewer than two tokens | UNSUPPORTED | MISMATCH an id beyond the
 *              vocabulary | NOMEM | NUMERIC | LAYOUT
 */
WEFT_API weft_status weft_eval_run(weft_eval_result *out,
                                   const weft_eval_options *options,
                                   const weft_ctx_options *ctx_options,
                                   const weft_eval_callbacks *callbacks);

#ifdef __cplusplus
}
#endif
#endif
