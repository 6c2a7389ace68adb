/*
 * Agreement of all ranks: on going on, and on what they were started with.
 *
 * Every rank takes the same way through these functions, since what decides it (the largest, the gathered hashes) is the
 * same on all.
 * Communication: over the world, as each function says.
 */
#include "base/compiler.h"
#include "base/ctx.h"
#include "base/hash.h"
#include "parallel/ranks.h"

#include <stdio.h>
#include <string.h>

#define TEXT_BYTES 1024  /* of a message that is passed on: whole I64s */
#define VALUE_BYTES 4096 /* of a value that differs, at a time */
#define SHOWN_BYTES 96   /* of it in the message */
#define BEFORE_BYTES 24  /* shown before the first difference */

#define WORDS(bytes) ((int64_t)((bytes) / sizeof(int64_t)))

/* A failure as it is passed on. */
typedef struct told_failure {
    int64_t status;
    char text[TEXT_BYTES];
} told_failure;

/* What failed on `root`, for all. */
static weft_status
tell(weft_mesh *m, int root, weft_status st, told_failure *told, const char *what)
{
    *told = (told_failure){.status = WEFT_OK};
    if (m->world_rank == root && st != WEFT_OK) {
        told->status = st;
        (void)snprintf(told->text, sizeof(told->text), "%s", weft_last_error());
    }
    const weft_message message = {.op = WEFT_COMM_BROADCAST,
                                  .dtype = WEFT_DTYPE_I64,
                                  .send = told,
                                  .recv = told,
                                  .n_elems = WORDS(sizeof(*told)),
                                  .peer = root,
                                  .is_host = true,
                                  .tensor = what};
    return weft_comm_call(m->comm[WEFT_AXIS_WORLD], &message);
}

weft_status weft_i_mesh_agree(weft_mesh *m, weft_status st)
{
    int64_t failed =
        st != WEFT_OK ? m->world_size - m->world_rank : 0; /* the lowest: the largest */
    told_failure told;
    if (m->world_size == 1)
        return st;
    WEFT_TRY(weft_i_mesh_largest(m, WEFT_AXIS_WORLD, &failed, "agreement"));
    if (failed == 0)
        return WEFT_OK;
    const int root = (int)(m->world_size - failed);
    WEFT_TRY(tell(m, root, st, &told, "the message of a failure"));
    /* What all have met alike is no rank's own. */
    int64_t is_other = st != (weft_status)told.status || strcmp(weft_last_error(), told.text) != 0;
    WEFT_TRY(weft_i_mesh_largest(m, WEFT_AXIS_WORLD, &is_other, "agreement on a failure"));
    if (is_other == 0)
        return st;
    WEFT_FAIL((weft_status)told.status, "rank %d: %s", root, told.text);
}

weft_status weft_i_mesh_agree_on_rank0(weft_mesh *m, weft_status st)
{
    told_failure told;
    if (m->world_size == 1)
        return st;
    WEFT_TRY(tell(m, 0, st, &told, "rank 0's outcome"));
    return told.status == WEFT_OK ? WEFT_OK
                                  : weft_i_error_set((weft_status)told.status, "%s", told.text);
}

/* The rank whose value most ranks have; the lowest where several are as many. */
static int most_common(const uint64_t *hashes, int size, int n, int item)
{
    int best = 0, best_n = 0;
    for (int i = 0; i < size; i++) {
        int n_equal = 0;
        for (int j = 0; j < size; j++)
            n_equal += hashes[i * n + item] == hashes[j * n + item] ? 1 : 0;
        if (n_equal > best_n) {
            best = i;
            best_n = n_equal;
        }
    }
    return best;
}

/* A quoted stretch of `text` around its byte `at`, one line. */
static void quote(char *out, size_t size, const char *text, size_t at)
{
    const size_t from = at > BEFORE_BYTES ? at - BEFORE_BYTES : 0;
    const size_t n = strlen(text + from);
    (void)snprintf(out, size, "\"%s%.*s%s\"", from > 0 ? "..." : "", (int)SHOWN_BYTES, text + from,
                   n > SHOWN_BYTES ? "..." : "");
    for (; *out != '\0'; out++) {
        if (*out == '\n')
            *out = ' ';
    }
}

/* "rank 2", "ranks 2, 5": those whose value is not `usual`'s; *first is one of them. */
static void
name_the_odd(char *out, size_t size, const uint64_t *hashes, int *first, int n_ranks, int n, int at)
{
    const int usual = *first;
    int n_odd = 0;
    char list[192] = "";
    for (int r = 0; r < n_ranks; r++) {
        if (hashes[r * n + at] == hashes[usual * n + at])
            continue;
        const size_t used = strlen(list);
        *first = n_odd == 0 ? r : *first;
        (void)snprintf(list + used, sizeof(list) - used, "%s%d", n_odd > 0 ? ", " : "", r);
        n_odd++;
    }
    (void)snprintf(out, size, "%s %s", n_odd == 1 ? "rank" : "ranks", list);
}

/*
 * Of two ranks' values the stretch in which they first differ; all come here together and see the same bytes, so all end at
 * the same stretch. values: [size][VALUE_BYTES], every rank's.
 */
static weft_status
find_difference(weft_comm *world, const weft_agreed *item, char *values, int a, int b)
{
    const size_t n_bytes = strlen(item->value);
    char mine[VALUE_BYTES] = "";
    const weft_message gather = {.op = WEFT_COMM_ALL_GATHER,
                                 .dtype = WEFT_DTYPE_I64,
                                 .send = mine,
                                 .recv = values,
                                 .n_elems = world->size * WORDS(VALUE_BYTES),
                                 .is_host = true,
                                 .tensor = item->what};
    const char *const of_a = values + (size_t)a * VALUE_BYTES;
    const char *const of_b = values + (size_t)b * VALUE_BYTES;
    /* By halves, so that what comes before the difference is there too. */
    for (size_t at = 0;; at += VALUE_BYTES / 2) {
        (void)snprintf(mine, sizeof(mine), "%s", item->value + WEFT_MIN(at, n_bytes));
        WEFT_TRY(weft_comm_call(world, &gather));
        if (strcmp(of_a, of_b) != 0 || of_a[0] == '\0')
            return WEFT_OK;
    }
}

/* All ranks come here together. */
static weft_status
name_difference(weft_mesh *m, const uint64_t *hashes, const weft_agreed *items, int n, int at)
{
    weft_comm *const world = m->comm[WEFT_AXIS_WORLD];
    weft_alloc *const alloc = m->ctx->alloc;
    const int usual = most_common(hashes, world->size, n, at);
    int odd = usual;
    char names[256], odd_text[160], usual_text[160];
    void *p = NULL;
    name_the_odd(names, sizeof(names), hashes, &odd, world->size, n, at);
    WEFT_TRY(weft_i_alloc_new(alloc, (size_t)world->size, VALUE_BYTES, &p));
    weft_status st = find_difference(world, &items[at], p, odd, usual);
    if (st == WEFT_OK) {
        const char *const values = p;
        const char *const a = values + (size_t)odd * VALUE_BYTES;
        const char *const b = values + (size_t)usual * VALUE_BYTES;
        size_t i = 0;
        while (a[i] != '\0' && a[i] == b[i])
            i++;
        quote(odd_text, sizeof(odd_text), a, i);
        quote(usual_text, sizeof(usual_text), b, i);
        st =
            weft_i_error_set(WEFT_STATUS_MISMATCH,
                             "%s: the %s differs from the other ranks': rank %d has %s, rank %d %s",
                             names, items[at].what, odd, odd_text, usual, usual_text);
    }
    weft_i_alloc_put(alloc, p);
    return st;
}

/* mine: [n]; all: [size * n]. */
static weft_status
compare(weft_mesh *m, const weft_agreed *items, int n, uint64_t *mine, uint64_t *all)
{
    weft_comm *const world = m->comm[WEFT_AXIS_WORLD];
    for (int i = 0; i < n; i++)
        mine[i] = weft_i_hash_bytes(items[i].value, strlen(items[i].value));
    const weft_message gather = {.op = WEFT_COMM_ALL_GATHER,
                                 .dtype = WEFT_DTYPE_I64,
                                 .send = mine,
                                 .recv = all,
                                 .n_elems = (int64_t)n * world->size,
                                 .is_host = true,
                                 .tensor = "hashes of the start"};
    WEFT_TRY(weft_comm_call(world, &gather));
    for (int i = 0; i < n; i++) {
        for (int r = 1; r < world->size; r++) {
            if (all[r * n + i] != all[i])
                return name_difference(m, all, items, n, i);
        }
    }
    return WEFT_OK;
}

weft_status weft_i_mesh_compare(weft_mesh *m, const weft_agreed *items, int n)
{
    weft_alloc *const alloc = m->ctx->alloc;
    uint64_t *mine = NULL, *all = NULL;
    if (m->world_size == 1 || n < 1)
        return WEFT_OK;
    weft_status st = weft_i_alloc_array(alloc, n, sizeof(*mine), &mine);
    if (st == WEFT_OK)
        st = weft_i_alloc_array(alloc, (int64_t)n * m->world_size, sizeof(*all), &all);
    if (st == WEFT_OK)
        st = compare(m, items, n, mine, all);
    weft_i_alloc_put(alloc, all);
    weft_i_alloc_put(alloc, mine);
    return st;
}

/* ---- numbers ---- */

weft_status weft_i_mesh_sum(weft_mesh *m, int64_t *x, int n)
{
    const weft_message message = {.op = WEFT_COMM_ALL_REDUCE,
                                  .dtype = WEFT_DTYPE_I64,
                                  .send = x,
                                  .recv = x,
                                  .n_elems = n,
                                  .is_host = true,
                                  .tensor = "sums over ranks"};
    return weft_comm_call(m->comm[WEFT_AXIS_WORLD], &message);
}

weft_status weft_i_mesh_largest(weft_mesh *m, weft_axis axis, int64_t *value, const char *what)
{
    const weft_message message = {.op = WEFT_COMM_ALL_REDUCE,
                                  .dtype = WEFT_DTYPE_I64,
                                  .reduction = WEFT_REDUCTION_MAX,
                                  .send = value,
                                  .recv = value,
                                  .n_elems = 1,
                                  .is_host = true,
                                  .tensor = what};
    return m->comm[axis]->size == 1 ? WEFT_OK : weft_comm_call(m->comm[axis], &message);
}

weft_status weft_i_mesh_gather(weft_mesh *m, const int64_t *mine, int64_t *all, int64_t n)
{
    const weft_message message = {.op = WEFT_COMM_GATHER,
                                  .dtype = WEFT_DTYPE_I64,
                                  .send = mine,
                                  .recv = all,
                                  .n_elems = n * m->world_size, /* an even cut */
                                  .is_host = true,
                                  .tensor = "figures of ranks"};
    return weft_comm_call(m->comm[WEFT_AXIS_WORLD], &message);
}

weft_status weft_i_mesh_from_rank0(weft_mesh *m, void *bytes, size_t n_bytes, const char *what)
{
    const weft_message message = {.op = WEFT_COMM_BROADCAST,
                                  .dtype = WEFT_DTYPE_I32,
                                  .send = bytes,
                                  .recv = bytes,
                                  .n_elems = (int64_t)(n_bytes / sizeof(int32_t)),
                                  .is_host = true,
                                  .tensor = what};
    return weft_comm_call(m->comm[WEFT_AXIS_WORLD], &message);
}
