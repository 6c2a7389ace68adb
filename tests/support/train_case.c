/* Small training runs for tests (train_case.h). */
#include "train_case.h"

#include "base/rng.h"
#include "data/token_file.h"

#include <stdlib.h>

const char *train_case_config(weft_family family, double dropout)
{
    static char text[1024];
    if (family == WEFT_FAMILY_LLAMA)
        (void)snprintf(text, sizeof(text),
                       "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "
                       "\"vocab_size\": 53, \"hidden_size\": 32, \"num_hidden_layers\": 4, "
                       "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
                       "\"intermediate_size\": 64, \"max_position_embeddings\": 64, "
                       "\"rms_norm_eps\": 1e-05, \"rope_theta\": 10000.0, \"hidden_act\": "
                       "\"silu\", \"tie_word_embeddings\": false, \"initializer_range\": 0.05, "
                       "\"attention_dropout\": %g}\n",
                       dropout);
    else
        (void)snprintf(text, sizeof(text),
                       "{\"architectures\": [\"GPT2LMHeadModel\"], \"model_type\": \"gpt2\", "
                       "\"vocab_size\": 53, \"n_embd\": 32, \"n_layer\": 4, \"n_head\": 4, "
                       "\"n_positions\": 64, \"resid_pdrop\": %g, \"embd_pdrop\": %g, "
                       "\"attn_pdrop\": %g, \"initializer_range\": 0.05}\n",
                       dropout, dropout, dropout);
    return text;
}

void train_case_tokens(const char *path, int64_t n, int64_t vocab, uint64_t seed)
{
    weft_token_writer w;
    const weft_rng_key key = weft_i_rng_key(seed, "test/tokens");
    CHECK_OK(weft_i_token_writer_open(&w, path, vocab));
    for (int64_t i = 0; i < n; i++) {
        const int32_t id = (int32_t)weft_i_rng_below(key, (uint64_t)i, (uint64_t)vocab);
        CHECK_OK(weft_i_token_writer_add(&w, &id, 1));
    }
    CHECK_OK(weft_i_token_writer_finish(&w));
}

void train_case_init(train_case *c, scratch *s, weft_family family, double dropout)
{
    memset(c, 0, sizeof(*c));
    c->s = s;
    const char *text = train_case_config(family, dropout);
    (void)snprintf(c->config, sizeof(c->config), "%s",
                   scratch_file(s, "config.json", text, strlen(text)));
    (void)snprintf(c->data, sizeof(c->data), "%s", scratch_path(s, "data.bin"));
    train_case_tokens(c->data, 2000, TRAIN_VOCAB, 5);
    weft_train_options *o = &c->options;
    weft_train_options_init(o);
    c->data_list[0] = c->data;
    o->model = c->config;
    o->data = c->data_list;
    o->n_data = 1;
    o->seq_length = 16;
    o->layout.micro_batch_size = 4;
    o->layout.threads_per_rank = 1;
    o->train_steps = 10;
    o->lr = 1e-2;
    train_case_out(c, "out");
}

void train_case_out(train_case *c, const char *name)
{
    (void)snprintf(c->out, sizeof(c->out), "%s", scratch_path(c->s, name));
    c->options.out = c->out;
}

static void on_step(void *user, const weft_train_step *step)
{
    train_record *r = user;
    assert_true(r->n_steps < TRAIN_CASE_STEPS);
    r->step[r->n_steps++] = *step;
}

static void on_note(void *user, const char *line)
{
    train_record *r = user;
    if (getenv("WEFT_TEST_VERBOSE") != NULL)
        print_message("%s\n", line);
    if (r->n_notes < TRAIN_CASE_NOTES)
        (void)snprintf(r->note[r->n_notes++], sizeof(r->note[0]), "%s", line);
}

static bool should_stop(void *user)
{
    const train_record *r = user;
    return r->stop_after > 0 && r->n_steps > 0 && r->step[r->n_steps - 1].step >= r->stop_after;
}

weft_status train_case_run(train_case *c, train_record *r)
{
    const weft_train_callbacks callbacks = {r, on_step, on_note, should_stop};
    return weft_train_run(&c->options, NULL, r != NULL ? &callbacks : NULL);
}

bool train_record_says(const train_record *r, const char *text)
{
    for (int i = 0; i < r->n_notes; i++) {
        if (strstr(r->note[i], text) != NULL)
            return true;
    }
    return false;
}

void train_case_same_file(const char *a, const char *b)
{
    weft_map x, y;
    CHECK_OK(weft_i_map_open(&x, a));
    CHECK_OK(weft_i_map_open(&y, b));
    if (x.n_bytes != y.n_bytes || memcmp(x.data, y.data, x.n_bytes) != 0)
        fail_msg("%s (%zu bytes) and %s (%zu bytes) differ", a, x.n_bytes, b, y.n_bytes);
    weft_i_map_close(&x);
    weft_i_map_close(&y);
}

void train_case_same_checkpoint(const char *a, const char *b)
{
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors",
                                        "config.json"};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        char x[WEFT_PATH_MAX], y[WEFT_PATH_MAX];
        CHECK_OK(weft_i_path_join(x, a, files[i]));
        CHECK_OK(weft_i_path_join(y, b, files[i]));
        train_case_same_file(x, y);
    }
}
