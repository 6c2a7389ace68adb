/*
 * Groups of sequences (contract: groups.h).
 *
 * With several stages a group is in one stage while others are in the others, so as many groups as stages keep all busy.
 * Groups shrink as sequences end: those that can spare one give it away, as long as there are as many sequences as groups none
 * is empty for longer than a turn.
 *
 * Invariants
 *  1. What happens to a group follows from the ids chosen before its turn alone, so all stages do the same.
 *  2. A sequence moves only while nothing of it is on its way: its tokens but the last are in the cache.
 * Communication: none.
 */
#include "infer/groups.h"

#include <string.h>

weft_status weft_i_groups_init(weft_groups *out, weft_alloc *alloc, int64_t n_seqs, int n)
{
    weft_groups g = {.alloc = alloc, .n = n, .capacity = (n_seqs + n - 1) / n};
    int64_t first = 0;
    weft_status st = WEFT_OK;

    memset(out, 0, sizeof(*out));
    WEFT_TRY_GOTO(st, weft_i_alloc_array(alloc, n_seqs, sizeof(weft_sequence *), &g.active), out);
    WEFT_TRY_GOTO(st, weft_i_alloc_array(alloc, n, sizeof(weft_group), &g.group), out);
    for (int i = 0; i < n; i++) {
        g.group[i] = (weft_group){.active = g.active + first,
                                  .first = first,
                                  .capacity = n_seqs / n + (i < n_seqs % n ? 1 : 0)};
        first += g.group[i].capacity;
    }
out:
    if (st == WEFT_OK)
        *out = g;
    else
        weft_i_groups_fini(&g);
    return st;
}

void weft_i_groups_fini(weft_groups *g)
{
    if (g->alloc == NULL)
        return;
    weft_i_alloc_put(g->alloc, g->active);
    weft_i_alloc_put(g->alloc, g->group);
    memset(g, 0, sizeof(*g));
}

void weft_i_groups_clear(weft_groups *g)
{
    for (int i = 0; i < g->n; i++) {
        g->group[i].n_active = 0;
        g->group[i].n_waiting = 0;
    }
}

weft_status weft_i_group_leave(weft_group *g, weft_kv_cache *cache)
{
    for (int64_t i = g->n_active - 1; i >= 0; i--) {
        if (!g->active[i]->is_done)
            continue;
        const int64_t last = --g->n_active;
        if (i == last)
            continue;
        WEFT_TRY(
            weft_i_kv_cache_move(cache, g->first + i, g->first + last, g->active[last]->n_ids - 1));
        g->active[i] = g->active[last];
    }
    return WEFT_OK;
}

weft_status weft_i_groups_balance(weft_groups *groups, int number, weft_kv_cache *cache)
{
    weft_group *from = &groups->group[number];

    for (int k = 1; k < groups->n; k++) {
        weft_group *to = &groups->group[(number + k) % groups->n];
        while (from->n_active >= to->n_active + 2 && to->n_active < to->capacity) {
            weft_sequence *s = from->active[--from->n_active];
            WEFT_TRY(weft_i_kv_cache_move(cache, to->first + to->n_active,
                                          from->first + from->n_active, s->n_ids - 1));
            to->active[to->n_active++] = s;
        }
    }
    return WEFT_OK;
}

int64_t weft_i_groups_active(const weft_groups *g)
{
    int64_t n = 0;
    for (int i = 0; i < g->n; i++)
        n += g->group[i].n_active;
    return n;
}
