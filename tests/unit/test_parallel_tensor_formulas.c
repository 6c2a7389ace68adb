/*
 * What tensor ranks take and send, in closed form, to the byte: formulas of docs/methods/tensor.md and sequence.md, written
 * apart from the library.
 *
 * n ranks. AR(V) of V elements over an even cut V_r: (n - 1) V_r + V - V_r; AG: (n - 1) V_r; RS: V - V_r (a rank's sends).
 */
#include "ranks_compare.h"

#define ALIGN 32
#define LINE 64

typedef struct variant {
    const odd_model *model;
    int tp;
    bool is_sequence_parallel, is_bf16;
    const char *recompute;
    int64_t n_tokens, n_seqs, micro_batch;
    int strips;
} variant;

/* A rank's share of the model, by hand. */
typedef struct share {
    int64_t heads, first_head, kv, ffn, ids;
    int64_t copied; /* kv heads that more than one rank has */
    int64_t rows;   /* of the stream, of a micro-batch */
    int64_t strips;
} share;

static int64_t even(int64_t n, int size, int rank)
{
    return n / size + (rank < n % size ? 1 : 0);
}

static int64_t even_first(int64_t n, int size, int rank)
{
    int64_t first = 0;
    for (int r = 0; r < rank; r++)
        first += even(n, size, r);
    return first;
}

/* A rank's items of n that are dealt out to the strips first. */
static int64_t by_strips(const variant *v, int64_t n, int rank)
{
    int64_t items = 0;
    const int64_t first = even_first(v->strips, v->tp, rank);
    for (int64_t i = first; i < first + even(v->strips, v->tp, rank); i++)
        items += even(n, v->strips, (int)i);
    return items;
}

static share share_of_strips(const variant *v, int rank)
{
    const odd_model *m = v->model;
    share s = {.kv = by_strips(v, m->n_kv_heads, rank),
               .heads = by_strips(v, m->n_kv_heads, rank) * (m->n_heads / m->n_kv_heads),
               .ffn = by_strips(v, m->ffn, rank),
               .ids = by_strips(v, m->vocab, rank),
               .rows = v->micro_batch * v->n_tokens,
               .strips = even(v->strips, v->tp, rank)};
    if (v->is_sequence_parallel)
        s.rows = even(s.rows, v->tp, rank);
    return s;
}

static share share_of(const variant *v, int rank)
{
    if (v->strips > 0)
        return share_of_strips(v, rank);
    const odd_model *m = v->model;
    const int64_t group = m->n_heads / m->n_kv_heads;
    share s = {.heads = even(m->n_heads, v->tp, rank),
               .first_head = even_first(m->n_heads, v->tp, rank),
               .ffn = even(m->ffn, v->tp, rank),
               .ids = even(m->vocab, v->tp, rank),
               .rows = v->micro_batch * v->n_tokens};
    s.kv = (s.first_head + s.heads - 1) / group - s.first_head / group + 1;
    for (int64_t k = 0; k < m->n_kv_heads; k++) {
        bool is_cut = false;
        for (int r = 1; r < v->tp; r++) {
            const int64_t b = even_first(m->n_heads, v->tp, r);
            is_cut |= b > k * group && b < (k + 1) * group;
        }
        s.copied += is_cut;
    }
    if (v->is_sequence_parallel)
        s.rows = even(s.rows, v->tp, rank);
    return s;
}

/* ---- memory ---- */

static int64_t padded(int64_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

/* Elements of the flat weights: every parameter padded. */
static int64_t weights(const odd_model *m, const share *s)
{
    const int64_t c = m->hidden, d = m->head_dim;
    int64_t block, ends;
    if (m->is_gpt2) {
        block = 6 * padded(c) + padded(c * 3 * s->heads * d) + padded(3 * s->heads * d) +
                padded(s->heads * d * c) + 2 * padded(c * s->ffn) + padded(s->ffn);
        ends = padded(m->n_positions * c) + 2 * padded(c);
    } else {
        block = 2 * padded(c) + 2 * padded(s->heads * d * c) + 2 * padded(s->kv * d * c) +
                3 * padded(s->ffn * c);
        ends = padded(c);
    }
    ends += (m->is_tied ? 1 : 2) * padded(s->ids * c);
    return m->n_layers * block + ends;
}

static size_t line(int64_t n_bytes)
{
    return (size_t)((n_bytes + LINE - 1) / LINE * LINE);
}

/* A slot, nothing recomputed (arXiv:2205.05198 table 2 counts the same items in half precision). */
static size_t activations(const variant *v, const share *s)
{
    const odd_model *m = v->model;
    const int64_t e = v->is_bf16 ? 2 : 4, c = m->hidden, in = v->micro_batch * v->n_tokens;
    const int64_t qkv = (s->heads + 2 * s->kv) * m->head_dim, up = (m->is_gpt2 ? 1 : 2) * s->ffn;
    const size_t means = m->is_gpt2 ? 2 * line(s->rows * 4) : 0;
    const size_t block = 4 * line(s->rows * c * e) + 2 * line(s->rows * 4) + means +
                         line(in * qkv * e) + line(in * s->heads * m->head_dim * e) +
                         line(v->micro_batch * s->heads * v->n_tokens * 4) + line(in * up * e) +
                         line(in * s->ffn * e);
    const size_t head = line(s->rows * c * e) + line(in * 4); /* its input, token losses */
    return (size_t)m->n_layers * block + head + 3 * line(in * 4) + line(in * 8);
}

/* Elements of a block's partial gradients. */
static int64_t partial(const variant *v, const share *s)
{
    const odd_model *m = v->model;
    const int64_t norms = (m->is_gpt2 ? 4 : 2) * m->hidden;
    return (v->is_sequence_parallel && v->strips == 0 ? norms : 0) +
           (m->is_gpt2 ? 0 : 2 * s->copied * m->head_dim * m->hidden);
}

static void check_memory(const variant *v, const ranks_result *r)
{
    for (int rank = 0; rank < v->tp; rank++) {
        const share s = share_of(v, rank);
        const int64_t n = weights(v->model, &s), head = v->model->is_gpt2 ? 2 : 1;
        const int64_t at_head =
            v->is_sequence_parallel && v->strips == 0 ? head * v->model->hidden : 0;
        const int64_t sum = WEFT_MAX(partial(v, &s), at_head);
        const size_t *const got = r->taken[rank];
        assert_int_equal(got[WEFT_MEM_PARAMETERS], line(n * (v->is_bf16 ? 2 : 4)));
        assert_int_equal(got[WEFT_MEM_GRADIENTS], line(n * 4));
        assert_int_equal(got[WEFT_MEM_OPTIMIZER], (v->is_bf16 ? 3 : 2) * line(n * 4));
        assert_int_equal(got[WEFT_MEM_COMMUNICATION], line(sum * 4));
        if (v->recompute == NULL)
            assert_int_equal(got[WEFT_MEM_ACTIVATIONS], activations(v, &s));
    }
}

/* ---- traffic ---- */

typedef struct sent {
    uint64_t calls[WEFT_COMM_OP_COUNT], bytes[WEFT_COMM_OP_COUNT];
} sent;

static void all_reduce(sent *t, int n, int rank, int64_t elems, int64_t size, int64_t times)
{
    const int64_t mine = even(elems, n, rank);
    t->calls[WEFT_COMM_ALL_REDUCE] += (uint64_t)times;
    t->bytes[WEFT_COMM_ALL_REDUCE] += (uint64_t)(((n - 1) * mine + elems - mine) * size * times);
}

static void one_way(sent *t, weft_comm_op op, int64_t n_bytes, int64_t times)
{
    t->calls[op] += (uint64_t)times;
    t->bytes[op] += (uint64_t)(n_bytes * times);
}

/* A micro-batch of `rows`. */
static void add_micro_batch(sent *t, const variant *v, int rank, int64_t rows)
{
    const int64_t l = v->model->n_layers, c = v->model->hidden, e = v->is_bf16 ? 2 : 4;
    const bool is_full = v->recompute != NULL && strcmp(v->recompute, "full") == 0;
    const int n = v->tp;
    const int64_t mine = even(rows, n, rank) * c * e;
    if (v->strips > 0) {
        const int64_t strips = share_of(v, rank).strips, stats = v->model->is_gpt2 ? 2 : 1;
        all_reduce(t, n, rank, rows, 4, 2); /* largest, target */
        /* what would be a sum in forward or backward, but the embedding's; the vocabulary's */
        one_way(t, WEFT_COMM_ALL_GATHER, (n - 1) * strips * rows * c * e,
                4 * l + 1 + (is_full ? l : 0));
        one_way(t, WEFT_COMM_ALL_GATHER, (n - 1) * strips * rows * 4, 1);
        if (!v->is_sequence_parallel) {
            all_reduce(t, n, rank, rows * c, e, 1);
            return;
        }
        one_way(t, WEFT_COMM_REDUCE_SCATTER, rows * c * e - mine, 1);
        one_way(t, WEFT_COMM_ALL_GATHER, (n - 1) * mine, 6 * l + 2 + (is_full ? 2 * l : 0));
        /* inputs, gradients and statistics of norms */
        one_way(t, WEFT_COMM_ALL_GATHER, (n - 1) * mine, 2 * (2 * l + 1));
        one_way(t, WEFT_COMM_ALL_GATHER, (n - 1) * even(rows, n, rank) * 4, stats * (2 * l + 1));
        return;
    }
    all_reduce(t, n, rank, rows, 4, 3); /* largest, sum, target */
    if (!v->is_sequence_parallel) {
        /* forward: embedding, 2 a block; backward: 2 a block, head; recomputing a block: attention's output */
        all_reduce(t, n, rank, rows * c, e, 4 * l + 2 + (is_full ? l : 0));
        return;
    }
    /* forward 2 a block; backward 2 a block, 2 again; head's input; the table's gradient */
    one_way(t, WEFT_COMM_ALL_GATHER, (n - 1) * mine, 6 * l + 2 + (is_full ? 2 * l : 0));
    /* forward 2 a block, embedding; backward 2 a block, head's input */
    one_way(t, WEFT_COMM_REDUCE_SCATTER, rows * c * e - mine, 4 * l + 2 + (is_full ? l : 0));
}

static void check_traffic(const variant *v, const ranks_result *r)
{
    for (int rank = 0; rank < v->tp; rank++) {
        const share s = share_of(v, rank);
        sent t = {{0}, {0}};
        for (int64_t first = 0; first < v->n_seqs; first += v->micro_batch)
            add_micro_batch(&t, v, rank, WEFT_MIN(v->micro_batch, v->n_seqs - first) * v->n_tokens);
        if (partial(v, &s) > 0)
            all_reduce(&t, v->tp, rank, partial(v, &s), 4, v->model->n_layers);
        if (v->is_sequence_parallel && v->strips == 0)
            all_reduce(&t, v->tp, rank, (v->model->is_gpt2 ? 2 : 1) * v->model->hidden, 4, 1);
        for (int op = 0; op < (int)WEFT_COMM_OP_COUNT; op++) {
            const weft_traffic *got = &r->traffic[rank][WEFT_AXIS_TP];
            if (got->n_calls[op] != t.calls[op] || got->sent_bytes[op] != t.bytes[op])
                fail_msg("%s tp %d%s, strips %d: rank %d, operation %d: %d calls of %d bytes, "
                         "formula %d of "
                         "%d",
                         v->model->name, v->tp, v->is_sequence_parallel ? " sp" : "", v->strips,
                         rank, op, (int)got->n_calls[op], (int)got->sent_bytes[op],
                         (int)t.calls[op], (int)t.bytes[op]);
            assert_int_equal(r->traffic[rank][WEFT_AXIS_DP].n_calls[op], 0);
        }
        /* loss and squared norm: two sums of 64-bit digits over the world */
        assert_int_equal(r->traffic[rank][WEFT_AXIS_WORLD].n_calls[WEFT_COMM_ALL_REDUCE], 1);
    }
}

static const variant variants[] = {
    {&odd_llama, 2, false, false, NULL, 12, 3, 1, 0},
    {&odd_llama, 3, false, false, "full", 12, 3, 2, 0},
    {&odd_llama, 4, false, true, NULL, 12, 2, 1, 0},
    {&odd_tied, 5, false, false, "selective", 7, 2, 2, 0},
    {&odd_gpt2, 4, false, false, NULL, 12, 2, 1, 0},
    {&odd_gpt2, 6, false, true, "full", 5, 3, 1, 0},
    {&odd_llama, 2, true, false, NULL, 11, 3, 1, 0},
    {&odd_llama, 4, true, false, NULL, 11, 3, 2, 0},
    {&odd_tied, 3, true, true, "full", 12, 2, 1, 0},
    {&odd_gpt2, 4, true, false, NULL, 13, 3, 3, 0},
    {&odd_gpt2, 5, true, true, "selective", 3, 2, 1, 0},
    {&odd_llama, 2, false, false, NULL, 12, 3, 1, 2},
    {&odd_gpt2, 4, false, false, "full", 12, 3, 2, 6},
    {&odd_gpt2, 3, false, true, NULL, 12, 3, 1, 5},
    {&odd_gpt2, 2, false, false, NULL, 7, 2, 1, 4},
    {&odd_llama, 2, true, false, NULL, 11, 3, 1, 2},
    {&odd_gpt2, 4, true, true, "full", 5, 3, 2, 5},
};

static void test_parallel_tensor_formulas__memory_and_traffic(void **state)
{
    for (size_t i = 0; i < WEFT_COUNT_OF(variants); i++) {
        const variant *v = &variants[i];
        ranks_case c;
        ranks_result r;
        const ranks_layout layout = {.tp = v->tp,
                                     .is_sequence_parallel = v->is_sequence_parallel,
                                     .strips = v->strips,
                                     .recompute = v->recompute};
        ranks_case_init(&c, *state, v->model);
        c.options.seq_length = v->n_tokens;
        c.options.layout.dtype = v->is_bf16 ? "bf16" : "fp32";
        ranks_case_batches(&c, v->model->vocab, v->n_seqs, 2, 3);
        c.options.layout.micro_batch_size = v->micro_batch;
        ranks_case_apply(&c, &layout);
        ranks_case_run(&r, &c);
        check_traffic(v, &r);
        check_memory(v, &r);
        ranks_result_fini(&r);
        ranks_case_fini(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_parallel_tensor_formulas__memory_and_traffic,
                                        scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
