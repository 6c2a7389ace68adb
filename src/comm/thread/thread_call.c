/*
 * One call of ranks that are threads: do the messages fit, and the work on them.
 *
 * The work is cut into fixed blocks of elements of the whole buffer (ALL_TO_ALL: one block a pair of ranks). Whichever
 * rank is free takes the next block, reads every rank's buffer and writes every rank's result.
 *
 * Invariants: 1. an element is computed once, by one thread, in rank order, whoever that is: the same bits always.
 *             2. an element's inputs are read before any rank's output of that element is written, and no other element
 *                touches them: so the in-place forms are safe.
 *             3. buffers are touched only inside n_working and never after the world failed.
 * Communication: reads and writes the members' buffers.
 */
#include "base/clock.h"
#include "base/compiler.h"
#include "comm/message.h"
#include "comm/ordered_reduce.h"
#include "comm/thread/thread_world.h"

#include <string.h>

#define BLOCK_ELEMS ((int64_t)16384)

/* ---- do the messages fit ---- */

static weft_status
misfit(const weft_thread_call *call, int i, const char *what, int64_t first, int64_t other)
{
    const weft_thread_group *const g = call->group;
    WEFT_FAIL(WEFT_STATUS_MISMATCH,
              "call %llu over %s: %s differ: rank %d called %s of %.64s (%lld), rank %d %s of "
              "%.64s (%lld)",
              (unsigned long long)call->index, g->axis, what, g->world_rank[call->member[0]],
              weft_i_comm_op_name(call->m[0].op), weft_i_comm_tensor_name(&call->m[0]),
              (long long)first, g->world_rank[call->member[i]], weft_i_comm_op_name(call->m[i].op),
              weft_i_comm_tensor_name(&call->m[i]), (long long)other);
}

static weft_status fit_pair(const weft_thread_call *call)
{
    const weft_message *const a = &call->m[0], *const b = &call->m[1];
    if (a->dtype != b->dtype)
        return misfit(call, 1, "element types", a->dtype, b->dtype);
    if (a->n_elems != b->n_elems)
        return misfit(call, 1, "numbers of elements", a->n_elems, b->n_elems);
    return WEFT_OK;
}

static weft_status fit_parts(const weft_thread_call *call, int i)
{
    const weft_message *const a = &call->m[0], *const b = &call->m[i];
    const int size = call->n_members;
    if (a->op == WEFT_COMM_ALL_TO_ALL) {
        for (int r = 0; r < size; r++) {
            const int64_t sent = weft_i_comm_part(&call->m[r], size, i);
            const int64_t expected = weft_i_comm_recv_part(b, size, i, r);
            if (sent != expected)
                WEFT_FAIL(WEFT_STATUS_MISMATCH,
                          "all_to_all %llu of %.64s over %s: rank %d sends %lld elements to rank "
                          "%d, which expects %lld",
                          (unsigned long long)call->index, weft_i_comm_tensor_name(a),
                          call->group->axis, call->group->world_rank[r], (long long)sent,
                          call->group->world_rank[i], (long long)expected);
        }
        return WEFT_OK;
    }
    if (a->n_elems != b->n_elems)
        return misfit(call, i, "numbers of elements", a->n_elems, b->n_elems);
    if (a->counts == NULL && b->counts == NULL)
        return WEFT_OK;
    for (int r = 0; r < size; r++) {
        const int64_t first = weft_i_comm_part(a, size, r), other = weft_i_comm_part(b, size, r);
        if (first != other)
            return misfit(call, i, "splits", first, other);
    }
    return WEFT_OK;
}

static weft_status fit_collective(const weft_thread_call *call)
{
    const weft_message *const a = &call->m[0];
    for (int i = 0; i < call->n_members; i++) {
        const weft_message *const b = &call->m[i];
        if (a->op != b->op)
            return misfit(call, i, "operations", a->op, b->op);
        if (a->op == WEFT_COMM_BARRIER)
            continue;
        if (a->dtype != b->dtype)
            return misfit(call, i, "element types", a->dtype, b->dtype);
        if (weft_i_comm_is_reduction(a->op) && a->reduction != b->reduction)
            return misfit(call, i, "reductions", a->reduction, b->reduction);
        if (a->is_added != b->is_added)
            return misfit(call, i, "whether the sum starts from recv", a->is_added, b->is_added);
        if (weft_i_comm_has_root(a->op) && a->peer != b->peer)
            return misfit(call, i, "roots", a->peer, b->peer);
        WEFT_TRY(fit_parts(call, i));
    }
    return WEFT_OK;
}

weft_status weft_i_thread_call_prepare(weft_thread_call *call)
{
    const weft_message *const m = &call->m[0];
    WEFT_TRY(call->is_pair ? fit_pair(call) : fit_collective(call));
    for (int i = 0; i < call->n_members; i++)
        call->send[i] = call->m[i].send;
    call->ready_s = call->done_s = weft_i_clock_seconds();
    call->n_blocks = (m->n_elems + BLOCK_ELEMS - 1) / BLOCK_ELEMS;
    if (m->op == WEFT_COMM_ALL_TO_ALL)
        call->n_blocks = (int64_t)call->n_members * call->n_members;
    if (m->op == WEFT_COMM_BARRIER || call->is_dry)
        call->n_blocks = 0;
    atomic_store(&call->next_block, 0);
    atomic_store(&call->n_blocks_left, call->n_blocks);
    return WEFT_OK;
}

/* ---- the work ---- */

static const void *from(const void *base, int64_t at, size_t elem_bytes)
{
    return (const char *)base + (size_t)at * elem_bytes;
}

/* recv[to ...] = x[0 .. n). Nothing when it is there already, or when the rank wants none. */
static void put(const weft_message *m, int64_t to, const void *x, int64_t n)
{
    const size_t elem_bytes = weft_dtype_bytes(m->dtype);
    if (n <= 0 || m->recv == NULL)
        return;
    char *const out = (char *)m->recv + (size_t)to * elem_bytes;
    if (out != x)
        memcpy(out, x, (size_t)n * elem_bytes);
}

/* Part of elements [first, first + n) that is also in [start, start + n_part). */
typedef struct overlap {
    int64_t at, n;
} overlap;

static overlap overlap_of(int64_t first, int64_t n, int64_t start, int64_t n_part)
{
    const int64_t at = WEFT_MAX(first, start);
    return (overlap){.at = at, .n = WEFT_MIN(first + n, start + n_part) - at};
}

/* Gives every rank what it gets of elements [first, first + n) of the reduced whole, which `x` holds. */
static void put_reduced(const weft_thread_call *call, const void *x, int64_t first, int64_t n)
{
    const weft_message *const m = &call->m[0];
    const size_t elem_bytes = weft_dtype_bytes(m->dtype);
    int64_t start = 0;
    for (int r = 0; r < call->n_members; r++) {
        if (m->op == WEFT_COMM_ALL_REDUCE || (m->op == WEFT_COMM_REDUCE && m->peer == r)) {
            put(&call->m[r], first, x, n);
        } else if (m->op == WEFT_COMM_REDUCE_SCATTER) {
            const int64_t n_part = weft_i_comm_part(m, call->n_members, r);
            const overlap o = overlap_of(first, n, start, n_part);
            if (o.n > 0)
                put(&call->m[r], o.at - start, from(x, o.at - first, elem_bytes), o.n);
            start += n_part;
        }
    }
}

/* Adds elements [first, first + n) of all ranks onto the parts that begin the sum. */
static void reduce_onto_parts(const weft_thread_call *call, int64_t first, int n)
{
    const weft_message *const m = &call->m[0];
    int64_t start = 0;
    for (int r = 0; r < call->n_members; r++) {
        const int64_t n_part = weft_i_comm_part(m, call->n_members, r);
        const overlap o = overlap_of(first, n, start, n_part);
        if (o.n > 0)
            weft_i_reduce_onto((float *)call->m[r].recv + (o.at - start), call->send,
                               call->n_members, o.at, (int)o.n);
        start += n_part;
    }
}

static void reduce_block(const weft_thread_call *call, int64_t first, int64_t n)
{
    const weft_message *const m = &call->m[0];
    weft_reduce_tile tile;
    for (int64_t done = 0; done < n; done += WEFT_REDUCE_TILE_ELEMS) {
        const int n_tile = (int)WEFT_MIN(n - done, (int64_t)WEFT_REDUCE_TILE_ELEMS);
        if (m->is_added) {
            reduce_onto_parts(call, first + done, n_tile);
            continue;
        }
        weft_i_reduce_tile(&tile, call->send, call->n_members, first + done, n_tile, m->dtype,
                           m->reduction);
        put_reduced(call, &tile, first + done, n_tile);
    }
}

/* ALL_GATHER, GATHER, SCATTER: elements [first, first + n) of the whole, part by part. */
static void move_parts(const weft_thread_call *call, int64_t first, int64_t n)
{
    const weft_message *const m = &call->m[0];
    const size_t elem_bytes = weft_dtype_bytes(m->dtype);
    int64_t start = 0;
    for (int r = 0; r < call->n_members; r++) {
        const int64_t n_part = weft_i_comm_part(m, call->n_members, r);
        const overlap o = overlap_of(first, n, start, n_part);
        if (o.n > 0 && m->op == WEFT_COMM_SCATTER) {
            put(&call->m[r], o.at - start, from(call->send[m->peer], o.at, elem_bytes), o.n);
        } else if (o.n > 0) {
            const void *const x = from(call->send[r], o.at - start, elem_bytes);
            for (int to = 0; to < call->n_members; to++) {
                if (m->op == WEFT_COMM_ALL_GATHER || to == m->peer)
                    put(&call->m[to], o.at, x, o.n);
            }
        }
        start += n_part;
    }
}

static void exchange(const weft_thread_call *call, int sender, int receiver)
{
    const int size = call->n_members;
    const weft_message *const m = &call->m[sender];
    const int64_t n = weft_i_comm_part(m, size, receiver);
    if (n == 0)
        return;
    const void *const x =
        from(m->send, weft_i_comm_part_start(m, size, receiver), weft_dtype_bytes(m->dtype));
    const weft_message *const to = &call->m[receiver];
    put(to, weft_i_comm_recv_start(to, size, receiver, sender), x, n);
}

static void work_on(const weft_thread_call *call, int64_t block)
{
    const weft_message *const m = &call->m[0];
    const size_t elem_bytes = weft_dtype_bytes(m->dtype);
    if (m->op == WEFT_COMM_ALL_TO_ALL) {
        exchange(call, (int)(block / call->n_members), (int)(block % call->n_members));
        return;
    }
    const int64_t first = block * BLOCK_ELEMS;
    const int64_t n = WEFT_MIN(m->n_elems - first, BLOCK_ELEMS);
    if (weft_i_comm_is_reduction(m->op)) {
        reduce_block(call, first, n);
    } else if (call->is_pair) {
        put(&call->m[1], first, from(m->send, first, elem_bytes), n);
    } else if (m->op == WEFT_COMM_BROADCAST) {
        for (int r = 0; r < call->n_members; r++)
            put(&call->m[r], first, from(call->send[m->peer], first, elem_bytes), n);
    } else {
        move_parts(call, first, n);
    }
}

void weft_i_thread_call_work(weft_thread_call *call)
{
    weft_thread_group *const g = call->group;
    weft_thread_world *const w = g->world;
    for (;;) {
        (void)atomic_fetch_add(&w->n_working, 1);
        const int64_t block =
            atomic_load(&w->has_failed) ? INT64_MAX : atomic_fetch_add(&call->next_block, 1);
        if (block < call->n_blocks)
            work_on(call, block);
        (void)atomic_fetch_sub(&w->n_working, 1);
        if (block >= call->n_blocks)
            return;
        if (atomic_fetch_sub(&call->n_blocks_left, 1) == 1) {
            call->done_s = weft_i_clock_seconds();
            atomic_store(&call->state, WEFT_THREAD_DONE);
            for (int i = 0; i < call->n_members; i++)
                weft_i_thread_wake(w, g->world_rank[call->member[i]]);
        }
    }
}
