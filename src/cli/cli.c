/*
 * Exit codes, arguments, standard output, signals.
 *
 * The flag that a signal sets is the one mutable global of the program: a handler can reach nothing else.
 */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static volatile sig_atomic_t n_signals;

/* The exit code a status stands for. */
static int exit_code_of(weft_status st)
{
    switch (st) {
    case WEFT_OK:
        return WEFT_EXIT_OK;
    case WEFT_STATUS_ARG:
        return WEFT_EXIT_USAGE;
    case WEFT_STATUS_IO:
    case WEFT_STATUS_FORMAT:
    case WEFT_STATUS_UNSUPPORTED:
    case WEFT_STATUS_MISMATCH:
        return WEFT_EXIT_INPUT;
    case WEFT_STATUS_LAYOUT:
        return WEFT_EXIT_LAYOUT;
    case WEFT_STATUS_NOMEM:
    case WEFT_STATUS_REMOTE:
    case WEFT_STATUS_TIMEOUT:
    case WEFT_STATUS_DEVICE:
    case WEFT_STATUS_NUMERIC:
        return WEFT_EXIT_FAILED;
    case WEFT_STATUS_INTERNAL:
        break;
    }
    return WEFT_EXIT_BUG;
}

int weft_i_cli_fail(weft_status st)
{
    (void)fflush(stdout);
    (void)fprintf(stderr, "weft: error: %s\n", weft_last_error());
    const int exit_code = exit_code_of(st);
    /* A file that cannot be written once steps have begun is not bad input: the run failed. */
    return weft_last_error_is_of_run() && exit_code != WEFT_EXIT_BUG ? WEFT_EXIT_FAILED : exit_code;
}

bool weft_i_cli_parse(weft_options **out,
                      void *values,
                      int *exit_code,
                      weft_command command,
                      int argc,
                      const char *const *argv)
{
    bool is_help = false;
    const weft_status st = weft_options_parse(out, values, &is_help, command, argc, argv);
    if (st != WEFT_OK) {
        *exit_code = weft_i_cli_fail(st);
        return false;
    }
    if (!is_help)
        return true;
    weft_options_destroy(*out);
    *out = NULL;
    weft_options_help(command, 100, weft_i_cli_line, NULL);
    *exit_code = weft_i_cli_finish(WEFT_EXIT_OK);
    return false;
}

void weft_i_cli_line(void *user, const char *line)
{
    (void)user;
    (void)puts(line);
}

/* Whether standard output can still take something. */
static bool is_output_open(void)
{
    return ferror(stdout) == 0;
}

/* Whether the reader of a pipe or socket is gone. */
static bool is_reader_gone(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    return poll(&p, 1, 0) == 1 && (p.revents & (POLLERR | POLLHUP)) != 0;
}

int weft_i_cli_finish(int exit_code)
{
    errno = 0;
    const bool is_written = fflush(stdout) == 0 && ferror(stdout) == 0;
    if (is_written || errno == EPIPE || is_reader_gone(STDOUT_FILENO))
        return exit_code;
    (void)fprintf(stderr, "weft: error: standard output could not be written: %s\n",
                  errno == 0 ? "an earlier part was lost" : strerror(errno));
    return exit_code == WEFT_EXIT_OK ? WEFT_EXIT_INPUT : exit_code;
}

/* Opened the wrong way round, so that using such a stream still fails. */
static bool take_closed_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF)
            continue;
        if (open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            return false;
    }
    return true;
}

bool weft_i_cli_prepare_process(void)
{
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN);
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    return take_closed_streams();
}

static void on_signal(int number)
{
    n_signals = n_signals + 1;
    if (number == SIGINT)
        (void)signal(SIGINT, SIG_DFL); /* the next one ends the program */
}

void weft_i_cli_catch_signals(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
}

bool weft_i_cli_is_stopped(void)
{
    return n_signals > 0;
}

bool weft_i_cli_should_stop(void *user)
{
    (void)user;
    return weft_i_cli_is_stopped() || !is_output_open();
}
