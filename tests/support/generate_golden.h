/* The greedy generations of tests/golden (generate_case.h), against transformers' ids. */
#ifndef WEFT_TESTS_GENERATE_GOLDEN_H
#define WEFT_TESTS_GENERATE_GOLDEN_H

#include "generate_case.h"
#include "golden.h"

/* As many ids as transformers gave, from n times its prompt; the type of the files, two threads. Valid until the next call. */
weft_generate_options generate_golden_options(golden *g, const char *backend, size_t n);

/* Fails the test unless n prompts ended and every id of each is transformers'. */
void generate_golden_same(const generate_answer *a, const golden *g, size_t n, const char *what);

#endif
