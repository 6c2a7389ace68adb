/** Finds things by name in a time that does not grow with their number: a hash table of borrowed names. */
#ifndef WEFT_BASE_NAME_TABLE_H
#define WEFT_BASE_NAME_TABLE_H

#include "base/alloc.h"

typedef struct weft_name_slot {
    const char *name; /* NULL: empty */
    uint64_t hash;
    int64_t number;
} weft_name_slot;

/** Begins as {0}. */
typedef struct weft_name_table {
    weft_name_slot *slots;
    int64_t n_slots; /* a power of two, or 0 */
    int64_t n;
} weft_name_table;

/** Adds a name that is not there yet and stays valid as long as the table. @return WEFT_OK | NOMEM, nothing changed */
weft_status
weft_i_name_table_add(weft_name_table *t, weft_alloc *alloc, const char *name, int64_t number);

/** Its number; -1: not there. */
int64_t weft_i_name_table_find(const weft_name_table *t, const char *name);

void weft_i_name_table_fini(weft_name_table *t, weft_alloc *alloc);

#endif
