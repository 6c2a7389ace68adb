/**
 * Training: options, and the call that does it all. The names of the fields are the long options of `weft train`
 * and the keys of its JSON run configuration (docs of each: `weft train --help`).
 */
#ifndef WEFT_TRAIN_H
#define WEFT_TRAIN_H

#include "weft/config.h"
#include "weft/context.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weft_recompute {
    WEFT_RECOMPUTE_NONE,      /* everything backward needs is kept */
    WEFT_RECOMPUTE_SELECTIVE, /* norm outputs and the MLP's activated product are computed again */
    WEFT_RECOMPUTE_FULL       /* only each layer's input is kept */
} weft_recompute;

/**
 * How a run is laid out over ranks: the options that train, eval, probe and generate share. On one rank the parallel
 * methods have nothing to act on and change nothing.
 */
typedef struct weft_layout_options {
    const char *strategy;     /* "" | "data-parallel" */
    int64_t dp, tp, pp;       /* 0: not given (1) */
    int64_t ranks;            /* 0: the product */
    int64_t zero_stage;       /* 0..3 */
    bool zero_prefetch;       /* [true] */
    const char *pp_schedule;  /* naive gpipe [1f1b] interleaved zb-h1 zb-h2 */
    int64_t pp_chunks;        /* 0: 1, of interleaved 2 */
    const char *stage_layers; /* "6,3,5" or "" */
    const char *rank_order;   /* ["tp-dp-pp"] */
    bool sequence_parallel;
    int64_t tp_strips;        /* 0: as many as tensor ranks, added as it comes */
    int64_t micro_batch_size; /* sequences a micro-batch; 0: train: 8; else: as many as asked for */
    int64_t global_batch_size; /* sequences a step; 0: micro_batch_size x dp */
    const char *recompute;     /* ["none"] selective full */
    double bucket_size_mb;     /* [25] */
    bool overlap_grad_reduce;  /* [true] */
    bool reproducible;
    const char *pace;         /* "" | a file of stated durations (docs/formats.md) */
    const char *trace;        /* "" | a file for a Chrome/Perfetto trace of all ranks */
    double comm_timeout;      /* [120] seconds of silence after which a rank is given up */
    int64_t threads_per_rank; /* 0: processors / ranks */
    const char *dtype;        /* "" (the folder's) fp32 bf16 */
    const char *backend;      /* ["cpu"] reference */
    int64_t seed;             /* [1234] */
} weft_layout_options;

typedef struct weft_train_options {
    weft_layout_options layout;
    const char *model; /* folder (fine-tuning) or config.json (fresh weights) */
    const char **data; /* text or token files */
    size_t n_data;
    const char *tokenizer;   /* ["byte"] */
    const char *out;         /* folder of checkpoints and metrics */
    int64_t seq_length;      /* 0: min(max_positions, 256) */
    int64_t train_steps;     /* [100] length of the whole run, on resume too */
    const char *optimizer;   /* ["adamw"] sgd */
    double lr;               /* [3e-4] */
    double min_lr;           /* [0] */
    const char *lr_schedule; /* constant linear ["cosine"] wsd */
    int64_t lr_warmup_steps; /* [0] */
    int64_t
        lr_decay_steps; /* linear, cosine: 0 = train_steps; wsd: length of the final decay, 0 = a tenth */
    double weight_decay; /* [0.1] on matrices and embeddings, not on norms and biases */
    double adam_beta1, adam_beta2, adam_eps; /* [0.9] [0.95] [1e-8] */
    double sgd_momentum;                     /* [0] */
    double clip_grad;                        /* [1.0]; 0: off */
    double dropout;                          /* -1: as the config says */
    const char **freeze;                     /* globs of parameter names */
    size_t n_freeze;
    bool shuffle;          /* [true] */
    int64_t eval_interval; /* 0: off */
    double
        eval_fraction; /* [0.05] of the data, its end, held out when eval_interval > 0 and no eval_data */
    const char **eval_data;
    size_t n_eval_data;
    int64_t eval_max_tokens;  /* 0: the whole held-out part */
    int64_t save_interval;    /* 0: only at the end */
    int64_t keep_checkpoints; /* [2]; 0: all */
    const char *save_dtype;   /* ["model"] fp32 bf16: type of the saved weights */
    double max_minutes;       /* 0: no limit */
    const char *resume;       /* NULL: fresh; "": OUT/latest; else a checkpoint */
    double memory_limit_mb;   /* 0: what the machine has; refuse a plan over it before step 1 */
    int64_t log_interval;     /* [1] */
    const char *timeline;     /* "" | a file for a picture (SVG) of the last step */
} weft_train_options;

/** What a step did: the fields of the line and of metrics.jsonl. */
typedef struct weft_train_step {
    int64_t step; /* 1-based */
    int64_t train_steps;
    double loss; /* mean over the counted tokens of the global batch, before the update */
    double lr;
    double grad_norm; /* over all gradients, before clipping */
    double seconds;
    double tokens_per_second;
    double gflops;
    double memory_bytes;   /* peak over weft's device kinds */
    double resident_bytes; /* of the process now */
    double seconds_left;
    int64_t tokens;       /* input tokens of this step */
    int64_t total_tokens; /* of the run so far */
    uint64_t batch_hash;  /* of the step's token ids: equal batches, equal hashes */
    double eval_loss;     /* NaN: no evaluation after this step */
    int64_t eval_tokens;
} weft_train_step;

/** What the caller sees; all may be NULL. */
typedef struct weft_train_callbacks {
    void *user;
    void (*step)(void *user, const weft_train_step *step);
    void (*note)(void *user, const char *line); /* plan, memory, checkpoints: lines for a person */
    bool (*should_stop)(
        void *
            user); /* polled once a step and once a batch of an evaluation: save and end (SIGTERM) */
} weft_train_callbacks;

/** Defaults in brackets above. @collective none */
WEFT_API void weft_train_options_init(weft_train_options *o);
WEFT_API void weft_layout_options_init(weft_layout_options *o);

/**
 * Trains: reads the model (or draws fresh weights), plans memory by a dry run, takes all memory, runs the steps,
 * saves. Logs through ctx options of the caller's choice: `log` and `log_user` go to the run's contexts.
 *
 * @collective  whole world
 * @return      WEFT_OK | ARG | IO | FORMAT | UNSUPPORTED | NOMEM (before the first step, with the figures) |
 *              NUMERIC (step and tensor named) | LAYOUT
 */
WEFT_API weft_status weft_train_run(const weft_train_options *options,
                                    const weft_ctx_options *ctx_options,
                                    const weft_train_callbacks *callbacks);

#ifdef __cplusplus
}
#endif
#endif
