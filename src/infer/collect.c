/*
 * Answers on their way to rank 0 (contract: collect.h).
 *
 * First every rank learns how many ids every sequence of the round got, so that all know the sizes of what follows; then
 * the ids come in pieces of bounded size.
 * Communication (dp), a round: 1 all_gather, and as many gathers to rank 0 as the rank with most ids has pieces.
 */
#include "infer/collect.h"

#include "base/ctx.h"

#include <string.h>

#define PIECE_IDS ((int64_t)4096)

weft_status
weft_i_collector_init(weft_collector *out, weft_mesh *mesh, weft_prompts *prompts, int64_t n_seqs)
{
    const int64_t dp = mesh->size[WEFT_AXIS_DP];
    weft_alloc *a = mesh->ctx->alloc;
    weft_collector c = {.mesh = mesh, .prompts = prompts, .n_seqs = n_seqs};
    weft_status st = WEFT_OK;

    memset(out, 0, sizeof(*out));
    WEFT_TRY_GOTO(st, weft_i_alloc_array(a, n_seqs * 2, sizeof(int32_t), &c.mine), out);
    WEFT_TRY_GOTO(st, weft_i_alloc_array(a, dp * n_seqs * 2, sizeof(int32_t), &c.all), out);
    WEFT_TRY_GOTO(st, weft_i_alloc_array(a, dp, sizeof(int64_t), &c.left), out);
    WEFT_TRY_GOTO(st, weft_i_alloc_array(a, dp, sizeof(int64_t), &c.counts), out);
    WEFT_TRY_GOTO(st, weft_i_alloc_array(a, PIECE_IDS, sizeof(int32_t), &c.piece), out);
    if (mesh->coord[WEFT_AXIS_DP] == 0)
        WEFT_TRY_GOTO(st, weft_i_alloc_array(a, dp * PIECE_IDS, sizeof(int32_t), &c.pieces), out);
out:
    if (st == WEFT_OK)
        *out = c;
    else
        weft_i_collector_fini(&c);
    return st;
}

void weft_i_collector_fini(weft_collector *c)
{
    if (c->mesh == NULL)
        return;
    weft_alloc *a = c->mesh->ctx->alloc;
    void *const block[] = {c->mine, c->all, c->left, c->counts, c->piece, c->pieces};
    for (size_t i = 0; i < WEFT_COUNT_OF(block); i++)
        weft_i_alloc_put(a, block[i]);
    memset(c, 0, sizeof(*c));
}

int64_t weft_i_collector_group(const weft_collector *c, int64_t round, int64_t rank, int64_t *first)
{
    *first = (round * c->mesh->size[WEFT_AXIS_DP] + rank) * c->n_seqs;
    return WEFT_MAX(WEFT_MIN(c->prompts->n - *first, c->n_seqs), 0);
}

/* New ids and finish of every sequence of the round, on every rank. */
static weft_status exchange_sizes(weft_collector *c, int64_t round)
{
    weft_comm *comm = c->mesh->comm[WEFT_AXIS_DP];
    int64_t first = 0;
    const int64_t n = weft_i_collector_group(c, round, comm->rank, &first);
    const weft_message m = {.op = WEFT_COMM_ALL_GATHER,
                            .dtype = WEFT_DTYPE_I32,
                            .send = c->mine,
                            .recv = c->all,
                            .n_elems = comm->size * c->n_seqs * 2,
                            .is_host = true,
                            .tensor = "lengths of answers"};

    memset(c->mine, 0, (size_t)c->n_seqs * 2 * sizeof(int32_t));
    for (int64_t i = 0; i < n; i++) {
        const weft_sequence *s = &c->prompts->sequence[first + i];
        c->mine[2 * i] = (int32_t)(s->n_ids - s->n_prompt);
        c->mine[2 * i + 1] = (int32_t)s->finish;
    }
    WEFT_TRY(weft_comm_call(comm, &m));
    for (int64_t r = 0; r < comm->size; r++) {
        c->left[r] = 0;
        for (int64_t i = 0; i < c->n_seqs && r > 0; i++) /* rank 0 has its own */
            c->left[r] += c->all[(r * c->n_seqs + i) * 2];
    }
    return WEFT_OK;
}

/* The ids from place `at` of a rank's new ids on, n of them, in the order of its sequences: out of them, or into them. */
static void
copy_ids(weft_collector *c, int64_t round, int64_t rank, int64_t at, int32_t *ids, int64_t n)
{
    const bool is_mine = rank == c->mesh->coord[WEFT_AXIS_DP];
    int64_t first = 0;
    const int64_t n_here = weft_i_collector_group(c, round, rank, &first);

    for (int64_t i = 0; i < n_here && n > 0; i++) {
        weft_sequence *s = &c->prompts->sequence[first + i];
        const int64_t n_new = c->all[(rank * c->n_seqs + i) * 2];
        const int64_t k = WEFT_MIN(n_new - at, n);
        if (k > 0) {
            int32_t *place = s->ids + s->n_prompt + at;
            memcpy(is_mine ? ids : place, is_mine ? place : ids, (size_t)k * sizeof(int32_t));
            ids += k;
            n -= k;
        }
        at = WEFT_MAX(at - n_new, 0);
    }
}

static weft_status gather_piece(weft_collector *c, int64_t round, int64_t at)
{
    weft_comm *comm = c->mesh->comm[WEFT_AXIS_DP];
    weft_message m = {.op = WEFT_COMM_GATHER,
                      .dtype = WEFT_DTYPE_I32,
                      .send = c->piece,
                      .recv = c->pieces,
                      .counts = c->counts,
                      .is_host = true,
                      .tensor = "ids of answers"};
    int64_t from = 0;

    for (int r = 0; r < comm->size; r++) {
        c->counts[r] = WEFT_MIN(c->left[r], PIECE_IDS);
        c->left[r] -= c->counts[r];
        m.n_elems += c->counts[r];
    }
    if (comm->rank > 0)
        copy_ids(c, round, comm->rank, at, c->piece, c->counts[comm->rank]);
    WEFT_TRY(weft_comm_call(comm, &m));
    for (int r = 1; r < comm->size && comm->rank == 0; r++) {
        copy_ids(c, round, r, at, c->pieces + from, c->counts[r]);
        from += c->counts[r];
    }
    return WEFT_OK;
}

static bool is_any_left(const weft_collector *c)
{
    for (int64_t r = 0; r < c->mesh->size[WEFT_AXIS_DP]; r++) {
        if (c->left[r] > 0)
            return true;
    }
    return false;
}

/* Rank 0: what others computed goes out as if it had come here, id by id. */
static weft_status replay(weft_collector *c, int64_t round, weft_delivery *delivery)
{
    for (int64_t r = 1; r < c->mesh->size[WEFT_AXIS_DP]; r++) {
        int64_t first = 0;
        const int64_t n = weft_i_collector_group(c, round, r, &first);
        for (int64_t i = 0; i < n; i++) {
            const int32_t *told = &c->all[(r * c->n_seqs + i) * 2];
            weft_sequence *s = &c->prompts->sequence[first + i];
            for (int32_t k = 0; k < told[0]; k++) {
                s->n_ids++;
                WEFT_TRY(weft_i_delivery_add(delivery, s, s->ids[s->n_ids - 1]));
            }
            WEFT_TRY(weft_i_delivery_end(delivery, s, (weft_finish)told[1]));
        }
    }
    return WEFT_OK;
}

weft_status weft_i_collector_round(weft_collector *c, int64_t round, weft_delivery *delivery)
{
    if (c->mesh->size[WEFT_AXIS_DP] == 1)
        return WEFT_OK;
    WEFT_TRY(exchange_sizes(c, round));
    for (int64_t at = 0; is_any_left(c); at += PIECE_IDS)
        WEFT_TRY(gather_piece(c, round, at));
    return c->mesh->coord[WEFT_AXIS_DP] == 0 ? replay(c, round, delivery) : WEFT_OK;
}
