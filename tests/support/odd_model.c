/* Models of awkward sizes (odd_model.h). */
#include "odd_model.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

/* Smaller where every access is watched; no number divides there either. */
#ifdef __SANITIZE_THREAD__
#define LLAMA                                                                                      \
    .vocab = 61, .hidden = 10, .n_layers = 5, .n_heads = 6, .n_kv_heads = 2, .head_dim = 2,        \
    .ffn = 11, .n_positions = 32
#define GPT2                                                                                       \
    .is_gpt2 = true, .is_tied = true, .vocab = 61, .hidden = 18, .n_layers = 5, .n_heads = 6,      \
    .n_kv_heads = 6, .head_dim = 3, .ffn = 13, .n_positions = 32
#else
#define LLAMA                                                                                      \
    .vocab = 257, .hidden = 42, .n_layers = 5, .n_heads = 6, .n_kv_heads = 2, .head_dim = 10,      \
    .ffn = 77, .n_positions = 32
#define GPT2                                                                                       \
    .is_gpt2 = true, .is_tied = true, .vocab = 257, .hidden = 42, .n_layers = 5, .n_heads = 6,     \
    .n_kv_heads = 6, .head_dim = 7, .ffn = 101, .n_positions = 32
#endif

const odd_model odd_llama = {.name = "llama", LLAMA};
const odd_model odd_tied = {.name = "tied", .is_tied = true, LLAMA};
const odd_model odd_gpt2 = {.name = "gpt2", GPT2};
const odd_model odd_gpt2_dropout = {.name = "gpt2_dropout", GPT2, .dropout = 0.2};
const odd_model odd_llama_frozen = {
    .name = "llama_frozen", LLAMA, .freeze = {"model.embed_tokens.*", "model.layers.[01].*"}};
const odd_model odd_gpt2_frozen = {
    .name = "gpt2_frozen", GPT2, .freeze = {"*.bias", "*.ln_?.weight"}};
const odd_model odd_deep = {.name = "deep",
                            .is_tied = true,
                            .vocab = 53,
                            .hidden = 12,
                            .n_layers = 7,
                            .n_heads = 4,
                            .n_kv_heads = 2,
                            .head_dim = 6,
                            .ffn = 22,
                            .n_positions = 32};
const odd_model odd_three = {.name = "three",
                             .is_gpt2 = true,
                             .is_tied = true,
                             .vocab = 53,
                             .hidden = 3,
                             .n_layers = 2,
                             .n_heads = 1,
                             .n_kv_heads = 1,
                             .head_dim = 3,
                             .ffn = 12,
                             .n_positions = 16};
const odd_model odd_small = {.name = "small",
                             .vocab = 53,
                             .hidden = 4,
                             .n_layers = 4,
                             .n_heads = 2,
                             .n_kv_heads = 1,
                             .head_dim = 2,
                             .ffn = 10,
                             .n_positions = 16};

typedef struct list {
    const odd_model *m;
    odd_param *out;
    int n;
} list;

/* block < 0: not of a block. cols 0: one dimension. */
static void add(list *l, int layer, int block, const char *name, int64_t rows, int64_t cols)
{
    odd_param *p = &l->out[l->n++];
    assert_true(l->n <= ODD_PARAMS_MOST);
    memset(p, 0, sizeof(*p));
    if (block < 0)
        (void)snprintf(p->name, sizeof(p->name), "%s", name);
    else
        (void)snprintf(p->name, sizeof(p->name), "%s.%d.%s",
                       l->m->is_gpt2 ? "transformer.h" : "model.layers", block, name);
    p->layer = layer;
    p->n = rows * (cols > 0 ? cols : 1);
    for (int i = 0; i < 2; i++)
        p->is_frozen |= l->m->freeze[i] != NULL && fnmatch(l->m->freeze[i], p->name, 0) == 0;
}

static void add_gpt2(list *l)
{
    const odd_model *m = l->m;
    const int64_t h = m->hidden, f = m->ffn;
    const int head = (int)m->n_layers + 1;
    add(l, 0, -1, "transformer.wte.weight", m->vocab, h);
    add(l, 0, -1, "transformer.wpe.weight", m->n_positions, h);
    for (int i = 0; i < m->n_layers; i++) {
        add(l, i + 1, i, "ln_1.weight", h, 0);
        add(l, i + 1, i, "ln_1.bias", h, 0);
        add(l, i + 1, i, "attn.c_attn.weight", h, 3 * h);
        add(l, i + 1, i, "attn.c_attn.bias", 3 * h, 0);
        add(l, i + 1, i, "attn.c_proj.weight", h, h);
        add(l, i + 1, i, "attn.c_proj.bias", h, 0);
        add(l, i + 1, i, "ln_2.weight", h, 0);
        add(l, i + 1, i, "ln_2.bias", h, 0);
        add(l, i + 1, i, "mlp.c_fc.weight", h, f);
        add(l, i + 1, i, "mlp.c_fc.bias", f, 0);
        add(l, i + 1, i, "mlp.c_proj.weight", f, h);
        add(l, i + 1, i, "mlp.c_proj.bias", h, 0);
    }
    add(l, head, -1, "transformer.ln_f.weight", h, 0);
    add(l, head, -1, "transformer.ln_f.bias", h, 0);
    if (!m->is_tied)
        add(l, head, -1, "lm_head.weight", m->vocab, h);
}

static void add_llama(list *l)
{
    const odd_model *m = l->m;
    const int64_t h = m->hidden, f = m->ffn;
    const int64_t q = m->n_heads * m->head_dim, kv = m->n_kv_heads * m->head_dim;
    const int head = (int)m->n_layers + 1;
    add(l, 0, -1, "model.embed_tokens.weight", m->vocab, h);
    for (int i = 0; i < m->n_layers; i++) {
        add(l, i + 1, i, "input_layernorm.weight", h, 0);
        add(l, i + 1, i, "self_attn.q_proj.weight", q, h);
        add(l, i + 1, i, "self_attn.k_proj.weight", kv, h);
        add(l, i + 1, i, "self_attn.v_proj.weight", kv, h);
        add(l, i + 1, i, "self_attn.o_proj.weight", h, q);
        add(l, i + 1, i, "post_attention_layernorm.weight", h, 0);
        add(l, i + 1, i, "mlp.gate_proj.weight", f, h);
        add(l, i + 1, i, "mlp.up_proj.weight", f, h);
        add(l, i + 1, i, "mlp.down_proj.weight", h, f);
    }
    add(l, head, -1, "model.norm.weight", h, 0);
    if (!m->is_tied)
        add(l, head, -1, "lm_head.weight", m->vocab, h);
}

int odd_params(const odd_model *m, odd_param out[ODD_PARAMS_MOST])
{
    list l = {m, out, 0};
    if (m->is_gpt2)
        add_gpt2(&l);
    else
        add_llama(&l);
    out[0].is_shared = m->is_tied;
    return l.n;
}

const char *odd_write(const odd_model *m, scratch *s, char out[512])
{
    char text[1024], name[80];
    if (m->is_gpt2)
        (void)snprintf(text, sizeof(text),
                       "{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2LMHeadModel\"], "
                       "\"n_embd\": %d, \"n_layer\": %d, \"n_head\": %d, \"n_inner\": %d, "
                       "\"n_positions\": %d, \"vocab_size\": %d, \"tie_word_embeddings\": %s, "
                       "\"resid_pdrop\": %g, \"embd_pdrop\": %g, \"attn_pdrop\": %g, "
                       "\"initializer_range\": 0.15}",
                       (int)m->hidden, (int)m->n_layers, (int)m->n_heads, (int)m->ffn,
                       (int)m->n_positions, (int)m->vocab, m->is_tied ? "true" : "false",
                       m->dropout, m->dropout, m->dropout);
    else
        (void)snprintf(text, sizeof(text),
                       "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], "
                       "\"hidden_size\": %d, \"num_hidden_layers\": %d, "
                       "\"num_attention_heads\": %d, \"num_key_value_heads\": %d, "
                       "\"head_dim\": %d, \"intermediate_size\": %d, "
                       "\"max_position_embeddings\": %d, \"vocab_size\": %d, "
                       "\"tie_word_embeddings\": %s, \"rms_norm_eps\": 1e-5, "
                       "\"rope_theta\": 10000.0, \"hidden_act\": \"silu\", "
                       "\"initializer_range\": 0.15}",
                       (int)m->hidden, (int)m->n_layers, (int)m->n_heads, (int)m->n_kv_heads,
                       (int)m->head_dim, (int)m->ffn, (int)m->n_positions, (int)m->vocab,
                       m->is_tied ? "true" : "false");
    (void)snprintf(name, sizeof(name), "%s.json", m->name);
    (void)snprintf(out, 512, "%.511s", scratch_file(s, name, text, strlen(text)));
    return out;
}
