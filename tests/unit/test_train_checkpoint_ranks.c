/*
 * Checkpoints of several ranks: the bytes do not depend on who wrote them, any cut reads what any other wrote, checksums
 * are those of the files, and a rank that fails in the middle leaves the older checkpoint as it was.
 *
 * Weights and state are numbers told by (parameter, element, kind), so every rank knows what should be where.
 */
#include "train_case.h"

#include "base/crc32.h"
#include "base/ctx.h"
#include "parallel/ranks.h"
#include "tensor/convert.h"
#include "train/checkpoint.h"

#include <stdatomic.h>

#define N_STATES ((int)WEFT_STATE_COUNT)
#define VALUE (-1)

/* What a run of ranks does. */
typedef struct job {
    const train_case *c;
    const char *out;
    const char *dtype;     /* of the model */
    weft_dtype save_dtype; /* of the weights' files */
    const char *freeze;    /* glob; NULL: nothing */
    weft_optimizer_options optimizer;
    bool is_sharded; /* weights and state lie in shards (as in ZeRO-3); else whole (DDP) */
    uint64_t shard_bytes;
    int64_t step;
    int failing_rank;  /* -1: none */
    int failing_block; /* of that rank */
    bool is_short;     /* rank 1 leaves a part out */
    const char *dir;   /* read: the checkpoint */
} job;

/* One rank's model, optimizer and parts. */
typedef struct fixture {
    const job *job;
    weft_mesh *mesh;
    weft_source source;
    weft_model *model;
    weft_shards shards;
    void *values;
    weft_parts owned, all, states;
    weft_optimizer *optimizer;
    weft_trainer_state state;
} fixture;

/* Different for every element; exact in bf16 where the model is. */
static float wanted(const fixture *f, const weft_part *part, int64_t i, int kind)
{
    const uint64_t number = (uint64_t)(part->number * 8 + kind + 1);
    const uint64_t x = ((uint64_t)(part->first + i) * 2654435761u + number * 40503u) & 0xffffffu;
    float value = (float)x / 8388608.0f - 1.0f + (float)f->job->step;
    if (kind == VALUE && weft_model_dtype(f->model) == WEFT_DTYPE_BF16)
        value = weft_i_bf16_to_f32(weft_i_f32_to_bf16(value));
    return value;
}

static void fill_view(const fixture *f, const weft_part *part, weft_view v, int kind)
{
    for (int64_t i = 0; i < part->n && v.data != NULL; i++) {
        const float x = wanted(f, part, i, kind);
        if (v.dtype == WEFT_DTYPE_F32)
            ((float *)v.data)[i] = x;
        else
            ((uint16_t *)v.data)[i] = weft_i_f32_to_bf16(x);
    }
}

static weft_status check_view(const fixture *f, const weft_part *part, weft_view v, int kind)
{
    for (int64_t i = 0; i < part->n && v.data != NULL; i++) {
        const float x = v.dtype == WEFT_DTYPE_F32 ? ((float *)v.data)[i]
                                                  : weft_i_bf16_to_f32(((uint16_t *)v.data)[i]);
        const float y = wanted(f, part, i, kind);
        if (memcmp(&x, &y, sizeof(x)) != 0)
            WEFT_FAIL(WEFT_STATUS_INTERNAL, "%s element %lld, kind %d: %.9g, should be %.9g",
                      part->param->name, (long long)(part->first + i), kind, (double)x, (double)y);
    }
    return WEFT_OK;
}

static weft_status make_optimizer(fixture *f)
{
    weft_span *spans = NULL;
    int64_t n_elems = 0;
    WEFT_TRY(weft_i_alloc_array(f->mesh->ctx->alloc, f->states.n, sizeof(*spans), &spans));
    for (int64_t i = 0; i < f->states.n; i++) {
        const weft_part *part = &f->states.part[i];
        spans[i] = (weft_span){part->value, part->grad, part->state_first, false};
        n_elems = WEFT_MAX(n_elems, part->state_first + part->n);
    }
    const weft_status st = weft_i_optimizer_create(&f->optimizer, f->mesh->ctx, &f->job->optimizer,
                                                   spans, f->states.n, n_elems);
    weft_i_alloc_put(f->mesh->ctx->alloc, spans);
    return st;
}

static weft_status open_fixture(fixture *f, const job *j, weft_mesh *mesh)
{
    weft_ctx *ctx = mesh->ctx;
    int64_t n_matched = 0;
    *f = (fixture){.job = j, .mesh = mesh};
    WEFT_TRY(weft_i_source_open(&f->source, ctx, j->c->config, j->dtype));
    WEFT_TRY(weft_model_from_config(&f->model, ctx, &f->source.hf.config, f->source.dtype));
    if (j->freeze != NULL)
        WEFT_TRY(weft_model_freeze(f->model, j->freeze, &n_matched));
    WEFT_TRY(weft_model_lay_out(f->model, true));
    WEFT_TRY(weft_i_shards_create(&f->shards, f->model, mesh->world_rank, mesh->world_size, 0));
    const int64_t n_elems =
        j->is_sharded ? f->shards.n_value_elems : weft_model_value_elems(f->model);
    WEFT_TRY(weft_i_alloc_array(ctx->alloc, n_elems, sizeof(float), &f->values));
    weft_parts_options o = {.values = f->values,
                            .is_value_shard = j->is_sharded,
                            .is_state_shard = j->is_sharded,
                            .is_mine_only = true};
    WEFT_TRY(weft_i_parts_create(&f->owned, &f->shards, &o));
    o.is_mine_only = j->is_sharded;
    WEFT_TRY(weft_i_parts_create(&f->all, &f->shards, &o));
    o.is_trained_only = true;
    WEFT_TRY(weft_i_parts_create(&f->states, &f->shards, &o));
    WEFT_TRY(make_optimizer(f));
    f->state =
        (weft_trainer_state){.step = j->step, .settings = json_object(), .data = json_object()};
    return WEFT_OK;
}

static void close_fixture(fixture *f)
{
    weft_ctx *ctx = f->mesh->ctx;
    weft_i_trainer_state_fini(&f->state);
    weft_i_optimizer_destroy(f->optimizer);
    weft_i_parts_fini(&f->states, ctx);
    weft_i_parts_fini(&f->all, ctx);
    weft_i_parts_fini(&f->owned, ctx);
    weft_i_alloc_put(ctx->alloc, f->values);
    weft_i_shards_fini(&f->shards);
    weft_model_destroy(f->model);
    weft_i_source_close(&f->source, ctx);
}

static weft_checkpoint describe(const fixture *f)
{
    return (weft_checkpoint){.ctx = f->mesh->ctx,
                             .mesh = f->mesh,
                             .model = f->model,
                             .owned = &f->owned,
                             .values = &f->all,
                             .states = &f->states,
                             .optimizer = f->optimizer,
                             .save_dtype = f->job->save_dtype,
                             .source = &f->source,
                             .out = f->job->out,
                             .state = &f->state,
                             .shard_bytes = f->job->shard_bytes};
}

static weft_view state_view(const fixture *f, const weft_part *part, int kind)
{
    return part->state_first < 0
               ? weft_view_none()
               : weft_i_optimizer_state(f->optimizer, (weft_state)kind, part->state_first, part->n);
}

/* The rank's disk gives out after some blocks. */
typedef struct fault {
    weft_status (*alive)(void *user);
    void *user;
    int n_left;
} fault;

static weft_status fail_at_last(void *user)
{
    fault *f = user;
    if (f->n_left-- == 0)
        WEFT_FAIL(WEFT_STATUS_IO, "model.safetensors: writing failed: the disk gave out");
    return f->alive(f->user);
}

static weft_status save(void *user, weft_mesh *mesh)
{
    fixture f;
    weft_ctx *ctx = mesh->ctx;
    const job *j = user;
    weft_status st = open_fixture(&f, j, mesh);
    for (int64_t i = 0; i < f.all.n && st == WEFT_OK; i++) {
        const weft_part *part = &f.all.part[i];
        fill_view(&f, part, part->value, VALUE);
        for (int k = 0; k < N_STATES; k++)
            fill_view(&f, part, state_view(&f, part, k), k);
    }
    fault broken = {ctx->alive, ctx->alive_user, j->failing_block};
    const bool is_failing = j->failing_rank == mesh->world_rank;
    if (is_failing) {
        ctx->alive = fail_at_last;
        ctx->alive_user = &broken;
    }
    if (j->is_short && mesh->world_rank == 1)
        f.owned.n--;
    const weft_checkpoint c = describe(&f);
    if (st == WEFT_OK)
        st = weft_i_checkpoint_save(&c);
    if (is_failing) {
        ctx->alive = broken.alive;
        ctx->alive_user = broken.user;
    }
    close_fixture(&f);
    return st;
}

static weft_status check_read(const fixture *f)
{
    const weft_checkpoint c = describe(f);
    WEFT_TRY(weft_i_checkpoint_restore(&c, f->job->dir));
    const bool has_master =
        weft_model_dtype(f->model) == WEFT_DTYPE_F32 && f->job->save_dtype != WEFT_DTYPE_F32;
    for (int64_t i = 0; i < f->all.n; i++) {
        const weft_part *part = &f->all.part[i];
        if (has_master)
            WEFT_TRY(check_view(f, part, part->value, VALUE));
        for (int k = 0; k < N_STATES; k++)
            WEFT_TRY(check_view(f, part, state_view(f, part, k), k));
    }
    return WEFT_OK;
}

static weft_status restore(void *user, weft_mesh *mesh)
{
    fixture f;
    weft_status st = open_fixture(&f, user, mesh);
    if (st == WEFT_OK)
        st = check_read(&f);
    close_fixture(&f);
    return st;
}

static weft_status run(const job *j, int n_ranks, weft_rank_fn *fn)
{
    weft_layout layout;
    weft_layout_options o;
    job copy = *j;
    weft_layout_options_init(&o);
    o.dp = n_ranks;
    o.threads_per_rank = 1;
    CHECK_OK(weft_i_layout_make(&layout, &o));
    return weft_i_ranks_run(&layout, &o, NULL, fn, &copy);
}

/* Checksums of the files as they lie there, by way of the reader. */
static void check_sums(const train_case *c, const char *dir)
{
    json_t *files = NULL, *entry = NULL, *value = NULL;
    const char *name = NULL, *tensor = NULL;
    char path[WEFT_PATH_MAX];
    int n_tensors = 0, n_files = 0;
    CHECK_OK(weft_i_checksums_read(&files, c->s->alloc, dir));
    json_object_foreach(files, name, entry)
    {
        uint64_t n_bytes = 0;
        uint32_t crc = 0, told = 0;
        n_files++;
        CHECK_OK(weft_i_path_join(path, dir, name));
        CHECK_OK(weft_i_crc32_file(path, &crc, &n_bytes));
        assert_true(weft_i_checksums_crc(json_object_get(entry, "crc32"), &told));
        assert_int_equal(told, crc);
        assert_int_equal(json_integer_value(json_object_get(entry, "bytes")), n_bytes);
        if (json_object_get(entry, "tensors") == NULL)
            continue;
        weft_st *file = NULL;
        CHECK_OK(weft_i_st_open(&file, c->s->alloc, path));
        assert_int_equal(weft_i_st_count(file),
                         json_object_size(json_object_get(entry, "tensors")));
        json_object_foreach(json_object_get(entry, "tensors"), tensor, value)
        {
            const weft_st_tensor *t = weft_i_st_find(file, tensor);
            assert_non_null(t);
            assert_true(weft_i_checksums_crc(value, &told));
            assert_int_equal(told, weft_i_crc32(t->data, t->n_bytes));
            n_tensors++;
        }
        weft_i_st_close(file);
    }
    json_decref(files);
    assert_true(n_tensors > 40 && n_files >= 4);
}

/* Every file of the one folder is in the other, byte for byte, and the other has no more. By another layout trainer_state.json,
   and so its checksum, differs. */
static void same_folders(const train_case *c, const char *a, const char *b, bool is_same_layout)
{
    char **x = NULL, **y = NULL, p[WEFT_PATH_MAX], q[WEFT_PATH_MAX];
    size_t n_x = 0, n_y = 0;
    CHECK_OK(weft_i_dir_list(c->s->alloc, a, &x, &n_x));
    CHECK_OK(weft_i_dir_list(c->s->alloc, b, &y, &n_y));
    assert_int_equal(n_x, n_y);
    for (size_t i = 0; i < n_x; i++) {
        assert_string_equal(x[i], y[i]);
        if (!is_same_layout &&
            (strcmp(x[i], WEFT_TRAINER_STATE_FILE) == 0 || strcmp(x[i], WEFT_CHECKSUMS_FILE) == 0))
            continue;
        CHECK_OK(weft_i_path_join(p, a, x[i]));
        CHECK_OK(weft_i_path_join(q, b, y[i]));
        train_case_same_file(p, q);
    }
    weft_i_names_free(c->s->alloc, x, n_x);
    weft_i_names_free(c->s->alloc, y, n_y);
}

static const weft_optimizer_options adamw = {
    .kind = WEFT_OPTIMIZER_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
static const weft_optimizer_options sgd = {.kind = WEFT_OPTIMIZER_SGD, .momentum = 0.9};

typedef struct folder {
    char path[WEFT_PATH_MAX];
} folder;

static void in(folder *f, const train_case *c, const char *name)
{
    CHECK_OK(weft_i_path_join(f->path, c->s->dir, name));
}

/* One rank, then 3 with all of it, then 8 with shards: the same bytes; what they wrote others read. */
static void test_train_checkpoint_ranks__bytes_do_not_depend_on_the_ranks(void **state)
{
    static const struct {
        weft_family family;
        const char *dtype;
        weft_dtype save_dtype;
        const char *freeze;
        bool is_sgd;
        uint64_t shard_bytes;
    } cases[] = {
        {WEFT_FAMILY_LLAMA, "fp32", WEFT_DTYPE_F32, NULL, false, UINT64_MAX},
        {WEFT_FAMILY_GPT2, "fp32", WEFT_DTYPE_BF16, "*.wpe.*", true, 20000},
        {WEFT_FAMILY_GPT2, "bf16", WEFT_DTYPE_F32, "*.h.1.*", false, 5000},
        {WEFT_FAMILY_LLAMA, "bf16", WEFT_DTYPE_BF16, "*norm*", true, UINT64_MAX},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        train_case c;
        folder one, three, eight, a, b, d;
        train_case_init(&c, *state, cases[i].family, 0.0);
        in(&one, &c, "one");
        in(&three, &c, "three");
        in(&eight, &c, "eight");
        in(&a, &c, "one/checkpoint-7");
        in(&b, &c, "three/checkpoint-7");
        in(&d, &c, "eight/checkpoint-7");
        job j = {.c = &c,
                 .out = one.path,
                 .dtype = cases[i].dtype,
                 .save_dtype = cases[i].save_dtype,
                 .freeze = cases[i].freeze,
                 .optimizer = cases[i].is_sgd ? sgd : adamw,
                 .shard_bytes = cases[i].shard_bytes,
                 .step = 7,
                 .failing_rank = -1};
        CHECK_OK(run(&j, 1, save));
        check_sums(&c, a.path);
        j.out = three.path;
        CHECK_OK(run(&j, 3, save));
        same_folders(&c, a.path, b.path, false);
        check_sums(&c, b.path);
        j.out = eight.path;
        j.is_sharded = true;
        CHECK_OK(run(&j, 8, save));
        same_folders(&c, a.path, d.path, false);
        check_sums(&c, d.path);
        weft_trainer_state told;
        CHECK_OK(weft_i_trainer_state_read(&told, c.s->alloc, d.path));
        assert_true(told.layout.n_ranks == 8 && told.layout.dp == 8 && told.layout.tp == 1);
        weft_i_trainer_state_fini(&told);
        j.dir = d.path;
        CHECK_OK(run(&j, 2, restore)); /* shards of another cut */
        j.is_sharded = false;
        CHECK_OK(run(&j, 1, restore));
        CHECK_OK(run(&j, 2, restore)); /* all of it on both */
        CHECK_OK(weft_i_dir_remove(one.path));
        CHECK_OK(weft_i_dir_remove(three.path));
        CHECK_OK(weft_i_dir_remove(eight.path));
    }
}

/* Frozen weights are in the model's file, bit for bit, and have no state. */
static void test_train_checkpoint_ranks__frozen_weights_are_saved(void **state)
{
    train_case c;
    folder out, dir;
    weft_st *file = NULL;
    train_case_init(&c, *state, WEFT_FAMILY_GPT2, 0.0);
    in(&out, &c, "frozen");
    in(&dir, &c, "frozen/checkpoint-1");
    const job j = {.c = &c,
                   .out = out.path,
                   .dtype = "fp32",
                   .save_dtype = WEFT_DTYPE_F32,
                   .freeze = "*",
                   .optimizer = adamw,
                   .is_sharded = true,
                   .shard_bytes = UINT64_MAX,
                   .step = 1,
                   .failing_rank = -1};
    job some = j;
    some.freeze = "transformer.h.*";
    CHECK_OK(run(&some, 3, save));
    CHECK_OK(weft_i_st_open_folder(&file, c.s->alloc, dir.path, "optimizer"));
    assert_non_null(weft_i_st_find(file, "exp_avg/transformer.wte.weight"));
    assert_null(weft_i_st_find(file, "exp_avg/transformer.h.1.mlp.c_fc.weight"));
    assert_null(weft_i_st_find(file, "master/transformer.h.1.mlp.c_fc.weight"));
    weft_i_st_close(file);
    CHECK_OK(weft_i_st_open_folder(&file, c.s->alloc, dir.path, "model"));
    const weft_st_tensor *t = weft_i_st_find(file, "transformer.h.1.mlp.c_fc.weight");
    assert_non_null(t);
    float first = 0, again = 0;
    memcpy(&first, t->data, sizeof(first));
    weft_i_st_close(file);
    /* All frozen, on 3 ranks and on one: no state at all is as good as any. */
    CHECK_OK(run(&j, 3, save));
    CHECK_OK(weft_i_st_open_folder(&file, c.s->alloc, dir.path, "model"));
    t = weft_i_st_find(file, "transformer.h.1.mlp.c_fc.weight");
    memcpy(&again, t->data, sizeof(again));
    assert_memory_equal(&first, &again, sizeof(first));
    weft_i_st_close(file);
}

/* The disk of one rank gives out, in every block of it: no rank goes on, the older checkpoint is whole. */
static void test_train_checkpoint_ranks__one_fails_and_the_old_one_stays(void **state)
{
    train_case c;
    folder out, kept, dir, temporary;
    int n_failed = 0;
    train_case_init(&c, *state, WEFT_FAMILY_GPT2, 0.0);
    in(&out, &c, "out");
    in(&kept, &c, "kept");
    in(&dir, &c, "out/checkpoint-7");
    in(&temporary, &c, "out/tmp-checkpoint-8");
    job j = {.c = &c,
             .out = out.path,
             .dtype = "bf16",
             .save_dtype = WEFT_DTYPE_BF16,
             .optimizer = adamw,
             .shard_bytes = 30000,
             .step = 7,
             .failing_rank = -1};
    CHECK_OK(run(&j, 3, save));
    j.out = kept.path;
    CHECK_OK(run(&j, 3, save));
    in(&kept, &c, "kept/checkpoint-7");
    j.out = out.path;
    j.step = 8;
    for (int rank = 0; rank < 3; rank++) {
        for (int block = 0; block < 60; block += block < 2 ? 1 : 19) {
            char path[WEFT_PATH_MAX];
            char who[32];
            j.failing_rank = rank;
            j.failing_block = block;
            const weft_status st = run(&j, 3, save);
            (void)snprintf(who, sizeof(who), "rank %d", rank);
            if (st != WEFT_OK) {
                assert_int_equal(st, WEFT_STATUS_IO);
                assert_non_null(strstr(weft_last_error(), "the disk gave out"));
                assert_non_null(strstr(weft_last_error(), who));
                n_failed++;
            }
            assert_false(weft_i_dir_exists(temporary.path));
            same_folders(&c, kept.path, dir.path, true);
            CHECK_OK(weft_i_checkpoint_latest(c.s->alloc, out.path, path));
            weft_trainer_state s;
            CHECK_OK(weft_i_trainer_state_read(&s, c.s->alloc, path));
            assert_int_equal(s.step, st == WEFT_OK ? 8 : 7);
            weft_i_trainer_state_fini(&s);
            if (st != WEFT_OK)
                continue;
            char latest[WEFT_PATH_MAX];
            in(&temporary, &c, "out/checkpoint-8");
            CHECK_OK(weft_i_dir_remove(temporary.path));
            in(&temporary, &c, "out/tmp-checkpoint-8");
            CHECK_OK(weft_i_path_join(latest, out.path, "latest"));
            CHECK_OK(weft_i_link_replace("checkpoint-7", latest));
        }
    }
    assert_true(n_failed >= 12);
}

/* Lists of parts that leave something out, or hold it twice, are our own fault and are found. */
static void test_train_checkpoint_ranks__a_part_that_nobody_wrote_is_found(void **state)
{
    train_case c;
    folder out, dir;
    train_case_init(&c, *state, WEFT_FAMILY_LLAMA, 0.0);
    in(&out, &c, "out");
    in(&dir, &c, "out/checkpoint-7");
    const job j = {.c = &c,
                   .out = out.path,
                   .dtype = "fp32",
                   .save_dtype = WEFT_DTYPE_F32,
                   .optimizer = adamw,
                   .shard_bytes = UINT64_MAX,
                   .step = 7,
                   .failing_rank = -1,
                   .is_short = true};
    CHECK_FAILS(run(&j, 3, save), WEFT_STATUS_INTERNAL, "the ranks wrote");
    assert_false(weft_i_dir_exists(dir.path));
}

/* A state that the file lacks is named, by all ranks alike; also by ranks that hold nothing of it. */
static void test_train_checkpoint_ranks__what_is_missing_is_named(void **state)
{
    train_case c;
    folder out, dir;
    train_case_init(&c, *state, WEFT_FAMILY_LLAMA, 0.0);
    in(&out, &c, "out");
    in(&dir, &c, "out/checkpoint-7");
    job j = {.c = &c,
             .out = out.path,
             .dtype = "fp32",
             .save_dtype = WEFT_DTYPE_F32,
             .optimizer = adamw,
             .freeze = "*norm*",
             .is_sharded = true,
             .shard_bytes = UINT64_MAX,
             .step = 7,
             .failing_rank = -1,
             .dir = dir.path};
    CHECK_OK(run(&j, 3, save));
    j.freeze = NULL;
    CHECK_FAILS(run(&j, 2, restore), WEFT_STATUS_MISMATCH,
                "no tensor exp_avg/model.layers.0.input_layernorm.weight");
    j.freeze = "*norm*";
    j.optimizer = sgd;
    CHECK_FAILS(run(&j, 8, restore), WEFT_STATUS_MISMATCH, "no tensor momentum/");
}

#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(test_train_checkpoint_ranks__##name, scratch_setup,            \
                                    scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(bytes_do_not_depend_on_the_ranks), TEST(frozen_weights_are_saved),
        TEST(one_fails_and_the_old_one_stays),  TEST(a_part_that_nobody_wrote_is_found),
        TEST(what_is_missing_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
