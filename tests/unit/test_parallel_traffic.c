/* What a step sends over the data axis, by kind of call and rank: the closed forms of zero_formulas.c, to the byte. */
#include "ranks_compare.h"

typedef struct variant {
    const odd_model *model;
    int dp, stage;
    bool is_reproducible, is_bf16;
    int64_t n_seqs; /* micro-batches of one */
    double bucket_mb;
    const char *recompute;
} variant;

/* Two steps (they send the same) and the plan of one. */
static void check_variant(scratch *s, const variant *v)
{
    ranks_case c;
    ranks_result r;
    char why[256];
    ranks_case_init(&c, s, v->model);
    ranks_case_layout(&c, v->dp, v->stage, v->is_reproducible);
    c.options.layout.dtype = v->is_bf16 ? "bf16" : "fp32";
    c.options.layout.recompute = v->recompute != NULL ? v->recompute : "none";
    if (v->bucket_mb > 0)
        c.options.layout.bucket_size_mb = v->bucket_mb;
    c.is_asking = true;
    ranks_case_batches(&c, v->model->vocab, v->n_seqs, 2, 3);
    ranks_case_run(&r, &c);
    const zero_case z = ranks_case_formula(&c, v->model);
    if (!ranks_as_formulas(&r, &z, why))
        fail_msg("%s, dp %d, stage %d%s%s, %d micro-batches: %s", v->model->name, v->dp, v->stage,
                 v->is_reproducible ? ", reproducible" : "", v->is_bf16 ? ", bf16" : "",
                 (int)v->n_seqs, why);
    for (int rank = 0; rank < v->dp; rank++) { /* rank 0's word whether to go on */
        const weft_traffic *word = &r.traffic[rank][WEFT_AXIS_WORLD];
        for (int op = 0; op < (int)WEFT_COMM_OP_COUNT; op++) {
            const bool is_word = op == (int)WEFT_COMM_BROADCAST;
            assert_int_equal(word->n_calls[op], is_word);
            assert_int_equal(word->sent_bytes[op], is_word && rank == 0 ? (v->dp - 1) * 8 : 0);
        }
    }
    ranks_result_fini(&r);
    ranks_case_fini(&c);
}

static void test_parallel_traffic__every_stage_sends_what_the_formulas_say(void **state)
{
    static const variant cases[] = {
        /* one micro-batch a rank */
        {&odd_llama, 2, 0, false, false, 2, 0, NULL},
        {&odd_llama, 3, 1, false, false, 3, 0, NULL},
        {&odd_llama, 5, 2, false, false, 5, 0, NULL},
        {&odd_llama, 8, 3, false, false, 8, 0, NULL},
        /* several, also such that some ranks have one less */
        {&odd_tied, 3, 0, false, false, 8, 0, NULL},
        {&odd_tied, 5, 1, false, false, 12, 0, NULL},
        {&odd_tied, 2, 2, false, false, 7, 0, NULL},
        {&odd_tied, 3, 3, false, false, 7, 0, NULL},
        /* reproducible: a reduction a micro-batch in every stage */
        {&odd_tied, 2, 0, true, false, 5, 0, NULL},
        {&odd_llama, 3, 1, true, false, 7, 0, NULL},
        {&odd_gpt2, 2, 2, true, false, 4, 0, NULL},
        {&odd_gpt2_dropout, 5, 3, true, false, 11, 0, NULL},
        /* bf16: weights take half, gradients do not */
        {&odd_gpt2, 3, 0, false, true, 3, 0, NULL},
        {&odd_gpt2, 5, 1, false, true, 5, 0, NULL},
        {&odd_llama, 3, 2, true, true, 7, 0, NULL},
        {&odd_tied, 8, 3, false, true, 9, 0, NULL},
        /* frozen: gathered, never reduced; in runs between trained ones */
        {&odd_llama_frozen, 3, 0, false, false, 4, 0, NULL},
        {&odd_llama_frozen, 5, 1, true, false, 6, 0, NULL},
        {&odd_gpt2_frozen, 2, 2, false, true, 3, 0, NULL},
        {&odd_gpt2_frozen, 3, 3, false, false, 5, 0, NULL},
        {&odd_llama_frozen, 8, 3, true, false, 8, 0, NULL},
        /* buckets of about two layers; of one */
        {&odd_llama, 3, 0, false, false, 3, 0.1, NULL},
        {&odd_gpt2, 5, 1, false, false, 5, 0.1, NULL},
        {&odd_tied, 3, 2, false, false, 4, 0.0001, NULL},
        {&odd_gpt2_frozen, 3, 0, true, false, 4, 0.05, NULL},
        /* more bytes than 64 bits count: one bucket */
        {&odd_llama, 2, 0, false, false, 2, 1e300, NULL},
        /* a forward again inside backward gathers nothing again */
        {&odd_llama, 2, 3, false, false, 3, 0, "full"},
        {&odd_gpt2, 3, 3, true, false, 4, 0, "selective"},
        /* less work than ranks, and parameters smaller than the group */
        {&odd_small, 8, 3, false, false, 1, 0, NULL},
        {&odd_three, 8, 1, false, false, 3, 0, NULL},
        {&odd_three, 8, 2, true, true, 3, 0, NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i += RANKS_STRIDE)
        check_variant(*state, &cases[i]);
}

/* Twice the ring's (n - 1) / n of the gradients for DDP and ZeRO-1 and 2, three times for ZeRO-3: the paper's sec. 7. */
static void test_parallel_traffic__the_papers_volumes(void **state)
{
    (void)state;
    odd_param p[ODD_PARAMS_MOST];
    const odd_model even = {.name = "even",
                            .vocab = 256,
                            .hidden = 64,
                            .n_layers = 6,
                            .n_heads = 4,
                            .n_kv_heads = 4,
                            .head_dim = 16,
                            .ffn = 128,
                            .n_positions = 32};
    const int n = odd_params(&even, p);
    int64_t all = 0, ends = 0;
    for (int i = 0; i < n; i++) {
        all += p[i].n;
        ends += p[i].layer == 0 || p[i].layer == 7 ? p[i].n : 0;
    }
    for (int stage = 0; stage < 4; stage++) {
        const zero_case z = {.model = &even,
                             .dp = 4,
                             .stage = stage,
                             .is_overlapped = true,
                             .bucket_mb = 25,
                             .n_moments = 2,
                             .n_rounds = 1};
        uint64_t sent = 0;
        for (int rank = 0; rank < 4; rank++) {
            weft_traffic t;
            zero_traffic(&t, &z, rank);
            for (int op = 0; op < (int)WEFT_COMM_OP_COUNT; op++)
                sent += t.sent_bytes[op];
        }
        /* ZeRO-3 gathers embedding and head once, blocks twice. */
        const int64_t elems = stage < 3 ? 2 * all : 3 * all - ends;
        const int64_t sums = 2 * 3 * 2 * (68 + 1) * 8;
        assert_int_equal(sent, 3 * elems * 4 + sums);
    }
}

#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(test_parallel_traffic__##name, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_stage_sends_what_the_formulas_say),
        TEST(the_papers_volumes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
