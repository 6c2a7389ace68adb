/**
 * Generation: tokens one after another, from a batch of prompts of unequal lengths, on a cache of keys and values.
 */
#ifndef WEFT_GENERATE_H
#define WEFT_GENERATE_H

#include "weft/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The fields are the long options of `weft generate`; a required one is not NULL. */
typedef struct weft_generate_options {
    weft_layout_options layout;
    const char *model;     /* required: folder */
    const char *tokenizer; /* ["byte"]; not opened when ids come in and no text is wanted */
    const char **prompt;   /* texts; either these or ids */
    size_t n_prompt;
    const char **ids; /* prompts as ids: "1,2,3" each */
    size_t n_ids;
    int64_t max_new_tokens; /* [64] for each prompt */
    double temperature;     /* [0] 0: greedy */
    int64_t top_k;          /* [0] 0: all */
    double top_p;           /* [1] 1: all */
    bool ignore_eos;        /* go on after an end-of-text id */
    const char *output; /* ["text"] ids json: what the program prints; the call does not read it */
} weft_generate_options;

typedef enum weft_finish {
    WEFT_FINISH_EOS,     /* an end-of-text id came; it is the last of `ids` */
    WEFT_FINISH_LENGTH,  /* max_new_tokens reached */
    WEFT_FINISH_CONTEXT, /* the model's positions are used up */
    WEFT_FINISH_STOPPED  /* should_stop said so */
} weft_finish;

/** One prompt's answer. */
typedef struct weft_generated {
    int64_t prompt; /* number of the prompt, from 0, in the order given */
    const int32_t *prompt_ids;
    int64_t n_prompt_ids;
    const int32_t *ids; /* the new ones */
    int64_t n_ids;
    weft_finish finish;
} weft_generated;

/**
 * Called by rank 0 alone, in order of prompts: all text of prompt i, then done for i, then the text of prompt i + 1 (what
 * comes early is held back by the library). All may be NULL.
 */
typedef struct weft_generate_callbacks {
    void *user;
    void (*text)(void *user,
                 int64_t prompt,
                 const char *text,
                 size_t n_bytes); /* whole characters, valid UTF-8 */
    void (*done)(void *user, const weft_generated *generated);
    void (*note)(void *user, const char *line);
    bool (*should_stop)(void *user); /* polled before every pass (a prompt, or a token) */
} weft_generate_callbacks;

typedef struct weft_generate_result {
    int64_t n_prompts;
    int64_t n_prompt_tokens;
    int64_t n_new_tokens;
    int64_t n_forwards;    /* passes of every rank, those without a prompt of its own included */
    double prompt_seconds; /* reading the prompts */
    double new_seconds;    /* the tokens after the first */
} weft_generate_result;

/**
 * Groups of layout.micro_batch_size prompts (0: so many that every rank has some) are dealt out to the data-parallel ranks
 * in turn. A prompt's text is the same in every layout.
 *
 * @collective  whole world
 * @param[in] callbacks  text == NULL and prompts as ids: no tokenizer is needed
 * @return      WEFT_OK | ARG no prompt, or both kinds, or an empty one | IO | FORMAT | UNSUPPORTED | MISMATCH an id
 *              beyond the vocabulary, or a tokenizer with more ids than the model has rows | NOMEM | NUMERIC | LAYOUT
 */
WEFT_API weft_status weft_generate_run(weft_generate_result *out,
                                       const weft_generate_options *options,
                                       const weft_ctx_options *ctx_options,
                                       const weft_generate_callbacks *callbacks);

#ifdef __cplusplus
}
#endif
#endif
