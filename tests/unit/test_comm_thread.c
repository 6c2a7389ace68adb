/*
 * Ranks as threads against a serial oracle, bit for bit: every collective, group size, element type, split and in-place
 * form; overlapping requests; pairs; groups over a part of the ranks.
 */
#include "test_comm_ranks.h"

#include <stdlib.h>

#include "base/error.h"
#include "comm/message.h"
#include "tensor/convert.h"

#define MAX_BYTES (40000 * 8)

static const int sizes[] = {1, 2, 3, 4, 8};
static const int64_t lengths[] = {0, 1, 3, 7, 64, 1000, 40000}; /* the last: several blocks */
static const weft_dtype dtypes[] = {WEFT_DTYPE_F32, WEFT_DTYPE_BF16, WEFT_DTYPE_I32,
                                    WEFT_DTYPE_I64};

typedef struct collective_case {
    weft_comm_op op;
    weft_dtype dtype;
    weft_reduction reduction;
    int64_t n_elems;
    const int64_t *counts;
    int root;
    bool is_in_place;
    int n;
    unsigned char *in[MAX_TEST_RANKS];  /* whole buffers, as before the call */
    unsigned char *out[MAX_TEST_RANKS]; /* as after */
} collective_case;

/* Different magnitudes, so that another order of adding gives other bits. */
static void fill(unsigned char *x, weft_dtype dtype, int64_t n, int rank)
{
    for (int64_t i = 0; i < n; i++) {
        const uint64_t h =
            ((uint64_t)i * 2654435761u + (uint64_t)rank * 40503u + 17u) * 0x9E3779B97F4A7C15u;
        const int32_t k = (int32_t)(uint32_t)(h >> 33) - (1 << 30);
        const float f = (float)k / (float)(1 << (10 + (int)(h >> 60)));
        const uint16_t b = weft_i_f32_to_bf16(f);
        const int64_t l = (int64_t)k * (1 << 20);
        const void *const from = dtype == WEFT_DTYPE_F32    ? (const void *)&f
                                 : dtype == WEFT_DTYPE_BF16 ? (const void *)&b
                                 : dtype == WEFT_DTYPE_I32  ? (const void *)&k
                                                            : (const void *)&l;
        memcpy(x + (size_t)i * weft_dtype_bytes(dtype), from, weft_dtype_bytes(dtype));
    }
}

/* The reduction of all ranks' element i, in rank order, written into out. Plain and slow on purpose. */
static void oracle_reduce(const collective_case *t, int64_t i, unsigned char *out)
{
    const size_t b = weft_dtype_bytes(t->dtype);
    const bool is_max = t->reduction == WEFT_REDUCTION_MAX;
    volatile float f = 0.0f;
    int64_t l = 0;
    for (int r = 0; r < t->n; r++) {
        const unsigned char *const x = t->in[r] + (size_t)i * b;
        if (t->dtype == WEFT_DTYPE_F32 || t->dtype == WEFT_DTYPE_BF16) {
            float v = 0.0f;
            uint16_t h = 0;
            if (t->dtype == WEFT_DTYPE_F32) {
                memcpy(&v, x, sizeof(v));
            } else {
                memcpy(&h, x, sizeof(h));
                v = weft_i_bf16_to_f32(h);
            }
            f = r == 0 ? v : is_max ? (v > f ? v : f) : f + v;
        } else {
            int32_t v32 = 0;
            int64_t v = 0;
            if (t->dtype == WEFT_DTYPE_I32) {
                memcpy(&v32, x, sizeof(v32));
                v = v32;
            } else {
                memcpy(&v, x, sizeof(v));
            }
            l = r == 0 ? v : is_max ? (v > l ? v : l) : l + v;
        }
    }
    const float rounded = f;
    const uint16_t h = weft_i_f32_to_bf16(rounded);
    const int32_t l32 = (int32_t)(uint32_t)(uint64_t)l;
    const void *const from = t->dtype == WEFT_DTYPE_F32    ? (const void *)&rounded
                             : t->dtype == WEFT_DTYPE_BF16 ? (const void *)&h
                             : t->dtype == WEFT_DTYPE_I32  ? (const void *)&l32
                                                           : (const void *)&l;
    memcpy(out, from, b);
}

/* Element `i` of the whole result; which rank's input it comes from depends on the parts. */
static void
oracle_element(const collective_case *t, const int64_t *start, int64_t i, unsigned char *out)
{
    const size_t b = weft_dtype_bytes(t->dtype);
    int owner = 0;
    while (owner + 1 < t->n && i >= start[owner + 1])
        owner++;
    if (weft_i_comm_is_reduction(t->op))
        oracle_reduce(t, i, out);
    else if (t->op == WEFT_COMM_ALL_GATHER || t->op == WEFT_COMM_GATHER)
        memcpy(out, t->in[owner] + (size_t)(t->is_in_place ? i : i - start[owner]) * b, b);
    else
        memcpy(out, t->in[t->root] + (size_t)i * b, b);
}

/* Elements [first, first + n) of the whole result are what rank r has after the call. */
static void
result_range(const collective_case *t, const int64_t *start, int r, int64_t *first, int64_t *n)
{
    *first = 0;
    *n = t->n_elems;
    if (t->op == WEFT_COMM_REDUCE_SCATTER || t->op == WEFT_COMM_SCATTER) {
        *first = start[r];
        *n = start[r + 1] - start[r];
    } else if ((t->op == WEFT_COMM_REDUCE || t->op == WEFT_COMM_GATHER) && r != t->root) {
        *n = 0;
    }
}

static void part_starts(const collective_case *t, int64_t *start)
{
    start[0] = 0;
    for (int r = 0; r < t->n; r++)
        start[r + 1] =
            start[r] + (t->counts != NULL ? t->counts[r]
                                          : t->n_elems / t->n + (r < t->n_elems % t->n ? 1 : 0));
}

static weft_status call_collective(test_rank *rank)
{
    collective_case *const t = rank->user;
    const int r = rank->comm->rank;
    const size_t b = weft_dtype_bytes(t->dtype);
    int64_t start[MAX_TEST_RANKS + 1];
    part_starts(t, start);
    const size_t at = (size_t)start[r] * b;
    weft_message m = {.op = t->op,
                      .dtype = t->dtype,
                      .reduction = t->reduction,
                      .send = t->in[r],
                      .recv = t->out[r],
                      .n_elems = t->n_elems,
                      .counts = t->counts,
                      .peer = t->root,
                      .is_host = true,
                      .tensor = "t"};
    if (t->is_in_place) {
        memcpy(t->out[r], t->in[r], (size_t)t->n_elems * b);
        m.send = t->out[r];
        if (t->op == WEFT_COMM_REDUCE_SCATTER || t->op == WEFT_COMM_SCATTER)
            m.recv = t->out[r] + at;
        else if (t->op == WEFT_COMM_ALL_GATHER || t->op == WEFT_COMM_GATHER)
            m.send = t->out[r] + at;
    }
    return weft_comm_call(rank->comm, &m);
}

static void check_collective(collective_case *t)
{
    const size_t b = weft_dtype_bytes(t->dtype);
    int64_t start[MAX_TEST_RANKS + 1], first, n;
    part_starts(t, start);
    for (int r = 0; r < t->n; r++) {
        fill(t->in[r], t->dtype, t->n_elems, r);
        memset(t->out[r], 0xA5, (size_t)t->n_elems * b + 8);
    }
    run_ranks_ok(t->n, call_collective, t);
    for (int r = 0; r < t->n; r++) {
        result_range(t, start, r, &first, &n);
        const bool is_part_in_place =
            t->is_in_place && (t->op == WEFT_COMM_REDUCE_SCATTER || t->op == WEFT_COMM_SCATTER);
        const unsigned char *const got = t->out[r] + (is_part_in_place ? (size_t)first * b : 0);
        for (int64_t i = 0; i < n; i++) {
            unsigned char expected[8];
            oracle_element(t, start, first + i, expected);
            if (memcmp(expected, got + (size_t)i * b, b) != 0)
                fail_msg("%s of %lld %s on %d ranks, in place %d, split %d: rank %d element %lld "
                         "differs",
                         weft_i_comm_op_name(t->op), (long long)t->n_elems,
                         weft_dtype_name(t->dtype), t->n, t->is_in_place, t->counts != NULL, r,
                         (long long)i);
        }
        if (!t->is_in_place)
            assert_int_equal(got[(size_t)n * b], 0xA5); /* nothing behind it was touched */
    }
}

static void each_case(void (*check)(collective_case *), weft_comm_op op)
{
    collective_case t = {.op = op};
    for (int r = 0; r < MAX_TEST_RANKS; r++) {
        t.in[r] = malloc(MAX_BYTES + 8);
        t.out[r] = malloc(MAX_BYTES + 8);
        assert_true(t.in[r] != NULL && t.out[r] != NULL);
    }
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++) {
            t.n = sizes[s];
            t.n_elems = lengths[l];
            t.root = (int)l % t.n;
            /* uneven: everything but two elements to the last but one, the rest empty or tiny */
            int64_t uneven[MAX_TEST_RANKS] = {0};
            const int64_t tiny = t.n > 2 && t.n_elems > 2 ? 2 : 0;
            uneven[0] = tiny;
            uneven[t.n > 1 ? t.n - 2 : 0] += t.n_elems - tiny;
            for (size_t d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]); d++) {
                for (int form = 0; form < 4; form++) {
                    t.dtype = dtypes[d];
                    t.reduction = form == 3 ? WEFT_REDUCTION_MAX : WEFT_REDUCTION_SUM;
                    t.is_in_place = form == 1 || form == 3;
                    t.counts = form >= 2 ? uneven : NULL;
                    check(&t);
                }
            }
        }
    }
    for (int r = 0; r < MAX_TEST_RANKS; r++) {
        free(t.in[r]);
        free(t.out[r]);
    }
}

static void test_comm_thread__collectives_equal_the_serial_oracle(void **state)
{
    (void)state;
    for (int op = WEFT_COMM_ALL_REDUCE; op <= WEFT_COMM_SCATTER; op++)
        each_case(check_collective, (weft_comm_op)op);
}

/* ---- all_to_all, barrier, pairs, overlap, groups ---- */

/* What rank `from` sends to rank `to` as its k-th element: bytes that no other element has. */
static void exchanged(unsigned char *out, size_t n_bytes, int from, int to, int64_t k)
{
    const uint64_t x = (uint64_t)(1 + 1000 * from + 100 * to + k) * 0x9E3779B97F4A7C15u;
    memcpy(out, (const unsigned char *)&x + sizeof(x) - n_bytes, n_bytes);
}

/* Rank i sends (i + 2 j) % 5 elements to rank j. */
static weft_status exchange(test_rank *rank)
{
    const weft_dtype dtype = *(const weft_dtype *)rank->user;
    const size_t b = weft_dtype_bytes(dtype);
    weft_comm *const c = rank->comm;
    int64_t to[MAX_TEST_RANKS], from[MAX_TEST_RANKS], n_to = 0, n_from = 0;
    unsigned char send[64 * 8], recv[64 * 8], expected[8];
    for (int j = 0; j < c->size; j++) {
        to[j] = (c->rank + 2 * j) % 5;
        from[j] = (j + 2 * c->rank) % 5;
        for (int64_t k = 0; k < to[j]; k++)
            exchanged(send + (size_t)n_to++ * b, b, c->rank, j, k);
        n_from += from[j];
    }
    const weft_message m = {.op = WEFT_COMM_ALL_TO_ALL,
                            .dtype = dtype,
                            .send = send,
                            .recv = recv,
                            .n_elems = n_to,
                            .counts = to,
                            .recv_counts = from,
                            .is_host = true};
    WEFT_TRY(weft_comm_call(c, &m));
    size_t at = 0;
    for (int j = 0; j < c->size; j++) {
        for (int64_t k = 0; k < from[j]; k++, at++) {
            exchanged(expected, b, j, c->rank, k);
            if (memcmp(recv + at * b, expected, b) != 0)
                WEFT_FAIL(WEFT_STATUS_INTERNAL, "%s %lld from %d is another",
                          weft_dtype_name(dtype), (long long)k, j);
        }
    }
    const weft_message barrier = {.op = WEFT_COMM_BARRIER};
    return at == (size_t)n_from ? weft_comm_call(c, &barrier) : WEFT_STATUS_INTERNAL;
}

static void test_comm_thread__all_to_all_takes_a_count_per_pair(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        for (size_t d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]); d++) {
            weft_dtype dtype = dtypes[d];
            run_ranks_ok(sizes[s], exchange, &dtype);
        }
    }
}

/* Eight all_reduces and a ring of messages on their way at once; waited for backwards. */
static weft_status overlap(test_rank *rank)
{
    enum { N = 8, LENGTH = 20000 };
    weft_comm *const c = rank->comm;
    float *const x = malloc(sizeof(float) * N * LENGTH);
    weft_request request[N + 4];
    float out[2] = {(float)c->rank, (float)c->rank + 0.5f}, in[2] = {-1.0f, -1.0f};
    weft_status st = x != NULL ? WEFT_OK : WEFT_STATUS_NOMEM;
    for (int round = 0; round < 3 && st == WEFT_OK; round++) {
        int n = 0;
        for (int k = 0; k < N; k++) {
            for (int i = 0; i < LENGTH; i++)
                x[k * LENGTH + i] = (float)(k + i % 7 + c->rank);
            const weft_message m = {.op = WEFT_COMM_ALL_REDUCE,
                                    .send = x + k * LENGTH,
                                    .recv = x + k * LENGTH,
                                    .n_elems = LENGTH,
                                    .tensor = "bucket"};
            WEFT_TRY_GOTO(st, c->ops->start(c, &m, &request[n++]), out);
        }
        for (int tag = 0; tag < 2 && c->size > 1; tag++) {
            const weft_message send = {.op = WEFT_COMM_SEND,
                                       .send = &out[tag],
                                       .n_elems = 1,
                                       .peer = (c->rank + 1) % c->size,
                                       .tag = tag};
            const weft_message recv = {.op = WEFT_COMM_RECV,
                                       .recv = &in[1 - tag],
                                       .n_elems = 1,
                                       .peer = (c->rank + c->size - 1) % c->size,
                                       .tag = 1 - tag};
            WEFT_TRY_GOTO(st, c->ops->start(c, &send, &request[n++]), out);
            WEFT_TRY_GOTO(st, c->ops->start(c, &recv, &request[n++]), out);
        }
        while (n > 0)
            WEFT_TRY_GOTO(st, c->ops->wait(c, &request[--n]), out);
        for (int k = 0; k < N * LENGTH && st == WEFT_OK; k++) {
            const float sum =
                (float)(c->size * (k / LENGTH + k % LENGTH % 7) + c->size * (c->size - 1) / 2);
            if (x[k] != sum)
                st = weft_i_error_set(WEFT_STATUS_INTERNAL, "element %d is %g, not %g", k,
                                      (double)x[k], (double)sum);
        }
        const float left = (float)((c->rank + c->size - 1) % c->size);
        if (st == WEFT_OK && c->size > 1 && (in[0] != left || in[1] != left + 0.5f))
            st = weft_i_error_set(WEFT_STATUS_INTERNAL, "got %g and %g", (double)in[0],
                                  (double)in[1]);
    }
out:
    free(x);
    return st;
}

static void test_comm_thread__requests_overlap(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
        run_ranks_ok(sizes[s], overlap, NULL);
}

/* 2 x n/2 mesh: sums over the row and over the column. The group's order is its own. */
static weft_status mesh(test_rank *rank)
{
    const int me = rank->comm->rank, width = rank->comm->size / 2;
    weft_comm *axis[2] = {NULL, NULL};
    int row[MAX_TEST_RANKS], column[2];
    weft_status st = WEFT_OK;
    for (int i = 0; i < width; i++)
        row[i] = me / width * width + width - 1 - i; /* backwards */
    for (int i = 0; i < 2; i++)
        column[i] = me % width + i * width;
    WEFT_TRY_GOTO(
        st, weft_i_thread_comm_create(&axis[0], rank->world, rank->ctx, me, row, width, "tp"), out);
    WEFT_TRY_GOTO(
        st, weft_i_thread_comm_create(&axis[1], rank->world, rank->ctx, me, column, 2, "dp"), out);
    for (int k = 0; k < 100 && st == WEFT_OK; k++) {
        int64_t x[2] = {me, me}, expected[2] = {0, 0};
        for (int i = 0; i < width; i++)
            expected[0] += row[i];
        expected[1] = column[0] + column[1];
        for (int a = 0; a < 2 && st == WEFT_OK; a++) {
            const weft_message m = {.op = WEFT_COMM_ALL_REDUCE,
                                    .dtype = WEFT_DTYPE_I64,
                                    .send = &x[a],
                                    .recv = &x[a],
                                    .n_elems = 1,
                                    .is_host = true};
            st = weft_comm_call(axis[a], &m);
            if (st == WEFT_OK && x[a] != expected[a])
                st =
                    weft_i_error_set(WEFT_STATUS_INTERNAL, "axis %d gave %lld", a, (long long)x[a]);
        }
    }
    if (st == WEFT_OK && axis[0]->rank != width - 1 - me % width)
        st = weft_i_error_set(WEFT_STATUS_INTERNAL, "rank %d in its row", axis[0]->rank);
out:
    weft_comm_destroy(axis[1]);
    weft_comm_destroy(axis[0]);
    return st;
}

static void test_comm_thread__groups_over_the_axes_of_a_mesh(void **state)
{
    (void)state;
    run_ranks_ok(4, mesh, NULL);
    run_ranks_ok(8, mesh, NULL);
}

/* ---- failures ---- */

typedef struct failing {
    int rank, at, n_calls;
} failing;

static weft_status many_calls(test_rank *rank)
{
    const failing *const f = rank->user;
    weft_comm *const c = rank->comm;
    for (int k = 0; k < f->n_calls; k++) {
        float x[3] = {1.0f, 2.0f, 3.0f};
        const weft_message m = {
            .op = WEFT_COMM_ALL_REDUCE, .send = x, .recv = x, .n_elems = 3, .tensor = "wte"};
        weft_request request = {0};
        if (c->rank == f->rank && k == f->at) {
            c->ops->abort(c, WEFT_STATUS_IO, "the disk was full");
            return weft_i_error_set(WEFT_STATUS_IO, "the disk was full");
        }
        WEFT_TRY(c->ops->start(c, &m, &request));
        WEFT_TRY(c->ops->wait(c, &request));
    }
    return WEFT_OK;
}

static void test_comm_thread__one_ranks_failure_ends_the_others_with_its_message(void **state)
{
    (void)state;
    for (int n = 2; n <= 4; n++) {
        for (int k = 0; k < 4 * n; k++) {
            failing f = {.rank = k % n, .at = k / n, .n_calls = 4};
            test_rank rank[MAX_TEST_RANKS];
            char text[64];
            run_ranks(rank, n, 30.0, many_calls, &f);
            (void)snprintf(text, sizeof(text), "rank %d failed: the disk was full", f.rank);
            for (int r = 0; r < n; r++) {
                assert_int_equal(rank[r].st, r == f.rank ? WEFT_STATUS_IO : WEFT_STATUS_REMOTE);
                if (r != f.rank)
                    assert_non_null(strstr(rank[r].message, text));
            }
        }
    }
}

/* Rank 1 stays away from the second call. */
static weft_status stay_away(test_rank *rank)
{
    const failing f = {.rank = -1, .n_calls = rank->comm->rank == 1 ? 1 : 2};
    rank->user = (void *)(uintptr_t)&f;
    return many_calls(rank);
}

static void test_comm_thread__silence_ends_with_who_is_missing_from_which_call(void **state)
{
    test_rank rank[MAX_TEST_RANKS];
    (void)state;
    const double before = weft_i_clock_seconds();
    run_ranks(rank, 3, 0.2, stay_away, NULL);
    assert_true(weft_i_clock_seconds() - before < 5.0);
    assert_int_equal(rank[1].st, WEFT_OK);
    int n_timeouts = 0;
    for (int r = 0; r < 3; r += 2) {
        assert_true(rank[r].st == WEFT_STATUS_TIMEOUT || rank[r].st == WEFT_STATUS_REMOTE);
        n_timeouts += rank[r].st == WEFT_STATUS_TIMEOUT ? 1 : 0;
        if (strstr(rank[r].message, "rank 1 missing from all_reduce 1 of wte over dp") == NULL ||
            strstr(rank[r].message, "last began all_reduce 0 of wte") == NULL)
            fail_msg("%s", rank[r].message);
    }
    assert_true(n_timeouts >= 1);
}

/* 40 calls, then rank 1 stays away: the log has its last 32, and nobody else's. */
static weft_status stay_away_late(test_rank *rank)
{
    const failing f = {.rank = -1, .n_calls = rank->comm->rank == 1 ? 40 : 41};
    rank->user = (void *)(uintptr_t)&f;
    return many_calls(rank);
}

static void test_comm_thread__a_timeout_logs_the_last_calls_of_the_missing(void **state)
{
    test_rank rank[MAX_TEST_RANKS];
    int n_logs = 0;
    (void)state;
    run_ranks(rank, 3, 0.5, stay_away_late, NULL);
    for (int r = 0; r < 3; r++) {
        if (rank[r].log[0] == '\0')
            continue;
        n_logs++;
        assert_int_equal(rank[r].st, WEFT_STATUS_TIMEOUT);
        for (int k = 0; k < 41; k++) {
            char call[64];
            (void)snprintf(call, sizeof(call), "all_reduce %d of wte over dp", k);
            if ((strstr(rank[r].log, call) != NULL) != (k >= 8 && k < 40))
                fail_msg("%s: %s", call, rank[r].log);
        }
        for (const char *line = rank[r].log; *line != '\0'; line = strchr(line, '\n') + 1)
            assert_memory_equal(line, "comm: rank 1 began, of its 40 calls,", 36);
    }
    assert_int_equal(n_logs, 1);
}

/* Rank 1 fails while rank 0 computes; rank 0 learns of it without a call. */
static weft_status compute_on(test_rank *rank)
{
    weft_thread_world *const w = rank->world;
    const int me = rank->comm->rank;
    const struct timespec moment = {.tv_nsec = 1000000};
    WEFT_TRY(weft_i_thread_check(w, me));
    if (me == 1) {
        rank->comm->ops->abort(rank->comm, WEFT_STATUS_NUMERIC, "the loss was not finite");
        return weft_i_thread_check(w, me);
    }
    while (!weft_i_thread_world_has_failed(w))
        (void)nanosleep(&moment, NULL);
    return weft_i_thread_check(w, me);
}

static void test_comm_thread__a_rank_that_computes_learns_of_a_failure(void **state)
{
    test_rank rank[MAX_TEST_RANKS];
    (void)state;
    run_ranks(rank, 3, 30.0, compute_on, NULL);
    for (int r = 0; r < 3; r++) {
        const char *const text =
            r == 1 ? "the loss was not finite" : "rank 1 failed: the loss was not finite";
        if (rank[r].st != (r == 1 ? WEFT_STATUS_NUMERIC : WEFT_STATUS_REMOTE) ||
            strcmp(rank[r].message, text) != 0)
            fail_msg("rank %d: %s", r, rank[r].message);
    }
}

/* Rank 1 comes 30 ms late to a collective and to a message: every request says when it came. */
static weft_status come_late(test_rank *rank)
{
    weft_comm *const c = rank->comm;
    double *const ready = rank->user, came[2];
    float x[2] = {0};
    const struct timespec moment = {.tv_nsec = 30000000};
    for (int k = 0; k < 2; k++) {
        const weft_message m = {.op = k == 0         ? WEFT_COMM_ALL_REDUCE
                                      : c->rank == 0 ? WEFT_COMM_SEND
                                                     : WEFT_COMM_RECV,
                                .send = x,
                                .recv = x,
                                .n_elems = 2,
                                .peer = 1 - c->rank};
        weft_request request = {0};
        if (c->rank == 1)
            (void)nanosleep(&moment, NULL);
        came[k] = weft_i_clock_seconds();
        WEFT_TRY(c->ops->start(c, &m, &request));
        WEFT_TRY(c->ops->wait(c, &request));
        ready[2 * k + c->rank] = request.ready_seconds;
        if (!(came[k] <= request.started_seconds &&
              request.started_seconds <= request.ready_seconds &&
              request.ready_seconds <= request.ended_seconds &&
              request.ended_seconds <= weft_i_clock_seconds()))
            WEFT_FAIL(WEFT_STATUS_INTERNAL,
                      "call %d: came %.9g, started %.9g, ready %.9g, end %.9g", k, came[k],
                      request.started_seconds, request.ready_seconds, request.ended_seconds);
    }
    return WEFT_OK;
}

static void test_comm_thread__a_request_says_when_the_last_rank_came(void **state)
{
    double ready[4] = {0};
    (void)state;
    run_ranks_ok(2, come_late, ready);
    CHECK_SAME_DOUBLE(ready[0], ready[1]);
    CHECK_SAME_DOUBLE(ready[2], ready[3]);
    assert_true(ready[2] >= ready[0] + 0.030);
}

/* A rank that works for three deadlines, and says so, is waited for. */
static weft_status work_long(test_rank *rank)
{
    const struct timespec moment = {.tv_nsec = 20000000};
    const failing f = {.rank = -1, .n_calls = 2};
    for (int i = 0; i < 30 && rank->comm->rank == 1; i++) {
        (void)nanosleep(&moment, NULL);
        if (rank->user == NULL)
            weft_i_thread_pulse(rank->world, 1);
        else
            (void)atomic_fetch_add(rank->work, 1);
    }
    rank->user = (void *)(uintptr_t)&f;
    return many_calls(rank);
}

static void test_comm_thread__the_deadline_counts_only_silence(void **state)
{
    (void)state;
    for (int by_counter = 0; by_counter < 2; by_counter++) {
        test_rank rank[MAX_TEST_RANKS];
        run_ranks(rank, 3, 0.2, work_long, by_counter == 1 ? rank : NULL);
        for (int r = 0; r < 3; r++) {
            if (rank[r].st != WEFT_OK)
                fail_msg("rank %d: %s", r, rank[r].message);
        }
    }
}

/* Rank 2 leaves; rank 0 waits for 2, and rank 1 for 0: the one that left is named, not the one that waits. */
static weft_status wait_in_a_chain(test_rank *rank)
{
    float x = 0.0f;
    const int me = rank->comm->rank;
    const weft_message m = {
        .op = WEFT_COMM_RECV, .recv = &x, .n_elems = 1, .peer = me == 0 ? 2 : 0, .tensor = "acts"};
    return me == 2 ? WEFT_OK : weft_comm_call(rank->comm, &m);
}

static void test_comm_thread__the_rank_that_stopped_is_named_before_those_that_wait(void **state)
{
    test_rank rank[MAX_TEST_RANKS];
    (void)state;
    run_ranks(rank, 3, 0.2, wait_in_a_chain, NULL);
    assert_int_equal(rank[0].st, WEFT_STATUS_TIMEOUT);
    assert_int_equal(rank[1].st, WEFT_STATUS_REMOTE);
    for (int r = 0; r < 2; r++)
        assert_non_null(strstr(rank[r].message, "rank 2 missing from recv 0 of acts over dp"));
}

/* Both wait for each other: that ends too. */
static weft_status wait_crosswise(test_rank *rank)
{
    float x = 0.0f;
    const weft_message m = {.op = WEFT_COMM_RECV,
                            .recv = &x,
                            .n_elems = 1,
                            .peer = 1 - rank->comm->rank,
                            .tensor = "acts"};
    return weft_comm_call(rank->comm, &m);
}

static void test_comm_thread__ranks_that_wait_for_each_other_end(void **state)
{
    test_rank rank[MAX_TEST_RANKS];
    (void)state;
    run_ranks(rank, 2, 0.1, wait_crosswise, NULL);
    for (int r = 0; r < 2; r++)
        assert_non_null(strstr(rank[r].message, "missing from recv 0 of acts"));
}

/* Rank 1 brings one element less (user NULL), or another operation. */
static weft_status disagree(test_rank *rank)
{
    float x[4] = {0};
    const bool is_odd = rank->comm->rank == 1;
    weft_message m = {
        .op = WEFT_COMM_ALL_REDUCE, .send = x, .recv = x, .n_elems = 4, .tensor = "wpe"};
    if (is_odd && rank->user == NULL)
        m.n_elems = 3;
    else if (is_odd)
        m.op = WEFT_COMM_BROADCAST;
    return weft_comm_call(rank->comm, &m);
}

static void test_comm_thread__calls_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        test_rank rank[MAX_TEST_RANKS];
        int n_mismatch = 0;
        run_ranks(rank, 3, 30.0, disagree, k == 0 ? NULL : rank);
        for (int r = 0; r < 3; r++) {
            n_mismatch += rank[r].st == WEFT_STATUS_MISMATCH ? 1 : 0;
            assert_non_null(strstr(rank[r].message, "wpe"));
            assert_non_null(strstr(rank[r].message, "rank 1"));
        }
        assert_int_equal(n_mismatch, 1);
    }
}

static weft_status bad_arguments(test_rank *rank)
{
    float x[4] = {0};
    const int64_t short_counts[2] = {1, 2}, negative[2] = {5, -1};
    const weft_message bad[] = {
        {.op = WEFT_COMM_ALL_REDUCE, .send = x, .recv = x + 1, .n_elems = 3}, /* overlap */
        {.op = WEFT_COMM_ALL_REDUCE, .send = x, .n_elems = 3},
        {.op = WEFT_COMM_ALL_REDUCE, .dtype = WEFT_DTYPE_U8, .send = x, .recv = x, .n_elems = 3},
        {.op = WEFT_COMM_ALL_GATHER, .send = x, .recv = x, .n_elems = 4, .counts = short_counts},
        {.op = WEFT_COMM_ALL_GATHER, .send = x, .recv = x, .n_elems = 4, .counts = negative},
        {.op = WEFT_COMM_BROADCAST, .send = x, .recv = x, .n_elems = 4, .peer = 2},
        {.op = WEFT_COMM_SEND, .send = x, .n_elems = 4, .peer = rank->comm->rank},
        {.op = WEFT_COMM_ALL_REDUCE, .send = x, .recv = x, .n_elems = -1},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (weft_comm_call(rank->comm, &bad[i]) != WEFT_STATUS_ARG)
            WEFT_FAIL(WEFT_STATUS_INTERNAL, "case %zu was taken", i);
    }
    return WEFT_OK;
}

static void test_comm_thread__bad_arguments_are_refused_at_once(void **state)
{
    (void)state;
    run_ranks_ok(2, bad_arguments, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_comm_thread__bad_arguments_are_refused_at_once),
        cmocka_unit_test(test_comm_thread__calls_that_do_not_fit_are_refused),
        cmocka_unit_test(test_comm_thread__one_ranks_failure_ends_the_others_with_its_message),
        cmocka_unit_test(test_comm_thread__silence_ends_with_who_is_missing_from_which_call),
        cmocka_unit_test(test_comm_thread__a_timeout_logs_the_last_calls_of_the_missing),
        cmocka_unit_test(test_comm_thread__a_rank_that_computes_learns_of_a_failure),
        cmocka_unit_test(test_comm_thread__a_request_says_when_the_last_rank_came),
        cmocka_unit_test(test_comm_thread__the_deadline_counts_only_silence),
        cmocka_unit_test(test_comm_thread__the_rank_that_stopped_is_named_before_those_that_wait),
        cmocka_unit_test(test_comm_thread__ranks_that_wait_for_each_other_end),
        cmocka_unit_test(test_comm_thread__all_to_all_takes_a_count_per_pair),
        cmocka_unit_test(test_comm_thread__requests_overlap),
        cmocka_unit_test(test_comm_thread__groups_over_the_axes_of_a_mesh),
        cmocka_unit_test(test_comm_thread__collectives_equal_the_serial_oracle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
