/*
 * Cases that run in processes of their own, several at once: what hangs is ended and named, what a case leaves behind (threads,
 * environment, memory) ends with it, and cases that wait do it beside each other.
 */
#ifndef WEFT_TESTS_FORKS_H
#define WEFT_TESTS_FORKS_H

#include <stddef.h>

/** One kind of case. The calling process must have no threads. */
typedef struct forks {
    /* In a process of its own; it must not use cmocka's checks, since their way back is not there. What it finds out it
       leaves in shared memory (forks_share). */
    void (*run)(void *user, int i);
    /* For messages: what case i is. */
    void (*name)(void *user, int i, char *out, size_t size);
    void *user;
    int n_at_once;
    double limit_s; /* of a case; it is killed then, and the test fails */
} forks;

/** Runs cases first .. first + n - 1; fails the test when one does not end by itself with exit code 0 in time. */
void forks_run(const forks *f, int first, int n);

/** Zeroed memory that the processes share; until forks_unshare. */
void *forks_share(size_t n_bytes);
void forks_unshare(void *p, size_t n_bytes);

/** Threads of this process; those that were joined may be on their way out yet and are waited for a second.
    1 under a sanitizer. */
int forks_count_threads(void);

#endif
