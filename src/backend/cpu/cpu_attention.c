/**
 * Attention over threads: forward by (sequence, head, tile of queries), backward by (sequence, key head) with all the
 * query heads that share it, so that no two blocks write the same element and sums have one order.
 */
#include "backend/cpu/cpu.h"

typedef struct attention_run {
    const weft_cpu *cpu;
    const weft_attention_shape *shape;
    const void *args;
    int64_t n_tiles;
    float *scratch;
    size_t scratch_floats;
} attention_run;

/** Floats per worker, a whole number of cache lines. */
static size_t scratch_of(const weft_cpu *cpu, const weft_attention_shape *s, bool is_backward)
{
    return ((is_backward ? cpu->kernels->attention_backward_scratch(s)
                         : cpu->kernels->attention_forward_scratch(s)) +
            15) /
           16 * 16;
}

size_t
weft_i_cpu_attention_workspace(const weft_cpu *cpu, const weft_attention_shape *s, bool is_backward)
{
    return scratch_of(cpu, s, is_backward) * sizeof(float) * (size_t)cpu->n_threads;
}

static void forward_block(void *user, int64_t block, int worker)
{
    const attention_run *const r = user;
    const weft_attention_shape *const s = r->shape;
    const int64_t tile = r->n_tiles - 1 - block % r->n_tiles; /* the longest first */
    const int64_t head = block / r->n_tiles % s->n_heads;
    weft_attn_task t = {s, block / r->n_tiles / s->n_heads, head, tile * WEFT_ATTENTION_QUERIES, 0};
    t.n_queries = WEFT_MIN(s->q_tokens - t.first_query, (int64_t)WEFT_ATTENTION_QUERIES);
    r->cpu->kernels->attention_forward(r->args, &t,
                                       r->scratch + (size_t)worker * r->scratch_floats);
}

weft_status weft_i_cpu_attention_forward(weft_backend *b, const void *args, void *workspace)
{
    weft_cpu *const cpu = weft_i_cpu_of(b);
    const weft_attention_forward_args *const a = args;
    const weft_attention_shape *const s = &a->shape;
    attention_run r = {.cpu = cpu,
                       .shape = s,
                       .args = a,
                       .n_tiles =
                           (s->q_tokens + WEFT_ATTENTION_QUERIES - 1) / WEFT_ATTENTION_QUERIES,
                       .scratch = workspace,
                       .scratch_floats = scratch_of(cpu, s, false)};
    const double work = (double)a->q.rows * (double)a->q.cols * (double)s->kv_tokens;
    weft_i_cpu_run(cpu, s->n_seqs * s->n_heads * r.n_tiles, work, forward_block, &r);
    return WEFT_OK;
}

static void backward_block(void *user, int64_t block, int worker)
{
    const attention_run *const r = user;
    const weft_attention_shape *const s = r->shape;
    const weft_attn_task t = {s, block / s->n_kv_heads, block % s->n_kv_heads, 0, s->q_tokens};
    r->cpu->kernels->attention_backward(r->args, &t,
                                        r->scratch + (size_t)worker * r->scratch_floats);
}

weft_status weft_i_cpu_attention_backward(weft_backend *b, const void *args, void *workspace)
{
    weft_cpu *const cpu = weft_i_cpu_of(b);
    const weft_attention_backward_args *const a = args;
    const weft_attention_shape *const s = &a->shape;
    attention_run r = {.cpu = cpu,
                       .shape = s,
                       .args = a,
                       .scratch = workspace,
                       .scratch_floats = scratch_of(cpu, s, true)};
    const double work = (double)a->q.rows * (double)a->q.cols * (double)s->kv_tokens;
    weft_i_cpu_run(cpu, s->n_seqs * s->n_kv_heads, work, backward_block, &r);
    return WEFT_OK;
}
