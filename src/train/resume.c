/*
 * Going on from a checkpoint: which one, and whether the model given is the one in it.
 *
 * A run into a folder that holds checkpoints without --resume is refused: it would replace work one by one.
 */
#include "train/resume.h"

#include "base/file.h"
#include "base/str.h"
#include "train/checkpoint.h"

#include <stddef.h>

weft_status weft_i_resume_find(weft_alloc *alloc, const char *out, const char *resume, char *dir)
{
    WEFT_TRY(weft_i_checkpoint_clean(alloc, out));
    if (resume != NULL && resume[0] != '\0') {
        WEFT_TRY(weft_i_str_print(dir, WEFT_PATH_MAX, "%s", resume));
        if (!weft_i_dir_exists(dir))
            WEFT_FAIL(WEFT_STATUS_IO, "%s: there is no checkpoint of that name to resume from",
                      dir);
        return WEFT_OK;
    }
    WEFT_TRY(weft_i_checkpoint_latest(alloc, out, dir));
    if (resume != NULL && dir[0] == '\0')
        WEFT_FAIL(WEFT_STATUS_IO,
                  "%s: holds no checkpoint to resume from (no link \"latest\" and no folder "
                  "checkpoint-STEP)",
                  out);
    if (resume == NULL && dir[0] != '\0')
        WEFT_FAIL(WEFT_STATUS_ARG,
                  "%s: holds checkpoints already (%s); go on from them with --resume, or give "
                  "another --out",
                  out, dir);
    return WEFT_OK;
}

typedef struct number {
    const char *name;
    size_t offset;
} number;

#define OF(name, field)                                                                            \
    {                                                                                              \
        name, offsetof(weft_config, field)                                                         \
    }

static const number integers[] = {
    OF("vocab_size", vocab_size),
    OF("hidden_size", hidden_size),
    OF("number of layers", n_layers),
    OF("number of heads", n_heads),
    OF("number of key/value heads", n_kv_heads),
    OF("head_dim", head_dim),
    OF("feed-forward size", ffn_size),
    OF("number of positions", max_positions),
    OF("original number of positions of rope", rope.original_max_positions),
};

static const number reals[] = {
    OF("norm epsilon", norm_eps),
    OF("rope_theta", rope.theta),
    OF("rope factor", rope.factor),
    OF("rope low_freq_factor", rope.low_freq_factor),
    OF("rope high_freq_factor", rope.high_freq_factor),
    OF("rope beta_fast", rope.beta_fast),
    OF("rope beta_slow", rope.beta_slow),
    OF("rope attention_factor", rope.attention_factor),
};

static const number switches[] = {
    OF("tie_word_embeddings", is_tied),
    OF("attention bias", has_attention_bias),
    OF("MLP bias", has_mlp_bias),
    OF("scale_attn_weights", is_attn_scaled),
    OF("scale_attn_by_inverse_layer_idx", is_scaled_by_layer),
};

static weft_status fail(const char *dir, const char *name, const char *saved, const char *given)
{
    WEFT_FAIL(WEFT_STATUS_MISMATCH,
              "%s holds another model than --model: its %s is %s, that of --model is %s; give the "
              "model that the run began with, or another --out without --resume",
              dir, name, saved, given);
}

static weft_status fail_number(const char *dir, const char *name, double saved, double given)
{
    char a[32], b[32];
    WEFT_TRY(weft_i_str_print(a, sizeof(a), "%.17g", saved));
    WEFT_TRY(weft_i_str_print(b, sizeof(b), "%.17g", given));
    return fail(dir, name, a, b);
}

static const void *at(const weft_config *c, const number *n)
{
    return (const char *)c + n->offset;
}

weft_status
weft_i_resume_compare_config(const weft_config *saved, const weft_config *given, const char *dir)
{
    if (saved->family != given->family)
        return fail(dir, "family", weft_family_name(saved->family),
                    weft_family_name(given->family));
    if (saved->activation != given->activation)
        return fail(dir, "activation", weft_i_hf_activation_name(saved->activation),
                    weft_i_hf_activation_name(given->activation));
    if (saved->rope.kind != given->rope.kind)
        return fail(dir, "rope type", weft_i_hf_rope_name(saved->rope.kind),
                    weft_i_hf_rope_name(given->rope.kind));
    for (size_t i = 0; i < WEFT_COUNT_OF(integers); i++) {
        const int64_t a = *(const int64_t *)at(saved, &integers[i]);
        const int64_t b = *(const int64_t *)at(given, &integers[i]);
        if (a != b)
            return fail_number(dir, integers[i].name, (double)a, (double)b);
    }
    for (size_t i = 0; i < WEFT_COUNT_OF(reals); i++) {
        const double a = *(const double *)at(saved, &reals[i]);
        const double b = *(const double *)at(given, &reals[i]);
        if (a != b)
            return fail_number(dir, reals[i].name, a, b);
    }
    for (size_t i = 0; i < WEFT_COUNT_OF(switches); i++) {
        const bool a = *(const bool *)at(saved, &switches[i]);
        const bool b = *(const bool *)at(given, &switches[i]);
        if (a != b)
            return fail(dir, switches[i].name, a ? "on" : "off", b ? "on" : "off");
    }
    return WEFT_OK;
}
