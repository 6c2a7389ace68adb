/* Sequences that run together, in groups that take turns; one group without a pipeline. */
#ifndef WEFT_INFER_GROUPS_H
#define WEFT_INFER_GROUPS_H

#include "infer/kv_cache.h"
#include "infer/sequence.h"

/** Sequence i of a group has slot first + i of the cache. */
typedef struct weft_group {
    weft_sequence **active; /* [capacity] */
    int64_t first, capacity;
    int64_t n_active;
    int64_t from, n_waiting; /* of those, whose next id is being made: [from, from + n_waiting) */
} weft_group;

typedef struct weft_groups {
    weft_alloc *alloc;
    weft_sequence **active; /* of all */
    weft_group *group;      /* [n] */
    int n;
    int64_t capacity; /* of the largest */
} weft_groups;

/** n groups with room for n_seqs sequences together, the first ones for one more. @return WEFT_OK | NOMEM */
weft_status weft_i_groups_init(weft_groups *out, weft_alloc *alloc, int64_t n_seqs, int n);
void weft_i_groups_fini(weft_groups *g);

/** No sequences any more. */
void weft_i_groups_clear(weft_groups *g);

/** Sequences that are done leave; the last one takes the place. None is waiting. */
weft_status weft_i_group_leave(weft_group *g, weft_kv_cache *cache);

/** Group `number`, none of it waiting, gives sequences to those that have at least two fewer. */
weft_status weft_i_groups_balance(weft_groups *g, int number, weft_kv_cache *cache);

int64_t weft_i_groups_active(const weft_groups *g);

#endif
