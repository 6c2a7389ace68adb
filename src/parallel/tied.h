/* An embedding that is also the head, where a pipeline puts the two on different ranks. Inside src/parallel. */
#ifndef WEFT_PARALLEL_TIED_H
#define WEFT_PARALLEL_TIED_H

#include "parallel/pipeline.h"

typedef struct weft_tied weft_tied;

/** Marks the table in the chunk that has it, before the chunk's data axis is made. */
void weft_i_tied_mark(weft_chunk *c, weft_model *whole);

/**
 * For a rank of the first or the last stage of a tied, trained model; *out is NULL elsewhere.
 *
 * @collective  none
 * @return      WEFT_OK | NOMEM
 */
weft_status weft_i_tied_create(weft_tied **out, weft_mesh *mesh, weft_chunk *chunks, int n_chunks);
void weft_i_tied_destroy(weft_tied *t);

/** --reproducible: before backward of a micro-batch on the first stage, the head's gradient, which it goes on from. */
weft_status weft_i_tied_receive(weft_tied *t, const weft_chunk *c);

/** --reproducible: after backward of a micro-batch on the last stage. */
weft_status weft_i_tied_send(weft_tied *t, const weft_chunk *c);

/** --reproducible: room for so many gradients on their way; once. @return WEFT_OK | NOMEM */
weft_status weft_i_tied_reserve(weft_tied *t, int n_places);

/**
 * After the reductions of a step, before their end_step: both stages get the one sum.
 *
 * @collective  pp, the first and the last stage: 1 SEND and 1 RECV each (--reproducible: one way)
 */
weft_status weft_i_tied_exchange(weft_tied *t);

#endif
