/*
 * The whole product of layouts, in groups that run each in a process of its own (tests/matrix/run.sh, `check-all`). A
 * combination that does not hold is printed and counted; the rest goes on.
 */
#ifndef WEFT_TESTS_MATRIX_H
#define WEFT_TESTS_MATRIX_H

#include "ranks_compare.h"

typedef struct matrix {
    scratch *s;
    const char *group; /* "bits/llama" */
    int64_t n, n_failed;
    double began, said;
} matrix;

/* The models of a group, one of them a process; by name. */
#define MATRIX_MODELS 8
extern const odd_model *const matrix_models[MATRIX_MODELS];

/* Runs a case; false when it fails, which is printed and counted as a combination. */
bool matrix_run(matrix *m, ranks_result *r, const ranks_case *c, const char *text);

/* Counts a combination; one that does not hold is printed with why. Says from time to time how far it is. */
void matrix_count(matrix *m, bool is_right, const char *text, const char *why);

/* Every dp, stage, recompute mode, type and optimizer against one rank. matrix_parity.c */
void matrix_parity(matrix *m, const odd_model *model);

/* Every golden model on every dp, stage and recompute mode. matrix_parity.c */
void matrix_golden(matrix *m);

/* DDP = ZeRO-1, ZeRO-2 = ZeRO-3 (with a micro-batch a rank all) over buckets, overlap, prefetch, threads. matrix_bits.c */
void matrix_bits(matrix *m, const odd_model *model);

/* Every dp x pp x tp of 4 and 8 ranks, stage, schedule and mode, odd and golden models, in one process. matrix_hybrid.c */
void matrix_hybrid(matrix *m);

/* --reproducible: one rank = every dp and stage, over batches, types and recompute modes. matrix_bits.c */
void matrix_reproducible(matrix *m, const odd_model *model);

/* --reproducible --tp-strips: one rank = every dp x pp x tp, stage and schedule. matrix_bits.c */
void matrix_strips(matrix *m, const odd_model *model);

/* Memory and traffic against the closed forms. matrix_formulas.c */
void matrix_formulas(matrix *m, const odd_model *model);

/* From every layout into every layout, through a checkpoint, with --reproducible: the same bits. matrix_resume.c */
void matrix_resume(matrix *m, const odd_model *model);

#endif
