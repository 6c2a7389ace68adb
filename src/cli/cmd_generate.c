/*
 * weft generate: continuations on standard output, a line a prompt, text as it comes.
 */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

typedef enum output_form { OUTPUT_TEXT, OUTPUT_IDS, OUTPUT_JSON } output_form;

typedef struct generate_view {
    weft_cli_screen screen;
    output_form form;
    bool wants_text;
    bool has_text;      /* json: the text member was opened */
    int64_t n_finished; /* prompts that were not stopped */
} generate_view;

static const char *finish_name(weft_finish finish)
{
    switch (finish) {
    case WEFT_FINISH_EOS:
        return "eos";
    case WEFT_FINISH_LENGTH:
        return "length";
    case WEFT_FINISH_CONTEXT:
        return "context";
    case WEFT_FINISH_STOPPED:
        break;
    }
    return "stopped";
}

/* One piece of a JSON string: no quotes around it, and never ended early by a NUL inside. */
static void json_piece(const char *text, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\')
            (void)printf("\\%c", c);
        else if (c < 0x20)
            (void)printf("\\u%04x", (unsigned)c);
        else
            (void)putchar(c);
    }
}

static void open_text(generate_view *v)
{
    if (!v->has_text)
        (void)fputs("{\"text\": \"", stdout);
    v->has_text = true;
}

static void on_text(void *user, int64_t prompt, const char *text, size_t n_bytes)
{
    generate_view *v = user;
    (void)prompt;
    if (v->form == OUTPUT_JSON) {
        open_text(v);
        json_piece(text, n_bytes);
        return;
    }
    (void)fwrite(text, 1, n_bytes, stdout);
    (void)fflush(stdout);
}

static void put_ids(const int32_t *ids, int64_t n_ids, const char *between)
{
    for (int64_t i = 0; i < n_ids; i++)
        (void)printf("%s%d", i == 0 ? "" : between, ids[i]);
}

static void on_done(void *user, const weft_generated *g)
{
    generate_view *v = user;
    v->n_finished += g->finish != WEFT_FINISH_STOPPED ? 1 : 0;
    if (v->form == OUTPUT_IDS) {
        put_ids(g->ids, g->n_ids, " ");
    } else if (v->form == OUTPUT_JSON) {
        if (v->wants_text)
            open_text(v);
        (void)fputs(v->has_text ? "\", " : "{", stdout);
        (void)printf("\"prompt\": %lld, \"prompt_ids\": [", (long long)g->prompt);
        put_ids(g->prompt_ids, g->n_prompt_ids, ", ");
        (void)fputs("], \"ids\": [", stdout);
        put_ids(g->ids, g->n_ids, ", ");
        (void)printf("], \"finish\": \"%s\"}", finish_name(g->finish));
        v->has_text = false;
    }
    (void)putchar('\n');
    (void)fflush(stdout);
}

static output_form form_of(const char *output)
{
    if (strcmp(output, "ids") == 0)
        return OUTPUT_IDS;
    return strcmp(output, "json") == 0 ? OUTPUT_JSON : OUTPUT_TEXT;
}

int weft_i_cli_generate(int argc, const char *const *argv)
{
    weft_generate_options o;
    weft_options *options = NULL;
    int exit_code = WEFT_EXIT_OK;
    if (!weft_i_cli_parse(&options, &o, &exit_code, WEFT_COMMAND_GENERATE, argc, argv))
        return exit_code;
    generate_view view = {.form = form_of(o.output)};
    weft_i_cli_screen_init(&view.screen);
    /* Ids in and ids out need no tokenizer: no text is asked for then. */
    view.wants_text = view.form == OUTPUT_TEXT || (view.form == OUTPUT_JSON && o.n_prompt > 0);
    const weft_ctx_options ctx_options = weft_i_cli_ctx_options(&view.screen);
    const weft_generate_callbacks callbacks = {
        .user = &view,
        .text = view.wants_text ? on_text : NULL,
        .done = on_done,
        .should_stop = weft_i_cli_should_stop,
    };
    weft_i_cli_catch_signals();
    weft_generate_result result;
    const weft_status st = weft_generate_run(&result, &o, &ctx_options, &callbacks);
    if (st != WEFT_OK) {
        exit_code = weft_i_cli_fail(st);
    } else if (weft_i_cli_is_stopped() && view.n_finished < result.n_prompts) {
        exit_code = weft_i_cli_finish(WEFT_EXIT_FAILED);
        (void)fprintf(stderr,
                      "weft: error: stopped by a signal; %lld of %lld prompts were finished\n",
                      (long long)view.n_finished, (long long)result.n_prompts);
    } else {
        exit_code = weft_i_cli_finish(WEFT_EXIT_OK);
    }
    weft_options_destroy(options);
    return exit_code;
}
