/* One prompt on its way: its ids, the new ones behind them, and the text not shown yet. */
#ifndef WEFT_INFER_SEQUENCE_H
#define WEFT_INFER_SEQUENCE_H

#include "formats/tokenizer.h"
#include "weft/generate.h"

typedef struct weft_sequence {
    int64_t number; /* of the prompt, in the order given */
    int32_t *ids;   /* [n_limit]: the prompt's, then the new ones */
    int64_t n_prompt;
    int64_t n_ids;
    int64_t n_limit;      /* ids at most */
    weft_finish at_limit; /* what reaching n_limit means: LENGTH or CONTEXT */
    bool is_done;
    weft_finish finish;
    weft_utf8_stream utf8;
    weft_str text; /* whole characters that wait to be shown */
} weft_sequence;

#endif
