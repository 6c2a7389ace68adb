/*
 * Small training runs for tests: configs of two tiny models with a vocabulary of 53, token files, options, and a recorder of
 * what a run says.
 */
#ifndef WEFT_TESTS_TRAIN_CASE_H
#define WEFT_TESTS_TRAIN_CASE_H

#include "check.h"
#include "scratch.h"

#include "weft/train.h"

#define TRAIN_VOCAB 53
#define TRAIN_CASE_STEPS 64
#define TRAIN_CASE_NOTES 64

typedef struct train_case {
    scratch *s;
    char config[1024];
    char data[1024];
    char out[1024];
    const char *data_list[1];
    weft_train_options options;
} train_case;

/* What callbacks saw. */
typedef struct train_record {
    weft_train_step step[TRAIN_CASE_STEPS];
    int n_steps;
    char note[TRAIN_CASE_NOTES][512];
    int n_notes;
    int64_t stop_after; /* should_stop says yes from this step on; 0: never */
} train_record;

/* JSON of the tiny models: hidden 32, 4 layers, 4 heads, positions 64; llama with 2 kv heads and untied, gpt2 tied. */
const char *train_case_config(weft_family family, double dropout);

/* Files under the scratch, and options: fp32, one thread, sequences of 16, 4 a step, 10 steps of AdamW. */
void train_case_init(train_case *c, scratch *s, weft_family family, double dropout);

/* The options' out becomes DIR/NAME. */
void train_case_out(train_case *c, const char *name);

/* A token file of n ids below vocab, drawn from a seed. */
void train_case_tokens(const char *path, int64_t n, int64_t vocab, uint64_t seed);

/* Runs with a recorder (which may be NULL). */
weft_status train_case_run(train_case *c, train_record *r);

/* Whether a note holds the text. */
bool train_record_says(const train_record *r, const char *text);

/* Fails the test unless two files have the same bytes. */
void train_case_same_file(const char *a, const char *b);

/* The same for model, optimizer and state files of two checkpoints' folders. */
void train_case_same_checkpoint(const char *a, const char *b);

#endif
