/* The prompts of a generation: texts or lists of ids, checked against the model, as sequences with room for new ids. */
#ifndef WEFT_INFER_PROMPTS_H
#define WEFT_INFER_PROMPTS_H

#include "infer/sequence.h"

typedef struct weft_prompts {
    weft_alloc *alloc;
    weft_sequence *sequence; /* [n] in the order given */
    int64_t n;
    int64_t n_tokens; /* of all prompts */
    int64_t longest;  /* tokens of the longest prompt */
    int64_t capacity; /* tokens the model reads of any sequence, at most */
} weft_prompts;

/** What can be said before anything is opened. @return WEFT_OK | ARG no prompt, or both kinds */
weft_status weft_i_prompts_check(const weft_generate_options *options);

/**
 * @param[in] tokenizer  NULL: prompts are ids and no text is wanted
 * @return    WEFT_OK | ARG no prompt, both kinds, an empty one without a bos id | MISMATCH an id beyond the vocabulary, a
 *            prompt longer than learned positions | NOMEM
 */
weft_status weft_i_prompts_init(weft_prompts *out,
                                weft_ctx *ctx,
                                const weft_generate_options *options,
                                const weft_config *config,
                                const weft_tokenizer *tokenizer);
void weft_i_prompts_fini(weft_prompts *p);

#endif
