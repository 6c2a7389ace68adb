/*
 * Options of `weft simulate`. Times are numbers of any unit; what is printed has the same.
 */
#include "formats/option.h"
#include "weft/simulate.h"

#define S weft_simulate_options

static const weft_option simulate_options[] = {
    {"schedule", WEFT_OPTION_CHOICE, WEFT_AT_TEXT(S, schedule), .fallback = "1f1b",
     .choices = "naive|gpipe|1f1b|interleaved|zb-h1|zb-h2",
     .help = "Order in which the stages work on micro-batches."},
    {"stages", WEFT_OPTION_INT, WEFT_AT_INT(S, stages), .is_required = true, .low = 1,
     .high = 65536, .help = "Ranks of the pipeline."},
    {"micro-batches", WEFT_OPTION_INT, WEFT_AT_INT(S, micro_batches), .is_required = true, .low = 1,
     .high = 1048576, .help = "Of one step."},
    {"chunks", WEFT_OPTION_INT, WEFT_AT_INT(S, chunks), .low = 1, .high = 1024,
     .shown = "1; interleaved: 2",
     .help = "Groups of layers a stage has; more than 1 with interleaved alone."},
    {"forward", WEFT_OPTION_REAL, WEFT_AT_REAL(S, forward), .fallback = "1", .is_low_open = true,
     .help = "Time of a whole stage's forward."},
    {"backward", WEFT_OPTION_REAL, WEFT_AT_REAL(S, backward), .fallback = "1", .is_low_open = true,
     .help = "Time of a whole stage's input gradient."},
    {"weight", WEFT_OPTION_REAL, WEFT_AT_REAL(S, weight), .fallback = "1",
     .help =
         "Time of a whole stage's weight gradient; a schedule that does not split backward runs "
         "both as one."},
    {"comm", WEFT_OPTION_REAL, WEFT_AT_REAL(S, comm), .fallback = "0",
     .help = "Time of a message between two ranks."},
    {"timeline", WEFT_OPTION_STRING, WEFT_AT_TEXT(S, timeline), .fallback = "", .shown = "",
     .argument = "FILE.svg", .help = "Draw it: a row a rank, a bar an action."},
    {"json", WEFT_OPTION_SWITCH, WEFT_AT_BOOL(S, json), .help = "Print one JSON object."},
};

static const weft_option_group simulate_groups[] = {
    {"Options", 0, simulate_options, WEFT_COUNT_OF(simulate_options)}};

static const char *const simulate_description[] = {
    "Runs the lists of actions that the pipeline itself would run, with stated times, and prints "
    "how long they take. A chunk takes its share of a stage's times. span is the largest time from "
    "a rank's own first action to its own last, which published tables use; makespan is from 0 to "
    "the last end. Idle shares are of the span.",
    "in flight (with --json in_flight) counts, for each rank, the most micro-batches (of chunks) "
    "whose activations are held at once; for schedules that split backward until their weight "
    "gradient is done. till input (in_flight_input) counts until the input gradient is done.",
    NULL,
};

static const char *const simulate_examples[] = {
    "weft simulate --schedule 1f1b --stages 4 --micro-batches 8",
    "A makespan of 33 where a forward takes 1 and a backward 2: 27.3 % are idle.",
    "weft simulate --schedule zb-h1 --stages 4 --micro-batches 8 --timeline zb.svg",
    "The same with weight gradients filling the gaps, as a picture.",
    NULL,
};

const weft_option_spec weft_i_option_spec_simulate = {
    .name = "simulate",
    .summary = "length, idle share and picture of a pipeline schedule",
    .description = simulate_description,
    .examples = simulate_examples,
    .groups = simulate_groups,
    .n_groups = WEFT_COUNT_OF(simulate_groups),
};
