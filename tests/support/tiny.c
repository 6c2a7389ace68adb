/* Folders of tiny models (tiny.h). */
#include "tiny.h"

#include <stdio.h>
#include <string.h>

#include "base/ctx.h"
#include "base/rng.h"
#include "formats/hf_config.h"
#include "formats/safetensors.h"
#include "tensor/convert.h"
#include "weft/model.h"

#define MAX_TENSORS 256

const char tiny_llama[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 32, \"num_hidden_layers\": 4,\n"
    " \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"intermediate_size\": 64,\n"
    " \"vocab_size\": 53, \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5,\n"
    " \"rope_theta\": 10000.0, \"tie_word_embeddings\": false, \"eos_token_id\": null}\n";

const char tiny_gpt2[] =
    "{\"model_type\": \"gpt2\", \"n_embd\": 32, \"n_layer\": 4, \"n_head\": 4,\n"
    " \"n_positions\": 64, \"vocab_size\": 53, \"attn_pdrop\": 0.0, \"embd_pdrop\": 0.0,\n"
    " \"resid_pdrop\": 0.0, \"eos_token_id\": null, \"bos_token_id\": null}\n";

typedef struct tensor {
    char name[WEFT_PARAM_NAME_BYTES];
    weft_shape shape;
    weft_dtype dtype;
    float *values; /* NULL: zeros of any type */
    int64_t n;
} tensor;

typedef struct writer {
    scratch *s;
    const tiny_folder *f;
    tensor list[MAX_TENSORS];
    size_t n;
} writer;

static tensor *add(writer *w, const char *name, weft_shape shape, weft_dtype dtype)
{
    tensor *t = &w->list[w->n++];
    void *block = NULL;
    assert_true(w->n <= MAX_TENSORS);
    (void)snprintf(t->name, sizeof(t->name), "%s", name);
    t->shape = shape;
    t->dtype = dtype;
    expect_ok(weft_i_shape_count(&shape, &t->n));
    expect_ok(weft_i_alloc_new(w->s->alloc, (size_t)t->n, sizeof(float), &block));
    t->values = block;
    return t;
}

static void add_param(writer *w, const weft_param *p)
{
    const bool is_cut = w->f->has_no_prefix && strncmp(p->name, "transformer.", 12) == 0;
    const char *name = is_cut ? p->name + 12 : p->name;
    const bool is_gain = p->init == WEFT_INIT_ONES;
    char key[WEFT_PARAM_NAME_BYTES + 8];

    if (w->f->skip != NULL && strcmp(w->f->skip, name) == 0)
        return;
    tensor *t = add(w, name,
                    p->n_dims == 1 ? weft_i_shape_1d(p->full_cols)
                                   : weft_i_shape_2d(p->full_rows, p->full_cols),
                    w->f->dtype != NULL ? w->f->dtype(p->name) : WEFT_DTYPE_F32);
    (void)snprintf(key, sizeof(key), "tiny/%s", p->name);
    for (int64_t i = 0; i < t->n; i++)
        t->values[i] = (float)(weft_i_rng_normal(weft_i_rng_key(1, key), (uint64_t)i) * 0.15 +
                               (is_gain ? 1.0 : 0.0));
    if (w->f->edit != NULL)
        w->f->edit(p->name, t->values, t->n);
}

static void add_buffers(writer *w, int64_t n_layers)
{
    char name[64];
    for (int64_t i = 0; i < n_layers; i++) {
        const char *prefix = w->f->has_no_prefix ? "" : "transformer.";
        (void)snprintf(name, sizeof(name), "%sh.%d.attn.bias", prefix, (int)i);
        add(w, name, (weft_shape){.n_dims = 4, .dim = {1, 1, 64, 64}}, WEFT_DTYPE_U8);
        (void)snprintf(name, sizeof(name), "%sh.%d.attn.masked_bias", prefix, (int)i);
        add(w, name, (weft_shape){.n_dims = 0}, WEFT_DTYPE_F32);
    }
}

static void write_file(writer *w, const char *path, size_t first, size_t last)
{
    weft_st_plan plan[MAX_TENSORS] = {{0}};
    weft_st_writer *out = NULL;
    void *bytes = NULL;

    for (size_t i = first; i < last; i++)
        plan[i - first] = (weft_st_plan){
            .name = w->list[i].name, .dtype = w->list[i].dtype, .shape = w->list[i].shape};
    expect_ok(weft_i_st_create(&out, w->s->alloc, path, plan, last - first, NULL, 0));
    for (size_t i = first; i < last; i++) {
        const tensor *t = &w->list[i];
        const size_t n_bytes = (size_t)t->n * weft_dtype_bytes(t->dtype);
        expect_ok(weft_i_alloc_new(w->s->alloc, n_bytes, 1, &bytes));
        if (t->dtype != WEFT_DTYPE_U8)
            expect_ok(weft_i_convert(bytes, t->dtype, t->values, WEFT_DTYPE_F32, t->n));
        expect_ok(weft_i_st_append(out, bytes, n_bytes));
        weft_i_alloc_put(w->s->alloc, bytes);
    }
    expect_ok(weft_i_st_finish(out));
}

static void write_shards(writer *w, const char *folder)
{
    weft_st_place places[MAX_TENSORS];
    char path[768];
    const size_t half = w->n / 2;

    for (size_t i = 0; i < w->n; i++)
        places[i] =
            (weft_st_place){.name = w->list[i].name, .file = w->f->shard_names[i < half ? 0 : 1]};
    (void)snprintf(path, sizeof(path), "%s/%s", folder, w->f->shard_names[0]);
    write_file(w, path, 0, half);
    (void)snprintf(path, sizeof(path), "%s/%s", folder, w->f->shard_names[1]);
    write_file(w, path, half, w->n);
    (void)snprintf(path, sizeof(path), "%s/model.safetensors.index.json", folder);
    expect_ok(weft_i_st_write_index(w->s->alloc, path, places, w->n, 0));
}

const char *tiny_write(scratch *s, const char *name, const tiny_folder *f, char out[512])
{
    const weft_ctx_options dry = {.backend = WEFT_BACKEND_DRY, .n_threads = 1};
    static writer w; /* large */
    char path[768];
    weft_ctx *ctx = NULL;
    weft_hf_config hf;
    weft_model *m = NULL;

    memset(&w, 0, sizeof(w));
    w.s = s;
    w.f = f;
    (void)snprintf(out, 512, "%.400s/%s", s->dir, name);
    expect_ok(weft_i_dir_make(out));
    (void)snprintf(path, sizeof(path), "%s/config.json", out);
    expect_ok(weft_i_file_write(path, f->config, strlen(f->config)));
    expect_ok(weft_ctx_create(&ctx, &dry));
    expect_ok(weft_i_hf_config_read(&hf, ctx->alloc, out));
    expect_ok(weft_model_from_config(&m, ctx, &hf.config, WEFT_DTYPE_F32));
    for (int64_t i = 0; i < weft_model_param_count(m); i++)
        add_param(&w, weft_model_param(m, i));
    if (f->has_buffers)
        add_buffers(&w, hf.config.n_layers);
    if (f->extra != NULL)
        add(&w, f->extra, weft_i_shape_1d(3), WEFT_DTYPE_F32);
    weft_model_destroy(m);
    weft_i_hf_config_fini(&hf, ctx->alloc);
    weft_ctx_destroy(ctx);
    (void)snprintf(path, sizeof(path), "%s/model.safetensors", out);
    if (f->is_indexed)
        write_shards(&w, out);
    else
        write_file(&w, path, 0, w.n);
    for (size_t i = 0; i < w.n; i++)
        weft_i_alloc_put(s->alloc, w.list[i].values);
    return out;
}

const char *tiny_config(const char *config, const char *from, const char *to)
{
    static char out[2048];
    const char *at = strstr(config, from);
    assert_non_null(at);
    (void)snprintf(out, sizeof(out), "%.*s%s%s", (int)(at - config), config, to, at + strlen(from));
    return out;
}

const char *tiny_batch(scratch *s,
                       const int64_t *ids,
                       const int64_t *labels,
                       int64_t n_seqs,
                       int64_t n_tokens,
                       char out[512])
{
    const weft_shape shape = weft_i_shape_2d(n_seqs, n_tokens);
    const weft_st_plan plan[] = {{.name = "input_ids", .dtype = WEFT_DTYPE_I64, .shape = shape},
                                 {.name = "labels", .dtype = WEFT_DTYPE_I64, .shape = shape}};
    const size_t n_bytes = (size_t)(n_seqs * n_tokens) * sizeof(int64_t);
    weft_st_writer *w = NULL;

    (void)snprintf(out, 512, "%.400s/ids.safetensors", s->dir);
    expect_ok(weft_i_st_create(&w, s->alloc, out, plan, labels != NULL ? 2 : 1, NULL, 0));
    expect_ok(weft_i_st_append(w, ids, n_bytes));
    if (labels != NULL)
        expect_ok(weft_i_st_append(w, labels, n_bytes));
    expect_ok(weft_i_st_finish(w));
    return out;
}

void tiny_ids(int64_t *ids, int64_t n, int64_t vocab)
{
    for (int64_t i = 0; i < n; i++)
        ids[i] =
            (int64_t)weft_i_rng_below(weft_i_rng_key(2, "tiny/ids"), (uint64_t)i, (uint64_t)vocab);
}

static void keep_line(void *user, weft_log_level level, const char *line)
{
    tiny_log *log = user;
    const size_t n = strlen(log->text);
    (void)level;
    (void)snprintf(log->text + n, sizeof(log->text) - n, "%s\n", line);
}

weft_ctx_options tiny_logged(tiny_log *log)
{
    const weft_ctx_options o = {.log = keep_line, .log_user = log, .log_level = WEFT_LOG_WARN};
    memset(log, 0, sizeof(*log));
    return o;
}
