/* A mesh of one rank, for tests that work below weft_train_run. */
#ifndef WEFT_TESTS_ONE_RANK_H
#define WEFT_TESTS_ONE_RANK_H

#include "parallel/mesh.h"

/* Over a context that outlives it. */
weft_mesh *one_rank_mesh(weft_ctx *ctx);

/* With a context of its own: one thread, no log. */
weft_mesh *one_rank_open(void);
void one_rank_close(weft_mesh *mesh);

#endif
