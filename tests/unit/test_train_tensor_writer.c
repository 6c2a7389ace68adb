/*
 * Files written by several ranks: sizes that do not divide, parameters cut by columns with pieces that two ranks hold, values
 * from the host, and what must not pass: elements that nobody or two ranks wrote, and one rank's failure.
 */
#include "check.h"
#include "scratch.h"

#include "base/ctx.h"
#include "parallel/ranks.h"
#include "parallel/shard.h"
#include "tensor/convert.h"
#include "train/tensor_writer.h"

/* What the ranks of one test share. */
typedef struct job {
    scratch *s;
    char path[WEFT_PATH_MAX];
    int64_t n;         /* elements of the parameter */
    int shared_column; /* COLUMNS: who owns the columns that both hold */
    int failing_rank;
} job;

static weft_status run(job *j, int n_ranks, weft_rank_fn *fn)
{
    weft_layout layout;
    weft_layout_options o;
    weft_layout_options_init(&o);
    o.dp = n_ranks;
    o.threads_per_rank = 1;
    CHECK_OK(weft_i_layout_make(&layout, &o));
    return weft_i_ranks_run(&layout, &o, NULL, fn, j);
}

static job make_job(scratch *s)
{
    job j = {.s = s, .failing_rank = -1};
    (void)snprintf(j.path, sizeof(j.path), "%s", scratch_path(s, "out.safetensors"));
    return j;
}

static weft_tensor_writer_options
describe(const job *j, weft_mesh *mesh, const weft_tensor_item *items, size_t n_items)
{
    return (weft_tensor_writer_options){
        .ctx = mesh->ctx, .mesh = mesh, .path = j->path, .items = items, .n_items = n_items};
}

/* ---- a parameter of any size on any number of ranks ---- */

static weft_status write_cut(void *user, weft_mesh *mesh)
{
    const job *j = user;
    weft_ctx *ctx = mesh->ctx;
    weft_model *m = NULL;
    weft_param *p = NULL;
    weft_shards shards = {.ctx = NULL};
    weft_parts parts = {.n = 0};
    weft_tensor_writer *w = NULL;
    weft_tensor_item item;
    float *values = NULL;
    weft_parts_options o = {.is_mine_only = true, .is_value_shard = true};
    weft_tensor_writer_options options = describe(j, mesh, &item, 1);
    weft_status st = WEFT_OK;
    WEFT_TRY(weft_model_create(&m, ctx, WEFT_DTYPE_F32));
    WEFT_TRY_GOTO(st, weft_model_add_param(m, "w", 1, 1, j->n, &p), out);
    WEFT_TRY_GOTO(st, weft_model_lay_out(m, false), out);
    WEFT_TRY_GOTO(st, weft_i_shards_create(&shards, m, mesh->world_rank, mesh->world_size, 0), out);
    WEFT_TRY_GOTO(
        st, weft_i_alloc_array(ctx->alloc, shards.n_value_elems, sizeof(*values), &values), out);
    for (int64_t i = 0; i < shards.n_value_elems; i++)
        values[i] = -1.0f; /* what padding must never bring into a file */
    o.values = values;
    WEFT_TRY_GOTO(st, weft_i_parts_create(&parts, &shards, &o), out);
    for (int64_t i = 0; i < parts.n; i++) {
        for (int64_t k = 0; k < parts.part[i].n; k++)
            ((float *)parts.part[i].value.data)[k] = (float)(parts.part[i].first + k);
    }
    WEFT_TRY_GOTO(st, weft_i_tensor_item_set(&item, "w", WEFT_DTYPE_F32, p), out);
    WEFT_TRY_GOTO(st, weft_i_tensor_writer_create(&w, &options), out);
    for (int64_t i = 0; i < parts.n && st == WEFT_OK; i++)
        st = weft_i_tensor_writer_part(w, 0, &parts.part[i], parts.part[i].value);
    st = weft_i_tensor_writer_finish(w, st);
out:
    weft_i_parts_fini(&parts, ctx);
    weft_i_alloc_put(ctx->alloc, values);
    weft_i_shards_fini(&shards);
    weft_model_destroy(m);
    return st;
}

static void test_train_tensor_writer__any_size_on_any_number_of_ranks(void **state)
{
    static const int64_t sizes[] = {1, 3, 32, 57, 58, 59, 60, 257};
    job j = make_job(*state);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (int n_ranks = 1; n_ranks <= 5; n_ranks++) {
            weft_st *file = NULL;
            j.n = sizes[i];
            CHECK_OK(run(&j, n_ranks, write_cut));
            CHECK_OK(weft_i_st_open(&file, j.s->alloc, j.path));
            assert_int_equal(weft_i_st_count(file), 1);
            const weft_st_tensor *t = weft_i_st_find(file, "w");
            assert_int_equal(t->n_elems, j.n);
            for (int64_t k = 0; k < j.n; k++) {
                float x;
                memcpy(&x, (const char *)t->data + (size_t)k * sizeof(x), sizeof(x));
                if (x != (float)k)
                    fail_msg("%d elements on %d ranks: element %d is %g", (int)j.n, n_ranks, (int)k,
                             (double)x);
            }
            weft_i_st_close(file);
        }
    }
}

/* ---- columns, some of which two ranks hold ---- */

#define ROWS 6
#define COLS 10
#define HELD 6 /* columns a rank holds: 0..5 and 4..9 */

static weft_param cut_param(int rank, int owner)
{
    weft_param p = {.n_dims = 2, .full_rows = ROWS, .full_cols = COLS, .rows = ROWS, .cols = HELD};
    const int64_t own = rank == 0 ? 0 : 2, own_full = rank == 0 ? 0 : 6;
    const int64_t both = rank == 0 ? 4 : 0;
    p.piece[0] = (weft_param_piece){0, own_full, 0, own, ROWS, 4, true};
    p.piece[1] = (weft_param_piece){0, 4, 0, both, ROWS, 2, rank == owner};
    p.n_pieces = 2;
    return p;
}

static weft_status write_columns(void *user, weft_mesh *mesh)
{
    const job *j = user;
    const int rank = mesh->world_rank;
    weft_param p = cut_param(rank, j->shared_column);
    uint16_t values[ROWS * HELD];
    for (int i = 0; i < ROWS * HELD; i++) {
        const int col = i % HELD + (rank == 0 ? 0 : 4);
        values[i] = weft_i_f32_to_bf16((float)(i / HELD * COLS + col));
    }
    const weft_part part = {
        .param = &p,
        .n = ROWS * HELD,
        .value = weft_view_make(values, WEFT_DTYPE_BF16, 1, ROWS * HELD),
    };
    weft_tensor_writer *w = NULL;
    weft_tensor_item item;
    WEFT_TRY(weft_i_tensor_item_set(&item, "columns", WEFT_DTYPE_F32, &p));
    const weft_tensor_writer_options options = describe(j, mesh, &item, 1);
    WEFT_TRY(weft_i_tensor_writer_create(&w, &options));
    return weft_i_tensor_writer_finish(w, weft_i_tensor_writer_part(w, 0, &part, part.value));
}

static void test_train_tensor_writer__pieces_that_two_ranks_hold(void **state)
{
    job j = make_job(*state);
    for (int owner = 0; owner < 2; owner++) {
        weft_st *file = NULL;
        j.shared_column = owner;
        CHECK_OK(run(&j, 2, write_columns));
        CHECK_OK(weft_i_st_open(&file, j.s->alloc, j.path));
        const weft_st_tensor *t = weft_i_st_find(file, "columns");
        assert_int_equal(t->shape.dim[0], ROWS);
        assert_int_equal(t->shape.dim[1], COLS);
        for (int i = 0; i < ROWS * COLS; i++) {
            float x;
            memcpy(&x, (const char *)t->data + (size_t)i * sizeof(x), sizeof(x));
            assert_true(x == (float)i);
        }
        weft_i_st_close(file);
    }
    j.shared_column = 2; /* nobody's: a hole in the file */
    CHECK_FAILS(run(&j, 2, write_columns), WEFT_STATUS_INTERNAL,
                "tensor columns has 240 bytes, the ranks wrote 192 of it");
}

/* ---- values of the host ---- */

static weft_status write_values(void *user, weft_mesh *mesh)
{
    const job *j = user;
    const int rank = mesh->world_rank, n_ranks = mesh->world_size;
    const weft_tensor_item items[] = {
        {"rows", WEFT_DTYPE_F32, weft_i_shape_2d(n_ranks, 3)},
        {"half", WEFT_DTYPE_BF16, weft_i_shape_1d(2 * n_ranks)},
        {"ids", WEFT_DTYPE_I64, weft_i_shape_1d(2)},
        {"zeros", WEFT_DTYPE_F32, weft_i_shape_1d(300000)},
        {"none", WEFT_DTYPE_F32, weft_i_shape_1d(0)},
    };
    const float row[] = {(float)rank, (float)rank + 0.25f, (float)rank + 0.5f};
    const int64_t ids[] = {INT64_MIN, INT64_MAX};
    weft_tensor_writer *w = NULL;
    const weft_tensor_writer_options options = describe(j, mesh, items, 5);
    WEFT_TRY(weft_i_tensor_writer_create(&w, &options));
    weft_status st = weft_i_tensor_writer_values(w, 0, 3 * rank, 3, WEFT_DTYPE_F32, row);
    if (st == WEFT_OK)
        st = weft_i_tensor_writer_values(w, 1, 2 * rank, 2, WEFT_DTYPE_F32, row);
    if (st == WEFT_OK && rank == n_ranks - 1)
        st = weft_i_tensor_writer_values(w, 2, 0, 2, WEFT_DTYPE_I64, ids);
    if (st == WEFT_OK && rank == 0)
        st = weft_i_tensor_writer_values(w, 3, 0, 300000, WEFT_DTYPE_F32, NULL);
    if (rank == j->failing_rank)
        st = weft_i_error_set(WEFT_STATUS_NUMERIC, "the numbers of this rank gave out");
    return weft_i_tensor_writer_finish(w, st);
}

static void test_train_tensor_writer__values_of_the_host(void **state)
{
    job j = make_job(*state);
    for (int n_ranks = 1; n_ranks <= 3; n_ranks++) {
        weft_st *file = NULL;
        CHECK_OK(run(&j, n_ranks, write_values));
        CHECK_OK(weft_i_st_open(&file, j.s->alloc, j.path));
        assert_int_equal(weft_i_st_count(file), 5);
        const weft_st_tensor *rows = weft_i_st_find(file, "rows");
        const weft_st_tensor *half = weft_i_st_find(file, "half");
        const weft_st_tensor *ids = weft_i_st_find(file, "ids");
        const weft_st_tensor *zeros = weft_i_st_find(file, "zeros");
        for (int r = 0; r < n_ranks; r++) {
            const float wanted[] = {(float)r, (float)r + 0.25f, (float)r + 0.5f};
            const uint16_t halves[] = {weft_i_f32_to_bf16(wanted[0]),
                                       weft_i_f32_to_bf16(wanted[1])};
            assert_memory_equal((const char *)rows->data + (size_t)r * sizeof(wanted), wanted,
                                sizeof(wanted));
            assert_memory_equal((const char *)half->data + (size_t)r * sizeof(halves), halves,
                                sizeof(halves));
        }
        const int64_t both[] = {INT64_MIN, INT64_MAX};
        assert_memory_equal(ids->data, both, sizeof(both));
        assert_int_equal(zeros->n_bytes, 1200000);
        for (size_t i = 0; i < zeros->n_bytes; i++)
            assert_int_equal(((const unsigned char *)zeros->data)[i], 0);
        weft_i_st_close(file);
    }
}

static void test_train_tensor_writer__one_rank_fails_and_all_do(void **state)
{
    job j = make_job(*state);
    for (j.failing_rank = 0; j.failing_rank < 3; j.failing_rank++) {
        char who[32];
        (void)snprintf(who, sizeof(who), "rank %d", j.failing_rank);
        CHECK_FAILS(run(&j, 3, write_values), WEFT_STATUS_NUMERIC, "gave out");
        assert_non_null(strstr(weft_last_error(), who));
    }
}

/* The same elements by two ranks: as many bytes as two tensors have. */
static weft_status write_twice(void *user, weft_mesh *mesh)
{
    const job *j = user;
    const weft_tensor_item item = {"twice", WEFT_DTYPE_F32, weft_i_shape_1d(4)};
    const float values[] = {1, 2, 3, 4};
    weft_tensor_writer *w = NULL;
    const weft_tensor_writer_options options = describe(j, mesh, &item, 1);
    WEFT_TRY(weft_i_tensor_writer_create(&w, &options));
    return weft_i_tensor_writer_finish(
        w, weft_i_tensor_writer_values(w, 0, 0, 4, WEFT_DTYPE_F32, values));
}

/* Beyond the end of a tensor, and a tensor that there is not. */
static weft_status write_beyond(void *user, weft_mesh *mesh)
{
    const job *j = user;
    const weft_tensor_item item = {"four", WEFT_DTYPE_F32, weft_i_shape_1d(4)};
    const float values[] = {1, 2, 3, 4};
    weft_tensor_writer *w = NULL;
    const weft_tensor_writer_options options = describe(j, mesh, &item, 1);
    WEFT_TRY(weft_i_tensor_writer_create(&w, &options));
    return weft_i_tensor_writer_finish(
        w, weft_i_tensor_writer_values(w, (size_t)j->n, 1, 4, WEFT_DTYPE_F32, values));
}

static void test_train_tensor_writer__our_own_faults_are_found(void **state)
{
    job j = make_job(*state);
    CHECK_OK(run(&j, 1, write_twice));
    CHECK_FAILS(run(&j, 2, write_twice), WEFT_STATUS_INTERNAL,
                "tensor twice has 16 bytes, the ranks wrote 32 of it");
    CHECK_FAILS(run(&j, 1, write_beyond), WEFT_STATUS_ARG, "elements 1 to 5 of tensor 0");
    j.n = 1;
    CHECK_FAILS(run(&j, 2, write_beyond), WEFT_STATUS_ARG, "tensor 1 was to be written");
}

/* Found by rank 0, told to all. */
static void test_train_tensor_writer__a_file_that_cannot_be_made(void **state)
{
    job j = make_job(*state);
    (void)snprintf(j.path, sizeof(j.path), "%s", scratch_path(j.s, "none/out.safetensors"));
    CHECK_FAILS(run(&j, 3, write_values), WEFT_STATUS_IO, "none/out.safetensors");
}

#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(test_train_tensor_writer__##name, scratch_setup,               \
                                    scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(any_size_on_any_number_of_ranks),
        TEST(pieces_that_two_ranks_hold),
        TEST(values_of_the_host),
        TEST(one_rank_fails_and_all_do),
        TEST(our_own_faults_are_found),
        TEST(a_file_that_cannot_be_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
