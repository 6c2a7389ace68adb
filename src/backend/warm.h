/* First use of the backend's libraries, apart from any run. */
#ifndef WEFT_BACKEND_WARM_H
#define WEFT_BACKEND_WARM_H

#include "weft/context.h"

/**
 * Runs small products in each type on a context of its own, so that what the backend's libraries load and keep from
 * their first use on counts as the program's base and not as a run's memory.
 *
 * @collective  none
 * @return      WEFT_OK | what creating a context or a product fails with
 */
weft_status weft_i_backend_warm(const weft_ctx_options *options);

#endif
