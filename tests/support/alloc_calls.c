/* How often an allocator was asked (contract: alloc_calls.h). */
#include "alloc_calls.h"

uint64_t alloc_calls(const weft_alloc *alloc)
{
    uint64_t n = 0;
    for (int i = 0; i < (int)WEFT_MEM_COUNT; i++) {
        weft_alloc_count count;
        weft_i_alloc_counts(alloc, (weft_mem)i, &count);
        n += count.n_calls;
    }
    return n;
}
