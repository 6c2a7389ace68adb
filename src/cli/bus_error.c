/*
 * A mapped file that is gone under the run's feet: data and weights are read where they are mapped, and the system answers
 * a read behind the end of a file that was shortened meanwhile, or from a disk that fails, with SIGBUS. The message names
 * the file, as the system's list of maps does; the run ends as a run that failed.
 *
 * A handler may call little: no standard I/O, no allocation, nothing of the library.
 */
#include "cli/cli.h"

#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES 4352 /* of the list of maps: a path and the numbers before it */
#define MESSAGE_BYTES (LINE_BYTES + 256)

/* The hexadecimal number at *at, which moves behind it. */
static uintptr_t take_hex(const char **at)
{
    static const char digits[] = "0123456789abcdef";
    uintptr_t value = 0;
    const char *digit;
    while (**at != '\0' && (digit = strchr(digits, **at)) != NULL) {
        value = value * 16 + (uintptr_t)(digit - digits);
        (*at)++;
    }
    return value;
}

/* The path in a line "first-end permissions offset device inode path" whose map holds the address, else NULL. */
static const char *path_in_line(const char *line, uintptr_t address)
{
    const char *at = line;
    const uintptr_t first = take_hex(&at);
    if (*at++ != '-')
        return NULL;
    const uintptr_t end = take_hex(&at);
    return address >= first && address < end ? strchr(at, '/') : NULL;
}

/* The file mapped at the address, in `line`; NULL: none. */
static const char *find_path(char line[LINE_BYTES], uintptr_t address)
{
    const char *path = NULL;
    size_t n = 0;
    char c;
    const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && path == NULL && read(fd, &c, 1) == 1) {
        if (c != '\n') {
            if (n < LINE_BYTES - 1)
                line[n++] = c;
            continue;
        }
        line[n] = '\0';
        n = 0;
        path = path_in_line(line, address);
    }
    if (fd >= 0)
        (void)close(fd);
    return path;
}

/* Adds as much of the text as there is room for. */
static size_t add(char *message, size_t n, const char *text)
{
    const size_t n_text = strlen(text), room = MESSAGE_BYTES - n;
    const size_t n_added = n_text < room ? n_text : room;
    memcpy(message + n, text, n_added);
    return n + n_added;
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    char line[LINE_BYTES], message[MESSAGE_BYTES];
    (void)context;
    const char *const path = find_path(line, (uintptr_t)info->si_addr);
    if (path == NULL) {
        (void)signal(
            number,
            SIG_DFL); /* a bug: the program ends by the signal, as it would without a handler */
        (void)raise(number);
        return;
    }
    /* In one write, as two ranks may come here at once. */
    size_t n = add(message, 0, "\nweft: error: ");
    n = add(message, n, path);
    n = add(message, n,
            ": could not be read any more; it was shortened while the program read it, or its disk "
            "failed\n");
    const ssize_t n_written = write(STDERR_FILENO, message, n);
    (void)n_written; /* there is nobody else to tell */
    _exit(WEFT_EXIT_FAILED);
}

void weft_i_cli_catch_bus_error(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO;
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGBUS, &action, NULL);
}
