/**
 * Token data: text files (through a tokenizer) and token files as one stream of ids, windows of it as samples,
 * and the order in which samples are drawn.
 *
 * The order is a function of the seed and the sample number alone: sample i of the run (i counts over all epochs) is
 * window permutation(seed, i / n_windows)(i % n_windows); nothing is stored, so a resumed run needs only i.
 */
#ifndef WEFT_DATA_DATASET_H
#define WEFT_DATA_DATASET_H

#include "base/alloc.h"
#include "formats/tokenizer.h"

typedef struct weft_dataset weft_dataset;

/**
 * Opens files as one stream, in the order given. A file that starts with the token-file magic is a token file; any
 * other is text (one whose name ends in .bin is refused: ids without a header). Both are read through a memory map.
 * An id the model has no row for is refused here with file, position, id and vocabulary size (of token files every id
 * is looked at).
 *
 * @param vocab_size  rows of the model's embedding
 * @return WEFT_OK | IO | FORMAT | NOMEM | MISMATCH the tokenizer has more ids than vocab_size
 */
weft_status weft_i_dataset_open(weft_dataset **out,
                                weft_alloc *alloc,
                                const char *const *paths,
                                size_t n_paths,
                                const weft_tokenizer *tokenizer,
                                int64_t vocab_size);
void weft_i_dataset_close(weft_dataset *d);
int64_t weft_i_dataset_tokens(const weft_dataset *d);

/** Whether any of the files is text, which the tokenizer encoded. */
bool weft_i_dataset_has_text(const weft_dataset *d);

/** For messages. */
const char *weft_i_dataset_first_path(const weft_dataset *d);

/** Bytes of text that tokens [first, first + n) stand for (byte tokenizer: ids below 256), -1 when unknown. */
int64_t weft_i_dataset_bytes(const weft_dataset *d, int64_t first, int64_t n);

/** ids [first, first + n) into out; the range must lie inside. */
weft_status weft_i_dataset_read(const weft_dataset *d, int64_t first, int64_t n, int32_t *out);

/** A part [first, first + n_tokens) of a stream cut into windows of seq_length + 1 tokens, neighbours sharing one. */
typedef struct weft_sampler {
    const weft_dataset *data;
    int64_t first;
    int64_t n_tokens;
    int64_t seq_length;
    int64_t
        n_windows; /* (n_tokens - 1) / seq_length; the tail that fills no window is left out of training */
    uint64_t seed;
    bool is_shuffled;
} weft_sampler;

/** FORMAT: "N tokens, need at least seq_length + 1" naming the first file. */
weft_status weft_i_sampler_init(weft_sampler *s,
                                const weft_dataset *data,
                                int64_t first,
                                int64_t n_tokens,
                                int64_t seq_length,
                                uint64_t seed,
                                bool is_shuffled);

/** Window number of sample i of the run (a Feistel permutation of n_windows per epoch, walked into range). */
int64_t weft_i_sampler_window(const weft_sampler *s, int64_t sample);

/** The seq_length + 1 ids of sample i. */
weft_status weft_i_sampler_read(const weft_sampler *s, int64_t sample, int32_t *out);

#endif
