/*
 * Options of `weft layout`: those that decide where what of a training run lies.
 */
#include "formats/option.h"
#include "weft/placement.h"

#define P weft_placement_options

static const weft_option placement_options[] = {
    {"model", WEFT_OPTION_STRING, WEFT_AT_TEXT(P, model), .is_required = true, .argument = "PATH",
     .help = "A Hugging Face folder, or a config.json under any name; weights are not read."},
    {"seq-length", WEFT_OPTION_INT, WEFT_AT_INT(P, seq_length), .low = 1, .high = 1073741824,
     .shown = "min(the model's positions, 256)", .help = "Tokens of a sequence."},
    {"optimizer", WEFT_OPTION_CHOICE, WEFT_AT_TEXT(P, optimizer), .fallback = "adamw",
     .choices = "adamw|sgd", .help = "Whose state is counted."},
    {"sgd-momentum", WEFT_OPTION_REAL, WEFT_AT_REAL(P, sgd_momentum), .fallback = "0", .high = 1,
     .is_high_open = true, .argument = "X", .help = "Over 0 it needs a state."},
    {"json", WEFT_OPTION_SWITCH, WEFT_AT_BOOL(P, json), .help = "Print one JSON object."},
};

static const weft_option_group placement_groups[] = {
    {"Model and output", 0, placement_options, WEFT_COUNT_OF(placement_options)},
    {"Computation", offsetof(P, layout), weft_i_options_compute, WEFT_OPTIONS_COMPUTE},
    {"Parallel layout", offsetof(P, layout), weft_i_options_layout, WEFT_OPTIONS_LAYOUT},
};

static const char *const placement_description[] = {
    "Prints what weft-train(1) with the same flags puts on each rank: its place on the axes, its "
    "layers, heads, MLP columns and ids, its parameters, its bytes by kind, and what it sends in a "
    "step by axis and operation. Found by a dry run of every rank; no rank is started, and no "
    "tensor is taken, so that models and ranks far beyond this machine can be looked at.",
    "A layout that cannot be is refused with the arithmetic and the nearest layouts that work "
    "(exit code 4). parameters are the elements that a rank's layers use, a tied table on the last "
    "stage included; held are those that lie on it between uses (ZeRO stage 3: its share).",
    "Options of a run that change nothing of this (--seed, --comm-timeout, --pace, --trace) are "
    "taken and passed over. What evaluation takes, and what --freeze saves, is not in the figures.",
    NULL,
};

static const char *const placement_examples[] = {
    "weft layout --model config.json --dp 2 --tp 2 --pp 2 --zero-stage 1",
    "The map of eight ranks.",
    "weft layout --model config.json --ranks 64 --tp 8 --pp 4 --dtype bf16 --json",
    "The same as JSON, dp filled in.",
    NULL,
};

const weft_option_spec weft_i_option_spec_layout = {
    .name = "layout",
    .summary = "what every rank of a layout has, takes and sends",
    .description = placement_description,
    .examples = placement_examples,
    .groups = placement_groups,
    .n_groups = WEFT_COUNT_OF(placement_groups),
};
