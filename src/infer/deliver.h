/* Hands out what comes, in the order of prompts: all text of one, its end, then the next. */
#ifndef WEFT_INFER_DELIVER_H
#define WEFT_INFER_DELIVER_H

#include "infer/prompts.h"

typedef struct weft_delivery {
    weft_prompts *prompts;
    const weft_tokenizer *tokenizer;          /* NULL: no text */
    const weft_generate_callbacks *callbacks; /* NULL: none */
    weft_str bytes;                           /* of one id */
    int64_t next;                             /* the prompt whose text goes out as it comes */
} weft_delivery;

void weft_i_delivery_init(weft_delivery *d,
                          weft_prompts *prompts,
                          const weft_tokenizer *tokenizer,
                          const weft_generate_callbacks *callbacks);
void weft_i_delivery_fini(weft_delivery *d);

/** An id was appended to s: its bytes join the text. @return WEFT_OK | NOMEM */
weft_status weft_i_delivery_add(weft_delivery *d, weft_sequence *s, int32_t id);

/** s has ended: an incomplete character becomes one U+FFFD, and prompts that waited for this one go out. */
weft_status weft_i_delivery_end(weft_delivery *d, weft_sequence *s, weft_finish finish);

#endif
