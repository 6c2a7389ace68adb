/**
 * What the commands share: exit codes, arguments, output that may break off, the live line, signals.
 */
#ifndef WEFT_CLI_CLI_H
#define WEFT_CLI_CLI_H

#include <pthread.h>

#include "weft.h"

enum {
    WEFT_EXIT_OK = 0,
    WEFT_EXIT_BUG = 1,
    WEFT_EXIT_USAGE = 2,
    WEFT_EXIT_INPUT = 3,
    WEFT_EXIT_LAYOUT = 4,
    WEFT_EXIT_FAILED = 5
};

int weft_i_cli_train(int argc, const char *const *argv);
int weft_i_cli_eval(int argc, const char *const *argv);
int weft_i_cli_generate(int argc, const char *const *argv);
int weft_i_cli_probe(int argc, const char *const *argv);
int weft_i_cli_info(int argc, const char *const *argv);
int weft_i_cli_diff(int argc, const char *const *argv);
int weft_i_cli_tokenize(int argc, const char *const *argv);
int weft_i_cli_checkpoint(int argc, const char *const *argv);
int weft_i_cli_simulate(int argc, const char *const *argv);
int weft_i_cli_layout(int argc, const char *const *argv);

/** Prints the thread's error to standard error and returns the exit code: FAILED for what a run met after its start. */
int weft_i_cli_fail(weft_status st);

/** Reads a command's arguments. false: the program ends with *exit_code (help was shown, or the arguments are wrong). */
bool weft_i_cli_parse(weft_options **out,
                      void *values,
                      int *exit_code,
                      weft_command command,
                      int argc,
                      const char *const *argv);

/** A line of text to standard output: a weft_line_fn. */
void weft_i_cli_line(void *user, const char *line);

/**
 * Flushes standard output. A reader that went away is fine; a disk that is full is not.
 *
 * @return `exit_code`, or INPUT with a message
 */
int weft_i_cli_finish(int exit_code);

/** Progress on standard error: lines, and on a terminal one line that is written over. From any thread. */
typedef struct weft_cli_screen {
    pthread_mutex_t lock;
    bool is_terminal;
    bool has_live; /* the cursor stands behind a live line */
} weft_cli_screen;

void weft_i_cli_screen_init(weft_cli_screen *s);

/** The live line; nothing where the output is no terminal. */
void weft_i_cli_screen_live(weft_cli_screen *s, const char *line);

/** A line that stays. */
void weft_i_cli_screen_line(weft_cli_screen *s, const char *line);

/** Takes the live line away. */
void weft_i_cli_screen_clear(weft_cli_screen *s);

/** A note callback: `user` is the screen. */
void weft_i_cli_note(void *user, const char *line);

/** Context options whose log goes to the screen, warnings and errors only. */
weft_ctx_options weft_i_cli_ctx_options(weft_cli_screen *s);

/**
 * What the program wants of its process before it opens anything: standard streams that were closed are taken, so that no
 * file of a run gets their numbers and the messages with them; a reader that went away and a file that may not grow are
 * errors of a write, not the end; files open at once up to what the system allows (a rank that saves needs one).
 *
 * @return false: a closed stream could not be taken
 */
bool weft_i_cli_prepare_process(void);

/** From now on a mapped file that cannot be read any more ends the program with its name and WEFT_EXIT_FAILED. */
void weft_i_cli_catch_bus_error(void);

/** From now on SIGINT and SIGTERM ask the run to stop; a second SIGINT ends the program. */
void weft_i_cli_catch_signals(void);
bool weft_i_cli_is_stopped(void);

/** A should_stop callback: a signal came, or nobody reads the output. */
bool weft_i_cli_should_stop(void *user);

/* Numbers for people, into out (at least 32 bytes); they return out. */
const char *weft_i_cli_thousands(int64_t value, char *out, size_t size);
const char *weft_i_cli_bytes(double bytes, char *out, size_t size);
const char *weft_i_cli_duration(double seconds, char *out, size_t size);

/** A JSON string with quotes; bytes that are no UTF-8 become U+FFFD. */
void weft_i_cli_json_string(const char *text);

/** A JSON number; null for what is not finite. */
void weft_i_cli_json_number(double value);

#endif
