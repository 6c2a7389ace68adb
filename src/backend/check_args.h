/* Checks the arguments of operations against the contract of weft/ext/backend.h, for every backend alike. */
#ifndef WEFT_BACKEND_CHECK_ARGS_H
#define WEFT_BACKEND_CHECK_ARGS_H

#include "base/error.h"
#include "weft/ext/backend.h"

/**
 * Shapes agree, types are allowed, ld >= cols, what must be given is given, host arrays point inside. Looks at the
 * arguments and their host arrays, never at the data of views. weft_i_op_run calls it before every operation, so that
 * kernels need not check again.
 *
 * @collective  none
 * @return      WEFT_OK | ARG the operation, the operand, its shape and what was wanted | UNSUPPORTED attention dropout
 *              with more than 65,536 keys
 */
weft_status weft_i_op_check(weft_op op, const void *args);

#endif
