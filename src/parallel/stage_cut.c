/*
 * Cuts a model's list of items into stages (contract: stage_cut.h).
 *
 * The cost of an item is that of its forward products: backward and weight gradients are in proportion. The best cut is
 * found by a table over (items, parts), largest part least, in n_parts n_items log(n_items); ties leave the later parts
 * longer, which have fewer micro-batches in flight. Costs are whole numbers, exact in a double below 2^53.
 * Communication: none.
 */
#include "parallel/stage_cut.h"

#include "base/compiler.h"
#include "base/error.h"
#include "base/str.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* FLOPs of item i's forward a token. */
static double cost_of(const weft_config *c, int64_t i, int64_t n_tokens)
{
    const double h = (double)c->hidden_size;
    const double heads = (double)(c->n_heads * c->head_dim);
    const double kv = (double)(c->n_kv_heads * c->head_dim);
    if (i == 0)
        return h; /* a row is copied */
    if (i == c->n_layers + 1)
        return 2.0 * h * (double)c->vocab_size;
    const double n_mlp = c->family == WEFT_FAMILY_GPT2 ? 2.0 : 3.0;
    return 2.0 * h * (2.0 * heads + 2.0 * kv + n_mlp * (double)c->ffn_size) +
           2.0 * heads * (double)n_tokens;
}

/* best[k * (n_items + 1) + i]: the largest part when the first i items make k parts; from: where its last part begins. */
typedef struct cut_table {
    double *best, *sum;
    int64_t *from;
    int64_t width;
} cut_table;

/*
 * Where the last of k parts of the first i items begins best, the first such place. Of what can be put before it, the
 * largest part grows with j, and the last part shrinks: the best is where they cross or one earlier.
 */
static int64_t best_begin(const cut_table *t, int k, int64_t i)
{
    const double *before = &t->best[(int64_t)(k - 1) * t->width];
    int64_t low = k - 1, high = i - 1;
    while (low < high) {
        const int64_t j = low + (high - low) / 2;
        if (before[j] >= t->sum[i] - t->sum[j])
            high = j;
        else
            low = j + 1;
    }
    if (low > k - 1 && t->sum[i] - t->sum[low - 1] <= fmax(before[low], t->sum[i] - t->sum[low]))
        return low - 1;
    return low;
}

static void fill_table(cut_table *t, int64_t n_items, int n)
{
    for (int64_t i = 0; i <= n_items; i++)
        t->best[i] = i == 0 ? 0.0 : (double)INFINITY;
    for (int k = 1; k <= n; k++) {
        const double *before = &t->best[(int64_t)(k - 1) * t->width];
        double *best = &t->best[(int64_t)k * t->width];
        for (int64_t i = 0; i < k; i++)
            best[i] = (double)INFINITY;
        for (int64_t i = k; i <= n_items; i++) {
            const int64_t j = best_begin(t, k, i);
            best[i] = fmax(before[j], t->sum[i] - t->sum[j]);
            t->from[(int64_t)k * t->width + i] = j;
        }
    }
}

static weft_status
balance(weft_stage_cut *c, weft_alloc *alloc, const weft_config *config, int64_t n_tokens)
{
    cut_table t = {.width = c->n_items + 1};
    const int64_t n_cells = (int64_t)(c->n + 1) * t.width;
    weft_status st = WEFT_OK;
    WEFT_TRY_GOTO(st, weft_i_alloc_array(alloc, n_cells, sizeof(double), &t.best), out);
    WEFT_TRY_GOTO(st, weft_i_alloc_array(alloc, n_cells, sizeof(int64_t), &t.from), out);
    WEFT_TRY_GOTO(st, weft_i_alloc_array(alloc, t.width, sizeof(double), &t.sum), out);
    for (int64_t i = 0; i < c->n_items; i++)
        t.sum[i + 1] = t.sum[i] + cost_of(config, i, n_tokens);
    fill_table(&t, c->n_items, c->n);
    c->first[c->n] = c->n_items;
    for (int k = c->n; k > 0; k--)
        c->first[k - 1] = t.from[(int64_t)k * t.width + c->first[k]];
out:
    weft_i_alloc_put(alloc, t.sum);
    weft_i_alloc_put(alloc, t.from);
    weft_i_alloc_put(alloc, t.best);
    return st;
}

/* The next number of "6,3,5", and *at behind it and its comma; false when there is none. */
static bool next_count(const char **at, int64_t *count)
{
    const size_t n = strcspn(*at, ",");
    char number[24];
    if (n >= sizeof(number) ||
        weft_i_str_print(number, sizeof(number), "%.*s", (int)n, *at) != WEFT_OK ||
        !weft_i_str_to_int64(number, count) || *count < 1)
        return false;
    *at += n;
    return **at != ',' || *++*at != '\0';
}

int weft_i_stage_cut_count(const char *counts, int64_t *n_items)
{
    int n_parts = 0;
    *n_items = 0;
    for (; *counts != '\0'; n_parts++) {
        int64_t count = 0;
        if (!next_count(&counts, &count))
            return -1;
        *n_items = WEFT_MIN(*n_items + WEFT_MIN(count, INT_MAX), INT_MAX);
    }
    return n_parts;
}

/* "6,3,5": where each part begins into `first` [n + 1], which may be NULL. */
static weft_status read_counts(int64_t *first, int64_t n_items, int n_parts, const char *counts)
{
    const char *at = counts;
    int64_t sum = 0;
    int n = 0;
    for (; *at != '\0'; n++) {
        int64_t count = 0;
        if (!next_count(&at, &count) || count > n_items)
            WEFT_FAIL(WEFT_STATUS_LAYOUT,
                      "--stage-layers %s is not possible with %lld items (embedding, %lld blocks, "
                      "final norm and head)",
                      counts, (long long)n_items, (long long)n_items - 2);
        if (first != NULL && n < n_parts)
            first[n] = sum;
        sum += count;
    }
    if (n != n_parts || sum != n_items)
        WEFT_FAIL(
            WEFT_STATUS_LAYOUT,
            "--stage-layers %s names %d parts with %lld items; %d parts (stages x chunks) with "
            "%lld items (embedding, %lld blocks, final norm and head) are needed",
            counts, n, (long long)sum, n_parts, (long long)n_items, (long long)n_items - 2);
    if (first != NULL)
        first[n_parts] = sum;
    return WEFT_OK;
}

weft_status weft_i_stage_cut_check(const weft_config *config, int n, const char *counts)
{
    const int64_t n_items = config->n_layers + 2;
    if (n > n_items)
        WEFT_FAIL(WEFT_STATUS_LAYOUT,
                  "%d stages (times chunks) cannot share %lld items (embedding, %lld blocks, final "
                  "norm and head) without an empty one; at most %lld work",
                  n, (long long)n_items, (long long)config->n_layers, (long long)n_items);
    return counts[0] != '\0' ? read_counts(NULL, n_items, n, counts) : WEFT_OK;
}

weft_status weft_i_stage_cut_make(weft_stage_cut *out,
                                  weft_alloc *alloc,
                                  const weft_config *config,
                                  int64_t n_tokens,
                                  int n,
                                  const char *counts)
{
    *out = (weft_stage_cut){.alloc = alloc, .n = n, .n_items = config->n_layers + 2};
    WEFT_TRY(weft_i_stage_cut_check(config, n, counts));
    WEFT_TRY(weft_i_alloc_array(alloc, (int64_t)n + 1, sizeof(int64_t), &out->first));
    const weft_status st = counts[0] != '\0' ? read_counts(out->first, out->n_items, n, counts)
                                             : balance(out, alloc, config, n_tokens);
    if (st != WEFT_OK)
        weft_i_stage_cut_fini(out);
    return st;
}

void weft_i_stage_cut_fini(weft_stage_cut *c)
{
    if (c->alloc != NULL)
        weft_i_alloc_put(c->alloc, c->first);
    c->first = NULL;
}

void weft_i_stage_cut_text(const weft_stage_cut *c, int part, char *out, size_t size)
{
    const int64_t first = c->first[part], end = c->first[part + 1];
    const long long block = (long long)WEFT_MAX(first - 1, 0);
    const long long last = (long long)WEFT_MIN(end, c->n_items - 1) - 2;
    char blocks[64] = "";
    if (last == block)
        (void)snprintf(blocks, sizeof(blocks), "block %lld", block);
    else if (last > block)
        (void)snprintf(blocks, sizeof(blocks), "blocks %lld-%lld", block, last);
    (void)snprintf(out, size, "%s%s%s%s%s", first == 0 ? "embedding" : "",
                   first == 0 && blocks[0] != '\0' ? ", " : "", blocks,
                   end == c->n_items && end - first > 1 ? ", " : "",
                   end == c->n_items ? "norm + head" : "");
}
