/*
 * Comparing runs on ranks (ranks_case.h) with each other and with the closed forms. What differs is written to `why` [256] and
 * false returned, so that one caller fails its test and another counts.
 *
 * Bounds, for parity with one rank
 *   gradients     3e-5 of the tensor's largest, in both types. Forward and backward of a row do not depend on the rows
 *                 beside it, so layouts differ in the order of fp32 additions alone; in bf16 what is added are the same
 *                 products. N additions in two orders are off by at most 2 N 2^-24 sum |terms|; measured: 3.4e-7, or 2.2e-6
 *                 where a product over other rows takes another kernel.
 *   SGD, fp32     5 steps at lr 0.01: 1e-5 (5 x 0.01 x 3e-5 x the largest gradient is below it).
 *   SGD, bf16     of the masters: 1e-5 + 5 x 0.01 x 2^-7 x G, G the largest gradient. Masters that differ in the last bit may
 *                 round to neighbours, 2^-8 of a weight apart; gradients of the next step then differ by about 2^-8 of
 *                 theirs, twice that at most. Weights: that, and the step of bf16 there (2^-7 of the weight).
 *   AdamW, fp32   99.9 % within 1e-4, all within 5e-3, GPT-2's key biases left out (tests/golden/README.md).
 *   AdamW, bf16   of the masters: a weight that rounds to its neighbour moves gradients by 2^-8 of theirs, and where a
 *                 gradient is no larger than that, AdamW may step either way, by about lr: all within 2 x lr x steps; and 99 %
 *                 within 1e-4.
 */
#ifndef WEFT_TESTS_RANKS_COMPARE_H
#define WEFT_TESTS_RANKS_COMPARE_H

#include "ranks_case.h"

#define RANKS_GRADIENT_BOUND 3e-5

/* Losses, norms, weights and optimizer state, bit for bit. */
bool ranks_same_bits(const ranks_result *a, const ranks_result *b, char why[256]);

/* Gradients within bound x each tensor's largest in a. */
bool ranks_near_gradients(const ranks_result *a,
                          const ranks_result *b,
                          double bound,
                          char why[256]);

/* The bounds above, for r and one rank's run on the same batches. */
bool ranks_near_sgd(const ranks_result *one, const ranks_result *r, char why[256]);
bool ranks_near_adamw(const ranks_result *one, const ranks_result *r, double lr, char why[256]);

/*
 * Memory by kind and traffic over dp on every rank, planned and taken, are zero_formulas.h's; activations, workspace and
 * tables are what was planned; the peak is there after the first step and nothing was handed out after it.
 */
bool ranks_as_formulas(const ranks_result *r, const zero_case *z, char why[256]);

/* After the first step on: every trained tensor has moved, no frozen one has. */
bool ranks_all_moved(const ranks_result *r, char why[256]);

/* Whether element i of the parameter is one of GPT-2's key biases. */
bool ranks_is_null(const ranks_param *p, int64_t i);

#endif
