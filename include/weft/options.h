/**
 * The options of every command, as one table each: defaults, command line, run configuration and help are read from
 * it, so that they cannot differ. Names are the field's; `--seq-length` is field seq_length and key "seq_length".
 */
#ifndef WEFT_OPTIONS_H
#define WEFT_OPTIONS_H

#include "weft/checkpoints.h"
#include "weft/data.h"
#include "weft/eval.h"
#include "weft/generate.h"
#include "weft/inspect.h"
#include "weft/placement.h"
#include "weft/probe.h"
#include "weft/simulate.h"
#include "weft/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The struct an option set fills in is weft_<command>_options. */
typedef enum weft_command {
    WEFT_COMMAND_TRAIN,
    WEFT_COMMAND_EVAL,
    WEFT_COMMAND_GENERATE,
    WEFT_COMMAND_PROBE,
    WEFT_COMMAND_INFO,
    WEFT_COMMAND_DIFF,
    WEFT_COMMAND_TOKENIZE,
    WEFT_COMMAND_CHECKPOINT,
    WEFT_COMMAND_SIMULATE,
    WEFT_COMMAND_LAYOUT,
    WEFT_COMMAND_COUNT
} weft_command;

/** "train", ... @collective none */
WEFT_API const char *weft_command_name(weft_command command);

/** One line that says what it does. @collective none */
WEFT_API const char *weft_command_summary(weft_command command);

/** COUNT when there is none of that name. @collective none */
WEFT_API weft_command weft_command_from_name(const char *name);

/** The command whose name is nearest to a misspelt one; NULL when none is near. @collective none */
WEFT_API const char *weft_command_nearest(const char *name);

/** Defaults. `values` points to the command's options struct. @collective none */
WEFT_API void weft_options_init(weft_command command, void *values);

/** Owns the strings and lists that a parsed options struct points to. */
typedef struct weft_options weft_options;

/**
 * Fills `values` (defaults first) from a command's arguments: `--name value`, `--name=value`, `--switch`,
 * `--switch on|off`, lists until the next option, and for train a first argument that ends in .json: the run
 * configuration, whose keys the options override. The last of a repeated option counts; repeated lists are joined.
 *
 * @collective  none
 * @param[out] out      destroy after the last use of `values`
 * @param[out] is_help  --help or -h was among the arguments; nothing else was looked at
 * @param[in]  argv     [argc] arguments after the command's name; borrowed by `values`
 * @return      WEFT_OK | ARG option or key, value and what is allowed | IO, FORMAT of the run configuration | NOMEM
 */
WEFT_API weft_status weft_options_parse(weft_options **out,
                                        void *values,
                                        bool *is_help,
                                        weft_command command,
                                        int argc,
                                        const char *const *argv);
WEFT_API void weft_options_destroy(weft_options *options);

/** Whether an option ("seq-length") was given, on the command line or in the run configuration. @collective none */
WEFT_API bool weft_options_is_given(const weft_options *options, const char *name);

/**
 * Checks a struct that was filled in by hand against the table: ranges, choices, what is required.
 *
 * @collective  none
 * @return      WEFT_OK | ARG as weft_options_parse says it
 */
WEFT_API weft_status weft_options_check(weft_command command, const void *values);

/** Receives one line of text, without newline. */
typedef void weft_line_fn(void *user, const char *line);

/** The text of `weft COMMAND --help`, at most `columns` wide. @collective none */
WEFT_API void weft_options_help(weft_command command, int columns, weft_line_fn *line, void *user);

/** The manual page weft-COMMAND(1), or weft(1) for COUNT, as mdoc. @collective none */
WEFT_API void weft_options_man(weft_command command, weft_line_fn *line, void *user);

#ifdef __cplusplus
}
#endif
#endif
