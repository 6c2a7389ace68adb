/*
 * Trains a model from C as `weft train` does, watches it step by step, and lets it write.
 *
 * The public API has one call a command: fill in an options struct (its fields are the long options of the program), give
 * callbacks for what you want to see, and call. Model and text are made here, in a temporary folder, so that the example
 * needs nothing: a Llama of 28,864 weights, and a nursery rhyme.
 *
 * Ends with 0 when the loss fell below a quarter of where it began. Takes a second or two.
 */
#define _XOPEN_SOURCE 700 /* nftw, to remove the folder */
#include "weft.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char config[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 257, \"hidden_size\": 32,\n"
    " \"intermediate_size\": 64, \"num_hidden_layers\": 2,\n"
    " \"num_attention_heads\": 2, \"max_position_embeddings\": 64,\n"
    " \"tie_word_embeddings\": true, \"eos_token_id\": 256}\n";

static const char rhyme[] = "This is the house that Jack built.\n"
                            "This is the malt that lay in the house that Jack built.\n"
                            "This is the rat that ate the malt\n"
                            "That lay in the house that Jack built.\n"
                            "This is the cat that killed the rat\n"
                            "That ate the malt that lay in the house that Jack built.\n";

typedef struct paths {
    char folder[64], config[96], text[96], out[96], latest[96];
} paths;

/* What the callbacks are given back. */
typedef struct progress {
    double first_loss, last_loss;
} progress;

static bool write_file(const char *path, const char *text, int n_times)
{
    FILE *file = fopen(path, "w");
    if (file == NULL)
        return false;
    for (int i = 0; i < n_times; i++)
        (void)fputs(text, file);
    return fclose(file) == 0;
}

static bool make_files(paths *p)
{
    (void)snprintf(p->folder, sizeof(p->folder), "/tmp/weft-example-XXXXXX");
    if (mkdtemp(p->folder) == NULL)
        return false;
    (void)snprintf(p->config, sizeof(p->config), "%s/config.json", p->folder);
    (void)snprintf(p->text, sizeof(p->text), "%s/rhyme.txt", p->folder);
    (void)snprintf(p->out, sizeof(p->out), "%s/run", p->folder);
    (void)snprintf(p->latest, sizeof(p->latest), "%s/run/latest", p->folder);
    return write_file(p->config, config, 1) && write_file(p->text, rhyme, 20);
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    (void)info, (void)kind, (void)place;
    return remove(path);
}

/* After every step. The struct holds what the line on the screen and metrics.jsonl hold. */
static void on_step(void *user, const weft_train_step *step)
{
    progress *p = user;
    if (step->step == 1)
        p->first_loss = step->loss;
    p->last_loss = step->loss;
    if (step->step == 1 || step->step % 50 == 0)
        printf("step %3lld of %lld  loss %.3f  lr %.1e\n", (long long)step->step,
               (long long)step->train_steps, step->loss, step->lr);
}

static void on_text(void *user, int64_t prompt, const char *text, size_t n_bytes)
{
    (void)user, (void)prompt;
    (void)fwrite(text, 1, n_bytes, stdout);
}

static weft_status train(const paths *p, progress *seen)
{
    const char *data[] = {p->text};
    const weft_train_callbacks callbacks = {.user = seen, .step = on_step};
    weft_train_options o;
    weft_train_options_init(&o); /* the defaults of the command line */
    o.model = p->config;         /* a config alone: fresh weights */
    o.data = data;
    o.n_data = 1;
    o.out = p->out;
    o.train_steps = 300;
    o.seq_length = 64;
    o.lr = 1e-2;
    o.lr_warmup_steps = 10;
    o.layout.micro_batch_size = 4;
    o.layout.threads_per_rank = 1;
    return weft_train_run(&o, NULL, &callbacks); /* NULL: log nothing */
}

static weft_status generate(const paths *p)
{
    const char *prompts[] = {"This is the cat"};
    const weft_generate_callbacks callbacks = {.text = on_text};
    weft_generate_options o;
    weft_generate_result result;
    weft_options_init(WEFT_COMMAND_GENERATE, &o);
    o.model = p->latest; /* a Hugging Face folder, as every checkpoint is */
    o.prompt = prompts;
    o.n_prompt = 1;
    o.max_new_tokens = 48;
    o.layout.threads_per_rank = 1;
    printf("%s", prompts[0]);
    const weft_status st = weft_generate_run(&result, &o, NULL, &callbacks);
    printf("\n");
    return st;
}

int main(void)
{
    paths p;
    progress seen = {0.0, 0.0};
    if (!make_files(&p)) {
        perror("train_from_c: a temporary folder");
        return EXIT_FAILURE;
    }
    weft_status st = train(&p, &seen);
    if (st == WEFT_OK)
        st = generate(&p);
    if (st != WEFT_OK)
        fprintf(stderr, "%s: %s\n", weft_status_name(st), weft_last_error());
    (void)nftw(p.folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    return st == WEFT_OK && seen.last_loss < seen.first_loss / 4.0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
