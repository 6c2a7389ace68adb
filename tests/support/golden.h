/* The reference values of tests/golden: opening them, writing batches, and comparing a probe's file with them. */
#ifndef WEFT_TESTS_GOLDEN_H
#define WEFT_TESTS_GOLDEN_H

#include "scratch.h"

#include <jansson.h>

#include "formats/safetensors.h"
#include "weft/probe.h"

/* use(NAME) for every model there is: a test of one is a test of all. */
#define GOLDEN_MODELS(use)                                                                         \
    use(gpt2) use(gpt2_odd) use(gpt2_other) use(llama) use(llama_odd) use(llama_bias)              \
        use(llama3_rope) use(rope_linear) use(rope_dynamic) use(rope_yarn) use(rope_yarn_mscale)

typedef struct golden {
    scratch *s;
    const char *name;
    char dir[512];   /* tests/golden/NAME */
    weft_st *values; /* golden.safetensors */
    json_t *about;   /* golden.json */
} golden;

/* `values`: "golden.safetensors" or "golden_bf16.safetensors". */
void golden_open(golden *g, scratch *s, const char *name, const char *values);
void golden_close(golden *g);

/* A tensor that must be there. */
const weft_st_tensor *golden_tensor(const golden *g, const char *name);
const weft_st_tensor *tensor_in(const weft_st *file, const char *name);

/* Element i of a tensor of any number type. */
double tensor_at(const weft_st_tensor *t, int64_t i);

/* How far PyTorch's own float32 run is from its float64 run, by the key of golden.json. */
double golden_torch_error(const golden *g, const char *key);

/* Whether element i of a parameter has a gradient of exactly zero in exact arithmetic: what is computed is noise. */
bool golden_is_null(const golden *g, const char *tensor, int64_t i);

/* The four ways a model's folder may look; SHARDED only where there is model-sharded. */
typedef enum golden_spelling {
    GOLDEN_NEW,
    GOLDEN_HUB,
    GOLDEN_SHARDED,
    GOLDEN_SPELLINGS
} golden_spelling;

/* Path of the folder; NULL when this model has none of that spelling. HUB is put together in the scratch folder. */
const char *golden_folder(golden *g, golden_spelling spelling, char out[512]);

/* A batch file from tensors of the values: input_ids, and labels when not NULL. Returns its path in out. */
const char *golden_batch(golden *g, const char *ids, const char *labels, char out[512]);

/* Runs weft probe and opens what it wrote; close with weft_i_st_close. */
weft_st *golden_probe(golden *g, const weft_probe_options *options, weft_probe_result *result);

/* Layout options with defaults, this backend and type. */
weft_layout_options golden_layout(const char *backend, const char *dtype);

/* max over elements |a - b|; fails the test when over `bound`, saying where. */
void expect_near(const char *what, const weft_st_tensor *a, const weft_st_tensor *b, double bound);

#endif
