/*
 * What every rank holds, kind by kind: the closed forms of zero_formulas.c, to the byte, in the dry run and in the run; and
 * that steps take nothing more.
 */
#include "ranks_compare.h"
#include "train_case.h"

typedef struct variant {
    const odd_model *model;
    int dp, stage;
    bool is_reproducible, is_bf16, has_no_prefetch, is_not_overlapped;
    int64_t n_seqs; /* micro-batches of one */
    double bucket_mb;
    const char *optimizer;
    const char *recompute;
} variant;

static void setup(ranks_case *c, scratch *s, const variant *v)
{
    weft_layout_options *l = &c->options.layout;
    ranks_case_init(c, s, v->model);
    ranks_case_layout(c, v->dp, v->stage, v->is_reproducible);
    l->dtype = v->is_bf16 ? "bf16" : "fp32";
    l->recompute = v->recompute != NULL ? v->recompute : "none";
    l->zero_prefetch = !v->has_no_prefetch;
    l->overlap_grad_reduce = !v->is_not_overlapped;
    if (v->bucket_mb > 0)
        l->bucket_size_mb = v->bucket_mb;
    if (v->optimizer != NULL)
        c->options.optimizer = "sgd";
    if (v->optimizer != NULL && strcmp(v->optimizer, "momentum") == 0)
        c->options.sgd_momentum = 0.9;
}

static void check_variant(scratch *s, const variant *v)
{
    ranks_case c;
    ranks_result r;
    char why[256];
    setup(&c, s, v);
    ranks_case_batches(&c, v->model->vocab, v->n_seqs, 3, 3);
    ranks_case_run(&r, &c);
    const zero_case z = ranks_case_formula(&c, v->model);
    if (!ranks_as_formulas(&r, &z, why))
        fail_msg("%s, dp %d, stage %d%s%s, %s: %s", v->model->name, v->dp, v->stage,
                 v->is_reproducible ? ", reproducible" : "", v->is_bf16 ? ", bf16" : "",
                 v->optimizer != NULL ? v->optimizer : "adamw", why);
    ranks_result_fini(&r);
    ranks_case_fini(&c);
}

static void test_parallel_memory__every_kind_is_what_the_formulas_say(void **state)
{
    static const variant cases[] = {
        {&odd_llama, 2, 0, false, false, false, false, 2, 0, NULL, NULL},
        {&odd_llama, 3, 1, false, false, false, false, 3, 0, NULL, NULL},
        {&odd_llama, 5, 2, false, false, false, false, 5, 0, NULL, NULL},
        {&odd_llama, 8, 3, false, false, false, false, 8, 0, NULL, NULL},
        {&odd_tied, 3, 2, false, false, false, true, 7, 0.0001, NULL, NULL},
        {&odd_tied, 2, 3, false, false, true, false, 5, 0, NULL, "full"},
        {&odd_tied, 5, 3, true, true, false, true, 6, 0, NULL, "selective"},
        {&odd_llama, 3, 0, true, false, false, false, 5, 0.1, NULL, NULL},
        {&odd_llama, 3, 1, true, false, false, true, 5, 0.1, "sgd", NULL},
        {&odd_gpt2, 8, 0, false, true, false, false, 8, 0, NULL, NULL},
        {&odd_gpt2, 3, 1, false, true, false, false, 3, 0, "momentum", NULL},
        {&odd_gpt2_dropout, 2, 2, false, true, false, false, 2, 0.1, "sgd", NULL},
        {&odd_gpt2, 5, 3, false, true, true, true, 5, 0, "momentum", NULL},
        {&odd_llama_frozen, 2, 0, false, false, false, false, 2, 0, NULL, NULL},
        {&odd_llama_frozen, 3, 1, false, true, false, false, 4, 0, NULL, NULL},
        {&odd_llama_frozen, 3, 2, false, false, false, false, 4, 0, NULL, NULL},
        {&odd_llama_frozen, 8, 3, false, true, false, false, 3, 0, NULL, NULL},
        {&odd_gpt2_frozen, 3, 2, false, false, false, false, 4, 0.0001, NULL, NULL},
        {&odd_gpt2_frozen, 5, 3, true, false, false, false, 4, 0, NULL, NULL},
        {&odd_small, 8, 3, false, false, false, false, 1, 0, NULL, NULL},
        {&odd_three, 8, 1, false, false, false, false, 3, 0, NULL, NULL},
        {&odd_three, 8, 2, false, true, false, false, 3, 0, NULL, NULL},
        {&odd_three, 8, 3, true, false, false, false, 9, 0, NULL, NULL},
        {&odd_llama, 1, 0, false, false, false, false, 3, 0, NULL, NULL},
        {&odd_llama, 1, 3, true, true, false, false, 3, 0, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i += RANKS_STRIDE)
        check_variant(*state, &cases[i]);
}

/* fp32: 4 + 4 + 8 bytes a parameter; bf16: 2 + 4 + 4 + 8; divided as table 1 of the ZeRO paper divides them. */
static void test_parallel_memory__the_papers_table(void **state)
{
    static const struct {
        bool is_bf16;
        int64_t whole[4],
            cut[4]; /* bytes a parameter by stage: on every rank, and over the ranks */
    } tables[] = {{false, {16, 8, 4, 0}, {0, 8, 12, 16}}, {true, {18, 6, 2, 0}, {0, 12, 16, 18}}};
    const odd_model even = {.name = "even",
                            .vocab = 256,
                            .hidden = 64,
                            .n_layers = 3,
                            .n_heads = 4,
                            .n_kv_heads = 4,
                            .head_dim = 16,
                            .ffn = 128,
                            .n_positions = 32}; /* every parameter a multiple of 64 elements */
    odd_param p[ODD_PARAMS_MOST];
    const int n_params = odd_params(&even, p);
    int64_t n = 0;
    for (int i = 0; i < n_params; i++)
        n += p[i].n;
    for (int t = 0; t < 2; t++) {
        for (int stage = 0; stage < 4; stage++) {
            ranks_case c;
            ranks_result r;
            ranks_case_init(&c, *state, &even);
            ranks_case_layout(&c, 2, stage, false);
            c.options.layout.dtype = tables[t].is_bf16 ? "bf16" : "fp32";
            ranks_case_batches(&c, even.vocab, 2, 1, 3);
            ranks_case_run(&r, &c);
            for (int rank = 0; rank < 2; rank++)
                assert_int_equal(r.taken[rank][WEFT_MEM_PARAMETERS] +
                                     r.taken[rank][WEFT_MEM_GRADIENTS] +
                                     r.taken[rank][WEFT_MEM_OPTIMIZER],
                                 n * tables[t].whole[stage] + n * tables[t].cut[stage] / 2);
            ranks_result_fini(&r);
            ranks_case_fini(&c);
        }
    }
}

/* Ten million parameters on 4 ranks, by dry run: each stage takes less than the one before, buffers included. */
static void test_parallel_memory__each_stage_takes_less(void **state)
{
    static const odd_model ten_million = {.name = "ten_million",
                                          .vocab = 4003,
                                          .hidden = 320,
                                          .n_layers = 6,
                                          .n_heads = 8,
                                          .n_kv_heads = 8,
                                          .head_dim = 40,
                                          .ffn = 860,
                                          .n_positions = 64};
    odd_param p[ODD_PARAMS_MOST];
    const int n_params = odd_params(&ten_million, p);
    int64_t n = 0;
    for (int i = 0; i < n_params; i++)
        n += p[i].n;
    assert_true(n > 9000000 && n < 11000000);
    for (int t = 0; t < 2; t++) {
        size_t before = SIZE_MAX, total_before = SIZE_MAX;
        for (int stage = 0; stage < 4; stage++) {
            ranks_case c;
            ranks_result r;
            ranks_case_init(&c, *state, &ten_million);
            ranks_case_layout(&c, 4, stage, false);
            c.options.layout.dtype = t == 0 ? "fp32" : "bf16";
            c.options.layout.global_batch_size = 4;
            ranks_case_run(&r, &c); /* no batches: plans alone */
            const zero_case z = ranks_case_formula(&c, &ten_million);
            size_t worst = 0, worst_total = 0;
            for (int rank = 0; rank < 4; rank++) {
                const size_t *b = r.planned[rank];
                size_t want[WEFT_MEM_COUNT];
                zero_memory(want, &z, rank);
                assert_int_equal(b[WEFT_MEM_COMMUNICATION], want[WEFT_MEM_COMMUNICATION]);
                const size_t states =
                    b[WEFT_MEM_PARAMETERS] + b[WEFT_MEM_GRADIENTS] + b[WEFT_MEM_OPTIMIZER];
                worst = states > worst ? states : worst;
                const size_t total = states + b[WEFT_MEM_COMMUNICATION];
                worst_total = total > worst_total ? total : worst_total;
            }
            assert_true(worst < before);
            assert_true(worst_total <= total_before);
            before = worst;
            total_before = worst_total;
            ranks_result_fini(&r);
        }
    }
}

/* Activations are those of one micro-batch: the peak does not grow with accumulation. */
static void test_parallel_memory__the_peak_does_not_grow_with_accumulation(void **state)
{
    for (int stage = 0; stage < 4; stage++) {
        size_t first[2] = {0, 0};
        for (int64_t accumulate = 1; accumulate <= 16; accumulate *= 4) {
            ranks_case c;
            ranks_result r;
            ranks_case_init(&c, *state, &odd_llama);
            ranks_case_layout(&c, 2, stage, false);
            ranks_case_batches(&c, odd_llama.vocab, 2 * accumulate, 2, 3);
            ranks_case_run(&r, &c);
            for (int rank = 0; rank < 2; rank++) {
                size_t total = 0;
                for (int kind = 0; kind < (int)WEFT_MEM_CONTROL; kind++)
                    total += r.taken[rank][kind];
                if (accumulate == 1)
                    first[rank] = total;
                assert_int_equal(total, first[rank]);
                assert_int_equal(r.n_allocs_late[rank], 0);
            }
            ranks_result_fini(&r);
            ranks_case_fini(&c);
        }
    }
}

/* A limit below the peak of any rank is found before the first step, with the figures; one above it is not. */
static void test_parallel_memory__a_limit_is_kept_before_the_first_step(void **state)
{
    for (int stage = 0; stage < 4; stage++) {
        train_case c;
        train_record record = {.n_steps = 0};
        train_case_init(&c, *state, WEFT_FAMILY_LLAMA, 0.0);
        c.options.layout.dp = 3;
        c.options.layout.backend = RANKS_BACKEND;
        c.options.layout.zero_stage = stage;
        c.options.layout.micro_batch_size = 1;
        c.options.layout.global_batch_size = 3;
        c.options.train_steps = 3;
        c.options.eval_interval = 0;
        CHECK_OK(train_case_run(&c, &record));
        assert_int_equal(record.n_steps, 3);
        const double peak = record.step[0].memory_bytes; /* rank 0 has the most blocks */
        assert_true(peak > 0);
        for (int i = 1; i < 3; i++)
            CHECK_SAME_DOUBLE(record.step[i].memory_bytes, peak);
        train_case_out(&c, "limited");
        c.options.memory_limit_mb = peak * 0.95 / 1e6;
        record.n_steps = 0;
        CHECK_FAILS(train_case_run(&c, &record), WEFT_STATUS_NOMEM, "the run needs");
        assert_int_equal(record.n_steps, 0);
        c.options.memory_limit_mb = peak * 1.0001 / 1e6;
        CHECK_OK(train_case_run(&c, &record));
        assert_int_equal(record.n_steps, 3);
        CHECK_OK(weft_i_dir_remove(c.out));
        train_case_out(&c, "out");
        CHECK_OK(weft_i_dir_remove(c.out));
    }
}

#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(test_parallel_memory__##name, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_kind_is_what_the_formulas_say),
        TEST(the_papers_table),
        TEST(each_stage_takes_less),
        TEST(the_peak_does_not_grow_with_accumulation),
        TEST(a_limit_is_kept_before_the_first_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
