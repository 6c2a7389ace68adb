/**
 * Kinds of memory. Every byte weft takes has one, so that a run can print what it took beside what its dry run predicted.
 */
#ifndef WEFT_EXT_MEMORY_H
#define WEFT_EXT_MEMORY_H

#ifdef __cplusplus
extern "C" {
#endif

/** All but CONTROL are device kinds: memory a backend computes in, of its own choice, counted by every run. */
typedef enum weft_mem {
    WEFT_MEM_PARAMETERS,    /* weights that layers read */
    WEFT_MEM_GRADIENTS,     /* fp32 gradient accumulation */
    WEFT_MEM_OPTIMIZER,     /* master weights and moments */
    WEFT_MEM_ACTIVATIONS,   /* slots of micro-batches in flight, and their inputs */
    WEFT_MEM_COMMUNICATION, /* buckets, gathered weights */
    WEFT_MEM_WORKSPACE,     /* the stack with mark and reset */
    WEFT_MEM_CACHE,         /* keys and values of generation */
    WEFT_MEM_TABLES,        /* rotary tables and other constants */
    WEFT_MEM_CONTROL,       /* structs, strings, tables of the program itself */
    WEFT_MEM_COUNT
} weft_mem;

#ifdef __cplusplus
}
#endif
#endif
