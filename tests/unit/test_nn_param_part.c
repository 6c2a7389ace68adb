/* Parts of parameters: stretches against a map made element by element; fresh parts against the fresh whole. */
#include "check.h"

#include "base/ctx.h"
#include "base/rng.h"
#include "nn/param_part.h"
#include "tensor/convert.h"

#define ROWS 7
#define COLS 11
#define MAX_ELEMS 128

static weft_ctx *open_ctx(void)
{
    weft_ctx *ctx = NULL;
    const weft_ctx_options o = {.backend = WEFT_BACKEND_CPU, .n_threads = 1};
    CHECK_OK(weft_ctx_create(&ctx, &o));
    return ctx;
}

/* Where each local element lies in the full tensor, and whether its piece is owned; -1: no piece covers it. */
static void map_elements(const weft_param *p, int64_t *full, bool *is_owned)
{
    for (int64_t i = 0; i < p->rows * p->cols; i++)
        full[i] = -1;
    for (int k = 0; k < p->n_pieces; k++) {
        const weft_param_piece *q = &p->piece[k];
        for (int64_t r = 0; r < q->rows; r++) {
            for (int64_t c = 0; c < q->cols; c++) {
                const int64_t at = (q->row + r) * p->cols + q->col + c;
                full[at] = (q->full_row + r) * p->full_cols + q->full_col + c;
                is_owned[at] = q->is_owned;
            }
        }
    }
}

/* Fewest runs that are one after another in both. */
static int count_runs(const int64_t *full, const bool *is_owned, int64_t first, int64_t end)
{
    int n = 0;
    for (int64_t i = first; i < end; i++) {
        if (full[i] < 0)
            continue;
        if (i == first || full[i] != full[i - 1] + 1 || is_owned[i] != is_owned[i - 1])
            n++;
    }
    return n;
}

static void check_range(const weft_param *p, int64_t first, int64_t n)
{
    int64_t full[MAX_ELEMS];
    bool is_owned[MAX_ELEMS];
    bool is_seen[MAX_ELEMS] = {false};
    int n_stretches = 0;
    int64_t before = first;
    weft_stretch s;
    assert_true(p->rows * p->cols <= MAX_ELEMS);
    map_elements(p, full, is_owned);
    weft_stretch_walk walk = weft_i_stretch_begin(p, first, n);
    while (weft_i_stretch_next(&walk, &s)) {
        n_stretches++;
        assert_true(s.n >= 1 && s.local >= before && s.local + s.n <= first + n);
        before = s.local + s.n;
        for (int64_t i = 0; i < s.n; i++) {
            assert_int_equal(full[s.local + i], s.full + i);
            assert_int_equal(is_owned[s.local + i], s.is_owned);
            is_seen[s.local + i] = true;
        }
    }
    assert_false(weft_i_stretch_next(&walk, &s));
    for (int64_t i = first; i < first + n; i++)
        assert_int_equal(is_seen[i], full[i] >= 0);
    assert_int_equal(n_stretches, count_runs(full, is_owned, first, first + n));
}

static void check_all_ranges(const weft_param *p)
{
    const int64_t n = p->rows * p->cols;
    for (int64_t first = 0; first < n; first++) {
        for (int64_t k = 0; first + k <= n; k++)
            check_range(p, first, k);
    }
}

static weft_param_piece
piece(int64_t full_row, int64_t full_col, int64_t row, int64_t col, int64_t rows, int64_t cols)
{
    const weft_param_piece p = {full_row, full_col, row, col, rows, cols, true};
    return p;
}

/* Some ways a tensor of ROWS x COLS may be held; returns their number, writes the i-th. */
static int shape_param(weft_param *p, int i)
{
    p->full_rows = ROWS;
    p->full_cols = COLS;
    switch (i) {
    case 0: /* whole */
        p->rows = ROWS;
        p->cols = COLS;
        p->n_pieces = 1;
        p->piece[0] = piece(0, 0, 0, 0, ROWS, COLS);
        break;
    case 1: /* rows 2, 3, 4 */
        p->rows = 3;
        p->cols = COLS;
        p->n_pieces = 1;
        p->piece[0] = piece(2, 0, 0, 0, 3, COLS);
        break;
    case 2: /* columns 3 .. 7 */
        p->rows = ROWS;
        p->cols = 5;
        p->n_pieces = 1;
        p->piece[0] = piece(0, 3, 0, 0, ROWS, 5);
        break;
    case 3: /* fused q, k, v of [in, out]: uneven columns of three, the last two held elsewhere too */
        p->rows = ROWS;
        p->cols = 6;
        p->n_pieces = 3;
        p->piece[0] = piece(0, 1, 0, 0, ROWS, 3);
        p->piece[1] = piece(0, 6, 0, 3, ROWS, 1);
        p->piece[2] = piece(0, 9, 0, 4, ROWS, 2);
        p->piece[1].is_owned = p->piece[2].is_owned = false;
        break;
    case 4: /* two runs of rows in the other order, and a row that no piece covers (padding of a vocabulary) */
        p->rows = 6;
        p->cols = COLS;
        p->n_pieces = 2;
        p->piece[0] = piece(5, 0, 0, 0, 2, COLS);
        p->piece[1] = piece(1, 0, 3, 0, 3, COLS);
        break;
    default: /* neighbours in both: as if one, where both are owned */
        p->rows = 5;
        p->cols = COLS;
        p->n_pieces = 3;
        p->piece[0] = piece(0, 0, 0, 0, 2, COLS);
        p->piece[1] = piece(2, 0, 2, 0, 1, COLS);
        p->piece[2] = piece(3, 0, 3, 0, 2, COLS);
        p->piece[2].is_owned = false;
        break;
    }
    return 6;
}

static void test_nn_param_part__stretches_are_the_fewest_and_cover_all(void **state)
{
    (void)state;
    weft_param p = {.n_dims = 2};
    const int n = shape_param(&p, 0);
    for (int i = 0; i < n; i++) {
        p = (weft_param){.n_dims = 2};
        (void)shape_param(&p, i);
        check_all_ranges(&p);
    }
}

static void test_nn_param_part__a_whole_parameter_is_one_stretch(void **state)
{
    weft_param p = {.n_dims = 2};
    weft_stretch s;
    (void)state;
    (void)shape_param(&p, 0);
    weft_stretch_walk walk = weft_i_stretch_begin(&p, 0, ROWS * COLS);
    assert_true(weft_i_stretch_next(&walk, &s));
    assert_int_equal(s.local, 0);
    assert_int_equal(s.full, 0);
    assert_int_equal(s.n, ROWS * COLS);
    assert_false(weft_i_stretch_next(&walk, &s));
}

/* The whole from the generator itself, element by element: what every part must repeat. */
static void draw_whole(weft_dtype dtype, weft_param_init init, void *out)
{
    const weft_rng_key key = weft_i_rng_key(42, "init/w");
    float whole[ROWS * COLS];
    for (int64_t i = 0; i < ROWS * COLS; i++) {
        whole[i] = init == WEFT_INIT_ONES ? 1.0f : 0.0f;
        if (init == WEFT_INIT_NORMAL)
            whole[i] = (float)(0.02 * weft_i_rng_normal(key, (uint64_t)i));
    }
    CHECK_OK(weft_i_convert(out, dtype, whole, WEFT_DTYPE_F32, ROWS * COLS));
}

static void check_init(weft_dtype dtype, weft_param_init init)
{
    weft_ctx *ctx = open_ctx();
    const size_t size = weft_dtype_bytes(dtype);
    float whole[MAX_ELEMS];
    float got[MAX_ELEMS];
    int64_t full[MAX_ELEMS];
    bool is_owned[MAX_ELEMS];
    weft_param p = {.name = "w"};
    const int n_shapes = shape_param(&p, 0);
    draw_whole(dtype, init, whole);
    for (int k = 0; k < n_shapes; k++) {
        p = (weft_param){.name = "w", .n_dims = 2, .init = init, .init_std = 0.02};
        (void)shape_param(&p, k);
        map_elements(&p, full, is_owned);
        const int64_t n = p.rows * p.cols;
        for (int64_t first = 0; first < n; first += 3) {
            const weft_part part = {.param = &p, .first = first, .n = WEFT_MIN(n - first, 17)};
            memset(got, 0xFF, sizeof(got));
            const weft_view to = weft_view_make(got, dtype, 1, part.n);
            CHECK_OK(weft_i_part_init(ctx->backend, &part, to, 42));
            for (int64_t i = 0; i < part.n; i++) {
                if (full[first + i] >= 0)
                    assert_memory_equal((const char *)got + (size_t)i * size,
                                        (const char *)whole + (size_t)full[first + i] * size, size);
            }
            const unsigned char *behind = (const unsigned char *)got + (size_t)part.n * size;
            assert_int_equal(*behind, 0xFF);
        }
    }
    weft_ctx_destroy(ctx);
}

static void test_nn_param_part__fresh_parts_are_those_of_the_whole(void **state)
{
    (void)state;
    check_init(WEFT_DTYPE_F32, WEFT_INIT_NORMAL);
    check_init(WEFT_DTYPE_BF16, WEFT_INIT_NORMAL);
    check_init(WEFT_DTYPE_F32, WEFT_INIT_ONES);
    check_init(WEFT_DTYPE_BF16, WEFT_INIT_ZEROS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nn_param_part__stretches_are_the_fewest_and_cover_all),
        cmocka_unit_test(test_nn_param_part__a_whole_parameter_is_one_stretch),
        cmocka_unit_test(test_nn_param_part__fresh_parts_are_those_of_the_whole),
    };
    return cmocka_run_group_tests_name("nn_param_part", tests, NULL, NULL);
}
