/*
 * Closed forms (zero_formulas.h).
 *
 * Every parameter is padded to 32 elements. A segment is a run of neighbours that are all trained or all frozen; stage 3:
 * of one layer; stages 0 to 2: of whole layers, joined until there are bucket_mb million bytes of fp32 gradients, or, where
 * whole gradients of a segment lie in a ring (stage 2, --reproducible), a sixteenth of all gradients. The tied table is one by
 * itself. A segment is cut in blocks of 32 elements: n / 32 over the ranks, the first ranks one more.
 */
#include "zero_formulas.h"

#include <string.h>

#define BLOCK 32
#define F32 4

typedef struct segment {
    int64_t n; /* padded elements */
    int first_layer, last_layer;
    bool is_frozen, is_shared;
} segment;

static int cut_segments(const zero_case *z, segment out[ODD_PARAMS_MOST])
{
    static odd_param p[ODD_PARAMS_MOST];
    const int n_params = odd_params(z->model, p);
    int64_t full = z->bucket_mb < 1e9 ? (int64_t)(z->bucket_mb * 1e6 / F32) : INT64_MAX,
            trained = 0;
    int n = 0;
    for (int i = 0; i < n_params; i++)
        trained += p[i].is_frozen ? 0 : (p[i].n + BLOCK - 1) / BLOCK * BLOCK;
    if ((z->stage == 2 || z->is_reproducible) && full > trained / 16)
        full = trained / 16;
    for (int i = 0; i < n_params; i++) {
        segment *s = &out[n > 0 ? n - 1 : 0];
        const int64_t padded = (p[i].n + BLOCK - 1) / BLOCK * BLOCK;
        const bool is_new_layer = i > 0 && p[i].layer != p[i - 1].layer;
        if (i == 0 || p[i].is_shared || p[i - 1].is_shared || p[i].is_frozen != s->is_frozen ||
            (is_new_layer && (z->stage == 3 || (s->n >= full && s->n > 0)))) {
            s = &out[n++];
            *s = (segment){.first_layer = p[i].layer,
                           .is_frozen = p[i].is_frozen,
                           .is_shared = p[i].is_shared};
        }
        s->n += padded;
        s->last_layer = p[i].is_shared ? (int)z->model->n_layers + 1 : p[i].layer;
    }
    return n;
}

/* Elements of a segment on a rank. */
static int64_t part(int64_t n, int dp, int rank)
{
    const int64_t blocks = n / BLOCK;
    return (blocks / dp + (rank < blocks % dp ? 1 : 0)) * BLOCK;
}

static size_t bytes(int64_t n, int64_t size)
{
    return (size_t)(n * size);
}

/* Slots for gradients on their way, and places for shared ones. */
static size_t gradient_ring(const zero_case *z, const segment *s, int n)
{
    int64_t largest = 0, shared = 0;
    int most = 0;
    for (int layer = 0; layer <= z->model->n_layers + 1; layer++) {
        int open = 0;
        for (int i = 0; i < n; i++)
            open += !s[i].is_frozen && !s[i].is_shared && s[i].first_layer <= layer &&
                    layer <= s[i].last_layer;
        most = open > most ? open : most;
    }
    for (int i = 0; i < n; i++) {
        if (s[i].is_frozen)
            continue;
        if (s[i].is_shared)
            shared += s[i].n;
        else if (s[i].n > largest)
            largest = s[i].n;
    }
    return bytes((most + (z->is_overlapped ? 1 : 0)) * largest + shared, F32);
}

/* 1 + prefetch slots of the layer with the most weights. */
static size_t weight_ring(const zero_case *z, const segment *s, int n, int64_t size)
{
    int64_t largest = 0;
    for (int layer = 0; layer <= z->model->n_layers + 1; layer++) {
        int64_t here = 0;
        for (int i = 0; i < n; i++) {
            if (s[i].first_layer == layer || (s[i].is_shared && s[i].last_layer == layer))
                here += s[i].n;
        }
        largest = here > largest ? here : largest;
    }
    return bytes((z->has_prefetch ? 2 : 1) * largest, size);
}

void zero_memory(size_t out[WEFT_MEM_COUNT], const zero_case *z, int rank)
{
    segment s[ODD_PARAMS_MOST];
    const int n = cut_segments(z, s);
    const int64_t size = z->is_bf16 ? 2 : 4;
    int64_t weights = 0, my_weights = 0, trained = 0, my_trained = 0;
    for (int i = 0; i < n; i++) {
        const int64_t mine = part(s[i].n, z->dp, rank);
        weights += s[i].n;
        my_weights += mine;
        trained += s[i].is_frozen ? 0 : s[i].n;
        my_trained += s[i].is_frozen ? 0 : mine;
    }
    memset(out, 0, WEFT_MEM_COUNT * sizeof(*out));
    out[WEFT_MEM_PARAMETERS] = bytes(z->stage == 3 ? my_weights : weights, size);
    out[WEFT_MEM_GRADIENTS] = bytes(z->stage >= 2 ? my_trained : trained, F32);
    out[WEFT_MEM_OPTIMIZER] =
        bytes(z->stage >= 1 ? my_trained : trained, F32 * (z->n_moments + (z->is_bf16 ? 1 : 0)));
    if (z->stage >= 2 || z->is_reproducible)
        out[WEFT_MEM_COMMUNICATION] += gradient_ring(z, s, n);
    if (z->stage == 3)
        out[WEFT_MEM_COMMUNICATION] += weight_ring(z, s, n, size);
}

/* ---- traffic ---- */

static void count(weft_traffic *t, weft_comm_op op, int64_t n_calls, int64_t n_bytes)
{
    t->n_calls[op] += (uint64_t)n_calls;
    t->sent_bytes[op] += (uint64_t)n_bytes;
}

/* Of n elements: this rank's part to all others. */
static void all_gather(weft_traffic *t, const zero_case *z, int rank, int64_t n, int64_t size)
{
    count(t, WEFT_COMM_ALL_GATHER, 1, (z->dp - 1) * part(n, z->dp, rank) * size);
}

/* Of n elements: all but this rank's part away. */
static void reduce_scatter(weft_traffic *t, const zero_case *z, int rank, int64_t n)
{
    count(t, WEFT_COMM_REDUCE_SCATTER, 1, (n - part(n, z->dp, rank)) * F32);
}

/* Both, over a cut by single elements. */
static void all_reduce(weft_traffic *t, const zero_case *z, int rank, int64_t n, int64_t size)
{
    const int64_t mine = n / z->dp + (rank < n % z->dp ? 1 : 0);
    count(t, WEFT_COMM_ALL_REDUCE, 1, ((n - mine) + (z->dp - 1) * mine) * size);
}

void zero_traffic(weft_traffic *out, const zero_case *z, int rank)
{
    segment s[ODD_PARAMS_MOST];
    const int n = cut_segments(z, s);
    const int last = (int)z->model->n_layers + 1;
    const int64_t size = z->is_bf16 ? 2 : 4;
    const bool is_by_micro_batch = z->stage >= 2 || z->is_reproducible;
    const int64_t n_reductions = is_by_micro_batch ? z->n_rounds : 1;
    memset(out, 0, sizeof(*out));
    for (int i = 0; i < n; i++) {
        if (z->stage == 3) {
            /* Forward: embedding and blocks; backward: head and blocks. A tied table: for both ends. */
            const bool is_once = s[i].first_layer == 0 || s[i].first_layer == last;
            for (int64_t k = 0; k < z->n_rounds * (is_once && !s[i].is_shared ? 1 : 2); k++)
                all_gather(out, z, rank, s[i].n, size);
        }
        if (s[i].is_frozen)
            continue;
        if (z->stage == 0 && !is_by_micro_batch)
            all_reduce(out, z, rank, s[i].n, F32);
        for (int64_t k = 0; k < n_reductions && (z->stage > 0 || is_by_micro_batch); k++)
            reduce_scatter(out, z, rank, s[i].n);
        if (z->stage == 0 && is_by_micro_batch)
            all_gather(out, z, rank, s[i].n, F32); /* of gradients */
        if (z->stage == 1 || z->stage == 2)
            all_gather(out, z, rank, s[i].n, size); /* of updated weights */
    }
    /* Losses and squares: two exact sums of 68 digits of 32 bits and a count of what is not finite. */
    all_reduce(out, z, rank, 2 * (68 + 1), 8);
}
