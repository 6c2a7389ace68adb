/* Cases in processes of their own (forks.h). */
#include "forks.h"

#include "check.h"

#include "base/clock.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST_AT_ONCE 16
#define NAME_BYTES 256

typedef struct child {
    pid_t pid; /* 0: none */
    int number;
    double begin_s;
} child;

static void start(const forks *f, child *c, int number)
{
    (void)fflush(NULL);
    c->number = number;
    c->begin_s = weft_i_clock_seconds();
    c->pid = fork();
    assert_true(c->pid >= 0);
    if (c->pid > 0)
        return;
    f->run(f->user, number);
    exit(0); /* not _exit: a leak checker looks now */
}

/* Kills what still runs, so that a failed test leaves nothing. */
static void end_all(child *children, int n)
{
    for (int i = 0; i < n; i++) {
        if (children[i].pid > 0) {
            (void)kill(children[i].pid, SIGKILL);
            (void)waitpid(children[i].pid, NULL, 0);
        }
    }
}

/* "" when all is well. */
static void look_at(const forks *f, child *c, char *problem)
{
    int how = 0;
    const pid_t ended = waitpid(c->pid, &how, WNOHANG);
    char name[NAME_BYTES];
    f->name(f->user, c->number, name, sizeof(name));
    if (ended == 0 && weft_i_clock_seconds() - c->begin_s > f->limit_s)
        (void)snprintf(problem, 2 * NAME_BYTES, "%s: not over after %g s", name, f->limit_s);
    if (ended == 0)
        return;
    c->pid = 0;
    if (ended > 0 && WIFSIGNALED(how))
        (void)snprintf(problem, 2 * NAME_BYTES, "%s: ended by signal %d", name, WTERMSIG(how));
    else if (ended < 0 || WEXITSTATUS(how) != 0)
        (void)snprintf(problem, 2 * NAME_BYTES, "%s: ended with exit code %d", name,
                       WEXITSTATUS(how));
}

void forks_run(const forks *f, int first, int n)
{
    child children[MOST_AT_ONCE] = {{0}};
    char problem[2 * NAME_BYTES] = "";
    const struct timespec moment = {0, 2000000};
    assert_in_range(f->n_at_once, 1, MOST_AT_ONCE);
    assert_int_equal(forks_count_threads(), 1);
    for (int next = first, n_running = 1; n_running > 0 && problem[0] == '\0';) {
        n_running = 0;
        for (int i = 0; i < f->n_at_once && problem[0] == '\0'; i++) {
            child *const c = &children[i];
            if (c->pid > 0)
                look_at(f, c, problem);
            if (c->pid == 0 && next < first + n)
                start(f, c, next++);
            n_running += c->pid > 0;
        }
        (void)nanosleep(&moment, NULL);
    }
    end_all(children, f->n_at_once);
    if (problem[0] != '\0')
        fail_msg("%s", problem);
}

void *forks_share(size_t n_bytes)
{
    void *const p = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    return p;
}

void forks_unshare(void *p, size_t n_bytes)
{
    assert_int_equal(munmap(p, n_bytes), 0);
}

static int count_threads(void)
{
    DIR *const dir = opendir("/proc/self/task");
    int n = 0;
    if (dir == NULL)
        return -1;
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir))
        n += e->d_name[0] != '.';
    (void)closedir(dir);
    return n;
}

int forks_count_threads(void)
{
#ifdef WEFT_SANITIZED
    return 1; /* a sanitizer's own threads cannot be told from others */
#endif
    const struct timespec moment = {0, 10000000};
    int n = count_threads();
    for (int i = 0; i < 100 && n > 1; i++) {
        (void)nanosleep(&moment, NULL);
        n = count_threads();
    }
    return n;
}
