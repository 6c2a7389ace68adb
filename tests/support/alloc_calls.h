/* How often an allocator was asked for memory, for tests of when it is not. */
#ifndef WEFT_TESTS_ALLOC_CALLS_H
#define WEFT_TESTS_ALLOC_CALLS_H

#include "base/alloc.h"

/* Blocks handed out so far, of all kinds. */
uint64_t alloc_calls(const weft_alloc *alloc);

#endif
