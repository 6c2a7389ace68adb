/*
 * weft train: a line a step on standard error, live on a terminal.
 */
#include "cli/cli.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LINE_BYTES 256
#define LASTING_LINES 20 /* on a terminal this many lines of a run stay */

typedef struct train_view {
    weft_cli_screen screen;
    int64_t log_interval;
    bool is_paced;
} train_view;

static void step_line(char *out, size_t size, const weft_train_step *s, bool is_paced)
{
    char memory[32], left[32], rate[32], eval[48] = "";
    if (!isnan(s->eval_loss))
        (void)snprintf(eval, sizeof(eval), "  eval %.4f", s->eval_loss);
    (void)snprintf(
        out, size,
        "step %lld/%lld  loss %.4f%s  lr %.2e  norm %.2f  %s tok/s  left %s  %.1f GFLOP/s  %s%s",
        (long long)s->step, (long long)s->train_steps, s->loss, eval, s->lr, s->grad_norm,
        weft_i_cli_thousands((int64_t)s->tokens_per_second, rate, sizeof(rate)),
        weft_i_cli_duration(s->seconds_left, left, sizeof(left)), s->gflops,
        weft_i_cli_bytes(s->memory_bytes, memory, sizeof(memory)), is_paced ? "  paced" : "");
}

/* Whether the line stays: on a terminal a few of the run, elsewhere every log_interval; evaluations always. */
static bool is_lasting(const train_view *v, const weft_train_step *s)
{
    int64_t interval = v->log_interval;
    if (v->screen.is_terminal && s->train_steps / LASTING_LINES > interval)
        interval = s->train_steps / LASTING_LINES;
    return s->step == 1 || s->step == s->train_steps || s->step % interval == 0 ||
           !isnan(s->eval_loss);
}

static void on_step(void *user, const weft_train_step *s)
{
    train_view *v = user;
    char line[LINE_BYTES];
    step_line(line, sizeof(line), s, v->is_paced);
    if (is_lasting(v, s))
        weft_i_cli_screen_line(&v->screen, line);
    else
        weft_i_cli_screen_live(&v->screen, line);
}

static void on_note(void *user, const char *line)
{
    train_view *v = user;
    weft_i_cli_screen_line(&v->screen, line);
}

static bool should_stop(void *user)
{
    (void)user;
    return weft_i_cli_is_stopped();
}

int weft_i_cli_train(int argc, const char *const *argv)
{
    weft_train_options o;
    weft_options *options = NULL;
    int exit_code = WEFT_EXIT_OK;
    if (!weft_i_cli_parse(&options, &o, &exit_code, WEFT_COMMAND_TRAIN, argc, argv))
        return exit_code;
    train_view view = {.log_interval = o.log_interval, .is_paced = o.layout.pace[0] != '\0'};
    weft_i_cli_screen_init(&view.screen);
    const weft_ctx_options ctx_options = weft_i_cli_ctx_options(&view.screen);
    const weft_train_callbacks callbacks = {
        .user = &view, .step = on_step, .note = on_note, .should_stop = should_stop};
    weft_i_cli_catch_signals();
    const weft_status st = weft_train_run(&o, &ctx_options, &callbacks);
    weft_i_cli_screen_clear(&view.screen);
    exit_code = st == WEFT_OK ? weft_i_cli_finish(WEFT_EXIT_OK) : weft_i_cli_fail(st);
    weft_options_destroy(options);
    return exit_code;
}
