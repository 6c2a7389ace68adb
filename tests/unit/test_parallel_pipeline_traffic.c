/*
 * What a rank of a pipeline sends over the pp axis in a step, by kind of call, to the byte; and how many slots of
 * activations its schedule has it hold. Both written out here, from the papers' numbers of micro-batches in flight.
 *
 *   activations   a micro-batch and boundary: [rows of the stream here, hidden] of the model's type, SEND on one side; its
 *                 gradient the same way back. "Sent" counts SEND: V, RECV: 0.
 *   tied table    by step: E f32 each way between first and last stage, E what the rank reduces of the table: all of it
 *                 with stage 0, its part with a ZeRO stage. --reproducible: the whole table a micro-batch to the first
 *                 stage, E back a step.
 */
#include "ranks_parity.h"

#include "comm/message.h"

#define TOKENS 12 /* of a sequence, ranks_case_init */

typedef struct variant {
    const odd_model *model;
    ranks_layout layout;
    int64_t n_seqs, micro_batch;
    bool is_bf16;
} variant;

/* Of n things, the first ranks one more. */
static int64_t share(int64_t n, int n_ranks, int rank)
{
    return n / n_ranks + (rank < n % n_ranks ? 1 : 0);
}

static void count(weft_traffic *t, weft_comm_op op, int64_t n_calls, int64_t n_bytes)
{
    t->n_calls[op] += (uint64_t)n_calls;
    t->sent_bytes[op] += (uint64_t)(n_calls * n_bytes);
}

/* Of a rank at (tp, dp, pp), in the order tp-dp-pp. */
static void want_traffic(weft_traffic *t, const variant *v, int rank)
{
    const ranks_layout *l = &v->layout;
    const int n_tp = WEFT_MAX(l->tp, 1), n_dp = WEFT_MAX(l->dp, 1),
              n_chunks = WEFT_MAX(l->chunks, 1);
    const int tp = rank % n_tp, dp = rank / n_tp % n_dp, pp = rank / n_tp / n_dp;
    const int64_t n_micro = (v->n_seqs + v->micro_batch - 1) / v->micro_batch;
    int64_t n_mine = 0;
    memset(t, 0, sizeof(*t));
    for (int64_t j = dp; j < n_micro; j += n_dp) {
        const int64_t left = v->n_seqs - j * v->micro_batch;
        int64_t rows = (left < v->micro_batch ? left : v->micro_batch) * TOKENS;
        n_mine++;
        if (l->is_sequence_parallel)
            rows = share(rows, n_tp, tp);
        const int64_t n_bytes = rows * v->model->hidden * (v->is_bf16 ? 2 : 4);
        for (int c = 0; c < n_chunks; c++) {
            const int stage = c * l->pp + pp;
            const bool is_first = stage == 0, is_last = stage == n_chunks * l->pp - 1;
            count(t, WEFT_COMM_SEND, is_last ? 0 : 1, n_bytes);  /* activations */
            count(t, WEFT_COMM_SEND, is_first ? 0 : 1, n_bytes); /* gradients */
            count(t, WEFT_COMM_RECV, (is_last ? 0 : 1) + (is_first ? 0 : 1), 0);
        }
    }
    if (!v->model->is_tied || (pp > 0 && pp < l->pp - 1))
        return;
    const int64_t ids = share(v->model->vocab, n_tp, tp);
    const int64_t table = (ids * v->model->hidden + 31) / 32 * 32;
    const bool is_whole = l->stage == 0 && !l->is_reproducible;
    const int64_t part = is_whole ? table : share(table / 32, n_dp, dp) * 32;
    if (!l->is_reproducible) {
        count(t, WEFT_COMM_SEND, 1, part * 4);
        count(t, WEFT_COMM_RECV, 1, 0);
    } else if (pp == 0) {
        count(t, WEFT_COMM_RECV, n_mine, 0);
        count(t, WEFT_COMM_SEND, 1, part * 4);
    } else {
        count(t, WEFT_COMM_SEND, n_mine, table * 4);
        count(t, WEFT_COMM_RECV, 1, 0);
    }
}

static void check_traffic(scratch *s, const variant *v)
{
    ranks_case c;
    ranks_result r;
    char text[128], why[256];
    ranks_parity_init(&c, s, v->model, false);
    c.is_watching = false;
    ranks_case_batches(&c, v->model->vocab, v->n_seqs, 2, 3);
    c.options.layout.micro_batch_size = v->micro_batch;
    c.options.layout.dtype = v->is_bf16 ? "bf16" : "fp32";
    ranks_case_apply(&c, &v->layout);
    ranks_case_run(&r, &c);
    ranks_layout_text(&v->layout, text);
    if (!ranks_as_planned(&r, why))
        fail_msg("%s, %s: %s", v->model->name, text, why);
    for (int rank = 0; rank < r.n_ranks; rank++) {
        const weft_traffic *got = &r.traffic[rank][WEFT_AXIS_PP];
        weft_traffic want;
        want_traffic(&want, v, rank);
        for (int op = 0; op < (int)WEFT_COMM_OP_COUNT; op++) {
            if (got->n_calls[op] != want.n_calls[op] || got->sent_bytes[op] != want.sent_bytes[op])
                fail_msg("%s, %s: rank %d, %s: %d calls with %d bytes, %d with %d are right",
                         v->model->name, text, rank, weft_i_comm_op_name((weft_comm_op)op),
                         (int)got->n_calls[op], (int)got->sent_bytes[op], (int)want.n_calls[op],
                         (int)want.sent_bytes[op]);
        }
    }
    ranks_result_fini(&r);
    ranks_case_fini(&c);
}

static void test_parallel_pipeline_traffic__bytes_are_the_formulas(void **state)
{
    static const variant variants[] = {
        {&odd_llama, {.pp = 2, .schedule = "naive"}, 3, 1, false},
        {&odd_llama, {.pp = 3, .schedule = "gpipe"}, 5, 2, false},
        {&odd_llama, {.pp = 4}, 2, 1, true},
        {&odd_llama, {.pp = 2, .schedule = "interleaved", .chunks = 3}, 4, 1, false},
        {&odd_llama, {.pp = 3, .schedule = "zb-h1", .recompute = "full"}, 4, 1, true},
        {&odd_llama, {.pp = 2, .schedule = "zb-h2", .dp = 3, .stage = 3}, 4, 1, false},
        {&odd_tied, {.pp = 2}, 3, 1, false},
        {&odd_tied, {.pp = 3, .dp = 2, .stage = 0}, 5, 1, true},
        {&odd_tied, {.pp = 2, .dp = 3, .stage = 1, .schedule = "zb-h1"}, 5, 1, false},
        {&odd_tied, {.pp = 3, .dp = 2, .stage = 2, .schedule = "gpipe"}, 5, 2, false},
        {&odd_tied, {.pp = 2, .dp = 4, .stage = 3}, 3, 1, false}, /* a rank without one */
        {&odd_tied, {.pp = 3, .is_reproducible = true}, 4, 1, false},
        {&odd_tied, {.pp = 2, .dp = 3, .stage = 3, .is_reproducible = true}, 5, 1, true},
        {&odd_llama, {.pp = 2, .tp = 3}, 3, 1, false},
        {&odd_llama, {.pp = 2, .tp = 4, .is_sequence_parallel = true}, 3, 1, false},
        {&odd_gpt2,
         {.pp = 2, .tp = 3, .is_sequence_parallel = true, .schedule = "zb-h1"},
         5,
         2,
         true},
        {&odd_tied, {.pp = 2, .dp = 2, .tp = 2, .stage = 1}, 3, 1, false},
        {&odd_tied,
         {.pp = 2, .dp = 2, .tp = 2, .stage = 2, .is_sequence_parallel = true},
         5,
         1,
         false},
    };
    for (size_t i = 0; i < WEFT_COUNT_OF(variants); i++)
        check_traffic(*state, &variants[i]);
}

/* ---- slots ---- */

/* Activations that a step of m micro-batches is planned to take, by rank. */
static void plan(scratch *s, const ranks_layout *l, int64_t m, size_t out[RANKS_MOST])
{
    ranks_case c;
    ranks_result r;
    ranks_parity_init(&c, s, &odd_llama, true);
    ranks_case_batches(&c, odd_llama.vocab, m, 0, 1);
    ranks_case_apply(&c, l);
    ranks_case_run(&r, &c);
    for (int k = 0; k < r.n_ranks; k++)
        out[k] = r.planned[k][WEFT_MEM_ACTIVATIONS];
    ranks_result_fini(&r);
    ranks_case_fini(&c);
}

/* Micro-batches in flight on rank r of p, m in a step. */
static int64_t in_flight(const char *schedule, int p, int r, int64_t m)
{
    if (strcmp(schedule, "naive") == 0)
        return 1;
    if (strcmp(schedule, "gpipe") == 0)
        return m;
    return WEFT_MIN((int64_t)(p - r), m);
}

/*
 * A slot's bytes are what one micro-batch more of GPipe takes, which holds all. From there: naive one, 1F1B min(p - r, m).
 * The number is the schedule's own, so a slot too many or too few shows.
 */
static void test_parallel_pipeline_traffic__a_stage_holds_what_its_schedule_says(void **state)
{
    static const char *const names[] = {"naive", "gpipe", "1f1b"};
    for (int p = 2; p <= 4; p++) {
        size_t one[RANKS_MOST], two[RANKS_MOST], got[RANKS_MOST];
        const ranks_layout gpipe = {.pp = p, .schedule = "gpipe"};
        plan(*state, &gpipe, 1, one);
        plan(*state, &gpipe, 2, two);
        for (int64_t m = 1; m <= 6; m += m < 3 ? 1 : 3) {
            for (size_t i = 0; i < WEFT_COUNT_OF(names); i++) {
                const ranks_layout l = {.pp = p, .schedule = names[i]};
                plan(*state, &l, m, got);
                for (int r = 0; r < p; r++) {
                    const size_t slot = two[r] - one[r];
                    const size_t want = one[r] + (size_t)(in_flight(names[i], p, r, m) - 1) * slot;
                    assert_true(slot > (size_t)(TOKENS * odd_llama.hidden * 4));
                    if (got[r] != want)
                        fail_msg("%s, %d stages, %d micro-batches: rank %d has %zu bytes of "
                                 "activations, %zu are right",
                                 names[i], p, (int)m, r, got[r], want);
                }
            }
        }
    }
}

/* Bytes of n of them, as they are handed out. */
static size_t floats(int64_t n)
{
    return ((size_t)n * sizeof(float) + 63) / 64 * 64;
}

/*
 * Zero bubble frees what only the input gradient reads before the weight gradient runs: (p - r) whole slots and r that hold
 * the rest (ZB-H1); 2 (p - r) - 1 and 2 r (ZB-H2). Of a block only the input gradient reads q, k, v [T, (heads + 2 kv heads)
 * x head dim] and the log-sum-exp [heads, T], f32, each rounded up to 64 bytes.
 */
static void
test_parallel_pipeline_traffic__zero_bubble_frees_before_the_weight_gradient(void **state)
{
    const odd_model *const o = &odd_llama;
    const size_t input_part = floats(TOKENS * o->n_heads * o->head_dim) +
                              2 * floats(TOKENS * o->n_kv_heads * o->head_dim) +
                              floats(TOKENS * o->n_heads);
    const int p = 3, n_blocks[2] = {1, 3}; /* of the first two stages */
    for (int h = 1; h <= 2; h++) {
        const ranks_layout l = {
            .pp = p, .schedule = h == 1 ? "zb-h1" : "zb-h2", .stage_layers = "2,3,2"};
        size_t before[RANKS_MOST], now[RANKS_MOST], slot[2] = {0, 0};
        plan(*state, &l, 1, before);
        for (int64_t m = 2; m <= 7; m++) {
            plan(*state, &l, m, now);
            for (int r = 0; r < 2; r++) {
                const int whole = h == 1 ? p - r : 2 * (p - r) - 1;
                const int all = whole + h * r;
                slot[r] = m == 2 ? now[r] - before[r] : slot[r];
                const size_t want = m <= whole ? slot[r]
                                    : m <= all ? slot[r] - (size_t)n_blocks[r] * input_part
                                               : 0;
                if (now[r] - before[r] != want)
                    fail_msg(
                        "zb-h%d: micro-batch %d takes %zu bytes more of rank %d, %zu are right", h,
                        (int)m, now[r] - before[r], r, want);
                before[r] = now[r];
            }
        }
    }
}

int main(void)
{
#define RUN(test)                                                                                  \
    cmocka_unit_test_setup_teardown(test_parallel_pipeline_traffic__##test, scratch_setup,         \
                                    scratch_teardown)
    const struct CMUnitTest tests[] = {
        RUN(bytes_are_the_formulas),
        RUN(a_stage_holds_what_its_schedule_says),
        RUN(zero_bubble_frees_before_the_weight_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
