/*
 * DataParallel: the same bits as DDP, near one rank, and with --reproducible one rank's bits; what it sends and holds, to
 * the byte; that rank 0 alone needs the batch and learns of losses; runs that stop and go on in other layouts.
 */
#include "golden.h"
#include "ranks_case.h"
#include "ranks_compare.h"
#include "tiny.h"
#include "train_case.h"

#include "comm/message.h"
#include "parallel/ranks.h"
#include "parallel/replica.h"

#define LR 1e-3 /* of ranks_case_init */

typedef struct variant {
    const odd_model *model;
    int dp;
    int64_t n_seqs, micro;
    bool is_bf16, is_reproducible, is_not_overlapped;
    double bucket_mb; /* 0: the default, which holds all there is */
    const char *recompute;
    const char *optimizer;
} variant;

static void setup(ranks_case *c, scratch *s, const variant *v, const char *strategy)
{
    weft_layout_options *l = &c->options.layout;
    ranks_case_init(c, s, v->model);
    ranks_case_layout(c, v->dp, 0, v->is_reproducible);
    l->strategy = strategy;
    l->dtype = v->is_bf16 ? "bf16" : "fp32";
    l->micro_batch_size = v->micro;
    l->overlap_grad_reduce = !v->is_not_overlapped;
    l->recompute = v->recompute != NULL ? v->recompute : "none";
    if (v->bucket_mb > 0)
        l->bucket_size_mb = v->bucket_mb;
    if (v->optimizer != NULL)
        c->options.optimizer = v->optimizer;
}

static void
run(ranks_result *r, scratch *s, const variant *v, const char *strategy, int dp, int n_steps)
{
    ranks_case c;
    setup(&c, s, v, strategy);
    c.options.layout.dp = dp;
    ranks_case_batches(&c, v->model->vocab, v->n_seqs, n_steps, 11);
    ranks_case_run(r, &c);
    ranks_case_fini(&c);
}

static void fail_of(const variant *v, const char *why)
{
    fail_msg("%s%s, dp %d, %d sequences by %d%s: %s", v->model->name, v->is_bf16 ? ", bf16" : "",
             v->dp, (int)v->n_seqs, (int)v->micro, v->is_reproducible ? ", reproducible" : "", why);
}

/* ---- results ---- */

static void test_parallel_data_parallel__has_the_bits_of_ddp(void **state)
{
    static const variant cases[] = {
        {&odd_llama, 2, 4, 1, false, false, false, 0, NULL, NULL},
        {&odd_llama, 3, 7, 2, false, false, true, 0.1, "full", NULL},
        {&odd_tied, 4, 9, 1, false, false, false, 0.0001, "selective", NULL},
        {&odd_tied, 8, 3, 1, false, false, false, 0, NULL, "sgd"},
        {&odd_gpt2_dropout, 3, 8, 1, false, false, false, 0.1, NULL, NULL},
        {&odd_gpt2_dropout, 2, 7, 3, true, false, false, 0, "full", NULL},
        {&odd_llama_frozen, 4, 6, 1, false, false, false, 0, NULL, NULL},
        {&odd_gpt2_frozen, 3, 4, 1, true, false, true, 0, NULL, "sgd"},
        {&odd_llama, 8, 13, 1, true, false, false, 0, NULL, NULL},
        {&odd_three, 8, 9, 1, false, false, false, 0, NULL, NULL},
        {&odd_tied, 3, 8, 1, false, true, false, 0.1, NULL, NULL},
        {&odd_gpt2_dropout, 4, 5, 1, true, true, true, 0, NULL, NULL},
    };
    for (size_t i = 0; i < WEFT_COUNT_OF(cases); i++) {
        const variant *v = &cases[i];
        ranks_result ddp, dp;
        char why[256];
        run(&ddp, *state, v, "", v->dp, 5);
        run(&dp, *state, v, "data-parallel", v->dp, 5);
        if (!ranks_same_bits(&ddp, &dp, why))
            fail_of(v, why);
        if (memcmp(ddp.grad, dp.grad, (size_t)dp.n_elems * sizeof(float)) != 0)
            fail_of(v, "the first step's gradients differ");
        if (dp.traffic[0][WEFT_AXIS_DP].n_calls[WEFT_COMM_GATHER] == 0)
            fail_of(v, "nothing was gathered: this was no DataParallel");
        ranks_result_fini(&ddp);
        ranks_result_fini(&dp);
    }
}

/* The bounds: gradients 3e-5 of each tensor's largest; 5 steps of SGD 1e-5; of AdamW as ranks_near_adamw says. */
static void test_parallel_data_parallel__is_near_one_rank(void **state)
{
    static const variant cases[] = {
        {&odd_llama, 2, 5, 1, false, false, false, 0, NULL, "sgd"},
        {&odd_tied, 3, 7, 2, false, false, false, 0, NULL, "adamw"},
        {&odd_gpt2, 4, 6, 1, false, false, false, 0, "selective", "adamw"},
        {&odd_gpt2_dropout, 8, 11, 1, false, false, false, 0, NULL, "sgd"},
    };
    for (size_t i = 0; i < WEFT_COUNT_OF(cases); i++) {
        const variant *v = &cases[i];
        ranks_result one, many;
        char why[256];
        run(&one, *state, v, "", 1, 5);
        run(&many, *state, v, "data-parallel", v->dp, 5);
        if (!ranks_near_gradients(&one, &many, RANKS_GRADIENT_BOUND, why))
            fail_of(v, why);
        const bool is_sgd = strcmp(v->optimizer, "sgd") == 0;
        if (is_sgd ? !ranks_near_sgd(&one, &many, why) : !ranks_near_adamw(&one, &many, LR, why))
            fail_of(v, why);
        ranks_result_fini(&one);
        ranks_result_fini(&many);
    }
}

static void test_parallel_data_parallel__reproducible_is_one_rank_bit_for_bit(void **state)
{
    static const variant cases[] = {
        {&odd_llama, 2, 7, 1, false, true, false, 0, NULL, NULL},
        {&odd_tied, 3, 8, 2, false, true, false, 0.1, "full", NULL},
        {&odd_gpt2_dropout, 8, 5, 1, false, true, true, 0, NULL, NULL},
        {&odd_gpt2, 4, 9, 1, true, true, false, 0, NULL, "sgd"},
    };
    for (size_t i = 0; i < WEFT_COUNT_OF(cases); i++) {
        const variant *v = &cases[i];
        ranks_result one, many;
        char why[256];
        run(&one, *state, v, "", 1, 10);
        run(&many, *state, v, "data-parallel", v->dp, 10);
        if (!ranks_same_bits(&one, &many, why))
            fail_of(v, why);
        ranks_result_fini(&one);
        ranks_result_fini(&many);
    }
}

/* ---- bytes ---- */

/* Sequences that rank has in a step: micro-batch j is rank j mod dp's. */
static int64_t seqs_on(const variant *v, int rank)
{
    int64_t n = 0;
    for (int64_t j = 0; j * v->micro < v->n_seqs; j++) {
        if (j % v->dp == rank)
            n += WEFT_MIN(v->micro, v->n_seqs - j * v->micro);
    }
    return n;
}

static int64_t rounds_of(const variant *v)
{
    const int64_t n_micro = (v->n_seqs + v->micro - 1) / v->micro;
    return (n_micro + v->dp - 1) / v->dp;
}

static zero_case ddp_of(const variant *v)
{
    return (zero_case){.model = v->model,
                       .dp = v->dp,
                       .is_reproducible = v->is_reproducible,
                       .is_overlapped = !v->is_not_overlapped,
                       .bucket_mb = 25,
                       .is_bf16 = v->is_bf16,
                       .n_moments = 2,
                       .n_rounds = rounds_of(v)};
}

/* Trained elements, each parameter padded to 32. */
static int64_t trained_elems(const variant *v)
{
    odd_param p[ODD_PARAMS_MOST];
    const int n = odd_params(v->model, p);
    int64_t elems = 0;
    for (int i = 0; i < n; i++)
        elems += p[i].is_frozen ? 0 : (p[i].n + 31) / 32 * 32;
    return elems;
}

/* Trained segments: those that DDP makes a call for. */
static int64_t segments_of(const variant *v)
{
    const zero_case ddp = ddp_of(v);
    weft_traffic t;
    zero_traffic(&t, &ddp, 0);
    return (int64_t)(v->is_reproducible ? t.n_calls[WEFT_COMM_ALL_GATHER]
                                        : t.n_calls[WEFT_COMM_ALL_REDUCE] - 1);
}

static void count(weft_traffic *t, weft_comm_op op, int64_t n_calls, int64_t n_bytes)
{
    t->n_calls[op] += (uint64_t)n_calls;
    t->sent_bytes[op] += (uint64_t)n_bytes;
}

/* The formulas of data_parallel.c's head, with a sequence of 12 tokens. */
static void expected_traffic(weft_traffic *t, const variant *v, int rank)
{
    const int64_t elems = trained_elems(v), n_segments = segments_of(v), rounds = rounds_of(v);
    const int64_t tokens = 12, vocab = v->model->vocab, size = v->is_bf16 ? 2 : 4;
    const bool is_root = rank == 0;
    const int64_t others = is_root ? v->dp - 1 : 0;
    const int64_t away = is_root ? v->n_seqs - seqs_on(v, 0) : 0;
    const int64_t numbers = 2 * (68 + 1); /* two exact sums */
    const int64_t mine = numbers / v->dp + (rank < numbers % v->dp ? 1 : 0);
    *t = (weft_traffic){{0}, {0}};
    count(t, WEFT_COMM_SCATTER, 3 * rounds, away * (4 * tokens + 8 + size * tokens * vocab));
    count(t, WEFT_COMM_GATHER, rounds, is_root ? 0 : seqs_on(v, rank) * 4 * tokens * vocab);
    count(t, WEFT_COMM_BROADCAST, 1 + n_segments, others * (8 + size * elems));
    count(t, v->is_reproducible ? WEFT_COMM_REDUCE_SCATTER : WEFT_COMM_REDUCE,
          n_segments * (v->is_reproducible ? rounds : 1),
          is_root ? 0 : 4 * elems * (v->is_reproducible ? rounds : 1));
    count(t, WEFT_COMM_ALL_REDUCE, 1, (numbers - mine + (v->dp - 1) * mine) * 8);
}

static void check_traffic(const variant *v, int rank, const char *what, const weft_traffic *got)
{
    weft_traffic want;
    char why[256];
    expected_traffic(&want, v, rank);
    for (int op = 0; op < (int)WEFT_COMM_OP_COUNT; op++) {
        (void)snprintf(
            why, sizeof(why), "rank %d, %s: %llu %s of %llu bytes, should be %llu of %llu", rank,
            what, (unsigned long long)got->n_calls[op], weft_i_comm_op_name((weft_comm_op)op),
            (unsigned long long)got->sent_bytes[op], (unsigned long long)want.n_calls[op],
            (unsigned long long)want.sent_bytes[op]);
        if (got->n_calls[op] != want.n_calls[op] || got->sent_bytes[op] != want.sent_bytes[op])
            fail_of(v, why);
    }
}

static const variant sized[] = {
    {&odd_llama, 2, 2, 1, false, false, false, 0, NULL, NULL},
    {&odd_tied, 3, 8, 1, false, false, false, 0, NULL, NULL},
    {&odd_gpt2, 8, 5, 2, true, false, false, 0, NULL, NULL},
    {&odd_llama_frozen, 3, 7, 2, true, false, true, 0, NULL, NULL},
    {&odd_gpt2_frozen, 4, 9, 1, false, false, false, 0, "full", NULL},
    {&odd_tied, 3, 7, 1, false, true, false, 0, NULL, NULL},
    {&odd_gpt2_dropout, 5, 11, 2, true, true, true, 0, NULL, NULL},
    {&odd_small, 8, 1, 1, false, true, false, 0, NULL, NULL},
};

static void test_parallel_data_parallel__sends_what_the_formulas_say(void **state)
{
    for (size_t i = 0; i < WEFT_COUNT_OF(sized); i++) {
        const variant *v = &sized[i];
        ranks_result r;
        run(&r, *state, v, "data-parallel", v->dp, 2); /* which send the same */
        for (int rank = 0; rank < v->dp; rank++) {
            check_traffic(v, rank, "run", &r.traffic[rank][WEFT_AXIS_DP]);
            check_traffic(v, rank, "plan", &r.planned_traffic[rank][WEFT_AXIS_DP]);
        }
        ranks_result_fini(&r);
    }
}

static size_t rounded(int64_t n_bytes)
{
    return (size_t)(n_bytes + 63) / 64 * 64;
}

static void expected_memory(size_t out[WEFT_MEM_COUNT], const variant *v, int rank)
{
    const int64_t elems = trained_elems(v);
    const int64_t outputs = v->micro * 12 * v->model->vocab * (rank == 0 ? v->dp : 1);
    const zero_case ddp = ddp_of(v);
    zero_memory(out, &ddp, rank);
    out[WEFT_MEM_GRADIENTS] = (size_t)(v->is_reproducible && rank > 0 ? 0 : elems * 4);
    out[WEFT_MEM_OPTIMIZER] = (size_t)(rank > 0 ? 0 : elems * (v->is_bf16 ? 12 : 8));
    out[WEFT_MEM_COMMUNICATION] += rounded(outputs * 4);
    if (v->is_bf16 && rank == 0)
        out[WEFT_MEM_COMMUNICATION] += rounded(outputs * 2);
}

static void test_parallel_data_parallel__holds_what_the_formulas_say(void **state)
{
    static const weft_mem kinds[] = {WEFT_MEM_PARAMETERS, WEFT_MEM_GRADIENTS, WEFT_MEM_OPTIMIZER,
                                     WEFT_MEM_COMMUNICATION};
    for (size_t i = 0; i < WEFT_COUNT_OF(sized); i++) {
        const variant *v = &sized[i];
        ranks_result r;
        run(&r, *state, v, "data-parallel", v->dp, 3);
        for (int rank = 0; rank < v->dp; rank++) {
            size_t want[WEFT_MEM_COUNT];
            expected_memory(want, v, rank);
            for (size_t k = 0; k < WEFT_COUNT_OF(kinds); k++) {
                assert_int_equal(r.planned[rank][kinds[k]], want[kinds[k]]);
                assert_int_equal(r.taken[rank][kinds[k]], want[kinds[k]]);
            }
            for (int kind = 0; kind < (int)WEFT_MEM_CONTROL; kind++)
                assert_int_equal(r.taken[rank][kind], r.planned[rank][kind]);
            assert_int_equal(r.n_allocs_late[rank], 0);
        }
        ranks_result_fini(&r);
    }
}

/* ---- who reads, who learns ---- */

#define N_SEQS 7
#define N_TOKENS 6
#define MICRO 2
#define VOCAB 53

/* One training pass over a batch with positions of its own. */
typedef struct pass_case {
    const char *model;
    int32_t ids[N_SEQS * N_TOKENS], targets[N_SEQS * N_TOKENS], positions[N_SEQS * N_TOKENS];
    int64_t samples[N_SEQS];
    bool has_blind_others; /* ranks but 0 get no ids, no targets, and wrong numbers */
    int odd_rank;          /* has micro-batches of 1; -1: none */
    /* what came of it */
    int n_done[RANKS_MOST];
    float loss[N_SEQS * N_TOKENS];
    float logits[N_SEQS * N_TOKENS * VOCAB];
} pass_case;

typedef struct pass_rank {
    pass_case *c;
    int rank;
} pass_rank;

static weft_status note_done(void *user, const weft_micro_batch *mb)
{
    const pass_rank *k = user;
    pass_case *c = k->c;
    const int64_t rows = mb->n_seqs * N_TOKENS;
    if (mb->first_seq != mb->number * MICRO || mb->losses.rows != rows || mb->logits.rows != rows ||
        mb->logits.cols != VOCAB)
        WEFT_FAIL(WEFT_STATUS_MISMATCH, "micro-batch %lld has %lld rows of losses",
                  (long long)mb->number, (long long)mb->losses.rows);
    c->n_done[k->rank]++;
    memcpy(c->loss + mb->first_seq * N_TOKENS, mb->losses.data, (size_t)rows * sizeof(float));
    memcpy(c->logits + mb->first_seq * N_TOKENS * VOCAB, mb->logits.data,
           (size_t)(rows * VOCAB) * sizeof(float));
    return WEFT_OK;
}

static weft_status
train_once(pass_case *c, weft_mesh *mesh, weft_replica *replica, weft_run *run, weft_view logits)
{
    const bool is_blind = c->has_blind_others && mesh->world_rank > 0;
    pass_rank me = {c, mesh->world_rank};
    static const int32_t wrong_positions[N_SEQS * N_TOKENS] = {63};
    static const int64_t wrong_samples[N_SEQS] = {-1};
    const weft_host_batch batch = {.n_seqs = N_SEQS,
                                   .n_tokens = N_TOKENS,
                                   .ids = is_blind ? NULL : c->ids,
                                   .targets = is_blind ? NULL : c->targets,
                                   .positions = is_blind ? wrong_positions : c->positions,
                                   .samples = is_blind ? wrong_samples : c->samples};
    const weft_parallel_pass pass = {.batch = &batch,
                                     .micro_batch = c->odd_rank == mesh->world_rank ? 1 : MICRO,
                                     .logits = logits,
                                     .done = note_done,
                                     .user = &me};
    weft_exec *e = weft_run_exec(run);
    e->is_training = true;
    e->dropout_key[0] = 5;
    e->loss_scale = 1.0F / 30;
    return weft_i_parallel_train_pass(replica->parallel, run, &pass);
}

static weft_status pass_on_rank(void *user, weft_mesh *mesh)
{
    pass_case *c = user;
    static _Thread_local float logits[MICRO * N_TOKENS * VOCAB];
    weft_source source;
    weft_replica replica = {.model = NULL};
    weft_run *run = NULL;
    WEFT_TRY(weft_i_source_open(&source, mesh->ctx, c->model, "fp32"));
    weft_status st = weft_i_replica_create(&replica, mesh, &source, true, 3);
    weft_run_options o = {.n_seqs = MICRO,
                          .n_tokens = N_TOKENS,
                          .n_positions = 64,
                          .n_slots = 1,
                          .workspace_bytes = (size_t)1 << 22};
    if (st == WEFT_OK) {
        weft_i_parallel_run_options(replica.parallel, &o);
        st = weft_run_create(&run, replica.model, &o);
    }
    if (st == WEFT_OK)
        st = train_once(c, mesh, &replica, run,
                        weft_view_make(logits, WEFT_DTYPE_F32, (int64_t)MICRO * N_TOKENS, VOCAB));
    weft_run_destroy(run);
    weft_i_replica_destroy(&replica);
    weft_i_source_close(&source, mesh->ctx);
    return st;
}

static void make_pass(pass_case *c, scratch *s, char path[512])
{
    const tiny_folder f = {.config = tiny_gpt2};
    memset(c, 0, sizeof(*c));
    c->odd_rank = -1;
    c->model = tiny_write(s, "m", &f, path);
    for (int i = 0; i < N_SEQS * N_TOKENS; i++) {
        c->ids[i] = i * i % VOCAB;
        c->targets[i] = i % 5 == 0 ? -100 : (i * 7 + 3) % VOCAB;
        c->positions[i] = i % N_TOKENS + i / N_TOKENS; /* of windows that begin elsewhere */
        c->samples[i / N_TOKENS] = 100 + i / N_TOKENS;
    }
}

static weft_status run_pass(pass_case *c, int dp, const char *strategy)
{
    weft_layout_options o;
    weft_layout layout;
    weft_layout_options_init(&o);
    o.dp = dp;
    o.strategy = strategy;
    o.threads_per_rank = 1;
    CHECK_OK(weft_i_layout_make(&layout, &o));
    return weft_i_ranks_run(&layout, &o, NULL, pass_on_rank, c);
}

static void test_parallel_data_parallel__rank_0_alone_needs_the_batch_and_learns(void **state)
{
    static pass_case one, many;
    char path[512];
    make_pass(&one, *state, path);
    CHECK_OK(run_pass(&one, 1, ""));
    for (int dp = 2; dp <= 8; dp += 3) {
        make_pass(&many, *state, path);
        many.has_blind_others = true;
        CHECK_OK(run_pass(&many, dp, "data-parallel"));
        assert_int_equal(many.n_done[0], 4);
        for (int r = 1; r < dp; r++)
            assert_int_equal(many.n_done[r], 0);
        assert_memory_equal(many.loss, one.loss, sizeof(one.loss));
        assert_memory_equal(many.logits, one.logits, sizeof(one.logits));
    }
}

static void test_parallel_data_parallel__a_rank_with_other_micro_batches_is_told(void **state)
{
    static pass_case c;
    char path[512];
    make_pass(&c, *state, path);
    c.odd_rank = 2;
    CHECK_FAILS(run_pass(&c, 3, "data-parallel"), WEFT_STATUS_MISMATCH, "token ids");
}

/* A list of layers of one's own has no logits that this method knows of. */
static weft_status reserve_own_list(void *user, weft_mesh *mesh)
{
    weft_model *m = NULL;
    weft_param *p = NULL;
    weft_parallel *parallel = NULL;
    (void)user;
    WEFT_TRY(weft_model_create(&m, mesh->ctx, WEFT_DTYPE_F32));
    weft_status st = weft_model_add_param(m, "w", 2, 3, 5, &p);
    if (st == WEFT_OK)
        st = weft_i_parallel_create(&parallel, mesh, m, true);
    if (st == WEFT_OK)
        st = weft_i_parallel_reserve(parallel, 1, 4);
    weft_i_parallel_destroy(parallel);
    weft_model_destroy(m);
    return st;
}

static void test_parallel_data_parallel__refuses_a_list_without_logits(void **state)
{
    weft_layout_options o;
    weft_layout layout;
    (void)state;
    weft_layout_options_init(&o);
    o.dp = 2;
    o.threads_per_rank = 1;
    CHECK_OK(weft_i_layout_make(&layout, &o));
    CHECK_OK(weft_i_ranks_run(&layout, &o, NULL, reserve_own_list, NULL)); /* DDP needs none */
    o.strategy = "data-parallel";
    CHECK_OK(weft_i_layout_make(&layout, &o));
    CHECK_FAILS(weft_i_ranks_run(&layout, &o, NULL, reserve_own_list, NULL),
                WEFT_STATUS_UNSUPPORTED, "DataParallel");
}

static void test_parallel_data_parallel__a_step_without_targets_changes_nothing(void **state)
{
    static const variant v = {&odd_small, 3, 5, 1, false, false, false, 0, NULL, NULL};
    ranks_case c;
    ranks_result r;
    setup(&c, *state, &v, "data-parallel");
    ranks_case_batches(&c, v.model->vocab, v.n_seqs, 1, 3);
    int32_t *targets = (int32_t *)(uintptr_t)c.batch[0].targets;
    for (int64_t i = 0; i < v.n_seqs * 12; i++)
        targets[i] = -100;
    ranks_case_run(&r, &c);
    assert_int_equal(r.outcome[0].n_targets, 0);
    assert_memory_equal(r.begin, r.weight, (size_t)r.n_elems * sizeof(float));
    ranks_result_fini(&r);
    ranks_case_fini(&c);
}

/* ---- whole runs ---- */

static void whole_case(train_case *c, scratch *s, weft_family family, int64_t steps)
{
    train_case_init(c, s, family, family == WEFT_FAMILY_GPT2 ? 0.1 : 0.0);
    c->options.layout.micro_batch_size = 1;
    c->options.layout.global_batch_size = 5;
    c->options.layout.strategy = "data-parallel";
    c->options.layout.dp = 3;
    c->options.lr_schedule = "constant";
    c->options.train_steps = steps;
    c->options.eval_interval = 3;
}

static const char *checkpoint_of(const train_case *c, int64_t step, char path[1100])
{
    (void)snprintf(path, 1100, "%s/checkpoint-%d", c->out, (int)step);
    return path;
}

/* Metrics too: rank 0 knows the batch's hash, and every rank evaluates with the updated weights. */
static void test_parallel_data_parallel__a_run_and_its_files_are_ddps(void **state)
{
    static train_record dp, ddp;
    train_case c;
    char a[1100], b[1100];
    memset(&dp, 0, sizeof(dp));
    memset(&ddp, 0, sizeof(ddp));
    whole_case(&c, *state, WEFT_FAMILY_GPT2, 6);
    train_case_out(&c, "dp");
    CHECK_OK(train_case_run(&c, &dp));
    (void)checkpoint_of(&c, 6, a);
    c.options.layout.strategy = "";
    train_case_out(&c, "ddp");
    CHECK_OK(train_case_run(&c, &ddp));
    train_case_same_checkpoint(a, checkpoint_of(&c, 6, b));
    assert_int_equal(dp.n_steps, 6);
    for (int i = 0; i < 6; i++) {
        CHECK_SAME_DOUBLE(dp.step[i].loss, ddp.step[i].loss);
        CHECK_SAME_DOUBLE(dp.step[i].grad_norm, ddp.step[i].grad_norm);
        assert_true(dp.step[i].batch_hash == ddp.step[i].batch_hash);
        assert_int_equal(dp.step[i].eval_tokens, ddp.step[i].eval_tokens);
        if (dp.step[i].eval_tokens > 0)
            CHECK_SAME_DOUBLE(dp.step[i].eval_loss, ddp.step[i].eval_loss);
    }
    assert_true(dp.step[5].eval_tokens > 0);
}

static void test_parallel_data_parallel__goes_on_where_it_stopped(void **state)
{
    train_case c;
    char a[1100], b[1100];
    for (int is_bf16 = 0; is_bf16 < 2; is_bf16++) {
        whole_case(&c, *state, WEFT_FAMILY_LLAMA, 8);
        c.options.layout.dtype = is_bf16 ? "bf16" : "fp32";
        train_case_out(&c, is_bf16 ? "whole16" : "whole");
        CHECK_OK(train_case_run(&c, NULL));
        (void)checkpoint_of(&c, 8, a);
        train_case_out(&c, is_bf16 ? "parts16" : "parts");
        c.options.train_steps = 3;
        CHECK_OK(train_case_run(&c, NULL));
        c.options.train_steps = 8;
        c.options.resume = "";
        CHECK_OK(train_case_run(&c, NULL));
        train_case_same_checkpoint(a, checkpoint_of(&c, 8, b));
    }
}

/* With --reproducible every layout has the same bits, so a run may wander through all of them. */
static void test_parallel_data_parallel__other_layouts_read_its_checkpoints(void **state)
{
    static const struct {
        const char *strategy;
        int64_t dp, stage;
    } legs[] = {
        {"data-parallel", 3, 0}, {"", 4, 3}, {"data-parallel", 2, 0}, {"", 1, 0}, {"", 2, 1},
        {"data-parallel", 4, 0}};
    train_case c;
    char a[1100], b[1100];
    const int64_t n_legs = (int64_t)WEFT_COUNT_OF(legs);
    whole_case(&c, *state, WEFT_FAMILY_GPT2, n_legs);
    c.options.layout.reproducible = true;
    c.options.layout.strategy = "";
    c.options.layout.dp = 1;
    c.options.eval_interval = 0;
    train_case_out(&c, "straight");
    CHECK_OK(train_case_run(&c, NULL));
    (void)checkpoint_of(&c, n_legs, a);
    train_case_out(&c, "wandering");
    for (int64_t i = 0; i < n_legs; i++) {
        c.options.layout.strategy = legs[i].strategy;
        c.options.layout.dp = legs[i].dp;
        c.options.layout.zero_stage = legs[i].stage;
        c.options.train_steps = i + 1;
        c.options.resume = i > 0 ? "" : NULL;
        CHECK_OK(train_case_run(&c, NULL));
    }
    train_case_same_checkpoint(a, checkpoint_of(&c, n_legs, b));
}

/* ---- probe ---- */

static void test_parallel_data_parallel__probe_writes_what_ddp_writes(void **state)
{
    scratch *s = *state;
    const tiny_folder f = {.config = tiny_llama};
    int64_t ids[7 * 9], labels[7 * 9];
    char folder[512], batch[512], first[1024], second[1024];
    tiny_ids(ids, 7 * 9, 53);
    for (int i = 0; i < 7 * 9; i++)
        labels[i] = i / 9 == 2 || i % 4 == 0 ? -100 : ids[i];
    weft_probe_options o = {.layout = golden_layout("cpu", ""), .grads = true};
    weft_probe_result r, q;
    o.model = tiny_write(s, "m", &f, folder);
    o.batch = tiny_batch(s, ids, labels, 7, 9, batch);
    o.layout.threads_per_rank = 1;
    (void)snprintf(first, sizeof(first), "%s", scratch_path(s, "ddp.safetensors"));
    (void)snprintf(second, sizeof(second), "%s", scratch_path(s, "dp.safetensors"));
    for (int64_t dp = 2; dp <= 8; dp += 3) {
        o.layout.dp = dp;
        o.layout.micro_batch_size = dp == 2 ? 0 : 2;
        o.layout.dtype = dp == 5 ? "bf16" : "fp32";
        o.layout.strategy = "";
        o.out = first;
        CHECK_OK(weft_probe_run(&r, &o, NULL));
        o.layout.strategy = "data-parallel";
        o.out = second;
        CHECK_OK(weft_probe_run(&q, &o, NULL));
        CHECK_SAME_DOUBLE(r.loss, q.loss);
        train_case_same_file(first, second);
    }
}

#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(test_parallel_data_parallel__##name, scratch_setup,            \
                                    scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(has_the_bits_of_ddp),
        TEST(is_near_one_rank),
        TEST(reproducible_is_one_rank_bit_for_bit),
        TEST(sends_what_the_formulas_say),
        TEST(holds_what_the_formulas_say),
        TEST(rank_0_alone_needs_the_batch_and_learns),
        TEST(a_rank_with_other_micro_batches_is_told),
        TEST(refuses_a_list_without_logits),
        TEST(a_step_without_targets_changes_nothing),
        TEST(a_run_and_its_files_are_ddps),
        TEST(goes_on_where_it_stopped),
        TEST(other_layouts_read_its_checkpoints),
        TEST(probe_writes_what_ddp_writes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
