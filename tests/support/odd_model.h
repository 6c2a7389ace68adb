/*
 * Models of awkward sizes, and their parameters written out by hand: name, elements, the layer that uses them. What tests
 * compute from this list (zero_formulas.h) shares nothing with the library's own list.
 */
#ifndef WEFT_TESTS_ODD_MODEL_H
#define WEFT_TESTS_ODD_MODEL_H

#include "scratch.h"

#define ODD_PARAMS_MOST 160

typedef struct odd_model {
    const char *name;
    bool is_gpt2, is_tied;
    int64_t vocab, hidden, n_layers, n_heads, n_kv_heads, head_dim, ffn, n_positions;
    double dropout;
    const char *freeze[2]; /* shell patterns; NULL: none */
} odd_model;

typedef struct odd_param {
    char name[64];
    int64_t n;      /* elements */
    int layer;      /* 0 embedding, 1 .. n_layers blocks, n_layers + 1 head */
    bool is_shared; /* the tied table: embedding and head use it */
    bool is_frozen;
} odd_param;

/* Vocabulary 257, 5 layers, 6 heads (llama: on 2); sizes that nothing divides. */
extern const odd_model odd_llama, odd_tied, odd_gpt2, odd_gpt2_dropout;

/* The same with frozen parameters: embedding and two blocks; every bias and norm of GPT-2, so that no run is long. */
extern const odd_model odd_llama_frozen, odd_gpt2_frozen;

/* 3 wide, one head: most parameters are smaller than a group of 8 ranks. And a small one with a vocabulary of 53. */
extern const odd_model odd_three, odd_small;

/* 7 layers, tied: 4 stages of 2 chunks. */
extern const odd_model odd_deep;

/* In the order of the files' layers, which is the flat order; returns how many. */
int odd_params(const odd_model *m, odd_param out[ODD_PARAMS_MOST]);

/* Writes config.json under the scratch, named after the model; its path in out. */
const char *odd_write(const odd_model *m, scratch *s, char out[512]);

#endif
