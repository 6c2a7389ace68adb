/*
 * A model with weights as this rank's layout holds them (contract: replica.h).
 *
 * Communication (dp): weights from rank 0 where a rank does not fill its own.
 */
#include "parallel/replica.h"

#include "base/ctx.h"

static weft_status fill(weft_replica *r, const weft_source *source, uint64_t seed)
{
    const weft_parts *here = weft_i_parallel_values(r->parallel);
    if (!weft_i_parallel_is_source(r->parallel) ||
        weft_i_alloc_is_dry(weft_model_ctx(r->model)->alloc))
        return WEFT_OK;
    return weft_i_source_fill(source, r->model, here->part, here->n, seed);
}

weft_status weft_i_replica_create(
    weft_replica *out, weft_mesh *mesh, const weft_source *source, bool is_training, uint64_t seed)
{
    weft_replica r = {.model = NULL};
    weft_status st = WEFT_OK;
    WEFT_TRY_GOTO(st, weft_i_parallel_model(&r.model, mesh, &source->hf.config, source->dtype),
                  out);
    WEFT_TRY_GOTO(st, weft_i_parallel_create(&r.parallel, mesh, r.model, is_training), out);
    WEFT_TRY_GOTO(st, fill(&r, source, seed), out);
    WEFT_TRY_GOTO(st, weft_i_parallel_share_weights(r.parallel), out);
out:
    if (st == WEFT_OK)
        *out = r;
    else
        weft_i_replica_destroy(&r);
    return st;
}

void weft_i_replica_destroy(weft_replica *r)
{
    weft_i_parallel_destroy(r->parallel);
    weft_model_destroy(r->model);
    *r = (weft_replica){.model = NULL};
}
