/*
 * A hash table of names (contract: name_table.h): open addressing, the next slot is tried.
 * Invariant: n * 2 <= n_slots, so there is always an empty slot.
 */
#include "base/name_table.h"

#include "base/hash.h"

#include <string.h>

#define FIRST_SLOTS 64

static uint64_t hash_of(const char *name)
{
    const uint64_t h = weft_i_hash_bytes(name, strlen(name));
    return h ^ (h >> 32);
}

/* The slot of the name, or the empty one where it would go. n_slots > 0. */
static weft_name_slot *slot_of(const weft_name_table *t, const char *name, uint64_t hash)
{
    const uint64_t mask = (uint64_t)t->n_slots - 1;
    uint64_t i = hash & mask;
    while (t->slots[i].name != NULL &&
           (t->slots[i].hash != hash || strcmp(t->slots[i].name, name) != 0))
        i = (i + 1) & mask;
    return &t->slots[i];
}

static weft_status grow(weft_name_table *t, weft_alloc *alloc)
{
    weft_name_table larger = {.n = t->n, .n_slots = t->n_slots > 0 ? 2 * t->n_slots : FIRST_SLOTS};
    WEFT_TRY(weft_i_alloc_array(alloc, larger.n_slots, sizeof(*larger.slots), &larger.slots));
    for (int64_t i = 0; i < t->n_slots; i++) {
        const weft_name_slot *old = &t->slots[i];
        if (old->name != NULL)
            *slot_of(&larger, old->name, old->hash) = *old;
    }
    weft_i_alloc_put(alloc, t->slots);
    *t = larger;
    return WEFT_OK;
}

weft_status
weft_i_name_table_add(weft_name_table *t, weft_alloc *alloc, const char *name, int64_t number)
{
    const uint64_t hash = hash_of(name);
    if ((t->n + 1) * 2 > t->n_slots)
        WEFT_TRY(grow(t, alloc));
    *slot_of(t, name, hash) = (weft_name_slot){name, hash, number};
    t->n++;
    return WEFT_OK;
}

int64_t weft_i_name_table_find(const weft_name_table *t, const char *name)
{
    if (t->n == 0)
        return -1;
    const weft_name_slot *s = slot_of(t, name, hash_of(name));
    return s->name != NULL ? s->number : -1;
}

void weft_i_name_table_fini(weft_name_table *t, weft_alloc *alloc)
{
    weft_i_alloc_put(alloc, t->slots);
    *t = (weft_name_table){0};
}
