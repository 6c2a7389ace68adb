/*
 * Parameters of a config by kind, from closed forms (weft/inspect.h).
 *
 * Per block, width h, head size e, a query heads, g key-value heads, MLP width f:
 *   llama: attention h e (a + 2 g) + a e h, MLP 3 h f, norms 2 h; biases as the config says
 *   gpt2:  attention 4 h^2 + 4 h, MLP 2 h f + f + h, norms 4 h
 * and embeddings V h (gpt2 also positions x h), a last norm, a head V h unless it is the embedding.
 */
#include "weft/inspect.h"

#include "base/error.h"

#include <string.h>

const char *weft_param_kind_name(weft_param_kind kind)
{
    switch (kind) {
    case WEFT_PARAM_EMBEDDING:
        return "embedding";
    case WEFT_PARAM_ATTENTION:
        return "attention";
    case WEFT_PARAM_MLP:
        return "mlp";
    case WEFT_PARAM_NORM:
        return "norm";
    case WEFT_PARAM_HEAD:
        return "head";
    case WEFT_PARAM_KIND_COUNT:
        break;
    }
    return "unknown";
}

/* A count that remembers when it outgrew 64 bits. */
typedef struct count {
    int64_t value;
    bool is_over;
} count;

/* c += a * b */
static void add(count *c, int64_t a, int64_t b)
{
    c->is_over = c->is_over || a < 0 || b < 0 || (b != 0 && a > (INT64_MAX - c->value) / b);
    if (!c->is_over)
        c->value += a * b;
}

typedef struct layer_counts {
    count attention, mlp, norm; /* of one block */
    count embedding, last_norm, head;
} layer_counts;

static void count_gpt2(layer_counts *n, const weft_config *c)
{
    const int64_t h = c->hidden_size;
    add(&n->attention, h, 4 * h);
    add(&n->attention, h, 4);
    add(&n->mlp, 2 * h, c->ffn_size);
    add(&n->mlp, 1, c->ffn_size + h);
    add(&n->norm, 4, h);
    add(&n->last_norm, 2, h);
    add(&n->embedding, c->max_positions, h);
}

static void count_llama(layer_counts *n, const weft_config *c)
{
    const int64_t h = c->hidden_size;
    const int64_t qkv = c->head_dim * (c->n_heads + 2 * c->n_kv_heads);
    add(&n->attention, h, qkv);
    add(&n->attention, h, c->head_dim * c->n_heads);
    if (c->has_attention_bias)
        add(&n->attention, 1, qkv + h);
    add(&n->mlp, 3 * h, c->ffn_size);
    if (c->has_mlp_bias)
        add(&n->mlp, 1, 2 * c->ffn_size + h);
    add(&n->norm, 2, h);
    add(&n->last_norm, 1, h);
}

static bool is_sane(const weft_config *c)
{
    const int64_t limit = INT64_C(1)
                          << 40; /* sums and small multiples of two such stay within 64 bits */
    const int64_t sizes[] = {c->vocab_size, c->hidden_size, c->n_layers, c->n_heads,
                             c->n_kv_heads, c->head_dim,    c->ffn_size, c->max_positions};
    for (size_t i = 0; i < WEFT_COUNT_OF(sizes); i++) {
        if (sizes[i] < 0 || sizes[i] > limit)
            return false;
    }
    return c->head_dim == 0 || c->n_heads + 2 * c->n_kv_heads <= limit / c->head_dim;
}

static void keep_largest(weft_param_counts *out, const char *name, int64_t n)
{
    if (n <= out->largest)
        return;
    out->largest = n;
    memcpy(out->largest_name, name, strlen(name) + 1);
}

weft_status weft_config_count(weft_param_counts *out, const weft_config *config)
{
    if (!is_sane(config))
        WEFT_FAIL(WEFT_STATUS_ARG,
                  "the sizes of the model are negative, or too large to be counted");
    layer_counts n = {.attention = {0, false}};
    add(&n.embedding, config->vocab_size, config->hidden_size);
    if (!config->is_tied)
        add(&n.head, config->vocab_size, config->hidden_size);
    if (config->family == WEFT_FAMILY_GPT2)
        count_gpt2(&n, config);
    else
        count_llama(&n, config);

    count block = n.attention;
    add(&block, 1, n.mlp.value);
    add(&block, 1, n.norm.value);
    count total = n.embedding;
    add(&total, config->n_layers, block.value);
    add(&total, 1, n.last_norm.value);
    add(&total, 1, n.head.value);
    if (n.attention.is_over || n.mlp.is_over || n.norm.is_over || n.embedding.is_over ||
        n.head.is_over || block.is_over || total.is_over)
        WEFT_FAIL(WEFT_STATUS_ARG, "the model has more parameters than 64 bits can count");

    *out = (weft_param_counts){.total = total.value, .block = block.value};
    out->by_kind[WEFT_PARAM_EMBEDDING] = n.embedding.value;
    out->by_kind[WEFT_PARAM_ATTENTION] = config->n_layers * n.attention.value;
    out->by_kind[WEFT_PARAM_MLP] = config->n_layers * n.mlp.value;
    out->by_kind[WEFT_PARAM_NORM] = config->n_layers * n.norm.value + n.last_norm.value;
    out->by_kind[WEFT_PARAM_HEAD] = n.head.value;
    keep_largest(out, "embedding", n.embedding.value);
    keep_largest(out, "block", block.value);
    keep_largest(out, "head", n.head.value + (n.head.value > 0 ? n.last_norm.value : 0));
    return WEFT_OK;
}
