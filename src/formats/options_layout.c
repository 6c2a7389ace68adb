/*
 * Options that train, eval, generate and probe share: how a run is laid out over ranks, and how a rank computes.
 * One layout line serves all four, so an option with nothing to act on is accepted and changes nothing.
 */
#include "formats/option.h"

#define L weft_layout_options

const weft_option weft_i_options_layout[WEFT_OPTIONS_LAYOUT] = {
    {"dp", WEFT_OPTION_INT, WEFT_AT_INT(L, dp), .low = 1, .high = 1048576, .shown = "1",
     .help = "Data-parallel ranks, threads of this process: each computes its share of the batch."},
    {"tp", WEFT_OPTION_INT, WEFT_AT_INT(L, tp), .low = 1, .high = 1048576, .shown = "1",
     .help = "Tensor-parallel ranks: each has a slice of every matrix, by heads, MLP columns and "
             "ids; at most as many as heads."},
    {"pp", WEFT_OPTION_INT, WEFT_AT_INT(L, pp), .low = 1, .high = 1048576, .shown = "1",
     .help = "Pipeline stages: each has some of the layers; at most blocks + 2."},
    {"ranks", WEFT_OPTION_INT, WEFT_AT_INT(L, ranks), .low = 1, .high = 1048576,
     .shown = "dp x tp x pp", .help = "Ranks in all; fills in dp = ranks / (tp x pp)."},
    {"strategy", WEFT_OPTION_CHOICE, WEFT_AT_TEXT(L, strategy), .fallback = "", .shown = "",
     .choices = "data-parallel",
     .help = "data-parallel: rank 0 scatters each batch, copies the updated model to every rank, "
             "gathers the outputs and alone updates. Without it dp ranks keep their model and "
             "reduce gradients."},
    {"zero-stage", WEFT_OPTION_INT, WEFT_AT_INT(L, zero_stage), .fallback = "0", .high = 3,
     .help = "What the dp ranks share out: 0 nothing, 1 optimizer state, 2 also gradients, 3 also "
             "parameters."},
    {"zero-prefetch", WEFT_OPTION_SWITCH, WEFT_AT_BOOL(L, zero_prefetch), .fallback = "on",
     .help = "Stage 3: gather the next layer's parameters while this one computes."},
    {"pp-schedule", WEFT_OPTION_CHOICE, WEFT_AT_TEXT(L, pp_schedule), .fallback = "1f1b",
     .choices = "naive|gpipe|1f1b|interleaved|zb-h1|zb-h2",
     .help = "Order in which the stages work on micro-batches; nothing with 1 stage."},
    {"pp-chunks", WEFT_OPTION_INT, WEFT_AT_INT(L, pp_chunks), .low = 1, .high = 1024,
     .shown = "1; interleaved: 2",
     .help = "Groups of layers a stage has (interleaved); nothing with 1 stage."},
    {"stage-layers", WEFT_OPTION_STRING, WEFT_AT_TEXT(L, stage_layers), .fallback = "",
     .shown = "balanced", .argument = "N,N,...",
     .help = "Items of each stage, or chunk, in model order. Items are the embedding, each block, "
             "final norm + head: 12 blocks make 14. Without it the most costly stage is as cheap "
             "as can be."},
    {"rank-order", WEFT_OPTION_CHOICE, WEFT_AT_TEXT(L, rank_order), .fallback = "tp-dp-pp",
     .choices = "tp-dp-pp|tp-pp-dp|dp-tp-pp|dp-pp-tp|pp-tp-dp|pp-dp-tp",
     .help =
         "Axes from the one whose ranks are neighbours to the one whose ranks are farthest apart."},
    {"sequence-parallel", WEFT_OPTION_SWITCH, WEFT_AT_BOOL(L, sequence_parallel),
     .help =
         "Tensor-parallel ranks also share out the tokens between the matrices; nothing with 1."},
    {"tp-strips", WEFT_OPTION_INT, WEFT_AT_INT(L, tp_strips), .low = 1, .high = 1048576,
     .shown = "whole products",
     .help = "Compute what tensor-parallel ranks share out in so many strips, with any tp up to "
             "that number, one too, and add them in one order: all those tp give the same bits. "
             "At most as many as key/value heads."},
    {"micro-batch-size", WEFT_OPTION_INT, WEFT_AT_INT(L, micro_batch_size), .low = 1,
     .high = 1048576,
     .shown = "train: 8, or a share of --global-batch-size; else as many as asked for",
     .help = "Sequences computed at a time."},
    {"global-batch-size", WEFT_OPTION_INT, WEFT_AT_INT(L, global_batch_size), .low = 1,
     .high = 1073741824, .shown = "micro-batch-size x dp",
     .help = "Sequences of a step; gradients of its micro-batches are added up."},
    {"bucket-size-mb", WEFT_OPTION_REAL, WEFT_AT_REAL(L, bucket_size_mb), .fallback = "25",
     .is_low_open = true,
     .help = "Gradients reduced in one call: whole layers up to this size, in units of 1,000,000 "
             "bytes. Changes no result."},
    {"overlap-grad-reduce", WEFT_OPTION_SWITCH, WEFT_AT_BOOL(L, overlap_grad_reduce),
     .fallback = "on", .help = "Reduce gradients while backward goes on. Changes no result."},
    {"reproducible", WEFT_OPTION_SWITCH, WEFT_AT_BOOL(L, reproducible),
     .help =
         "Add whole micro-batches' gradients in one order, so that every dp, pp, schedule and ZeRO "
         "stage, and one rank, give the same bits; with --tp-strips every tp too. Sends and keeps "
         "more."},
    {"comm-timeout", WEFT_OPTION_REAL, WEFT_AT_REAL(L, comm_timeout), .fallback = "120",
     .is_low_open = true, .argument = "SECONDS",
     .help = "A rank that the others wait for and that shows no sign of work for so long is given "
             "up, and the run ends."},
    {"pace", WEFT_OPTION_STRING, WEFT_AT_TEXT(L, pace), .fallback = "", .shown = "",
     .argument = "FILE.json",
     .help = "Stated durations of layers and messages, which are waited out: shows a layout's time "
             "on few processors."},
    {"trace", WEFT_OPTION_STRING, WEFT_AT_TEXT(L, trace), .fallback = "", .shown = "",
     .argument = "FILE.json",
     .help = "Write a trace of all ranks, for Perfetto or chrome://tracing."},
};

const weft_option weft_i_options_compute[WEFT_OPTIONS_COMPUTE] = {
    {"dtype", WEFT_OPTION_CHOICE, WEFT_AT_TEXT(L, dtype), .fallback = "", .shown = "the model's",
     .choices = "fp32|bf16",
     .help = "Type of weights and activations. With bf16, master weights and sums of gradients are "
             "fp32."},
    {"recompute", WEFT_OPTION_CHOICE, WEFT_AT_TEXT(L, recompute), .fallback = "none",
     .choices = "none|selective|full",
     .help =
         "What backward computes again instead of keeping it: nothing; norm outputs and the MLP's "
         "activated product; everything inside a layer. All give the same bits."},
    {"threads-per-rank", WEFT_OPTION_INT, WEFT_AT_INT(L, threads_per_rank), .low = 1, .high = 1024,
     .shown = "processors / ranks", .help = "Changes no result."},
    {"backend", WEFT_OPTION_CHOICE, WEFT_AT_TEXT(L, backend), .fallback = "cpu",
     .choices = "cpu|reference", .help = "reference: plain loops, slow, for comparison."},
    {"seed", WEFT_OPTION_INT, WEFT_AT_INT(L, seed), .fallback = "1234",
     .help = "Fresh weights, order of the data, dropout and sampling follow from it."},
};
