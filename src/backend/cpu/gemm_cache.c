/**
 * oneDNN matmul primitives in a table of fixed size (oneDNN 2.x C interface, plain row-major layouts, scratchpad given
 * by the caller, so that nothing is allocated while training).
 *
 * Every worker has memory objects of its own in each place, since a primitive is run by several workers at once on
 * different data. oneDNN is called with one OpenMP thread (threads.c), so it computes in the calling thread.
 */
#include "backend/cpu/gemm_cache.h"

#include "base/env.h"

#include <dnnl.h>
#include <string.h>

#define ROOM_BYTES ((size_t)16 << 20) /* far more than a kernel takes: ranks ask at the same time */

enum { N_PLACES = 512, N_BUCKETS = 1024, NOWHERE = -1 };

enum operand { OPERAND_A, OPERAND_B, OPERAND_C, OPERAND_BIAS, OPERAND_SCRATCH, OPERAND_COUNT };

struct weft_gemm_plan {
    weft_gemm_key key;
    weft_gemm_cache *cache;
    dnnl_primitive_desc_t desc; /* NULL: the place is free */
    dnnl_primitive_t primitive; /* NULL: not compiled yet */
    dnnl_memory_desc_t layout[OPERAND_COUNT];
    dnnl_memory_t *memory; /* [n_threads][OPERAND_COUNT] */
    size_t scratch_bytes;
    uint64_t last_use;
    int next; /* in its bucket */
};

struct weft_gemm_cache {
    weft_ctx *ctx;
    dnnl_engine_t engine;
    dnnl_stream_t *stream; /* [n_threads] */
    dnnl_memory_t *memory; /* [N_PLACES][n_threads][OPERAND_COUNT] */
    weft_gemm_plan *place; /* [N_PLACES] */
    int bucket[N_BUCKETS];
    int n_threads;
    int n_taken;
    uint64_t clock;
};

static weft_status failed(const char *what, const weft_gemm_key *k, dnnl_status_t st)
{
    WEFT_FAIL(
        WEFT_STATUS_DEVICE,
        "oneDNN could not %s (status %d) for the product [%lld, %lld] x [%lld, %lld] of %s into %s",
        what, (int)st, (long long)k->m, (long long)k->k, (long long)k->k, (long long)k->n,
        weft_dtype_name(k->ab_type), weft_dtype_name(k->c_type));
}

static dnnl_data_type_t type_of(weft_dtype t)
{
    return t == WEFT_DTYPE_BF16 ? dnnl_bf16 : dnnl_f32;
}

static dnnl_status_t make_layout(dnnl_memory_desc_t *out,
                                 int64_t rows,
                                 int64_t cols,
                                 int64_t ld,
                                 bool is_transposed,
                                 weft_dtype t)
{
    const dnnl_dims_t dims = {rows, cols};
    const dnnl_dims_t plain = {ld, 1};
    const dnnl_dims_t transposed = {1, ld};
    return dnnl_memory_desc_init_by_strides(out, 2, dims, type_of(t),
                                            is_transposed ? transposed : plain);
}

static dnnl_status_t make_attributes(dnnl_primitive_attr_t *out, bool is_added)
{
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t st = dnnl_primitive_attr_create(out);
    if (st == dnnl_success)
        st = dnnl_primitive_attr_set_scratchpad_mode(*out, dnnl_scratchpad_mode_user);
    if (st != dnnl_success || !is_added)
        return st;
    st = dnnl_post_ops_create(&ops);
    if (st == dnnl_success)
        st = dnnl_post_ops_append_sum(ops, 1.0f);
    if (st == dnnl_success)
        st = dnnl_primitive_attr_set_post_ops(*out, ops);
    if (ops != NULL)
        dnnl_post_ops_destroy(ops);
    return st;
}

/* oneDNN reads through NULL where it gets no memory for a kernel: asked before, so that most lacks of it are a status. */
static weft_status ask_for_room(void)
{
    if (weft_i_env_would_give(ROOM_BYTES))
        return WEFT_OK;
    WEFT_FAIL(WEFT_STATUS_NOMEM,
              "memory for compiling a matrix product ran out: the system does not give %zu bytes "
              "more",
              ROOM_BYTES);
}

static weft_status make_desc(weft_gemm_plan *p, const weft_gemm_key *k)
{
    dnnl_memory_desc_t *const l = p->layout;
    const bool has_bias = k->bias_type != WEFT_DTYPE_OTHER;
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_matmul_desc_t op;
    dnnl_status_t st =
        make_layout(&l[OPERAND_A], k->m, k->k, k->lda, k->is_a_transposed, k->ab_type);
    if (st == dnnl_success)
        st = make_layout(&l[OPERAND_B], k->k, k->n, k->ldb, k->is_b_transposed, k->ab_type);
    if (st == dnnl_success)
        st = make_layout(&l[OPERAND_C], k->m, k->n, k->ldc, false, k->c_type);
    if (st == dnnl_success && has_bias)
        st = make_layout(&l[OPERAND_BIAS], 1, k->n, k->n, false, k->bias_type);
    if (st == dnnl_success)
        st = dnnl_matmul_desc_init(&op, &l[OPERAND_A], &l[OPERAND_B],
                                   has_bias ? &l[OPERAND_BIAS] : NULL, &l[OPERAND_C]);
    if (st == dnnl_success)
        st = make_attributes(&attributes, k->is_added);
    if (st == dnnl_success)
        st = dnnl_primitive_desc_create(&p->desc, &op, attributes, p->cache->engine, NULL);
    if (attributes != NULL)
        dnnl_primitive_attr_destroy(attributes);
    if (st != dnnl_success) {
        p->desc = NULL;
        return failed("plan", k, st);
    }
    const dnnl_memory_desc_t *const scratch =
        dnnl_primitive_desc_query_md(p->desc, dnnl_query_scratchpad_md, 0);
    l[OPERAND_SCRATCH] = *scratch;
    p->scratch_bytes = dnnl_memory_desc_get_size(scratch);
    return WEFT_OK;
}

static weft_status make_primitive(weft_gemm_plan *p)
{
    if (p->primitive != NULL)
        return WEFT_OK;
    WEFT_TRY(ask_for_room());
    dnnl_status_t st = dnnl_primitive_create(&p->primitive, p->desc);
    const int n = p->cache->n_threads * OPERAND_COUNT;
    for (int i = 0; i < n && st == dnnl_success; i++) {
        const int operand = i % OPERAND_COUNT;
        const bool is_used = (operand != OPERAND_BIAS || p->key.bias_type != WEFT_DTYPE_OTHER) &&
                             (operand != OPERAND_SCRATCH || p->scratch_bytes > 0);
        if (is_used)
            st = dnnl_memory_create(&p->memory[i], &p->layout[operand], p->cache->engine,
                                    DNNL_MEMORY_NONE);
    }
    return st == dnnl_success ? WEFT_OK : failed("compile", &p->key, st);
}

static void release(weft_gemm_plan *p)
{
    for (int i = 0; i < p->cache->n_threads * OPERAND_COUNT; i++) {
        if (p->memory[i] != NULL)
            dnnl_memory_destroy(p->memory[i]);
        p->memory[i] = NULL;
    }
    if (p->primitive != NULL)
        dnnl_primitive_destroy(p->primitive);
    if (p->desc != NULL)
        dnnl_primitive_desc_destroy(p->desc);
    p->primitive = NULL;
    p->desc = NULL;
}

static weft_status create_parts(weft_gemm_cache *c)
{
    weft_alloc *const alloc = c->ctx->alloc;
    const size_t n_threads = (size_t)c->n_threads;
    void *block = NULL;
    WEFT_TRY(weft_i_alloc_new(alloc, N_PLACES, sizeof(*c->place), &block));
    c->place = block;
    WEFT_TRY(weft_i_alloc_new(alloc, N_PLACES * n_threads * OPERAND_COUNT, sizeof(dnnl_memory_t),
                              &block));
    c->memory = block;
    WEFT_TRY(weft_i_alloc_new(alloc, n_threads, sizeof(dnnl_stream_t), &block));
    c->stream = block;
    dnnl_status_t st = dnnl_engine_create(&c->engine, dnnl_cpu, 0);
    for (size_t i = 0; i < n_threads && st == dnnl_success; i++)
        st = dnnl_stream_create(&c->stream[i], c->engine, dnnl_stream_default_flags);
    if (st != dnnl_success)
        WEFT_FAIL(WEFT_STATUS_DEVICE, "oneDNN could not start on this processor (status %d)",
                  (int)st);
    for (int i = 0; i < N_PLACES; i++) {
        c->place[i].cache = c;
        c->place[i].memory = c->memory + (size_t)i * n_threads * OPERAND_COUNT;
    }
    return WEFT_OK;
}

weft_status weft_i_gemm_cache_create(weft_gemm_cache **out, weft_ctx *ctx)
{
    void *block = NULL;
    *out = NULL;
    WEFT_TRY(weft_i_alloc_new(ctx->alloc, 1, sizeof(weft_gemm_cache), &block));
    weft_gemm_cache *const c = block;
    c->ctx = ctx;
    c->n_threads = weft_i_pool_threads(ctx->pool);
    for (int i = 0; i < N_BUCKETS; i++)
        c->bucket[i] = NOWHERE;
    const weft_status st = create_parts(c);
    if (st != WEFT_OK) {
        weft_i_gemm_cache_destroy(c);
        return st;
    }
    *out = c;
    return WEFT_OK;
}

void weft_i_gemm_cache_destroy(weft_gemm_cache *c)
{
    if (c == NULL)
        return;
    for (int i = 0; i < c->n_taken; i++)
        release(&c->place[i]);
    for (int i = 0; c->stream != NULL && i < c->n_threads; i++)
        if (c->stream[i] != NULL)
            dnnl_stream_destroy(c->stream[i]);
    if (c->engine != NULL)
        dnnl_engine_destroy(c->engine);
    weft_alloc *const alloc = c->ctx->alloc;
    weft_i_alloc_put(alloc, c->stream);
    weft_i_alloc_put(alloc, c->memory);
    weft_i_alloc_put(alloc, c->place);
    weft_i_alloc_put(alloc, c);
}

/** FNV-1a over the key's bytes, folded to a bucket. */
static int bucket_of(const weft_gemm_key *key)
{
    uint64_t hash = 0xcbf29ce484222325u;
    unsigned char bytes[sizeof(*key)];
    memcpy(bytes, key, sizeof(bytes));
    for (size_t i = 0; i < sizeof(bytes); i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return (int)((hash ^ (hash >> 32)) % N_BUCKETS);
}

/** A free place, or that of the plan used longest ago, unlinked. */
static int take_place(weft_gemm_cache *c)
{
    if (c->n_taken < N_PLACES)
        return c->n_taken++;
    int oldest = 0;
    for (int i = 1; i < N_PLACES; i++)
        if (c->place[i].last_use < c->place[oldest].last_use)
            oldest = i;
    weft_gemm_plan *const p = &c->place[oldest];
    if (p->desc == NULL)
        return oldest;
    int *link = &c->bucket[bucket_of(&p->key)];
    while (*link != oldest)
        link = &c->place[*link].next;
    *link = p->next;
    release(p);
    return oldest;
}

weft_status
weft_i_gemm_cache_find(weft_gemm_cache *c, const weft_gemm_key *key, weft_gemm_plan **out)
{
    const int bucket = bucket_of(key);
    int i = c->bucket[bucket];
    while (i != NOWHERE && memcmp(&c->place[i].key, key, sizeof(*key)) != 0)
        i = c->place[i].next;
    if (i == NOWHERE) {
        i = take_place(c);
        weft_gemm_plan *const p = &c->place[i];
        p->last_use = 0;
        WEFT_TRY(ask_for_room());
        WEFT_TRY(make_desc(p, key));
        p->key = *key;
        p->next = c->bucket[bucket];
        c->bucket[bucket] = i;
    }
    c->place[i].last_use = ++c->clock;
    *out = &c->place[i];
    return make_primitive(*out);
}

size_t weft_i_gemm_plan_scratch_bytes(const weft_gemm_plan *p)
{
    return p->scratch_bytes;
}

/** oneDNN's handles are not const although it only reads through these. */
static dnnl_status_t set_input(dnnl_memory_t m, const void *data)
{
    void *handle;
    memcpy(&handle, &data, sizeof(handle));
    return dnnl_memory_set_data_handle(m, handle);
}

weft_status weft_i_gemm_plan_run(weft_gemm_plan *p, int worker, const weft_gemm_data *d)
{
    static const int argument[OPERAND_COUNT] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST,
                                                DNNL_ARG_BIAS, DNNL_ARG_SCRATCHPAD};
    const void *const data[OPERAND_COUNT] = {d->a, d->b, d->c, d->bias, d->scratch};
    dnnl_memory_t *const memory = p->memory + worker * OPERAND_COUNT;
    dnnl_exec_arg_t args[OPERAND_COUNT];
    int n = 0;
    dnnl_status_t st = dnnl_success;
    for (int i = 0; i < OPERAND_COUNT && st == dnnl_success; i++) {
        if (memory[i] == NULL)
            continue;
        st = set_input(memory[i], data[i]);
        args[n].arg = argument[i];
        args[n].memory = memory[i];
        n++;
    }
    if (st == dnnl_success)
        st = dnnl_primitive_execute(p->primitive, p->cache->stream[worker], n, args);
    return st == dnnl_success ? WEFT_OK : failed("run", &p->key, st);
}
