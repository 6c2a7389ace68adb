/*
 * The program: the table of commands, version, help.
 */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

#ifndef WEFT_VERSION
#define WEFT_VERSION "unknown"
#endif

typedef int command_fn(int argc, const char *const *argv);

static command_fn *const commands[WEFT_COMMAND_COUNT] = {
    [WEFT_COMMAND_TRAIN] = weft_i_cli_train,
    [WEFT_COMMAND_EVAL] = weft_i_cli_eval,
    [WEFT_COMMAND_GENERATE] = weft_i_cli_generate,
    [WEFT_COMMAND_PROBE] = weft_i_cli_probe,
    [WEFT_COMMAND_INFO] = weft_i_cli_info,
    [WEFT_COMMAND_DIFF] = weft_i_cli_diff,
    [WEFT_COMMAND_TOKENIZE] = weft_i_cli_tokenize,
    [WEFT_COMMAND_CHECKPOINT] = weft_i_cli_checkpoint,
    [WEFT_COMMAND_SIMULATE] = weft_i_cli_simulate,
    [WEFT_COMMAND_LAYOUT] = weft_i_cli_layout,
};

static void show_commands(FILE *to)
{
    (void)fprintf(to, "weft %s - trains and runs Transformer language models\n\n", WEFT_VERSION);
    (void)fprintf(to, "Usage: weft COMMAND [OPTION...]\n\nCommands:\n");
    for (int c = 0; c < WEFT_COMMAND_COUNT; c++)
        (void)fprintf(to, "  %-10s  %s\n", weft_command_name((weft_command)c),
                      weft_command_summary((weft_command)c));
    (void)fprintf(to, "  %-10s  %s\n", "help",
                  "this text, or that of a command: weft help COMMAND");
    (void)fprintf(to, "  %-10s  %s\n", "version", "the version");
    (void)fprintf(to, "\nAn example:\n"
                      "  weft train --model config.json --data book.txt --out runs/book\n"
                      "  weft generate --model runs/book/latest --prompt 'It was'\n");
}

static int fail_unknown(const char *name)
{
    const char *nearest = weft_command_nearest(name);
    (void)fprintf(stderr, "weft: error: there is no command \"%s\"", name);
    if (nearest != NULL)
        (void)fprintf(stderr, "; the nearest is \"%s\"\n", nearest);
    else
        (void)fprintf(stderr, " (`weft help` lists them)\n");
    return WEFT_EXIT_USAGE;
}

/* weft help [--man] [COMMAND] */
static int help(int argc, const char *const *argv)
{
    const bool is_man = argc > 0 && strcmp(argv[0], "--man") == 0;
    argc -= is_man;
    argv += is_man;
    if (argc > 1) {
        (void)fprintf(stderr, "weft: error: \"%s\" is one argument too many\n", argv[1]);
        return WEFT_EXIT_USAGE;
    }
    if (argc == 0 || strcmp(argv[0], "weft") == 0) {
        if (is_man)
            weft_options_man(WEFT_COMMAND_COUNT, weft_i_cli_line, NULL);
        else
            show_commands(stdout);
        return weft_i_cli_finish(WEFT_EXIT_OK);
    }
    const weft_command command = weft_command_from_name(argv[0]);
    if (command == WEFT_COMMAND_COUNT)
        return fail_unknown(argv[0]);
    if (is_man)
        weft_options_man(command, weft_i_cli_line, NULL);
    else
        weft_options_help(command, 100, weft_i_cli_line, NULL);
    return weft_i_cli_finish(WEFT_EXIT_OK);
}

int main(int argc, char **argv)
{
    if (!weft_i_cli_prepare_process())
        return WEFT_EXIT_FAILED; /* with a stream closed there may be nowhere to say why */
    weft_i_cli_catch_bus_error();
    if (argc < 2) {
        show_commands(stderr);
        return WEFT_EXIT_USAGE;
    }
    const char *const *rest = (const char *const *)argv + 2;
    const char *name = argv[1];
    if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        return help(argc - 2, rest);
    if (strcmp(name, "version") == 0 || strcmp(name, "--version") == 0) {
        (void)printf("weft %s\n", WEFT_VERSION);
        return weft_i_cli_finish(WEFT_EXIT_OK);
    }
    const weft_command command = weft_command_from_name(name);
    if (command == WEFT_COMMAND_COUNT)
        return fail_unknown(name);
    return commands[command](argc - 2, rest);
}
