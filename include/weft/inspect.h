/**
 * Looking at models on disk: what a model is (`weft info`), and whether two are the same (`weft diff`).
 */
#ifndef WEFT_INSPECT_H
#define WEFT_INSPECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weft/config.h"
#include "weft/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The fields are the arguments of `weft info`. */
typedef struct weft_info_options {
    const char *model; /* required: folder, or a JSON file of config.json's form */
    bool json;         /* how the program prints it; the call does not read it */
} weft_info_options;

typedef enum weft_param_kind {
    WEFT_PARAM_EMBEDDING, /* tokens and positions */
    WEFT_PARAM_ATTENTION,
    WEFT_PARAM_MLP,
    WEFT_PARAM_NORM,
    WEFT_PARAM_HEAD, /* 0 when it is the embedding */
    WEFT_PARAM_KIND_COUNT
} weft_param_kind;

/** "embedding", "attention", "mlp", "norm", "head". @collective none */
WEFT_API const char *weft_param_kind_name(weft_param_kind kind);

/** What a config.json makes, counted in elements; a tied head is counted once, in the embedding. */
typedef struct weft_param_counts {
    int64_t total;
    int64_t by_kind[WEFT_PARAM_KIND_COUNT];
    int64_t block;         /* one block, its norms included */
    int64_t largest;       /* the largest layer: embedding, a block, or the head */
    char largest_name[32]; /* "embedding", "block", "head" */
} weft_param_counts;

/**
 * Counts parameters from a description alone.
 *
 * @collective  none
 * @return      WEFT_OK | ARG the numbers overflow 64 bits
 */
WEFT_API weft_status weft_config_count(weft_param_counts *out, const weft_config *config);

/** What `weft info` shows. Lists are borrowed from the object. */
typedef struct weft_info {
    bool
        is_readable; /* the config is one weft runs; else `unsupported` says why and `config` is zero */
    weft_config config;
    weft_param_counts params;  /* zero when not readable */
    const char *model_type;    /* as the file says; "" when it does not */
    const char *unsupported;   /* reasons, one a line; "" when there are none */
    bool has_weights;          /* the folder holds safetensors */
    const char *weights_fault; /* why they could not be opened; "" when they could */
    size_t n_files;
    size_t n_tensors;
    uint64_t n_bytes;           /* of tensor data */
    int64_t n_file_elems;       /* elements stored */
    const char *dtypes;         /* types the files hold: "BF16", "F16, F32" */
    const char *const *missing; /* tensors the config needs and the files lack */
    size_t n_missing;
    const char *const *extra; /* tensors in the files that the config does not name */
    size_t n_extra;
    const char *const *misshapen; /* "NAME is [1, 2], the config makes it [3, 4]" */
    size_t n_misshapen;
} weft_info;

/**
 * Reads a config and, in a folder, the headers of its weights (no tensor's data).
 *
 * @collective  none
 * @return      WEFT_OK also for what weft cannot run (`is_readable` false) | ARG | IO | FORMAT | NOMEM
 */
WEFT_API weft_status weft_info_create(weft_info **out, const weft_info_options *options);
WEFT_API void weft_info_destroy(weft_info *info);

/** The fields are the arguments of `weft diff`. */
typedef struct weft_diff_options {
    const char *a,
        *b;           /* required: safetensors files, or folders with model* and optimizer* files */
    bool exact;       /* same type, same bits */
    double tolerance; /* [0] on |a - b| / largest |value| of the tensor in a; not with exact */
    int64_t top;      /* [10] how many of the worst the program prints; the call does not read it */
} weft_diff_options;

typedef enum weft_diff_kind {
    WEFT_DIFF_VALUE, /* values differ by more than is allowed */
    WEFT_DIFF_BITS,  /* exact: equal in value, not in bits (signed zeros, NaNs) */
    WEFT_DIFF_DTYPE, /* exact: another type */
    WEFT_DIFF_SHAPE,
    WEFT_DIFF_ONLY_A,
    WEFT_DIFF_ONLY_B
} weft_diff_kind;

/** One tensor that differs. Without `exact` a NaN equals a NaN and types may differ. */
typedef struct weft_diff_tensor {
    const char *name;
    weft_diff_kind kind;
    double max_abs; /* largest |a - b|; infinite where one side only is NaN or infinite */
    double max_rel; /* max_abs / largest finite |value| in a (or in b when a is all zero) */
    int64_t at;     /* flat index of the largest difference */
    double value_a, value_b; /* there */
    int64_t n_different;     /* elements over what is allowed */
    int64_t n_elems;
    char detail[192]; /* for DTYPE, SHAPE: both sides; for VALUE: the index as [i, j] */
} weft_diff_tensor;

typedef struct weft_diff {
    size_t n_compared;  /* names on both sides */
    size_t n_different; /* entries of `tensors`; 0: equal */
    const weft_diff_tensor
        *tensors;    /* the worst first: missing names and shapes, then by max_rel */
    int64_t n_elems; /* elements compared */
} weft_diff;

/**
 * Compares tensors by name over all shards.
 *
 * @collective  none
 * @return      WEFT_OK compared (n_different says the outcome) | ARG | IO | FORMAT | UNSUPPORTED a type whose values
 *              weft cannot read, when bits differ | NOMEM
 */
WEFT_API weft_status weft_diff_create(weft_diff **out, const weft_diff_options *options);
WEFT_API void weft_diff_destroy(weft_diff *diff);

#ifdef __cplusplus
}
#endif
#endif
