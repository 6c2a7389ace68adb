/* What all wrappers share: the inner communicator, and the calls that only pass through. Inside src/comm/wrap only. */
#ifndef WEFT_COMM_WRAPPER_H
#define WEFT_COMM_WRAPPER_H

#include "comm/wrap/wrap.h"

/** First member of every wrapper. */
typedef struct weft_wrapper {
    weft_comm base;
    weft_comm *inner;
    weft_comm_ops ops; /* base.ops: the wrapper's table, is_ordered from the inner one */
} weft_wrapper;

/**
 * Zeroed memory of `n_bytes` that begins with a weft_wrapper around `take_inner`, which is destroyed on failure.
 *
 * @return WEFT_OK | NOMEM
 */
weft_status
weft_i_wrapper_new(void **out, size_t n_bytes, const weft_comm_ops *ops, weft_comm *take_inner);

weft_comm *weft_i_wrapper_inner(const weft_comm *c);

/** Starts the call on the inner communicator. */
weft_status weft_i_wrapper_start(weft_comm *c, const weft_message *m, weft_request *request);
weft_status weft_i_wrapper_wait(weft_comm *c, weft_request *request);
void weft_i_wrapper_abort(weft_comm *c, weft_status status, const char *message);
void weft_i_wrapper_destroy(weft_comm *c);

#endif
