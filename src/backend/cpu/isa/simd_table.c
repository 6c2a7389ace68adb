/* The table of this instruction set's kernels. */
#include "backend/cpu/isa/kernels.h"

#define TABLE_ENTRY(name, params) .name = WEFT_ISA_NAME(name),

const weft_cpu_kernels WEFT_ISA_NAME(cpu_kernels) = {
    WEFT_CPU_KERNELS(TABLE_ENTRY).attention_forward_scratch =
        WEFT_ISA_NAME(attention_forward_scratch),
    .attention_backward_scratch = WEFT_ISA_NAME(attention_backward_scratch)};
