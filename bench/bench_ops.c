/**
 * Times every operation of the cpu backend at the shapes of a training step and prints GFLOP/s or GB/s.
 *
 *   bench_ops [FILTER [THREADS...]]     FILTER: a part of a line's name ("gemm", "gpt2", "bf16"); THREADS: default 1 2
 *
 * The shapes are GPT-2 124M with 4 sequences of 256 tokens and a Llama of 56M parameters with 4 of 512. The time of a
 * line is the least of several runs; a step's total is the sum over its lines times how often each runs.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/run_op.h"
#include "base/clock.h"
#include "base/ctx.h"
#include "base/sum.h"

typedef struct bench_model {
    const char *name;
    int64_t seqs, tokens, width, ffn, heads, kv_heads, head_dim, vocab, layers, params;
    bool is_gated;     /* and RMSNorm, rotary positions, weights stored [out, in] */
    int64_t head_rows; /* rows of a chunk of logits */
} bench_model;

static const bench_model MODELS[] = {
    {"gpt2", 4, 256, 768, 3072, 12, 12, 64, 50257, 12, 124439808, false, 256},
    {"llama", 4, 512, 512, 1408, 8, 4, 64, 32000, 8, 56369664, true, 256},
};

typedef struct bench {
    weft_ctx *ctx;
    weft_arena arena;
    const bench_model *model;
    weft_dtype type;
    const char *filter;
    int n_threads;
    double total_ms;
    float *pool; /* where operands lie: as large as the largest set of operands */
    size_t pool_bytes, used_bytes;
} bench;

static weft_view take(bench *b, weft_dtype t, int64_t rows, int64_t cols)
{
    const size_t bytes = ((size_t)(rows * cols) * weft_dtype_bytes(t) + 63) / 64 * 64;
    if (b->used_bytes + bytes > b->pool_bytes) {
        fprintf(stderr, "bench_ops: operands do not fit\n");
        exit(1);
    }
    const weft_view v = weft_view_make((char *)b->pool + b->used_bytes, t, rows, cols);
    b->used_bytes += bytes;
    return v;
}

static void run(bench *b, weft_op op, const void *args)
{
    if (weft_i_op_run(b->ctx->backend, op, args, &b->arena) != WEFT_OK) {
        fprintf(stderr, "bench_ops: %s: %s\n", weft_op_name(op), weft_last_error());
        exit(1);
    }
}

/** Least time of a call; `bytes` is what must move to and from memory, 0: print FLOP/s. `times`: calls in a step. */
static void
measure(bench *b, const char *what, weft_op op, const void *args, double bytes, int64_t times)
{
    char line[160];
    snprintf(line, sizeof(line), "%-5s %-4s %-22s", b->model->name,
             b->type == WEFT_DTYPE_F32 ? "f32" : "bf16", what);
    b->used_bytes = 0;
    if (b->filter != NULL && strstr(line, b->filter) == NULL)
        return;
    double best = (double)INFINITY, spent = 0.0;
    for (int i = 0; i < 200 && (i < 4 || spent < 0.15); i++) {
        const double start = weft_i_clock_seconds();
        run(b, op, args);
        const double t = weft_i_clock_seconds() - start;
        spent += t;
        best = t < best ? t : best;
    }
    const double rate = (bytes > 0.0 ? bytes : weft_op_flops(op, args)) / best * 1e-9;
    printf("%s T%d %9.3f ms x %-3lld %8.1f %s\n", line, b->n_threads, best * 1e3, (long long)times,
           rate, bytes > 0.0 ? "GB/s" : "GFLOP/s");
    fflush(stdout);
    b->total_ms += best * 1e3 * (double)times;
}

/* C [m, n] (+)= op(A) op(B), `times` a step. */
typedef struct product {
    const char *what;
    int64_t m, n, k;
    bool is_a_t, is_b_t, is_added;
    weft_dtype c_type;
} product;

static void gemm(bench *b, const product p, int64_t times)
{
    weft_gemm_args a = {
        .is_a_transposed = p.is_a_t, .is_b_transposed = p.is_b_t, .is_added = p.is_added};
    char text[80];
    a.a = p.is_a_t ? take(b, b->type, p.k, p.m) : take(b, b->type, p.m, p.k);
    a.b = p.is_b_t ? take(b, b->type, p.n, p.k) : take(b, b->type, p.k, p.n);
    a.c = take(b, p.c_type, p.m, p.n);
    a.bias = weft_view_none();
    snprintf(text, sizeof(text), "gemm %s %lldx%lldx%lld", p.what, (long long)p.m, (long long)p.n,
             (long long)p.k);
    measure(b, text, WEFT_OP_GEMM, &a, 0.0, times);
}

/** The three products of a linear layer from n_in to n_out. */
static void linear(bench *b, int64_t n_in, int64_t n_out, int64_t times)
{
    const bench_model *const m = b->model;
    const int64_t rows = m->seqs * m->tokens;
    gemm(b, (product){"y", rows, n_out, n_in, false, m->is_gated, false, b->type}, times);
    gemm(b, (product){"dx", rows, n_in, n_out, false, !m->is_gated, false, b->type}, times);
    if (m->is_gated)
        gemm(b, (product){"dw", n_out, n_in, rows, true, false, true, WEFT_DTYPE_F32}, times);
    else
        gemm(b, (product){"dw", n_in, n_out, rows, true, false, true, WEFT_DTYPE_F32}, times);
}

static void bench_gemm(bench *b)
{
    const bench_model *const m = b->model;
    const int64_t chunks = m->seqs * m->tokens / m->head_rows;
    linear(b, m->width, (m->heads + 2 * m->kv_heads) * m->head_dim, m->layers);
    linear(b, m->width, m->width, m->layers);
    linear(b, m->width, m->ffn, m->layers * (m->is_gated ? 2 : 1));
    linear(b, m->ffn, m->width, m->layers);
    gemm(b,
         (product){"logits", m->head_rows, m->vocab, m->width, false, true, false, WEFT_DTYPE_F32},
         chunks);
    gemm(b, (product){"head dx", m->head_rows, m->width, m->vocab, false, false, false, b->type},
         chunks);
    gemm(b,
         (product){"head dw", m->vocab, m->width, m->head_rows, true, false, true, WEFT_DTYPE_F32},
         chunks);
    for (int64_t rows = 1; rows <= 8; rows *= 8) {
        gemm(b, (product){"decode", rows, m->ffn, m->width, false, m->is_gated, false, b->type}, 0);
        gemm(b,
             (product){"decode head", rows, m->vocab, m->width, false, true, false, WEFT_DTYPE_F32},
             0);
    }
}

static void
bench_attention(bench *b, int64_t seqs, int64_t q_tokens, int64_t kv_tokens, const char *what)
{
    const bench_model *const m = b->model;
    int kv_of_head[64];
    int64_t offset[64], length[64];
    for (int64_t h = 0; h < m->heads; h++)
        kv_of_head[h] = (int)(h * m->kv_heads / m->heads);
    for (int64_t s = 0; s < seqs; s++) {
        offset[s] = kv_tokens - q_tokens;
        length[s] = kv_tokens;
    }
    const weft_attention_shape shape = {.n_seqs = seqs,
                                        .q_tokens = q_tokens,
                                        .kv_tokens = kv_tokens,
                                        .n_heads = m->heads,
                                        .n_kv_heads = m->kv_heads,
                                        .head_dim = m->head_dim,
                                        .kv_of_head = kv_of_head,
                                        .q_offset = q_tokens == kv_tokens ? NULL : offset,
                                        .kv_length = q_tokens == kv_tokens ? NULL : length,
                                        .scale = 0.125f};
    const int64_t width = m->heads * m->head_dim, kv_width = m->kv_heads * m->head_dim;
    char text[80];
    weft_attention_forward_args f = {.shape = shape};
    f.out = take(b, b->type, seqs * q_tokens, width);
    f.q = take(b, b->type, seqs * q_tokens, width);
    f.k = take(b, b->type, seqs * kv_tokens, kv_width);
    f.v = take(b, b->type, seqs * kv_tokens, kv_width);
    f.lse = take(b, WEFT_DTYPE_F32, seqs * m->heads, q_tokens);
    snprintf(text, sizeof(text), "attention %s", what);
    if (q_tokens < kv_tokens) {
        measure(b, text, WEFT_OP_ATTENTION_FORWARD, &f,
                2.0 * (double)(f.k.rows * f.k.cols) * (double)weft_dtype_bytes(b->type), 0);
        return;
    }
    const size_t used = b->used_bytes;
    measure(b, text, WEFT_OP_ATTENTION_FORWARD, &f, 0.0, m->layers);
    b->used_bytes = used;
    weft_attention_backward_args g = {
        .shape = shape, .out = f.out, .lse = f.lse, .q = f.q, .k = f.k, .v = f.v};
    g.dq = take(b, b->type, seqs * q_tokens, width);
    g.dout = take(b, b->type, seqs * q_tokens, width);
    g.dk = take(b, b->type, seqs * kv_tokens, kv_width);
    g.dv = take(b, b->type, seqs * kv_tokens, kv_width);
    snprintf(text, sizeof(text), "attention %s back", what);
    measure(b, text, WEFT_OP_ATTENTION_BACKWARD, &g, 0.0, m->layers);
}

static void bench_norm(bench *b)
{
    const bench_model *const m = b->model;
    const int64_t rows = m->seqs * m->tokens, times = 2 * m->layers + 1;
    const weft_norm_kind kind = m->is_gated ? WEFT_NORM_RMS : WEFT_NORM_LAYER;
    const double bytes = (double)(rows * m->width) * (double)weft_dtype_bytes(b->type);
    weft_norm_forward_args f = {.kind = kind, .eps = 1e-5f};
    f.y = take(b, b->type, rows, m->width);
    f.x = take(b, b->type, rows, m->width);
    f.gain = take(b, b->type, 1, m->width);
    f.bias = m->is_gated ? weft_view_none() : take(b, b->type, 1, m->width);
    f.mean = m->is_gated ? weft_view_none() : take(b, WEFT_DTYPE_F32, rows, 1);
    f.rstd = take(b, WEFT_DTYPE_F32, rows, 1);
    weft_norm_backward_input_args g = {
        .kind = kind, .x = f.x, .gain = f.gain, .mean = f.mean, .rstd = f.rstd};
    g.dx = take(b, b->type, rows, m->width);
    g.dy = take(b, b->type, rows, m->width);
    g.residual = take(b, b->type, rows, m->width);
    weft_norm_backward_weight_args w = {
        .kind = kind, .dy = g.dy, .x = f.x, .mean = f.mean, .rstd = f.rstd};
    w.dgain = take(b, WEFT_DTYPE_F32, 1, m->width);
    w.dbias = m->is_gated ? weft_view_none() : take(b, WEFT_DTYPE_F32, 1, m->width);
    w.is_added = true;
    measure(b, "norm", WEFT_OP_NORM_FORWARD, &f, 2.0 * bytes, times);
    measure(b, "norm dx", WEFT_OP_NORM_BACKWARD_INPUT, &g, 4.0 * bytes, times);
    measure(b, "norm dw", WEFT_OP_NORM_BACKWARD_WEIGHT, &w, 2.0 * bytes, times);
}

static void bench_mlp(bench *b)
{
    const bench_model *const m = b->model;
    const int64_t rows = m->seqs * m->tokens;
    const double bytes = (double)(rows * m->ffn) * (double)weft_dtype_bytes(b->type);
    const weft_activation kind = m->is_gated ? WEFT_ACTIVATION_SILU : WEFT_ACTIVATION_GELU_TANH;
    weft_activation_forward_args f = {.kind = kind};
    f.y = take(b, b->type, rows, m->ffn);
    f.x = take(b, b->type, rows, m->ffn);
    f.up = m->is_gated ? take(b, b->type, rows, m->ffn) : weft_view_none();
    weft_activation_backward_args g = {.kind = kind, .x = f.x, .up = f.up};
    g.dx = take(b, b->type, rows, m->ffn);
    g.dy = take(b, b->type, rows, m->ffn);
    g.dup = m->is_gated ? take(b, b->type, rows, m->ffn) : weft_view_none();
    weft_column_sum_args c = {.x = g.dy, .is_added = true};
    c.out = take(b, WEFT_DTYPE_F32, 1, m->ffn);
    measure(b, "activation", WEFT_OP_ACTIVATION_FORWARD, &f, (m->is_gated ? 3.0 : 2.0) * bytes,
            m->layers);
    measure(b, "activation back", WEFT_OP_ACTIVATION_BACKWARD, &g,
            (m->is_gated ? 5.0 : 3.0) * bytes, m->layers);
    if (!m->is_gated)
        measure(b, "column sum", WEFT_OP_COLUMN_SUM, &c, bytes, m->layers * 3);
}

static void bench_residual(bench *b)
{
    const bench_model *const m = b->model;
    const int64_t rows = m->seqs * m->tokens;
    const double bytes = (double)(rows * m->width) * (double)weft_dtype_bytes(b->type);
    weft_residual_args r = {.bias = weft_view_none()};
    r.y = take(b, b->type, rows, m->width);
    r.x = take(b, b->type, rows, m->width);
    r.residual = take(b, b->type, rows, m->width);
    weft_residual_args d = r;
    d.dropout.p = 0.1f;
    d.dropout.position = take(b, WEFT_DTYPE_I32, rows, 1);
    d.dropout.sample = take(b, WEFT_DTYPE_I64, rows, 1);
    weft_embedding_forward_args e = {.y = r.y};
    e.table = take(b, b->type, m->vocab, m->width);
    e.ids = take(b, WEFT_DTYPE_I32, rows, 1);
    weft_embedding_backward_args g = {.dy = r.x, .ids = e.ids, .is_added = true};
    g.dtable = take(b, WEFT_DTYPE_F32, m->vocab, m->width);
    for (int64_t i = 0; i < rows; i++) {
        ((int32_t *)e.ids.data)[i] = (int32_t)(i * 7919 % m->vocab);
        ((int32_t *)d.dropout.position.data)[i] = (int32_t)i;
    }
    measure(b, "residual", WEFT_OP_RESIDUAL, &r, 3.0 * bytes, 2 * m->layers);
    measure(b, "residual dropout", WEFT_OP_RESIDUAL, &d, 3.0 * bytes, 0);
    measure(b, "embedding", WEFT_OP_EMBEDDING_FORWARD, &e, 2.0 * bytes, 1);
    measure(b, "embedding back", WEFT_OP_EMBEDDING_BACKWARD, &g,
            bytes + 8.0 * (double)(rows * m->width), 1);
    if (!m->is_gated)
        return;
    weft_rope_args o = {.head_dim = m->head_dim, .positions = d.dropout.position};
    o.x = take(b, b->type, rows, m->heads * m->head_dim);
    o.cos = take(b, WEFT_DTYPE_F32, rows, m->head_dim / 2);
    o.sin = take(b, WEFT_DTYPE_F32, rows, m->head_dim / 2);
    for (int64_t i = 0; i < rows; i++)
        ((int32_t *)o.positions.data)[i] = (int32_t)i;
    measure(b, "rope", WEFT_OP_ROPE, &o, 2.0 * bytes, 4 * m->layers);
}

static void bench_xent(bench *b)
{
    const bench_model *const m = b->model;
    const int64_t chunks = m->seqs * m->tokens / m->head_rows;
    const double n = (double)(m->head_rows * m->vocab);
    weft_xent_stats_args s = {.first_id = 0};
    s.logits = take(b, WEFT_DTYPE_F32, m->head_rows, m->vocab);
    s.targets = take(b, WEFT_DTYPE_I32, m->head_rows, 1);
    s.max = take(b, WEFT_DTYPE_F32, m->head_rows, 1);
    s.sum = take(b, WEFT_DTYPE_F32, m->head_rows, 1);
    s.target = take(b, WEFT_DTYPE_F32, m->head_rows, 1);
    for (int64_t i = 0; i < m->head_rows; i++) {
        ((int32_t *)s.targets.data)[i] = (int32_t)i;
        ((float *)s.sum.data)[i] = 1.0f;
    }
    weft_xent_grad_args g = {
        .logits = s.logits, .max = s.max, .sum = s.sum, .targets = s.targets, .scale = 0.0f};
    g.dlogits = b->type == WEFT_DTYPE_F32 ? s.logits : take(b, b->type, m->head_rows, m->vocab);
    measure(b, "xent stats", WEFT_OP_XENT_STATS, &s, 4.0 * n, chunks);
    measure(b, "xent grad", WEFT_OP_XENT_GRAD, &g, (4.0 + (double)weft_dtype_bytes(b->type)) * n,
            chunks);
}

static void bench_optimizer(bench *b)
{
    const int64_t n = b->model->params;
    const bool is_bf16 = b->type == WEFT_DTYPE_BF16;
    weft_sum sum;
    weft_i_sum_init(&sum);
    weft_adamw_args a = {.lr = 1e-4,
                         .beta1 = 0.9,
                         .beta2 = 0.95,
                         .eps = 1e-8,
                         .bias1 = 0.1,
                         .bias2 = 0.05,
                         .grad_scale = 1.0f};
    a.x = take(b, b->type, 1, n);
    a.master = is_bf16 ? take(b, WEFT_DTYPE_F32, 1, n) : weft_view_none();
    a.grad = take(b, WEFT_DTYPE_F32, 1, n);
    a.m = take(b, WEFT_DTYPE_F32, 1, n);
    a.v = take(b, WEFT_DTYPE_F32, 1, n);
    memset(a.m.data, 0, (size_t)n * sizeof(float));
    memset(a.v.data, 0, (size_t)n * sizeof(float));
    for (int64_t i = 0; i < n; i++)
        ((float *)a.grad.data)[i] = (float)((i * 2654435761) % 65537 - 32768) * 1e-6f;
    const weft_sum_args s = {.x = a.grad, .sum = &sum};
    const weft_fill_args f = {.x = a.grad, .value = 0.0f};
    int64_t found = 0;
    const weft_find_nonfinite_args z = {.x = a.grad, .index = &found};
    const weft_init_normal_args i = {.x = weft_view_make(a.grad.data, b->type, 1, 4 << 20),
                                     .std = 0.02};
    measure(b, "sum squares", WEFT_OP_SUM_SQUARES, &s, 4.0 * (double)n, 1);
    measure(b, "find nonfinite", WEFT_OP_FIND_NONFINITE, &z, 4.0 * (double)n, 0);
    measure(b, "adamw", WEFT_OP_ADAMW, &a, (is_bf16 ? 30.0 : 28.0) * (double)n, 1);
    measure(b, "fill", WEFT_OP_FILL, &f, 4.0 * (double)n, 1);
    measure(b, "init normal 4M", WEFT_OP_INIT_NORMAL, &i, 4.0 * (double)(4 << 20), 0);
}

static void bench_one(bench *b, int n_threads)
{
    const weft_ctx_options options = {.backend = WEFT_BACKEND_CPU, .n_threads = n_threads};
    b->n_threads = n_threads;
    b->total_ms = 0.0;
    if (weft_ctx_create(&b->ctx, &options) != WEFT_OK) {
        fprintf(stderr, "bench_ops: %s\n", weft_last_error());
        exit(1);
    }
    bench_gemm(b);
    bench_attention(b, b->model->seqs, b->model->tokens, b->model->tokens, "train");
    bench_attention(b, 1, 1, 1024, "decode 1");
    bench_attention(b, 8, 1, 1024, "decode 8");
    bench_norm(b);
    bench_mlp(b);
    bench_residual(b);
    bench_xent(b);
    bench_optimizer(b);
    if (b->total_ms > 0.0)
        printf("%-5s %-4s all lines of a step    T%d %9.1f ms\n", b->model->name,
               b->type == WEFT_DTYPE_F32 ? "f32" : "bf16", n_threads, b->total_ms);
    weft_ctx_destroy(b->ctx);
}

int main(int argc, char **argv)
{
    static const int both[] = {1, 2};
    bench b = {.filter = argc > 1 && argv[1][0] != '\0' ? argv[1] : NULL};
    const size_t arena_bytes = (size_t)256 << 20;
    b.pool_bytes = (size_t)3 << 30;
    b.pool = aligned_alloc(64, b.pool_bytes);
    void *const workspace = aligned_alloc(64, arena_bytes);
    if (b.pool == NULL || workspace == NULL)
        return 1;
    memset(b.pool, 0, b.pool_bytes);
    memset(workspace, 0, arena_bytes);
    weft_i_arena_init(&b.arena, workspace, arena_bytes);
    for (size_t m = 0; m < WEFT_COUNT_OF(MODELS); m++) {
        for (int t = 0; t < 2; t++) {
            b.model = &MODELS[m];
            b.type = t == 0 ? WEFT_DTYPE_F32 : WEFT_DTYPE_BF16;
            const int n_runs = argc > 2 ? argc - 2 : (int)WEFT_COUNT_OF(both);
            for (int i = 0; i < n_runs; i++)
                bench_one(&b, argc > 2 ? (int)strtol(argv[i + 2], NULL, 10) : both[i]);
        }
    }
    free(workspace);
    free(b.pool);
    return 0;
}
