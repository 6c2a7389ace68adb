/*
 * A layout against one rank: gradients of the first step, weights after five of SGD or AdamW, losses, norms, fresh weights,
 * memory and traffic as planned (bounds: ranks_compare.h).
 */
#ifndef WEFT_TESTS_RANKS_PARITY_H
#define WEFT_TESTS_RANKS_PARITY_H

#include "ranks_compare.h"

#define RANKS_PARITY_STEPS 5

typedef struct ranks_variant {
    const odd_model *model;
    ranks_layout layout;
    int64_t n_seqs, micro_batch;
} ranks_variant;

/* AdamW with weight decay and clipping, or plain SGD at 0.01. */
void ranks_parity_init(ranks_case *c, scratch *s, const odd_model *m, bool is_sgd);

/* Planned is taken, sent as planned, and nothing is taken after the first step. */
bool ranks_as_planned(const ranks_result *r, char why[256]);

/* Both runs, on batches drawn from a seed; false with why where one bound does not hold, or a run failed. */
bool ranks_parity_holds(scratch *s, const ranks_variant *v, bool is_sgd, char why[256]);

/* The same for a variant whose one-rank run is there already. */
bool ranks_parity_near(const ranks_case *c, const ranks_result *one, char why[256]);

/* Fails the test where it does not hold. */
void ranks_parity_check(scratch *s, const ranks_variant *v, bool is_sgd);

#endif
