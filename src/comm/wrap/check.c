/*
 * Compares every collective over its ranks before it starts (docs/conventions.md, rule 30).
 *
 * A call becomes a record of numbers x. One all_reduce takes the largest of x and of -x: where the largest and the
 * smallest agree, all ranks agree. Otherwise, and all ranks see that, the records are gathered and the ranks that differ
 * from most are named. So a call that agrees costs one small message, and no rank ever starts a call that differs.
 *
 * Pairs cannot be compared so, since their two ends need not come at the same time; they are counted, and the counts are
 * compared when a step ends.
 *
 * Communication: 1 all_reduce of 22 I64 before each collective; on a mismatch 1 all_gather; at the end of a step 1
 * all_to_all of 1 I64 a pair and 1 all_gather of 3 I64 a rank.
 */
#include "base/compiler.h"
#include "base/ctx.h"
#include "base/hash.h"
#include "comm/message.h"
#include "comm/wrap/wrapper.h"

#include <stdio.h>
#include <string.h>

#define NAME_BYTES 64
#define MAX_NAMED 4

typedef enum check_field {
    FIELD_SEQUENCE,
    FIELD_OP,
    FIELD_DTYPE,
    FIELD_N_ELEMS,
    FIELD_REDUCTION,
    FIELD_ADDED,
    FIELD_ROOT,
    FIELD_SPLIT,
    FIELD_SIZE,
    FIELD_AXIS,
    FIELD_TENSOR,
    FIELD_COUNT
} check_field;

static const char *const field_names[FIELD_COUNT] = {
    "numbers of the call",
    "operations",
    "element types",
    "numbers of elements",
    "reductions",
    "starts of the sum (from recv, or not)",
    "roots",
    "splits",
    "group sizes",
    "axes",
    "tensors",
};

/** What one rank is about to call; sent as it is, so I64s alone. */
typedef struct check_record {
    int64_t field[FIELD_COUNT];
    char tensor[NAME_BYTES];
} check_record;

#define RECORD_ELEMS ((int64_t)(sizeof(check_record) / sizeof(int64_t)))

typedef struct check_comm {
    weft_wrapper wrapper;
    weft_comm *duplicate; /* NULL: the inner one */
    uint64_t n_collectives;
    check_record *records; /* [size] */
    int64_t *counts;       /* [size] of RECORD_ELEMS */
    int64_t *sent;         /* [size] SENDs to each peer in this step */
    int64_t *received;     /* [size] RECVs from each peer */
} check_comm;

/* Where the wrapper's own messages go. */
static weft_comm *channel_of(const check_comm *check)
{
    return check->duplicate != NULL ? check->duplicate : check->wrapper.inner;
}

/* Without a bit, so that it has a negative. */
static int64_t hash_bytes(const void *x, size_t n)
{
    return (int64_t)(weft_i_hash_bytes(x, n) >> 1);
}

static int64_t hash_split(const weft_message *m, int size)
{
    uint64_t h = 0;
    for (int r = 0; r < size; r++) {
        const int64_t both[2] = {(int64_t)h, weft_i_comm_part(m, size, r)};
        h = (uint64_t)hash_bytes(both, sizeof(both));
    }
    return (int64_t)h;
}

static void fill_record(check_record *record, const check_comm *check, const weft_message *m)
{
    const weft_comm *const c = &check->wrapper.base;
    const char *const tensor = weft_i_comm_tensor_name(m);
    const bool has_data = m->op != WEFT_COMM_BARRIER;
    const bool has_parts = m->op == WEFT_COMM_REDUCE_SCATTER || m->op == WEFT_COMM_ALL_GATHER ||
                           m->op == WEFT_COMM_GATHER || m->op == WEFT_COMM_SCATTER;
    *record = (check_record){0};
    int64_t *const x = record->field;
    x[FIELD_SEQUENCE] = (int64_t)check->n_collectives;
    x[FIELD_OP] = m->op;
    x[FIELD_DTYPE] = has_data ? (int64_t)m->dtype : 0;
    x[FIELD_N_ELEMS] = has_data && m->op != WEFT_COMM_ALL_TO_ALL ? m->n_elems : 0;
    x[FIELD_REDUCTION] = weft_i_comm_is_reduction(m->op) ? (int64_t)m->reduction : 0;
    x[FIELD_ADDED] = m->is_added ? 1 : 0;
    x[FIELD_ROOT] = weft_i_comm_has_root(m->op) ? m->peer : 0;
    x[FIELD_SPLIT] = has_parts ? hash_split(m, c->size) : 0;
    x[FIELD_SIZE] = c->size;
    x[FIELD_AXIS] = hash_bytes(c->axis, strlen(c->axis));
    x[FIELD_TENSOR] = hash_bytes(tensor, strlen(tensor));
    (void)snprintf(record->tensor, sizeof(record->tensor), "%s", tensor);
}

/* The record that most ranks have; the lowest rank's where several are as many. */
static const check_record *most_common(const check_record *records, int size)
{
    int best = 0, best_n = 0;
    for (int i = 0; i < size; i++) {
        int n = 0;
        for (int j = 0; j < size; j++)
            n += memcmp(records[i].field, records[j].field, sizeof(records[i].field)) == 0 ? 1 : 0;
        if (n > best_n) {
            best = i;
            best_n = n;
        }
    }
    return &records[best];
}

static void describe(char *out, size_t n_bytes, const check_record *r)
{
    const int64_t *const x = r->field;
    (void)snprintf(out, n_bytes, "call %lld %s of %s (%s, %lld elements, root %lld, split %llx)",
                   (long long)x[FIELD_SEQUENCE], weft_i_comm_op_name((weft_comm_op)x[FIELD_OP]),
                   r->tensor, weft_dtype_name((weft_dtype)x[FIELD_DTYPE]),
                   (long long)x[FIELD_N_ELEMS], (long long)x[FIELD_ROOT],
                   (unsigned long long)x[FIELD_SPLIT] & 0xffffu);
}

/* All ranks come here together. */
static weft_status name_the_odd(check_comm *check, const check_record *mine)
{
    const weft_comm *const c = &check->wrapper.base;
    const weft_message m = {.op = WEFT_COMM_ALL_GATHER,
                            .dtype = WEFT_DTYPE_I64,
                            .send = mine,
                            .recv = check->records,
                            .n_elems = c->size * RECORD_ELEMS,
                            .counts = check->counts,
                            .is_host = true,
                            .tensor = "check"};
    WEFT_TRY(weft_comm_call(channel_of(check), &m));
    const check_record *const most = most_common(check->records, c->size);
    const char *what = "calls";
    char text[768] = "", one[192];
    int n_odd = 0;
    for (int r = 0; r < c->size; r++) {
        const check_record *const odd = &check->records[r];
        if (memcmp(odd->field, most->field, sizeof(odd->field)) == 0 || ++n_odd > MAX_NAMED)
            continue;
        for (int f = 0; f < FIELD_COUNT && n_odd == 1; f++) {
            if (odd->field[f] != most->field[f]) {
                what = field_names[f];
                break;
            }
        }
        const size_t used = strlen(text);
        describe(one, sizeof(one), odd);
        (void)snprintf(text + used, sizeof(text) - used, "rank %d made %s; ",
                       weft_i_comm_world_rank(c, r), one);
    }
    describe(one, sizeof(one), most);
    WEFT_FAIL(WEFT_STATUS_MISMATCH, "%s over %s differ on %d of %d ranks: %srank %d made %s", what,
              c->axis, n_odd, c->size, text,
              weft_i_comm_world_rank(c, (int)(most - check->records)), one);
}

static weft_status start_check(weft_comm *c, const weft_message *m, weft_request *request)
{
    check_comm *const check = (check_comm *)(void *)c;
    WEFT_TRY(weft_i_comm_check(c, m));
    if (weft_i_comm_is_pair(m->op)) {
        (m->op == WEFT_COMM_SEND ? check->sent : check->received)[m->peer]++;
        return weft_i_wrapper_start(c, m, request);
    }
    check_record mine;
    int64_t x[2 * FIELD_COUNT];
    fill_record(&mine, check, m);
    check->n_collectives++;
    for (int f = 0; f < FIELD_COUNT; f++) {
        x[f] = mine.field[f];
        x[FIELD_COUNT + f] = -mine.field[f];
    }
    const weft_message compare = {.op = WEFT_COMM_ALL_REDUCE,
                                  .dtype = WEFT_DTYPE_I64,
                                  .reduction = WEFT_REDUCTION_MAX,
                                  .send = x,
                                  .recv = x,
                                  .n_elems = 2 * FIELD_COUNT,
                                  .is_host = true,
                                  .tensor = mine.tensor};
    WEFT_TRY(weft_comm_call(channel_of(check), &compare));
    for (int f = 0; f < FIELD_COUNT; f++) {
        if (x[f] != -x[FIELD_COUNT + f])
            return name_the_odd(check, &mine);
    }
    return weft_i_wrapper_start(c, m, request);
}

static void destroy_check(weft_comm *c)
{
    check_comm *const check = (check_comm *)(void *)c;
    weft_comm_destroy(check->duplicate);
    weft_i_alloc_put(c->ctx->alloc, check->sent);
    weft_i_alloc_put(c->ctx->alloc, check->received);
    weft_i_alloc_put(c->ctx->alloc, check->counts);
    weft_i_alloc_put(c->ctx->alloc, check->records);
    weft_i_wrapper_destroy(c);
}

static const weft_comm_ops check_ops = {.name = "check",
                                        .start = start_check,
                                        .wait = weft_i_wrapper_wait,
                                        .abort = weft_i_wrapper_abort,
                                        .destroy = destroy_check};

weft_status weft_i_check_create(weft_comm **out, weft_comm *take_inner, weft_comm *take_duplicate)
{
    void *p = NULL;
    *out = NULL;
    weft_status st = weft_i_wrapper_new(&p, sizeof(check_comm), &check_ops, take_inner);
    if (st != WEFT_OK) {
        weft_comm_destroy(take_duplicate);
        return st;
    }
    check_comm *const check = p;
    weft_comm *const c = &check->wrapper.base;
    check->duplicate = take_duplicate;
    st = weft_i_alloc_array(c->ctx->alloc, c->size, sizeof(check_record), &check->records);
    int64_t **const numbers[] = {&check->counts, &check->sent, &check->received};
    for (size_t i = 0; i < WEFT_COUNT_OF(numbers) && st == WEFT_OK; i++)
        st = weft_i_alloc_array(c->ctx->alloc, c->size, sizeof(int64_t), numbers[i]);
    if (st != WEFT_OK) {
        destroy_check(c);
        return st;
    }
    for (int r = 0; r < c->size; r++)
        check->counts[r] = RECORD_ELEMS;
    *out = c;
    return WEFT_OK;
}

/* What a rank found: the lowest peer whose number of SENDs is not that of the RECVs here; peer -1: none. */
typedef struct pair_report {
    int64_t peer, n_sent, n_received;
} pair_report;

#define REPORT_ELEMS ((int64_t)(sizeof(pair_report) / sizeof(int64_t)))

weft_status weft_i_check_end_step(weft_comm *c)
{
    check_comm *const check = (check_comm *)(void *)c;
    int64_t *const expected = (int64_t *)(void *)check->records; /* has room for both */
    const weft_message exchange = {.op = WEFT_COMM_ALL_TO_ALL,
                                   .dtype = WEFT_DTYPE_I64,
                                   .send = check->sent,
                                   .recv = expected,
                                   .n_elems = c->size,
                                   .is_host = true,
                                   .tensor = "messages sent"};
    WEFT_TRY(weft_comm_call(channel_of(check), &exchange));
    pair_report mine = {.peer = -1};
    for (int r = c->size - 1; r >= 0; r--) {
        if (expected[r] != check->received[r])
            mine =
                (pair_report){.peer = r, .n_sent = expected[r], .n_received = check->received[r]};
        check->sent[r] = check->received[r] = 0;
    }
    pair_report *const reports = (pair_report *)(void *)check->records;
    const weft_message gather = {.op = WEFT_COMM_ALL_GATHER,
                                 .dtype = WEFT_DTYPE_I64,
                                 .send = &mine,
                                 .recv = reports,
                                 .n_elems = c->size * REPORT_ELEMS,
                                 .is_host = true,
                                 .tensor = "messages received"};
    WEFT_TRY(weft_comm_call(channel_of(check), &gather));
    for (int r = 0; r < c->size; r++) {
        if (reports[r].peer >= 0)
            WEFT_FAIL(WEFT_STATUS_MISMATCH,
                      "rank %d sent %lld messages to rank %d over %s in this step, and rank %d "
                      "received %lld",
                      weft_i_comm_world_rank(c, (int)reports[r].peer), (long long)reports[r].n_sent,
                      weft_i_comm_world_rank(c, r), c->axis, weft_i_comm_world_rank(c, r),
                      (long long)reports[r].n_received);
    }
    return WEFT_OK;
}
