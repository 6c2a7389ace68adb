/**
 * Token files: text turned into ids once, and back (`weft tokenize`). Layout of the file: docs/formats.md.
 */
#ifndef WEFT_DATA_H
#define WEFT_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weft/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The fields are the arguments of `weft tokenize`. */
typedef struct weft_tokenize_options {
    const char *tokenizer; /* ["byte"] */
    const char *out; /* token file to write; the program: bytes of --decode ("": standard output) */
    const char **files; /* required: texts, "-" is standard input; with decode: token files */
    size_t n_files;
    bool append_eos; /* the end-of-text id after each file */
    bool decode;     /* the other way */
    int64_t show;    /* [0] how many ids of the start the program prints */
} weft_tokenize_options;

typedef struct weft_tokenize_result {
    int64_t n_tokens;
    int64_t n_bytes;    /* of text */
    int64_t vocab_size; /* highest id of the tokenizer + 1 */
    int64_t highest_id; /* that occurs; -1: none */
    int id_bytes;       /* of an id in the file: 2 when vocab_size <= 65536, else 4 */
} weft_tokenize_result;

/**
 * Writes options->out. Bytes are taken as they are: carriage returns and byte-order marks stay, and no end-of-text id
 * is added unless asked.
 *
 * @collective  none
 * @return      WEFT_OK | ARG | IO | UNSUPPORTED | NOMEM
 */
WEFT_API weft_status weft_tokenize_run(weft_tokenize_result *out,
                                       const weft_tokenize_options *options);

/** Receives bytes; false stops the call, which then returns WEFT_OK. */
typedef bool weft_bytes_fn(void *user, const char *bytes, size_t n_bytes);

/**
 * The bytes that the ids of options->files stand for; special ids stand for none.
 *
 * @collective  none
 * @return      WEFT_OK | ARG | IO | FORMAT | MISMATCH an id the tokenizer lacks | UNSUPPORTED | NOMEM
 */
WEFT_API weft_status weft_tokenize_decode(const weft_tokenize_options *options,
                                          weft_bytes_fn *sink,
                                          void *user);

/**
 * The first ids of a token file.
 *
 * @collective  none
 * @param[out] ids  [n_wanted]
 * @param[out] n    min(n_wanted, tokens in the file)
 * @return      WEFT_OK | IO | FORMAT | NOMEM
 */
WEFT_API weft_status weft_tokenize_peek(int32_t *ids,
                                        int64_t *n,
                                        const char *path,
                                        int64_t n_wanted);

#ifdef __cplusplus
}
#endif
#endif
