/*
 * Layouts that must agree bit for bit after ten clipped steps: losses, norms, weights, master weights, moments. The whole
 * product of them is tests/matrix; here is a choice in which every pair of settings that could meet does so once.
 */
#include "ranks_compare.h"

#define STEPS 10
#define CLIP 0.1 /* acts in every one of these models */

typedef struct group {
    const odd_model *model;
    const char *dtype;
    int64_t n_seqs, micro_batch;
    ranks_layout layout[12]; /* dp 0: no more */
} group;

static void run(ranks_result *r, ranks_case *c, const ranks_layout *l)
{
    ranks_case_apply(c, l);
    ranks_case_run(r, c);
}

/* Every layout of the group does what the first does. */
static void check_group(scratch *s, const group *g)
{
    ranks_case c;
    ranks_result first, other;
    char why[256], a[128], b[128];
    double largest_norm = 0;
    ranks_case_init(&c, s, g->model);
    c.options.layout.dtype = g->dtype;
    c.options.layout.micro_batch_size = g->micro_batch;
    c.options.clip_grad = CLIP;
    ranks_case_batches(&c, g->model->vocab, g->n_seqs, STEPS, 11);
    run(&first, &c, &g->layout[0]);
    for (int i = 0; i < STEPS; i++)
        largest_norm =
            first.outcome[i].grad_norm > largest_norm ? first.outcome[i].grad_norm : largest_norm;
    assert_true(largest_norm > CLIP);
    for (int i = 1; i < 12 && g->layout[i].dp > 0; i += RANKS_STRIDE) {
        run(&other, &c, &g->layout[i]);
        if (!ranks_same_bits(&first, &other, why))
            fail_msg("%s %s, %d sequences in %d: (%s) is not (%s): %s", g->model->name, g->dtype,
                     (int)g->n_seqs, (int)g->micro_batch, ranks_layout_text(&g->layout[i], a),
                     ranks_layout_text(&g->layout[0], b), why);
        ranks_result_fini(&other);
    }
    ranks_result_fini(&first);
    ranks_case_fini(&c);
}

static void check_groups(scratch *s, const group *groups, size_t n)
{
    for (size_t i = 0; i < n; i++)
        check_group(s, &groups[i]);
}

#define CHECK_GROUPS(s, groups) check_groups(s, groups, sizeof(groups) / sizeof(groups[0]))

/* DDP and ZeRO-1 add a step's gradients in the same order; buckets, overlap, threads and recomputing change no bit. */
static void test_parallel_bits__ddp_is_zero1(void **state)
{
    static const group groups[] = {
        {&odd_llama,
         "fp32",
         7,
         2,
         {{.dp = 2, .stage = 0},
          {.dp = 2, .stage = 1},
          {.dp = 2, .stage = 0}, /* the same command again */
          {.dp = 2, .stage = 0, .bucket_mb = 0.05, .n_threads = 3},
          {.dp = 2, .stage = 1, .bucket_mb = 0.0001, .is_not_overlapped = true},
          {.dp = 2, .stage = 1, .n_threads = 2, .recompute = "full"}}},
        {&odd_gpt2_dropout,
         "bf16",
         9,
         1,
         {{.dp = 3, .stage = 1},
          {.dp = 3, .stage = 0, .recompute = "selective"},
          {.dp = 3, .stage = 0, .is_not_overlapped = true, .bucket_mb = 0.1},
          {.dp = 3, .stage = 1, .n_threads = 2, .has_no_prefetch = true}}},
        {&odd_gpt2_frozen, "fp32", 12, 1, {{.dp = 5, .stage = 0}, {.dp = 5, .stage = 1}}},
        {&odd_tied, "bf16", 20, 2, {{.dp = 8, .stage = 0}, {.dp = 8, .stage = 1}}},
    };
    CHECK_GROUPS(*state, groups);
}

/* ZeRO-2 and ZeRO-3 add micro-batch by micro-batch; gathering weights changes no bit. */
static void test_parallel_bits__zero2_is_zero3(void **state)
{
    static const group groups[] = {
        {&odd_tied,
         "fp32",
         7,
         1,
         {{.dp = 3, .stage = 2},
          {.dp = 3, .stage = 3},
          {.dp = 3, .stage = 3, .has_no_prefetch = true},
          {.dp = 3, .stage = 2, .bucket_mb = 0.0001},
          {.dp = 3, .stage = 3, .is_not_overlapped = true, .n_threads = 2, .recompute = "full"},
          {.dp = 3, .stage = 2, .is_not_overlapped = true, .recompute = "selective"}}},
        {&odd_gpt2,
         "bf16",
         8,
         2,
         {{.dp = 2, .stage = 3},
          {.dp = 2, .stage = 2},
          {.dp = 2, .stage = 3, .has_no_prefetch = true, .is_not_overlapped = true}}},
        {&odd_llama_frozen, "fp32", 11, 1, {{.dp = 5, .stage = 3}, {.dp = 5, .stage = 2}}},
        {&odd_gpt2_dropout, "fp32", 17, 1, {{.dp = 8, .stage = 2}, {.dp = 8, .stage = 3}}},
    };
    CHECK_GROUPS(*state, groups);
}

/* With one micro-batch a rank there is but one order: all four agree, with and without --reproducible. */
static void test_parallel_bits__one_micro_batch_a_rank(void **state)
{
    static const group groups[] = {
        {&odd_llama,
         "fp32",
         4,
         1,
         {{.dp = 4, .stage = 0},
          {.dp = 4, .stage = 1},
          {.dp = 4, .stage = 2},
          {.dp = 4, .stage = 3},
          {.dp = 4, .stage = 0, .is_reproducible = true}}},
        {&odd_gpt2_frozen,
         "bf16",
         5,
         2, /* the third has one sequence */
         {{.dp = 3, .stage = 3},
          {.dp = 3, .stage = 0},
          {.dp = 3, .stage = 1},
          {.dp = 3, .stage = 2}}},
        {&odd_tied,
         "bf16",
         5,
         1, /* three ranks have none */
         {{.dp = 8, .stage = 1},
          {.dp = 8, .stage = 3},
          {.dp = 8, .stage = 0},
          {.dp = 8, .stage = 2}}},
    };
    CHECK_GROUPS(*state, groups);
}

/* --reproducible: one rank is every number of ranks, in every stage, however the batch falls. */
static void test_parallel_bits__reproducible_is_one_rank(void **state)
{
#define R .is_reproducible = true
    static const group groups[] = {
        {&odd_llama,
         "fp32",
         7,
         1,
         {{.dp = 1, R},
          {.dp = 1, .stage = 3, R},
          {.dp = 2, .stage = 0, R, .bucket_mb = 0.05},
          {.dp = 3, .stage = 3, R},
          {.dp = 5, .stage = 1, R, .is_not_overlapped = true},
          {.dp = 8, .stage = 2, R},
          {.dp = 3, .stage = 2}}}, /* ... which needs no flag for it */
        {&odd_tied,
         "bf16",
         7,
         2, /* does not divide */
         {{.dp = 1, R, .n_threads = 2},
          {.dp = 2, .stage = 3, R, .recompute = "full"},
          {.dp = 3, .stage = 0, R},
          {.dp = 8, .stage = 1, R},
          {.dp = 4, .stage = 2, R}}},
        {&odd_gpt2_dropout,
         "fp32",
         5,
         1,
         {{.dp = 1, R},
          {.dp = 2, .stage = 1, R},
          {.dp = 3, .stage = 0, R, .n_threads = 2},
          {.dp = 4, .stage = 3, R, .has_no_prefetch = true},
          {.dp = 8, .stage = 3, R}}},
        {&odd_gpt2_frozen,
         "bf16",
         6,
         1,
         {{.dp = 1, R},
          {.dp = 2, .stage = 2, R},
          {.dp = 3, .stage = 1, R},
          {.dp = 4, .stage = 0, R, .bucket_mb = 0.0001},
          {.dp = 5, .stage = 3, R}}},
        {&odd_llama_frozen,
         "fp32",
         3,
         2,
         {{.dp = 1, R},
          {.dp = 2, .stage = 3, R},
          {.dp = 2, .stage = 0, R},
          {.dp = 8, .stage = 2, R}}},
    };
#undef R
    CHECK_GROUPS(*state, groups);
}

/* What the above rests on: without the flag, another grouping of micro-batches is another sum. */
static void test_parallel_bits__another_order_is_another_sum(void **state)
{
    static const ranks_layout layouts[] = {
        {.dp = 2}, {.dp = 2, .is_reproducible = true}, {.dp = 4}, {.dp = 4, .stage = 2}};
    enum { N = sizeof(layouts) / sizeof(layouts[0]) };
    ranks_case c;
    ranks_result r[N];
    char why[256], a[128], b[128];
    ranks_case_init(&c, *state, &odd_llama);
    ranks_case_batches(&c, odd_llama.vocab, 8, 1, 11);
    for (int i = 0; i < N; i++)
        run(&r[i], &c, &layouts[i]);
    for (int i = 0; i < N; i++) {
        const bool is_ordered = layouts[i].is_reproducible || layouts[i].stage >= 2;
        for (int k = 0; k < i; k++) {
            const bool is_same =
                is_ordered && (layouts[k].is_reproducible || layouts[k].stage >= 2);
            if (ranks_same_bits(&r[i], &r[k], why) != is_same)
                fail_msg("(%s) and (%s) agree: %d", ranks_layout_text(&layouts[i], a),
                         ranks_layout_text(&layouts[k], b), !is_same);
        }
    }
    for (int i = 0; i < N; i++)
        ranks_result_fini(&r[i]);
    ranks_case_fini(&c);
}

/* Parameters smaller than the group of ranks: some ranks hold nothing of a segment. */
static void test_parallel_bits__parameters_smaller_than_the_group(void **state)
{
#define R .is_reproducible = true
    static const group groups[] = {
        {&odd_small,
         "fp32",
         8,
         1,
         {{.dp = 1, R},
          {.dp = 8, .stage = 1, R},
          {.dp = 8, .stage = 2, R},
          {.dp = 8, .stage = 3, R},
          {.dp = 8, .stage = 0}}},
        {&odd_three,
         "fp32",
         8,
         1,
         {{.dp = 1, R},
          {.dp = 8, .stage = 1, R, .bucket_mb = 0.0001},
          {.dp = 8, .stage = 2, R},
          {.dp = 8, .stage = 3, R}}},
        {&odd_three,
         "bf16",
         3,
         1,
         {{.dp = 1, R},
          {.dp = 8, .stage = 0, R},
          {.dp = 8, .stage = 3, R},
          {.dp = 7, .stage = 2, R}}},
    };
#undef R
    CHECK_GROUPS(*state, groups);
}

#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(test_parallel_bits__##name, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(ddp_is_zero1),
        TEST(zero2_is_zero3),
        TEST(one_micro_batch_a_rank),
        TEST(reproducible_is_one_rank),
        TEST(another_order_is_another_sum),
        TEST(parameters_smaller_than_the_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
