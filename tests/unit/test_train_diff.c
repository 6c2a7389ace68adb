/* Comparing files and folders: values, bits, types, shapes, names, kinds. */
#include "scratch.h"

#include "formats/safetensors.h"
#include "weft/inspect.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* One tensor of a file to write. */
typedef struct piece {
    const char *name;
    weft_dtype dtype;
    weft_shape shape;
    const void *bytes;
} piece;

static void write_file(scratch *s, const char *path, const piece *pieces, size_t n)
{
    weft_st_plan plan[8] = {{0}};
    for (size_t i = 0; i < n; i++)
        plan[i] = (weft_st_plan){pieces[i].name, pieces[i].dtype, pieces[i].shape};
    weft_st_writer *w = NULL;
    expect_ok(weft_i_st_create(&w, s->alloc, path, plan, n, NULL, 0));
    for (size_t i = 0; i < n; i++) {
        int64_t n_elems = 0;
        expect_ok(weft_i_shape_count(&pieces[i].shape, &n_elems));
        expect_ok(weft_i_st_append(w, pieces[i].bytes,
                                   (size_t)n_elems * weft_dtype_bytes(pieces[i].dtype)));
    }
    expect_ok(weft_i_st_finish(w));
}

typedef struct pair {
    char a[WEFT_PATH_MAX];
    char b[WEFT_PATH_MAX];
} pair;

static pair in_scratch(scratch *s, const char *a, const char *b)
{
    pair p;
    (void)snprintf(p.a, sizeof(p.a), "%s", scratch_path(s, a));
    (void)snprintf(p.b, sizeof(p.b), "%s", scratch_path(s, b));
    return p;
}

/* Two files of one tensor each. */
static pair two_files(scratch *s, piece a, piece b)
{
    const pair p = in_scratch(s, "a.safetensors", "b.safetensors");
    write_file(s, p.a, &a, 1);
    write_file(s, p.b, &b, 1);
    return p;
}

static weft_diff *compare(const pair *p, bool exact, double tolerance)
{
    const weft_diff_options o = {
        .a = p->a, .b = p->b, .exact = exact, .tolerance = tolerance, .top = 10};
    weft_diff *d = NULL;
    expect_ok(weft_diff_create(&d, &o));
    return d;
}

static size_t n_different(const pair *p, bool exact, double tolerance)
{
    weft_diff *d = compare(p, exact, tolerance);
    const size_t n = d->n_different;
    weft_diff_destroy(d);
    return n;
}

static void test_train_diff__the_largest_difference_is_found(void **state)
{
    scratch *s = *state;
    static float x[6000], y[6000];
    for (int i = 0; i < 6000; i++)
        x[i] = y[i] = (float)i / 1000.0F; /* largest 5.999 */
    y[5] += 0.25F;
    y[5000] -= 0.5F; /* row 50, column 0, in another block than 5 */
    const weft_shape shape = weft_i_shape_2d(60, 100);
    const pair p = two_files(s, (piece){"w", WEFT_DTYPE_F32, shape, x},
                             (piece){"w", WEFT_DTYPE_F32, shape, y});
    weft_diff *d = compare(&p, false, 0);
    assert_int_equal(d->n_different, 1);
    assert_int_equal(d->n_compared, 1);
    assert_int_equal(d->n_elems, 6000);
    const weft_diff_tensor *t = d->tensors;
    assert_int_equal(t->kind, WEFT_DIFF_VALUE);
    assert_int_equal(t->at, 5000);
    assert_string_equal(t->detail, "[50, 0]");
    assert_int_equal(t->n_different, 2);
    assert_true(t->max_abs == 0.5 && t->value_a == 5.0 && t->value_b == 4.5);
    assert_true(fabs(t->max_rel - 0.5 / 5.999) < 1e-7);
    weft_diff_destroy(d);
    assert_int_equal(n_different(&p, false, 0.083), 1);
    assert_int_equal(n_different(&p, false, 0.084), 0);
    assert_int_equal(n_different(&p, true, 0), 1);
}

static void test_train_diff__zeros_and_nans_are_equal_unless_exact(void **state)
{
    scratch *s = *state;
    const float x[] = {0.0F, NAN, INFINITY, 1.0F};
    float y[] = {-0.0F, NAN, INFINITY, 1.0F};
    const uint32_t other_nan = 0x7fc00001;
    memcpy(&y[1], &other_nan, 4);
    const weft_shape shape = weft_i_shape_1d(4);
    pair p = two_files(s, (piece){"w", WEFT_DTYPE_F32, shape, x},
                       (piece){"w", WEFT_DTYPE_F32, shape, y});
    assert_int_equal(n_different(&p, false, 0), 0);
    weft_diff *d = compare(&p, true, 0);
    assert_int_equal(d->n_different, 1);
    assert_int_equal(d->tensors[0].kind, WEFT_DIFF_BITS);
    assert_int_equal(d->tensors[0].n_different, 2);
    weft_diff_destroy(d);
    p = two_files(s, (piece){"w", WEFT_DTYPE_F32, shape, x},
                  (piece){"w", WEFT_DTYPE_F32, shape, x});
    assert_int_equal(n_different(&p, true, 0), 0);
}

static void test_train_diff__a_nan_on_one_side_is_infinitely_far(void **state)
{
    scratch *s = *state;
    const float x[] = {1.0F, 2.0F, 3.0F};
    const float y[] = {1.0F, NAN, 3.0F};
    const weft_shape shape = weft_i_shape_1d(3);
    const pair p = two_files(s, (piece){"w", WEFT_DTYPE_F32, shape, x},
                             (piece){"w", WEFT_DTYPE_F32, shape, y});
    weft_diff *d = compare(&p, false, 1e9);
    assert_int_equal(d->n_different, 1);
    assert_true(isinf(d->tensors[0].max_abs) && isinf(d->tensors[0].max_rel));
    assert_int_equal(d->tensors[0].at, 1);
    weft_diff_destroy(d);
}

static void test_train_diff__types_may_differ_unless_exact(void **state)
{
    scratch *s = *state;
    const float x[] = {1.0F, -2.5F};
    const uint16_t y[] = {0x3F80, 0xC020}; /* bf16 */
    const weft_shape shape = weft_i_shape_1d(2);
    const pair p = two_files(s, (piece){"w", WEFT_DTYPE_F32, shape, x},
                             (piece){"w", WEFT_DTYPE_BF16, shape, y});
    assert_int_equal(n_different(&p, false, 0), 0);
    weft_diff *d = compare(&p, true, 0);
    assert_int_equal(d->n_different, 1);
    assert_int_equal(d->tensors[0].kind, WEFT_DIFF_DTYPE);
    assert_string_equal(d->tensors[0].detail, "type F32 in A, BF16 in B");
    weft_diff_destroy(d);
}

static void test_train_diff__large_integers_are_told_apart(void **state)
{
    scratch *s = *state;
    const int64_t x[] = {INT64_C(9007199254740992)};
    const int64_t y[] = {INT64_C(9007199254740993)}; /* the same double */
    const weft_shape shape = weft_i_shape_1d(1);
    const pair p = two_files(s, (piece){"n", WEFT_DTYPE_I64, shape, x},
                             (piece){"n", WEFT_DTYPE_I64, shape, y});
    assert_int_equal(n_different(&p, false, 0), 1);
}

static void test_train_diff__names_and_shapes(void **state)
{
    scratch *s = *state;
    const float x[4] = {1, 2, 3, 4};
    const pair p = in_scratch(s, "a.safetensors", "b.safetensors");
    const piece a[] = {{"same", WEFT_DTYPE_F32, weft_i_shape_1d(4), x},
                       {"only_a", WEFT_DTYPE_F32, weft_i_shape_1d(4), x},
                       {"turned", WEFT_DTYPE_F32, weft_i_shape_2d(1, 4), x}};
    const piece b[] = {{"turned", WEFT_DTYPE_F32, weft_i_shape_2d(2, 2), x},
                       {"same", WEFT_DTYPE_F32, weft_i_shape_1d(4), x},
                       {"only_b", WEFT_DTYPE_F32, weft_i_shape_1d(4), x}};
    write_file(s, p.a, a, 3);
    write_file(s, p.b, b, 3);
    weft_diff *d = compare(&p, false, 1000);
    assert_int_equal(d->n_different, 3);
    assert_int_equal(d->n_compared, 2);
    assert_string_equal(d->tensors[0].name, "only_a");
    assert_int_equal(d->tensors[0].kind, WEFT_DIFF_ONLY_A);
    assert_string_equal(d->tensors[1].name, "only_b");
    assert_int_equal(d->tensors[1].kind, WEFT_DIFF_ONLY_B);
    assert_int_equal(d->tensors[2].kind, WEFT_DIFF_SHAPE);
    assert_string_equal(d->tensors[2].detail, "shape [1, 4] in A, [2, 2] in B");
    weft_diff_destroy(d);
}

static void test_train_diff__the_worst_come_first(void **state)
{
    scratch *s = *state;
    const float x[] = {1, 100};
    const float small[] = {1.5F, 100}, large[] = {51, 100};
    const pair p = in_scratch(s, "a.safetensors", "b.safetensors");
    const weft_shape shape = weft_i_shape_1d(2);
    const piece a[] = {{"a", WEFT_DTYPE_F32, shape, x},
                       {"b", WEFT_DTYPE_F32, shape, x},
                       {"c", WEFT_DTYPE_F32, shape, x}};
    const piece b[] = {{"a", WEFT_DTYPE_F32, shape, small},
                       {"b", WEFT_DTYPE_F32, shape, x},
                       {"c", WEFT_DTYPE_F32, shape, large}};
    write_file(s, p.a, a, 3);
    write_file(s, p.b, b, 3);
    weft_diff *d = compare(&p, false, 0);
    assert_int_equal(d->n_different, 2);
    assert_string_equal(d->tensors[0].name, "c");
    assert_true(fabs(d->tensors[0].max_rel - 0.5) < 1e-12);
    assert_string_equal(d->tensors[1].name, "a");
    weft_diff_destroy(d);
}

/* A folder with the model in one or two files, and perhaps an optimizer. */
static void make_folder(scratch *s, const char *name, bool is_sharded, const float *moment)
{
    static const float x[] = {1, 2}, y[] = {3, 4};
    char dir[WEFT_PATH_MAX], path[WEFT_PATH_MAX];
    (void)snprintf(dir, sizeof(dir), "%s", scratch_path(s, name));
    expect_ok(weft_i_dir_make(dir));
    const weft_shape shape = weft_i_shape_1d(2);
    const piece both[] = {{"x", WEFT_DTYPE_F32, shape, x}, {"y", WEFT_DTYPE_F32, shape, y}};
    if (is_sharded) {
        expect_ok(weft_i_path_join(path, dir, "model-00001-of-00002.safetensors"));
        write_file(s, path, both, 1);
        expect_ok(weft_i_path_join(path, dir, "model-00002-of-00002.safetensors"));
        write_file(s, path, both + 1, 1);
        const weft_st_place places[] = {{"x", "model-00001-of-00002.safetensors"},
                                        {"y", "model-00002-of-00002.safetensors"}};
        expect_ok(weft_i_path_join(path, dir, "model.safetensors.index.json"));
        expect_ok(weft_i_st_write_index(s->alloc, path, places, 2, 16));
    } else {
        expect_ok(weft_i_path_join(path, dir, "model.safetensors"));
        write_file(s, path, both, 2);
    }
    if (moment != NULL) {
        const piece m = {"exp_avg/x", WEFT_DTYPE_F32, shape, moment};
        expect_ok(weft_i_path_join(path, dir, "optimizer.safetensors"));
        write_file(s, path, &m, 1);
    }
    expect_ok(weft_i_path_join(path, dir, "trainer_state.json"));
    expect_ok(weft_i_file_write(path, name, strlen(name))); /* differs, and does not count */
}

static void test_train_diff__folders_compare_over_shards_and_with_the_optimizer(void **state)
{
    scratch *s = *state;
    const float m1[] = {5, 6}, m2[] = {5, 7};
    make_folder(s, "whole", false, m1);
    make_folder(s, "shards", true, m1);
    make_folder(s, "moved", true, m2);
    make_folder(s, "bare", false, NULL);
    pair p = in_scratch(s, "whole", "shards");
    weft_diff *d = compare(&p, true, 0);
    assert_int_equal(d->n_different, 0);
    assert_int_equal(d->n_compared, 3);
    weft_diff_destroy(d);
    p = in_scratch(s, "whole", "moved");
    d = compare(&p, true, 0);
    assert_int_equal(d->n_different, 1);
    assert_string_equal(d->tensors[0].name, "exp_avg/x");
    weft_diff_destroy(d);
    p = in_scratch(s, "whole", "bare");
    d = compare(&p, true, 0);
    assert_int_equal(d->n_different, 1);
    assert_int_equal(d->tensors[0].kind, WEFT_DIFF_ONLY_A);
    weft_diff_destroy(d);
    /* A file against a folder: only the model's tensors count. */
    p = in_scratch(s, "bare/model.safetensors", "moved");
    assert_int_equal(n_different(&p, true, 0), 0);
    p = in_scratch(s, "whole/optimizer.safetensors", "moved/optimizer.safetensors");
    assert_int_equal(n_different(&p, true, 0), 1);
    /* Two files compare whatever they are called. */
    p = in_scratch(s, "whole/optimizer.safetensors", "bare/model.safetensors");
    assert_int_equal(n_different(&p, true, 0), 3);
    /* Links are followed. */
    expect_ok(weft_i_link_replace("moved", scratch_path(s, "latest")));
    p = in_scratch(s, "moved", "latest");
    assert_int_equal(n_different(&p, true, 0), 0);
}

static void test_train_diff__what_cannot_be_compared(void **state)
{
    scratch *s = *state;
    make_folder(s, "whole", false, NULL);
    expect_ok(weft_i_dir_make(scratch_path(s, "empty")));
    (void)scratch_file(s, "broken.safetensors", "not one", 7);
    weft_diff *d = NULL;
    pair p = in_scratch(s, "whole", "none");
    weft_diff_options o = {.a = p.a, .b = p.b};
    expect_failure(weft_diff_create(&d, &o), WEFT_STATUS_IO, p.b, NULL);
    p = in_scratch(s, "whole", "empty");
    expect_failure(weft_diff_create(&d, &o), WEFT_STATUS_FORMAT, p.b, "no model*.safetensors",
                   NULL);
    p = in_scratch(s, "broken.safetensors", "whole");
    expect_failure(weft_diff_create(&d, &o), WEFT_STATUS_FORMAT, p.a, NULL);
    o = (weft_diff_options){.a = p.a, .b = p.b, .exact = true, .tolerance = 0.5};
    expect_failure(weft_diff_create(&d, &o), WEFT_STATUS_ARG, "--exact", "--tolerance", NULL);
    assert_null(d);
}

static void test_train_diff__unknown_types_compare_by_bits_alone(void **state)
{
    scratch *s = *state;
    /* Two files of one 8-bit float each, by hand: weft does not write such types. */
    static const char header[] =
        "{\"w\":{\"dtype\":\"F8_E4M3\",\"shape\":[1],\"data_offsets\":[0,1]}}  ";
    char bytes[8 + sizeof(header)];
    memset(bytes, 0, sizeof(bytes));
    bytes[0] = (char)(sizeof(header) - 1);
    memcpy(bytes + 8, header, sizeof(header) - 1);
    const pair p = in_scratch(s, "a.safetensors", "b.safetensors");
    (void)scratch_file(s, "a.safetensors", bytes, sizeof(bytes));
    (void)scratch_file(s, "b.safetensors", bytes, sizeof(bytes));
    assert_int_equal(n_different(&p, true, 0), 0);
    assert_int_equal(n_different(&p, false, 0), 0);
    bytes[sizeof(bytes) - 1] = 1;
    (void)scratch_file(s, "b.safetensors", bytes, sizeof(bytes));
    assert_int_equal(n_different(&p, true, 0), 1);
    const weft_diff_options o = {.a = p.a, .b = p.b};
    weft_diff *d = NULL;
    expect_failure(weft_diff_create(&d, &o), WEFT_STATUS_UNSUPPORTED, "'w'", "--exact", NULL);
}

#define WITH_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SCRATCH(test_train_diff__the_largest_difference_is_found),
        WITH_SCRATCH(test_train_diff__zeros_and_nans_are_equal_unless_exact),
        WITH_SCRATCH(test_train_diff__a_nan_on_one_side_is_infinitely_far),
        WITH_SCRATCH(test_train_diff__types_may_differ_unless_exact),
        WITH_SCRATCH(test_train_diff__large_integers_are_told_apart),
        WITH_SCRATCH(test_train_diff__names_and_shapes),
        WITH_SCRATCH(test_train_diff__the_worst_come_first),
        WITH_SCRATCH(test_train_diff__folders_compare_over_shards_and_with_the_optimizer),
        WITH_SCRATCH(test_train_diff__what_cannot_be_compared),
        WITH_SCRATCH(test_train_diff__unknown_types_compare_by_bits_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
