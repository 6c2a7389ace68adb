/**
 * Matrix products over threads: C is cut into tiles by a grid that depends on shapes, types and transpositions alone, each
 * tile is computed in one thread over all of K, by one oneDNN call. So the bits do not depend on the number of threads.
 *
 * Where the machine has no bf16 products (or C's type is one that oneDNN does not pair with A's), a tile is computed in
 * fp32 from panels of A and B that are converted in the workspace, KC columns of K at a time and in order, and C is
 * rounded once at the end.
 */
#include <stdatomic.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm_cache.h"
#include "backend/cpu/threads.h"

/* Measured on Zen 5 with AVX-512, oneDNN 2.6.3: whole rows of C up to 1536 columns are the fastest tiles, 128 to 256 rows
   of them lose little; fp32 with both operands as they lie and a long K wants narrow ones (20 %). */
enum {
    KC = 512,
    TILE_N = 1536,
    TILE_N_LONG_K = 384,
    LONG_K = 2048,
    TILE_M = 256,
    TILE_M_LARGE = 512,
    LARGE_M = 8192,
    MIN_TILE_M = 96,
    MIN_TILE_N = 128,
    FEW_ROWS = 64,
    WANTED_TILES = 8,
    TILE_STEP_M = 32,
    TILE_STEP_N = 64
};

/* Products below this many multiply-adds are one tile: they are done before another thread wakes. */
static const double SMALL_PRODUCT = 1 << 20;

typedef struct tile_grid {
    int64_t tile_m, tile_n;
    int64_t n_m, n_n;
} tile_grid;

typedef struct gemm_run {
    const weft_cpu *cpu;
    const weft_gemm_args *args;
    tile_grid grid;
    int64_t m, n, k;
    bool is_converted;          /* computed in fp32 from converted panels */
    weft_gemm_plan *plan[2][2]; /* [last row of tiles][last column of tiles] */
    weft_gemm_plan *first[2][2], *next[2][2], *last[2][2]; /* of a converted product: chunks of K */
    char *workspace;
    size_t worker_bytes;
    atomic_int status;
} gemm_run;

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/** Size of the parts when n is cut into n_parts: all but the last equal and multiples of `step`. */
static int64_t part_of(int64_t n, int64_t n_parts, int64_t step)
{
    return WEFT_MAX(ceil_div(ceil_div(n, n_parts), step) * step, step);
}

/** Rows are cut first, into no fewer than MIN_TILE_M; few rows are not cut, columns then are. */
static tile_grid grid_of(const weft_gemm_args *a, int64_t m, int64_t n, int64_t k)
{
    const bool is_plain_f32 =
        a->a.dtype == WEFT_DTYPE_F32 && !a->is_a_transposed && !a->is_b_transposed;
    const int64_t limit_n = is_plain_f32 && k >= LONG_K ? TILE_N_LONG_K : TILE_N;
    int64_t parts_m = ceil_div(m, m >= LARGE_M ? TILE_M_LARGE : TILE_M),
            parts_n = ceil_div(n, limit_n);
    tile_grid g = {m, n, 1, 1};
    if ((double)m * (double)n * (double)k < SMALL_PRODUCT)
        return g;
    while (m > TILE_M && parts_m * parts_n < WANTED_TILES && ceil_div(m, parts_m) >= 2 * MIN_TILE_M)
        parts_m *= 2;
    const int64_t wanted = m <= FEW_ROWS ? WANTED_TILES : WANTED_TILES / 2;
    while (parts_m * parts_n < wanted && ceil_div(n, parts_n) >= 2 * MIN_TILE_N)
        parts_n *= 2;
    g.tile_m = part_of(m, parts_m, TILE_STEP_M);
    g.tile_n = part_of(n, parts_n, TILE_STEP_N);
    g.n_m = ceil_div(m, g.tile_m);
    g.n_n = ceil_div(n, g.tile_n);
    return g;
}

static weft_gemm_key key_of(const gemm_run *r, int64_t m, int64_t n)
{
    const weft_gemm_args *const a = r->args;
    weft_gemm_key key;
    memset(&key, 0, sizeof(key));
    key.m = m;
    key.n = n;
    key.k = r->k;
    key.lda = a->a.ld;
    key.ldb = a->b.ld;
    key.ldc = a->c.ld;
    key.ab_type = a->a.dtype;
    key.c_type = a->c.dtype;
    key.bias_type = a->bias.cols > 0 ? a->bias.dtype : WEFT_DTYPE_OTHER;
    key.is_a_transposed = a->is_a_transposed;
    key.is_b_transposed = a->is_b_transposed;
    key.is_added = a->is_added;
    return key;
}

/** Chunk `which` (0 first, 1 middle, 2 last) of a converted product: fp32 panels into an fp32 tile. */
static weft_gemm_key converted_key(const gemm_run *r, int64_t m, int64_t n, int which)
{
    weft_gemm_key key = key_of(r, m, n);
    const int64_t rest = r->k % KC == 0 ? KC : r->k % KC;
    key.k = which == 2 ? rest : WEFT_MIN(r->k, (int64_t)KC);
    key.lda = key.is_a_transposed ? m : key.k;
    key.ldb = key.is_b_transposed ? key.k : n;
    key.ldc = n;
    key.ab_type = WEFT_DTYPE_F32;
    key.c_type = WEFT_DTYPE_F32;
    key.bias_type = WEFT_DTYPE_OTHER;
    key.is_added = which != 0;
    return key;
}

static weft_status find_plans(gemm_run *r, size_t *scratch_bytes)
{
    weft_gemm_cache *const cache = r->cpu->gemms;
    const tile_grid *const g = &r->grid;
    *scratch_bytes = 0;
    for (int i = 0; i < 4; i++) {
        const int lm = i / 2, ln = i % 2;
        if ((!lm && g->n_m == 1) || (!ln && g->n_n == 1))
            continue;
        const int64_t m = lm ? r->m - (g->n_m - 1) * g->tile_m : g->tile_m;
        const int64_t n = ln ? r->n - (g->n_n - 1) * g->tile_n : g->tile_n;
        weft_gemm_plan **const plans[3] = {&r->first[lm][ln], &r->next[lm][ln], &r->last[lm][ln]};
        for (int which = 0; which < (r->is_converted ? 3 : 1); which++) {
            const weft_gemm_key key =
                r->is_converted ? converted_key(r, m, n, which) : key_of(r, m, n);
            weft_gemm_plan **const plan = r->is_converted ? plans[which] : &r->plan[lm][ln];
            WEFT_TRY(weft_i_gemm_cache_find(cache, &key, plan));
            *scratch_bytes = WEFT_MAX(*scratch_bytes, weft_i_gemm_plan_scratch_bytes(*plan));
        }
    }
    *scratch_bytes = weft_i_alloc_rounded(*scratch_bytes);
    return WEFT_OK;
}

static weft_status prepare(gemm_run *r, weft_cpu *cpu, const weft_gemm_args *a)
{
    weft_i_cpu_thread_start(); /* the caller may not be the thread that made the context */
    memset(r, 0, sizeof(*r));
    r->cpu = cpu;
    r->args = a;
    r->m = a->c.rows;
    r->n = a->c.cols;
    r->k = a->is_a_transposed ? a->a.rows : a->a.cols;
    if (r->m == 0 || r->n == 0 || r->k == 0)
        return WEFT_OK;
    r->grid = grid_of(a, r->m, r->n, r->k);
    const bool is_bf16 = a->a.dtype == WEFT_DTYPE_BF16;
    r->is_converted = (is_bf16 && !cpu->has_bf16) || (!is_bf16 && a->c.dtype == WEFT_DTYPE_BF16);
    WEFT_TRY(find_plans(r, &r->worker_bytes));
    if (r->is_converted) {
        const int64_t kc = WEFT_MIN(r->k, (int64_t)KC);
        const int64_t floats =
            r->grid.tile_m * kc + r->grid.tile_n * kc + r->grid.tile_m * r->grid.tile_n + 3 * 16;
        r->worker_bytes += weft_i_alloc_rounded((size_t)floats * sizeof(float));
    }
    return WEFT_OK;
}

weft_status weft_i_cpu_gemm_workspace(weft_cpu *cpu, const weft_gemm_args *a, size_t *out)
{
    gemm_run r;
    WEFT_TRY(prepare(&r, cpu, a));
    const int64_t n_tiles = WEFT_MAX(r.grid.n_m * r.grid.n_n, (int64_t)1);
    *out = r.worker_bytes * (size_t)WEFT_MIN((int64_t)cpu->n_threads, n_tiles);
    return WEFT_OK;
}

static char *address(const weft_view *v, int64_t row, int64_t col)
{
    return (char *)v->data + (size_t)(row * v->ld + col) * weft_dtype_bytes(v->dtype);
}

/** Copies rows x cols of v from (row, col) to dense fp32. */
static void panel(const weft_cpu *cpu,
                  float *out,
                  const weft_view *v,
                  int64_t row,
                  int64_t col,
                  int64_t rows,
                  int64_t cols)
{
    for (int64_t i = 0; i < rows; i++)
        cpu->kernels->convert(out + i * cols, WEFT_DTYPE_F32, address(v, row + i, col), v->dtype,
                              cols);
}

/** C tile (+)= tile + bias, rounded once. */
static void finish_tile(const gemm_run *r, float *tile, const weft_cpu_part *p)
{
    const weft_gemm_args *const a = r->args;
    const weft_cpu_kernels *const k = r->cpu->kernels;
    for (int64_t i = 0; i < p->rows; i++) {
        weft_add_args add = {.dst = weft_view_make(tile + i * p->n, WEFT_DTYPE_F32, 1, p->n)};
        add.a = add.dst;
        if (a->bias.data != NULL) {
            add.b = weft_view_make(address(&a->bias, 0, p->col), a->bias.dtype, 1, p->n);
            k->add(&add, 0, 0, p->n);
        }
        const weft_view c = weft_view_make(address(&a->c, p->row + i, p->col), a->c.dtype, 1, p->n);
        if (a->is_added) {
            add.b = c;
            add.dst = c;
            k->add(&add, 0, 0, p->n);
        } else {
            k->convert(c.data, c.dtype, tile + i * p->n, WEFT_DTYPE_F32, p->n);
        }
    }
}

/** Workspace of a tile: the worker's own, or, where there are fewer tiles than workers, the tile's own. */
static char *scratch_of(const gemm_run *r, int64_t block, int worker)
{
    const bool is_by_tile = r->grid.n_m * r->grid.n_n < (int64_t)r->cpu->n_threads;
    if (r->worker_bytes == 0) /* and then perhaps no workspace at all */
        return r->workspace;
    return r->workspace + (size_t)(is_by_tile ? block : (int64_t)worker) * r->worker_bytes;
}

static weft_status
run_converted(const gemm_run *r, const weft_cpu_part *p, int lm, int ln, int worker, char *scratch)
{
    const weft_gemm_args *const a = r->args;
    const int64_t kc = WEFT_MIN(r->k, (int64_t)KC);
    float *const tile = (float *)(void *)scratch;
    float *const pa = tile + ceil_div(p->rows * p->n, 16) * 16;
    float *const pb = pa + ceil_div(p->rows * kc, 16) * 16;
    weft_gemm_data d = {tile, pa, pb, NULL, pb + ceil_div(p->n * kc, 16) * 16};
    for (int64_t k = 0; k < r->k; k += KC) {
        const int64_t n = WEFT_MIN(r->k - k, (int64_t)KC);
        if (a->is_a_transposed)
            panel(r->cpu, pa, &a->a, k, p->row, n, p->rows);
        else
            panel(r->cpu, pa, &a->a, p->row, k, p->rows, n);
        if (a->is_b_transposed)
            panel(r->cpu, pb, &a->b, p->col, k, p->n, n);
        else
            panel(r->cpu, pb, &a->b, k, p->col, n, p->n);
        const bool is_last = k + n == r->k;
        weft_gemm_plan *const plan = k == 0    ? r->first[lm][ln]
                                     : is_last ? r->last[lm][ln]
                                               : r->next[lm][ln];
        WEFT_TRY(weft_i_gemm_plan_run(plan, worker, &d));
    }
    finish_tile(r, tile, p);
    return WEFT_OK;
}

static void run_tile(void *user, int64_t block, int worker)
{
    gemm_run *const r = user;
    const weft_gemm_args *const a = r->args;
    const tile_grid *const g = &r->grid;
    const int64_t bm = block % g->n_m, bn = block / g->n_m;
    const int lm = bm == g->n_m - 1, ln = bn == g->n_n - 1;
    weft_cpu_part p = {bm * g->tile_m, 0, bn * g->tile_n, 0};
    p.rows = WEFT_MIN(g->tile_m, r->m - p.row);
    p.n = WEFT_MIN(g->tile_n, r->n - p.col);
    char *const scratch = scratch_of(r, block, worker);
    weft_status st;
    if (r->is_converted) {
        st = run_converted(r, &p, lm, ln, worker, scratch);
    } else {
        const weft_gemm_data d = {
            address(&a->c, p.row, p.col),
            a->is_a_transposed ? address(&a->a, 0, p.row) : address(&a->a, p.row, 0),
            a->is_b_transposed ? address(&a->b, p.col, 0) : address(&a->b, 0, p.col),
            a->bias.data == NULL ? NULL : address(&a->bias, 0, p.col),
            scratch,
        };
        st = weft_i_gemm_plan_run(r->plan[lm][ln], worker, &d);
    }
    if (st != WEFT_OK)
        atomic_store(&r->status, (int)st);
}

/** K = 0: the product is zeros. */
static void no_product(weft_cpu *cpu, const weft_gemm_args *a)
{
    for (int64_t i = 0; i < a->c.rows; i++) {
        const weft_view c = weft_view_rows(a->c, i, 1);
        if (!a->is_added)
            cpu->kernels->fill(c.data, c.dtype, c.cols, 0.0f);
        if (a->bias.data != NULL) {
            const weft_add_args add = {c, c, a->bias};
            cpu->kernels->add(&add, 0, 0, c.cols);
        }
    }
}

weft_status weft_i_cpu_gemm(weft_backend *b, const void *args, void *workspace)
{
    weft_cpu *const cpu = weft_i_cpu_of(b);
    const weft_gemm_args *const a = args;
    gemm_run r;
    WEFT_TRY(prepare(&r, cpu, a));
    if (r.m == 0 || r.n == 0)
        return WEFT_OK;
    if (r.k == 0) {
        no_product(cpu, a);
        return WEFT_OK;
    }
    r.workspace = workspace;
    weft_i_cpu_run(cpu, r.grid.n_m * r.grid.n_n, (double)r.m * (double)r.n * (double)r.k, run_tile,
                   &r);
    /* A worker's words stayed on its thread: said again for the caller's. */
    const weft_status st = (weft_status)atomic_load(&r.status);
    if (st != WEFT_OK)
        WEFT_FAIL(st,
                  "oneDNN could not compute the product [%lld, %lld] x [%lld, %lld] of %s into %s; "
                  "the usual reason is that memory ran out",
                  (long long)r.m, (long long)r.k, (long long)r.k, (long long)r.n,
                  weft_dtype_name(a->a.dtype), weft_dtype_name(a->c.dtype));
    return WEFT_OK;
}
