/* The models of tests/golden on ranks (ranks_case.h), against PyTorch's values. */
#ifndef WEFT_TESTS_RANKS_GOLDEN_H
#define WEFT_TESTS_RANKS_GOLDEN_H

#include "golden.h"
#include "ranks_compare.h"

/*
 * A case of the golden model `name`: its weights, the batches of tensor `ids` ([B, T], or [steps, B, T] with the rates of
 * train.lr), a sequence a micro-batch, the goldens' AdamW. Close the golden when the case is done with.
 */
void ranks_golden_init(ranks_case *c, golden *g, scratch *s, const char *name, const char *ids);

/* Loss and gradients of one step against the float64 run: 5e-6; 3e-5 of each tensor's largest. */
bool ranks_golden_gradients(const golden *g, const ranks_result *r, char why[256]);

/* Losses, norms and weights of five steps: 5e-6, 5e-5; 99.9 % within 1e-4, all within 5e-3. */
bool ranks_golden_training(const golden *g, const ranks_result *r, char why[256]);

#endif
