/*
 * weft eval: the loss of a model on text. The result goes to standard output, progress to a terminal.
 */
#include "cli/cli.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void on_progress(void *user, int64_t n_done, int64_t n_targets)
{
    char line[96], done[32], all[32];
    (void)snprintf(line, sizeof(line), "%s of %s targets",
                   weft_i_cli_thousands(n_done, done, sizeof(done)),
                   weft_i_cli_thousands(n_targets, all, sizeof(all)));
    weft_i_cli_screen_live(user, line);
}

static void show_text(const weft_eval_result *r)
{
    char targets[32], tokens[32];
    (void)printf("loss           %.6f nats a token\n", r->loss);
    (void)printf("perplexity     %.4f\n", r->perplexity);
    if (isfinite(r->bits_per_byte))
        (void)printf("bits per byte  %.4f\n", r->bits_per_byte);
    (void)printf("targets        %s of %s tokens\n",
                 weft_i_cli_thousands(r->n_targets, targets, sizeof(targets)),
                 weft_i_cli_thousands(r->n_tokens, tokens, sizeof(tokens)));
}

static void show_json(const weft_eval_result *r, bool is_paced)
{
    (void)fputs("{\"loss\": ", stdout);
    weft_i_cli_json_number(r->loss);
    (void)fputs(", \"perplexity\": ", stdout);
    weft_i_cli_json_number(r->perplexity);
    (void)fputs(", \"bits_per_byte\": ", stdout);
    weft_i_cli_json_number(r->bits_per_byte);
    (void)printf(", \"targets\": %lld, \"tokens\": %lld, \"seconds\": ", (long long)r->n_targets,
                 (long long)r->n_tokens);
    weft_i_cli_json_number(r->seconds);
    (void)puts(is_paced ? ", \"paced\": true}" : "}");
}

int weft_i_cli_eval(int argc, const char *const *argv)
{
    weft_eval_options o;
    weft_options *options = NULL;
    int exit_code = WEFT_EXIT_OK;
    if (!weft_i_cli_parse(&options, &o, &exit_code, WEFT_COMMAND_EVAL, argc, argv))
        return exit_code;
    weft_cli_screen screen;
    weft_i_cli_screen_init(&screen);
    const weft_ctx_options ctx_options = weft_i_cli_ctx_options(&screen);
    const weft_eval_callbacks callbacks = {
        .user = &screen,
        .progress = on_progress,
        .note = weft_i_cli_note,
        .should_stop = weft_i_cli_should_stop,
    };
    weft_i_cli_catch_signals();
    weft_eval_result result;
    const weft_status st = weft_eval_run(&result, &o, &ctx_options, &callbacks);
    weft_i_cli_screen_clear(&screen);
    if (st != WEFT_OK) {
        exit_code = weft_i_cli_fail(st);
    } else if (weft_i_cli_is_stopped()) {
        (void)fprintf(stderr, "weft: error: stopped by a signal after %lld targets; no result\n",
                      (long long)result.n_targets);
        exit_code = WEFT_EXIT_FAILED;
    } else {
        if (strcmp(o.output, "json") == 0)
            show_json(&result, o.layout.pace[0] != '\0');
        else
            show_text(&result);
        exit_code = weft_i_cli_finish(WEFT_EXIT_OK);
    }
    weft_options_destroy(options);
    return exit_code;
}
