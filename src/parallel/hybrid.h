/* The inside of weft_parallel, for hybrid.c and passes.c. */
#ifndef WEFT_PARALLEL_HYBRID_H
#define WEFT_PARALLEL_HYBRID_H

#include "parallel/pipeline.h"
#include "parallel/tied.h"

struct weft_parallel {
    weft_ctx *ctx;
    weft_mesh *mesh;
    weft_model *
        model; /* the caller's: this tensor rank's slice of every item; without a pipeline the chunk's too */
    weft_chunk *chunks; /* [n_chunks] one without a pipeline */
    int n_chunks;
    bool is_training;
    weft_pipeline *pipeline;          /* NULL: none */
    weft_tied *tied;                  /* NULL: not here */
    weft_parts values, states, owned; /* of all chunks; borrowed from the one where there is one */
    int64_t n_state_elems;
    weft_hooks *trace, *pace; /* NULL: none */
};

#endif
