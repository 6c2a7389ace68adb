/* Model folders with random weights, written file by file, for tests that need a model of a certain kind. */
#ifndef WEFT_TESTS_TINY_H
#define WEFT_TESTS_TINY_H

#include "scratch.h"

#include "weft/context.h"
#include "weft/dtype.h"

/* 32 wide, 4 layers, 4 heads on 2, vocabulary 53, untied; and its GPT-2 sister, tied. Both without an end-of-text id. */
extern const char tiny_llama[];
extern const char tiny_gpt2[];

typedef struct tiny_folder {
    const char *config;                                       /* JSON text */
    void (*edit)(const char *name, float *values, int64_t n); /* changes weights; may be NULL */
    weft_dtype (*dtype)(const char *name);                    /* of a tensor; NULL: F32 */
    const char *skip;                                         /* a tensor left out */
    const char *extra;                                        /* a tensor [3] added, F32 */
    bool has_no_prefix;                                       /* names without "transformer." */
    bool has_buffers;                                         /* attn.bias, attn.masked_bias */
    bool is_indexed;                                          /* two shards and an index */
    const char *shard_names[2];
} tiny_folder;

/* Writes the folder DIR/NAME and returns its path in out. Weights are a function of their names alone. */
const char *tiny_write(scratch *s, const char *name, const tiny_folder *f, char out[512]);

/* Replaces the first occurrence of `from` in a config; the result is valid until the next call. */
const char *tiny_config(const char *config, const char *from, const char *to);

/* A batch file [n_seqs, n_tokens] from ids and perhaps labels (I64). Returns its path in out. */
const char *tiny_batch(scratch *s,
                       const int64_t *ids,
                       const int64_t *labels,
                       int64_t n_seqs,
                       int64_t n_tokens,
                       char out[512]);

/* ids[i] from a fixed sequence below `vocab`. */
void tiny_ids(int64_t *ids, int64_t n, int64_t vocab);

/* Collects log lines; for weft_ctx_options. */
typedef struct tiny_log {
    char text[4096];
} tiny_log;
weft_ctx_options tiny_logged(tiny_log *log);

#endif
