/*
 * The options of the commands that run a model without changing it: eval, generate, probe.
 */
#include "formats/option.h"

/* ---- eval ---- */

#define E weft_eval_options

static const weft_option eval_options[] = {
    {"model", WEFT_OPTION_STRING, WEFT_AT_TEXT(E, model), .is_required = true, .argument = "DIR",
     .help = "A Hugging Face folder, or a checkpoint of weft."},
    {"data", WEFT_OPTION_LIST, WEFT_AT_LIST(E, data), .is_required = true, .argument = "FILE...",
     .help = "Text or token files; one stream in the order given."},
    {"tokenizer", WEFT_OPTION_STRING, WEFT_AT_TEXT(E, tokenizer), .fallback = "byte",
     .argument = "byte", .help = "What turns text into ids."},
    {"seq-length", WEFT_OPTION_INT, WEFT_AT_INT(E, seq_length), .low = 1, .high = 1073741824,
     .shown = "min(the model's positions, 256)",
     .help = "Tokens of a sequence; the last may be shorter."},
    {"max-tokens", WEFT_OPTION_INT, WEFT_AT_INT(E, max_tokens), .fallback = "0",
     .help = "Targets counted, from the start; 0: all."},
    {"output", WEFT_OPTION_CHOICE, WEFT_AT_TEXT(E, output), .fallback = "text",
     .choices = "text|json", .help = "Form of the result."},
};

static const weft_option_group eval_groups[] = {
    {"Model and data", 0, eval_options, WEFT_COUNT_OF(eval_options)},
    {"Computation", offsetof(E, layout), weft_i_options_compute, WEFT_OPTIONS_COMPUTE},
    {"Parallel layout", offsetof(E, layout), weft_i_options_layout, WEFT_OPTIONS_LAYOUT},
};

static const char *const eval_description[] = {
    "Prints the mean loss of the model on the data in nats a token, the perplexity, bits per byte, "
    "and how many "
    "targets were counted. Every token but the first is a target exactly once, those of the short "
    "last sequence "
    "too. Dropout is off.",
    NULL,
};

static const char *const eval_examples[] = {
    "weft eval --model runs/book/latest --data held-out.txt",
    "Loss of a checkpoint on a text.",
    NULL,
};

const weft_option_spec weft_i_option_spec_eval = {
    .name = "eval",
    .summary = "the loss of a model on text",
    .description = eval_description,
    .examples = eval_examples,
    .groups = eval_groups,
    .n_groups = WEFT_COUNT_OF(eval_groups),
};

/* ---- generate ---- */

#define G weft_generate_options

static const weft_option generate_options[] = {
    {"model", WEFT_OPTION_STRING, WEFT_AT_TEXT(G, model), .is_required = true, .argument = "DIR",
     .help = "A Hugging Face folder, or a checkpoint of weft."},
    {"prompt", WEFT_OPTION_EACH, WEFT_AT_LIST(G, prompt), .argument = "TEXT",
     .help = "What to go on from. Given several times: a batch of several."},
    {"ids", WEFT_OPTION_EACH, WEFT_AT_LIST(G, ids), .argument = "N,N,...",
     .help = "A prompt as ids; needs no tokenizer unless text is printed. Given several times: a "
             "batch. Not "
             "together with --prompt."},
    {"tokenizer", WEFT_OPTION_STRING, WEFT_AT_TEXT(G, tokenizer), .fallback = "byte",
     .argument = "byte", .help = "What turns text into ids and back."},
    {"max-new-tokens", WEFT_OPTION_INT, WEFT_AT_INT(G, max_new_tokens), .fallback = "64",
     .high = 1073741824, .help = "New tokens of each prompt, at most."},
    {"temperature", WEFT_OPTION_REAL, WEFT_AT_REAL(G, temperature), .fallback = "0",
     .argument = "X",
     .help = "Logits are divided by it before one is drawn; 0: always the most probable."},
    {"top-k", WEFT_OPTION_INT, WEFT_AT_INT(G, top_k), .fallback = "0",
     .help = "Draw among the N most probable; 0: all."},
    {"top-p", WEFT_OPTION_REAL, WEFT_AT_REAL(G, top_p), .fallback = "1", .high = 1,
     .is_low_open = true, .argument = "P",
     .help = "Draw among the most probable whose probabilities reach P together."},
    {"ignore-eos", WEFT_OPTION_SWITCH, WEFT_AT_BOOL(G, ignore_eos),
     .help = "Go on after an end-of-text id."},
    {"output", WEFT_OPTION_CHOICE, WEFT_AT_TEXT(G, output), .fallback = "text",
     .choices = "text|ids|json",
     .help = "text: the new text as it comes, its line breaks too. ids: the new ids, separated by "
             "spaces. json: an "
             "object a line."},
};

static const weft_option_group generate_groups[] = {
    {"Model, prompts, sampling", 0, generate_options, WEFT_COUNT_OF(generate_options)},
    {"Computation", offsetof(G, layout), weft_i_options_compute, WEFT_OPTIONS_COMPUTE},
    {"Parallel layout", offsetof(G, layout), weft_i_options_layout, WEFT_OPTIONS_LAYOUT},
};

static const char *const generate_description[] = {
    "Continues the prompts, one output line for each, in the order given. Text appears as it is "
    "computed, whole "
    "characters only; bytes that are no UTF-8 appear as U+FFFD. A prompt that starts with two "
    "dashes is written "
    "--prompt=TEXT.",
    "Prompts of unequal length run as one batch on a cache of keys and values. Ids that the "
    "tokenizer lacks are "
    "never drawn. The same seed gives the same tokens.",
    NULL,
};

static const char *const generate_examples[] = {
    "weft generate --model runs/book/latest --prompt 'It was' --max-new-tokens 200",
    "The most probable continuation.",
    "weft generate --model gpt2 --ids 464,3280 --ids 15496 --output ids --temperature 0.8 --top-p "
    "0.9",
    "Two prompts as ids, continued by drawn ids.",
    NULL,
};

const weft_option_spec weft_i_option_spec_generate = {
    .name = "generate",
    .summary = "continue prompts",
    .description = generate_description,
    .examples = generate_examples,
    .groups = generate_groups,
    .n_groups = WEFT_COUNT_OF(generate_groups),
};

/* ---- probe ---- */

#define P weft_probe_options

static const weft_option probe_options[] = {
    {"model", WEFT_OPTION_STRING, WEFT_AT_TEXT(P, model), .is_required = true, .argument = "PATH",
     .help = "A Hugging Face folder, or a config.json (fresh weights)."},
    {"batch", WEFT_OPTION_STRING, WEFT_AT_TEXT(P, batch), .is_required = true, .argument = "FILE",
     .help = "A safetensors file with input_ids [B,T] and perhaps labels [B,T]; a label of -100 is "
             "not counted."},
    {"out", WEFT_OPTION_STRING, WEFT_AT_TEXT(P, out), .is_required = true, .argument = "FILE",
     .help = "The safetensors file to write."},
    {"grads", WEFT_OPTION_SWITCH, WEFT_AT_BOOL(P, grads),
     .help = "Run backward too and write grad/NAME for every tensor of the checkpoint."},
};

static const weft_option_group probe_groups[] = {
    {"Model and batch", 0, probe_options, WEFT_COUNT_OF(probe_options)},
    {"Computation", offsetof(P, layout), weft_i_options_compute, WEFT_OPTIONS_COMPUTE},
    {"Parallel layout", offsetof(P, layout), weft_i_options_layout, WEFT_OPTIONS_LAYOUT},
};

static const char *const probe_description[] = {
    "Runs one forward pass (with --grads also backward) on a given batch and writes logits "
    "[B,T,V], token_loss "
    "[B,T-1], loss [1] and gradients, all F32. Two layouts, types or programs are compared by "
    "probing both and "
    "looking at the files with weft-diff(1).",
    NULL,
};

static const char *const probe_examples[] = {
    "weft probe --model gpt2 --batch batch.safetensors --grads --out here.safetensors",
    "Logits, losses and gradients of a batch.",
    NULL,
};

const weft_option_spec weft_i_option_spec_probe = {
    .name = "probe",
    .summary = "one forward and backward pass on a given batch, written to a file",
    .description = probe_description,
    .examples = probe_examples,
    .groups = probe_groups,
    .n_groups = WEFT_COUNT_OF(probe_groups),
};
