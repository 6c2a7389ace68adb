/**
 * Operations that bring a matrix down to a number or a row.
 *
 * Exact sums: every block fills a sum of its own in the workspace, and the blocks' sums are merged in order (any order
 * would give the same bits: base/sum.h).
 */
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/sum.h"

enum { SUM_BLOCKS = 256, SUM_BLOCK_ELEMS = 32768 };

/** Blocks of a matrix seen as rows of columns; a dense one is a single row. */
typedef struct sum_grid {
    const weft_cpu *cpu;
    const weft_view *x;
    int64_t rows, cols;
    int64_t block; /* columns of a block of a dense matrix, rows of a block of another */
    int64_t n_blocks;
    bool is_square;
    weft_sum *part;
    int64_t *found;
} sum_grid;

static sum_grid grid_of(const weft_view *x)
{
    sum_grid g = {.x = x, .rows = x->rows, .cols = x->cols};
    if (x->ld == x->cols || x->rows <= 1) {
        g.cols = x->rows * x->cols;
        g.rows = g.cols > 0 ? 1 : 0;
    }
    const int64_t n = g.rows == 1 ? g.cols : g.rows;
    const int64_t least =
        g.rows == 1 ? SUM_BLOCK_ELEMS
                    : WEFT_MAX(SUM_BLOCK_ELEMS / WEFT_MAX(g.cols, (int64_t)1), (int64_t)1);
    g.block = WEFT_MAX((n + SUM_BLOCKS - 1) / SUM_BLOCKS, least);
    g.n_blocks = (n + g.block - 1) / g.block;
    return g;
}

size_t weft_i_cpu_sum_workspace(const weft_view *x)
{
    return (size_t)grid_of(x).n_blocks * sizeof(weft_sum);
}

size_t weft_i_cpu_find_nonfinite_workspace(const weft_view *x)
{
    return (size_t)grid_of(x).n_blocks * sizeof(int64_t);
}

static void add_squares(const weft_cpu *cpu, weft_sum *part, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += WEFT_SQUARE_SUM_ELEMS) {
        const int64_t some = WEFT_MIN(n - i, (int64_t)WEFT_SQUARE_SUM_ELEMS);
        weft_square_sum s;
        cpu->kernels->sum_squares(&s, x + i, some);
        if (s.is_exact)
            for (int k = 0; k < 3; k++)
                weft_i_sum_add(part, s.part[k]);
        else
            weft_i_sum_add_squares(part, x + i, some);
    }
}

static void sum_span(const sum_grid *g, weft_sum *part, const float *x, int64_t n)
{
    if (g->is_square)
        add_squares(g->cpu, part, x, n);
    else
        weft_i_sum_add_floats(part, x, n);
}

static void sum_block(void *user, int64_t block, int worker)
{
    (void)worker;
    const sum_grid *const g = user;
    weft_sum *const part = &g->part[block];
    weft_i_sum_init(part);
    const float *const x = g->x->data;
    const int64_t first = block * g->block;
    if (g->rows == 1) {
        sum_span(g, part, x + first, WEFT_MIN(g->block, g->cols - first));
        return;
    }
    for (int64_t r = first; r < WEFT_MIN(first + g->block, g->rows); r++)
        sum_span(g, part, x + r * g->x->ld, g->cols);
}

static weft_status run_sum(weft_backend *b, const weft_sum_args *a, void *workspace, bool is_square)
{
    sum_grid g = grid_of(&a->x);
    g.cpu = weft_i_cpu_of(b);
    g.is_square = is_square;
    g.part = workspace;
    weft_i_cpu_run(weft_i_cpu_of(b), g.n_blocks, (double)g.rows * (double)g.cols, sum_block, &g);
    for (int64_t i = 0; i < g.n_blocks; i++)
        weft_i_sum_merge(a->sum, &g.part[i]);
    return WEFT_OK;
}

weft_status weft_i_cpu_sum(weft_backend *b, const void *args, void *workspace)
{
    return run_sum(b, args, workspace, false);
}

weft_status weft_i_cpu_sum_squares(weft_backend *b, const void *args, void *workspace)
{
    return run_sum(b, args, workspace, true);
}

/** Index of the first element with an exponent of all ones, or -1. Looks at whole runs first. */
static int64_t first_nonfinite(const void *x, weft_dtype t, int64_t n)
{
    enum { RUN = 1024 };
    for (int64_t i = 0; i < n; i += RUN) {
        const int64_t end = WEFT_MIN(i + RUN, n);
        uint32_t n_bad = 0;
        if (t == WEFT_DTYPE_F32) {
            const float *const p = x;
            for (int64_t j = i; j < end; j++)
                n_bad += p[j] - p[j] != 0.0f ? 1u : 0u;
        } else {
            const uint16_t *const p = x;
            for (int64_t j = i; j < end; j++)
                n_bad += (p[j] & 0x7f80u) == 0x7f80u ? 1u : 0u;
        }
        for (int64_t j = i; n_bad > 0 && j < end; j++) {
            const bool is_bad = t == WEFT_DTYPE_F32
                                    ? !isfinite(((const float *)x)[j])
                                    : (((const uint16_t *)x)[j] & 0x7f80u) == 0x7f80u;
            if (is_bad)
                return j;
        }
    }
    return -1;
}

static void find_block(void *user, int64_t block, int worker)
{
    (void)worker;
    const sum_grid *const g = user;
    const size_t size = weft_dtype_bytes(g->x->dtype);
    const char *const x = g->x->data;
    const int64_t first = block * g->block;
    g->found[block] = -1;
    if (g->rows == 1) {
        const int64_t i = first_nonfinite(x + (size_t)first * size, g->x->dtype,
                                          WEFT_MIN(g->block, g->cols - first));
        if (i >= 0)
            g->found[block] = first + i;
        return;
    }
    for (int64_t r = first; r < WEFT_MIN(first + g->block, g->rows); r++) {
        const int64_t i = first_nonfinite(x + (size_t)(r * g->x->ld) * size, g->x->dtype, g->cols);
        if (i >= 0) {
            g->found[block] = r * g->cols + i;
            return;
        }
    }
}

weft_status weft_i_cpu_find_nonfinite(weft_backend *b, const void *args, void *workspace)
{
    const weft_find_nonfinite_args *const a = args;
    sum_grid g = grid_of(&a->x);
    g.found = workspace;
    weft_i_cpu_run(weft_i_cpu_of(b), g.n_blocks, (double)g.rows * (double)g.cols, find_block, &g);
    *a->index = -1;
    for (int64_t i = g.n_blocks - 1; i >= 0; i--)
        if (g.found[i] >= 0)
            *a->index = g.found[i];
    return WEFT_OK;
}

static void column_sum_part(const weft_cpu *cpu, const void *args, const weft_cpu_part *p)
{
    cpu->kernels->column_sum(args, p->col, p->n);
}

weft_status weft_i_cpu_column_sum(weft_backend *b, const void *args, void *workspace)
{
    (void)workspace;
    const weft_column_sum_args *const a = args;
    weft_i_cpu_each_columns(weft_i_cpu_of(b), a->x.rows, a->x.cols, column_sum_part, a);
    return WEFT_OK;
}
