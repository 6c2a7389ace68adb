/*
 * weft diff: whether two models are the same. Exit codes: 0 equal, 1 different, 2 usage, 3 could not compare.
 */
#include "cli/cli.h"

#include <stdio.h>

static void show_tensor(const weft_diff_tensor *t)
{
    switch (t->kind) {
    case WEFT_DIFF_ONLY_A:
        (void)printf("%s: only in A\n", t->name);
        return;
    case WEFT_DIFF_ONLY_B:
        (void)printf("%s: only in B\n", t->name);
        return;
    case WEFT_DIFF_SHAPE:
    case WEFT_DIFF_DTYPE:
        (void)printf("%s: %s\n", t->name, t->detail);
        return;
    case WEFT_DIFF_BITS:
        (void)printf("%s: %lld of %lld elements differ in bits%s%s\n", t->name,
                     (long long)t->n_different, (long long)t->n_elems,
                     t->detail[0] == '\0' ? " only" : ", ", t->detail);
        return;
    case WEFT_DIFF_VALUE:
        break;
    }
    (void)printf(
        "%s: %lld of %lld elements, largest difference %.6g (%.3g of the tensor's largest) at %s: "
        "%.9g, %.9g\n",
        t->name, (long long)t->n_different, (long long)t->n_elems, t->max_abs, t->max_rel,
        t->detail, t->value_a, t->value_b);
}

static void show(const weft_diff *d, int64_t top)
{
    char tensors[32], elems[32];
    (void)weft_i_cli_thousands((int64_t)d->n_compared, tensors, sizeof(tensors));
    (void)weft_i_cli_thousands(d->n_elems, elems, sizeof(elems));
    for (size_t i = 0; i < d->n_different && (int64_t)i < top; i++)
        show_tensor(&d->tensors[i]);
    if (d->n_different > 0 && (int64_t)d->n_different > top && top > 0)
        (void)printf("... and %lld more\n", (long long)d->n_different - (long long)top);
    if (d->n_different == 0)
        (void)printf("equal: %s tensors, %s elements\n", tensors, elems);
    else
        (void)printf("different: %lld tensors; %s were on both sides, %s elements\n",
                     (long long)d->n_different, tensors, elems);
}

int weft_i_cli_diff(int argc, const char *const *argv)
{
    weft_diff_options o;
    weft_options *options = NULL;
    int exit_code = WEFT_EXIT_OK;
    if (!weft_i_cli_parse(&options, &o, &exit_code, WEFT_COMMAND_DIFF, argc, argv))
        return exit_code;
    weft_diff *d = NULL;
    const weft_status st = weft_diff_create(&d, &o);
    if (st == WEFT_OK) {
        show(d, o.top);
        /* 1 means different here, so no failure may look like it. */
        exit_code = weft_i_cli_finish(d->n_different == 0 ? WEFT_EXIT_OK : 1);
    } else {
        exit_code = weft_i_cli_fail(st);
        if (st != WEFT_STATUS_ARG)
            exit_code = WEFT_EXIT_INPUT;
    }
    weft_diff_destroy(d);
    weft_options_destroy(options);
    return exit_code;
}
