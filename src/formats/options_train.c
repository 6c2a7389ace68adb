/*
 * The options of `weft train`.
 */
#include "formats/option.h"

#define T weft_train_options

static const weft_option model_and_data[] = {
    {"model", WEFT_OPTION_STRING, WEFT_AT_TEXT(T, model), .is_required = true, .argument = "PATH",
     .help =
         "A Hugging Face folder (fine-tuning), or a config.json under any name (fresh weights)."},
    {"data", WEFT_OPTION_LIST, WEFT_AT_LIST(T, data), .is_required = true, .argument = "FILE...",
     .help = "Text, or token files that weft-tokenize(1) wrote; one stream in the order given."},
    {"out", WEFT_OPTION_STRING, WEFT_AT_TEXT(T, out), .is_required = true, .argument = "DIR",
     .help = "Takes checkpoint-STEP folders, the link latest, metrics.jsonl and report.json."},
    {"tokenizer", WEFT_OPTION_STRING, WEFT_AT_TEXT(T, tokenizer), .fallback = "byte",
     .argument = "byte",
     .help = "What turns text into ids. byte: the bytes, and 256 for the end of text."},
    {"seq-length", WEFT_OPTION_INT, WEFT_AT_INT(T, seq_length), .low = 1, .high = 1073741824,
     .shown = "min(the model's positions, 256)", .help = "Tokens of a sequence."},
    {"shuffle", WEFT_OPTION_SWITCH, WEFT_AT_BOOL(T, shuffle), .fallback = "on",
     .help =
         "Draw sequences in an order that follows from the seed; off: in the order of the data."},
    {"dropout", WEFT_OPTION_REAL, WEFT_AT_REAL(T, dropout), .fallback = "-1",
     .shown = "the model's", .high = 1, .is_high_open = true, .argument = "P",
     .help = "Replaces the probabilities that the config names."},
    {"freeze", WEFT_OPTION_LIST, WEFT_AT_LIST(T, freeze), .argument = "GLOB...",
     .help = "Parameters, by name in the checkpoint, that are not trained."},
};

static const weft_option optimizer[] = {
    {"train-steps", WEFT_OPTION_INT, WEFT_AT_INT(T, train_steps), .fallback = "100", .low = 1,
     .help = "Length of the whole run, also when it is resumed."},
    {"optimizer", WEFT_OPTION_CHOICE, WEFT_AT_TEXT(T, optimizer), .fallback = "adamw",
     .choices = "adamw|sgd", .help = "How a step changes the weights."},
    {"lr", WEFT_OPTION_REAL, WEFT_AT_REAL(T, lr), .fallback = "3e-4", .argument = "X",
     .help = "Learning rate, the highest of its schedule."},
    {"min-lr", WEFT_OPTION_REAL, WEFT_AT_REAL(T, min_lr), .fallback = "0", .argument = "X",
     .help = "Where linear, cosine and wsd end."},
    {"lr-schedule", WEFT_OPTION_CHOICE, WEFT_AT_TEXT(T, lr_schedule), .fallback = "cosine",
     .choices = "constant|linear|cosine|wsd",
     .help = "What follows the warm-up. wsd: constant, then a linear decay at the end."},
    {"lr-warmup-steps", WEFT_OPTION_INT, WEFT_AT_INT(T, lr_warmup_steps), .fallback = "0",
     .help = "Steps over which the learning rate rises to its highest."},
    {"lr-decay-steps", WEFT_OPTION_INT, WEFT_AT_INT(T, lr_decay_steps), .low = 1,
     .shown = "train-steps; wsd: a tenth of them",
     .help =
         "Step at which linear and cosine reach min-lr; for wsd the length of the final decay."},
    {"weight-decay", WEFT_OPTION_REAL, WEFT_AT_REAL(T, weight_decay), .fallback = "0.1",
     .argument = "X", .help = "On matrices and embeddings, not on norms and biases."},
    {"adam-beta1", WEFT_OPTION_REAL, WEFT_AT_REAL(T, adam_beta1), .fallback = "0.9", .high = 1,
     .is_high_open = true, .argument = "X", .help = "Decay of the mean of gradients."},
    {"adam-beta2", WEFT_OPTION_REAL, WEFT_AT_REAL(T, adam_beta2), .fallback = "0.95", .high = 1,
     .is_high_open = true, .argument = "X", .help = "Decay of the mean of squared gradients."},
    {"adam-eps", WEFT_OPTION_REAL, WEFT_AT_REAL(T, adam_eps), .fallback = "1e-8",
     .is_low_open = true, .argument = "X", .help = "Added to the root of the mean of squares."},
    {"sgd-momentum", WEFT_OPTION_REAL, WEFT_AT_REAL(T, sgd_momentum), .fallback = "0", .high = 1,
     .is_high_open = true, .argument = "X",
     .help = "Share of the last step's direction that is kept."},
    {"clip-grad", WEFT_OPTION_REAL, WEFT_AT_REAL(T, clip_grad), .fallback = "1", .argument = "X",
     .help = "Gradients are scaled down to this norm over all of them; 0: off."},
};

static const weft_option run[] = {
    {"eval-interval", WEFT_OPTION_INT, WEFT_AT_INT(T, eval_interval), .fallback = "0",
     .help = "Steps between evaluations on held-out data; 0: none."},
    {"eval-data", WEFT_OPTION_LIST, WEFT_AT_LIST(T, eval_data), .argument = "FILE...",
     .help = "Held-out data of its own."},
    {"eval-fraction", WEFT_OPTION_REAL, WEFT_AT_REAL(T, eval_fraction), .fallback = "0.05",
     .high = 1, .is_low_open = true, .is_high_open = true, .argument = "X",
     .help = "Without eval-data: the end of the data that is held out."},
    {"eval-max-tokens", WEFT_OPTION_INT, WEFT_AT_INT(T, eval_max_tokens), .fallback = "0",
     .help = "Tokens of an evaluation; 0: all that is held out."},
    {"save-interval", WEFT_OPTION_INT, WEFT_AT_INT(T, save_interval), .fallback = "0",
     .help = "Steps between checkpoints; 0: only one at the end."},
    {"keep-checkpoints", WEFT_OPTION_INT, WEFT_AT_INT(T, keep_checkpoints), .fallback = "2",
     .help = "How many of the last are kept; 0: all."},
    {"save-dtype", WEFT_OPTION_CHOICE, WEFT_AT_TEXT(T, save_dtype), .fallback = "model",
     .choices = "model|fp32|bf16",
     .help = "Type of the saved weights; model: the one they are trained in."},
    {"resume", WEFT_OPTION_MAYBE, WEFT_AT_TEXT(T, resume), .argument = "DIR",
     .help = "Goes on from the checkpoint DIR; without DIR from OUT/latest. The result is the one "
             "of a run that "
             "was never stopped."},
    {"max-minutes", WEFT_OPTION_REAL, WEFT_AT_REAL(T, max_minutes), .fallback = "0",
     .argument = "X", .help = "Saves and ends before this time is over; 0: no limit."},
    {"memory-limit-mb", WEFT_OPTION_REAL, WEFT_AT_REAL(T, memory_limit_mb), .fallback = "0",
     .shown = "what the machine has", .argument = "X",
     .help = "A run of which one rank needs more is refused before its first step; 0: what the "
             "machine has for all."},
    {"log-interval", WEFT_OPTION_INT, WEFT_AT_INT(T, log_interval), .fallback = "1", .low = 1,
     .help = "Steps between lines where the output is no terminal."},
    {"timeline", WEFT_OPTION_STRING, WEFT_AT_TEXT(T, timeline), .fallback = "", .shown = "",
     .argument = "FILE.svg",
     .help = "Draw the last step: a row a rank, a bar an action of a micro-batch, messages below."},
};

static const weft_option_group groups[] = {
    {"Model and data", 0, model_and_data, WEFT_COUNT_OF(model_and_data)},
    {"Optimization", 0, optimizer, WEFT_COUNT_OF(optimizer)},
    {"Evaluation, checkpoints, limits", 0, run, WEFT_COUNT_OF(run)},
    {"Computation", offsetof(T, layout), weft_i_options_compute, WEFT_OPTIONS_COMPUTE},
    {"Parallel layout", offsetof(T, layout), weft_i_options_layout, WEFT_OPTIONS_LAYOUT},
};

static const char *const description[] = {
    "Trains a Transformer language model: from fresh weights when --model is a config.json, else "
    "from the "
    "weights of the folder. Memory is planned by a dry run and taken before the first step.",
    "A line for each step goes to standard error (live on a terminal), the same numbers as JSON to "
    "OUT/metrics.jsonl: step, loss, learning rate, gradient norm, tokens per second, GFLOP/s, "
    "memory, time left.",
    "A checkpoint is written at the end, every --save-interval steps, on SIGTERM and SIGINT, and "
    "before "
    "--max-minutes are over. It is a Hugging Face folder that transformers opens as it is, with "
    "the optimizer's "
    "state beside the weights. A second SIGINT ends the program at once.",
    "RUN.json is a run configuration: a JSON object whose keys are the names of the options with "
    "underscores. "
    "Options on the command line override its keys. Paths in it are relative to the current "
    "folder.",
    NULL,
};

static const char *const examples[] = {
    "weft train --model config.json --data book.txt --out runs/book --train-steps 500",
    "Trains fresh weights on a text.",
    "weft train --model gpt2 --data notes.txt --out runs/notes --lr 1e-4 --freeze 'wte*' --dtype "
    "bf16",
    "Fine-tunes a folder's weights but for the embedding.",
    "weft train run.json --train-steps 1000 --resume",
    "Goes on with a run that a file describes.",
    NULL,
};

const weft_option_spec weft_i_option_spec_train = {
    .name = "train",
    .summary = "train a model, or fine-tune one",
    .description = description,
    .examples = examples,
    .groups = groups,
    .n_groups = WEFT_COUNT_OF(groups),
    .takes_run_file = true,
};
