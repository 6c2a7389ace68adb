/*
 * The options of the commands that only look at files or make them: info, diff, tokenize, checkpoint.
 */
#include "formats/option.h"

/* ---- info ---- */

#define I weft_info_options

static const weft_option info_options[] = {
    {"model", WEFT_OPTION_STRING, WEFT_AT_TEXT(I, model), .is_required = true,
     .is_positional = true, .is_also_named = true, .argument = "MODEL",
     .help = "A Hugging Face folder, a checkpoint of weft, or a config.json under any name."},
    {"json", WEFT_OPTION_SWITCH, WEFT_AT_BOOL(I, json), .help = "Print one JSON object."},
};

static const weft_option_group info_groups[] = {
    {"Options", 0, info_options, WEFT_COUNT_OF(info_options)}};

static const char *const info_description[] = {
    "Shows the family, the number of parameters in total and by kind, the largest layer, the type, "
    "the context "
    "length, the files, and what weft cannot run about it. Only headers are read. Tied weights are "
    "counted once.",
    NULL,
};

static const char *const info_examples[] = {
    "weft info runs/book/latest",
    "What a checkpoint is.",
    NULL,
};

const weft_option_spec weft_i_option_spec_info = {
    .name = "info",
    .summary = "what a model is: parameters, layers, files, what is unsupported",
    .description = info_description,
    .examples = info_examples,
    .groups = info_groups,
    .n_groups = WEFT_COUNT_OF(info_groups),
};

/* ---- diff ---- */

#define D weft_diff_options

static const weft_option diff_options[] = {
    {"a", WEFT_OPTION_STRING, WEFT_AT_TEXT(D, a), .is_required = true, .is_positional = true,
     .argument = "A", .help = "A safetensors file, or a folder with model and optimizer files."},
    {"b", WEFT_OPTION_STRING, WEFT_AT_TEXT(D, b), .is_required = true, .is_positional = true,
     .argument = "B", .help = "What it is compared with."},
    {"exact", WEFT_OPTION_SWITCH, WEFT_AT_BOOL(D, exact),
     .help = "The same types and the same bits. Without it values are compared: types may differ, "
             "0 is -0, and "
             "NaN is NaN."},
    {"tolerance", WEFT_OPTION_REAL, WEFT_AT_REAL(D, tolerance), .fallback = "0", .argument = "X",
     .help = "Largest difference allowed, as a part of the tensor's largest value in A."},
    {"top", WEFT_OPTION_INT, WEFT_AT_INT(D, top), .fallback = "10",
     .help = "How many of the worst tensors are printed."},
};

static const weft_option_group diff_groups[] = {
    {"Options", 0, diff_options, WEFT_COUNT_OF(diff_options)}};

static const char *const diff_description[] = {
    "Compares tensors by name, over all shards, the optimizer's files of a checkpoint included; "
    "links are "
    "followed. A tensor that only one side has, or of another shape, counts as different. Settings "
    "and "
    "trainer_state.json are not compared.",
    "Exits with 0 when equal, 1 when different, 2 for a wrong command line, 3 when the two could "
    "not be compared.",
    NULL,
};

static const char *const diff_examples[] = {
    "weft diff --exact runs/a/latest runs/b/latest",
    "Whether two runs ended with the same bits.",
    "weft diff one.safetensors two.safetensors --tolerance 1e-5",
    "Whether two probes agree.",
    NULL,
};

const weft_option_spec weft_i_option_spec_diff = {
    .name = "diff",
    .summary = "compare the tensors of two files or folders",
    .description = diff_description,
    .examples = diff_examples,
    .groups = diff_groups,
    .n_groups = WEFT_COUNT_OF(diff_groups),
};

/* ---- tokenize ---- */

#define K weft_tokenize_options

static const weft_option tokenize_options[] = {
    {"files", WEFT_OPTION_LIST, WEFT_AT_LIST(K, files), .is_required = true, .is_positional = true,
     .argument = "FILE...", .help = "Texts; - is standard input. With --decode: token files."},
    {"out", WEFT_OPTION_STRING, WEFT_AT_TEXT(K, out), .fallback = "", .shown = "",
     .argument = "FILE",
     .help = "The token file to write (needed). With --decode: where the bytes go instead of "
             "standard output."},
    {"tokenizer", WEFT_OPTION_STRING, WEFT_AT_TEXT(K, tokenizer), .fallback = "byte",
     .argument = "byte", .help = "What turns text into ids."},
    {"append-eos", WEFT_OPTION_SWITCH, WEFT_AT_BOOL(K, append_eos),
     .help = "Put the end-of-text id after each text."},
    {"decode", WEFT_OPTION_SWITCH, WEFT_AT_BOOL(K, decode),
     .help = "Turn token files into the bytes their ids stand for."},
    {"show", WEFT_OPTION_INT, WEFT_AT_INT(K, show), .fallback = "0", .high = 1024,
     .help = "Also print the first N ids."},
};

static const weft_option_group tokenize_groups[] = {
    {"Options", 0, tokenize_options, WEFT_COUNT_OF(tokenize_options)},
};

static const char *const tokenize_description[] = {
    "Writes the ids of texts as one token file, which weft-train(1) and weft-eval(1) read without "
    "a tokenizer, and "
    "prints how many there are. Texts are taken as they are: carriage returns and byte-order marks "
    "stay, and no "
    "end-of-text id is added unless asked. An id takes two bytes when the tokenizer has at most "
    "65,536 of them, "
    "else four.",
    NULL,
};

static const char *const tokenize_examples[] = {
    "weft tokenize --out book.bin --append-eos chapter1.txt chapter2.txt",
    "Makes a token file of two texts.",
    "weft tokenize --decode book.bin",
    "Prints the texts.",
    NULL,
};

const weft_option_spec weft_i_option_spec_tokenize = {
    .name = "tokenize",
    .summary = "turn text into token files, and back",
    .description = tokenize_description,
    .examples = tokenize_examples,
    .groups = tokenize_groups,
    .n_groups = WEFT_COUNT_OF(tokenize_groups),
};

/* ---- checkpoint ---- */

#define C weft_checkpoint_options

static const weft_option checkpoint_options[] = {
    {"action", WEFT_OPTION_CHOICE, WEFT_AT_TEXT(C, action), .is_required = true,
     .is_positional = true, .fallback = "", .shown = "", .choices = "list|verify",
     .argument = "list|verify",
     .help = "list: a line for each checkpoint. verify: read all of it and compare."},
    {"dir", WEFT_OPTION_STRING, WEFT_AT_TEXT(C, dir), .is_required = true, .is_positional = true,
     .argument = "DIR", .help = "The folder of a run (its --out), or one checkpoint."},
    {"json", WEFT_OPTION_SWITCH, WEFT_AT_BOOL(C, json), .help = "Print one JSON array."},
};

static const weft_option_group checkpoint_groups[] = {
    {"Options", 0, checkpoint_options, WEFT_COUNT_OF(checkpoint_options)}};

static const char *const checkpoint_description[] = {
    "list shows step, tokens, time, size, the ranks that wrote it, whether all files are there in "
    "their lengths, and which one --resume goes on from. Headers alone are read.",
    "verify reads every byte and compares it with checksums.json, which each checkpoint has. What "
    "is missing or differs is named: file, and the tensor in it. A folder without that file "
    "(written by an earlier version, or another program) is checked in its form only, which is "
    "said.",
    "Exits with 0 when all is whole (list: when there is a checkpoint), 1 when something is "
    "damaged "
    "or missing, 2 for a wrong command line, 3 when a folder or file could not be read.",
    NULL,
};

static const char *const checkpoint_examples[] = {
    "weft checkpoint list runs/book",
    "Which checkpoints a run has.",
    "weft checkpoint verify runs/book/latest",
    "Whether the newest is whole.",
    NULL,
};

const weft_option_spec weft_i_option_spec_checkpoint = {
    .name = "checkpoint",
    .summary = "list the checkpoints of a run, and verify them",
    .description = checkpoint_description,
    .examples = checkpoint_examples,
    .groups = checkpoint_groups,
    .n_groups = WEFT_COUNT_OF(checkpoint_groups),
};
