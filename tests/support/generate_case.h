/* Small generations for tests: prompts of unequal lengths, options, and a recorder of what a call says. */
#ifndef WEFT_TESTS_GENERATE_CASE_H
#define WEFT_TESTS_GENERATE_CASE_H

#include "scratch.h"

#include <pthread.h>

#include "weft/generate.h"

#define GENERATE_PROMPTS_MOST 12
#define GENERATE_IDS_MOST 1600
#define GENERATE_TEXT_MOST 4096

/* What callbacks saw. */
typedef struct generate_answer {
    int64_t n_prompts; /* ended so far, in order */
    int64_t n_ids[GENERATE_PROMPTS_MOST];
    int32_t ids[GENERATE_PROMPTS_MOST][GENERATE_IDS_MOST];
    weft_finish finish[GENERATE_PROMPTS_MOST];
    char text[GENERATE_TEXT_MOST]; /* a line a prompt */
    int64_t stop_after;            /* polls; 0: never */
    int64_t n_polls;
    pthread_t thread; /* that called last */
    bool is_called;
    bool is_wrong; /* two threads called, prompts came out of order, or too many ids */
    weft_generate_result result;
} generate_answer;

/* The first n of twelve prompts of 1 to 13 ids below 51, the first and fourth the same. */
void generate_case_prompts(weft_generate_options *o, size_t n);

/*
 * Those prompts to a tiny model of this config (tiny.h), written under the scratch; 7 tokens each, drawn at temperature 1 with
 * seed 3; reference backend, one thread. Valid until the next call.
 */
weft_generate_options generate_case_options(scratch *s, const char *config, size_t n_prompts);

/* The same with three prompts of one id to a tiny llama whose logits are not finite after the last of them. */
weft_generate_options generate_case_poisoned(scratch *s);

/* Runs with a recorder, of which stop_after alone is kept; fails the test when it is wrong afterwards. */
weft_status generate_case_run(generate_answer *a, const weft_generate_options *o, bool has_text);

/* Fails the test unless b, of one rank, has the same ids, ends, text and numbers of tokens. */
void generate_case_same(const generate_answer *a, const generate_answer *b, const char *what);

/*
 * Fails the test unless a, which was stopped, ended every prompt with the first ids of the free run, at most one for each poll,
 * and polled no more after that. Returns how many prompts were stopped.
 */
int64_t generate_case_stopped(const generate_answer *a, const generate_answer *free_run);

#endif
