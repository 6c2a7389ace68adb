/*
 * weft tokenize: texts to a token file and back.
 */
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Where decoded bytes go; a file is opened by the first of them, so that a refused input does not empty it. */
typedef struct decoded {
    const char *path; /* "": standard output */
    FILE *f;
    int error; /* errno of what failed; 0 */
} decoded;

static bool open_decoded(decoded *d)
{
    if (d->f == NULL)
        d->f = d->path[0] != '\0' ? fopen(d->path, "wb") : stdout;
    if (d->f == NULL)
        d->error = errno;
    return d->f != NULL;
}

static bool write_bytes(void *user, const char *bytes, size_t n_bytes)
{
    decoded *d = user;
    if (open_decoded(d) && fwrite(bytes, 1, n_bytes, d->f) != n_bytes)
        d->error = errno;
    return d->error == 0;
}

static int decode(const weft_tokenize_options *o)
{
    decoded d = {.path = o->out};
    const weft_status st = weft_tokenize_decode(o, write_bytes, &d);
    if (st == WEFT_OK && d.error == 0)
        (void)open_decoded(&d); /* no bytes at all: an empty file */
    if (d.f != NULL && d.f != stdout && fclose(d.f) != 0 && d.error == 0)
        d.error = errno;
    if (st != WEFT_OK)
        return weft_i_cli_fail(st);
    if (d.error != 0 && d.f != stdout) {
        (void)fprintf(stderr, "weft: error: %s: writing failed: %s\n", o->out, strerror(d.error));
        return WEFT_EXIT_INPUT;
    }
    return weft_i_cli_finish(WEFT_EXIT_OK);
}

static weft_status show_ids(const weft_tokenize_options *o)
{
    int32_t ids[1024];
    int64_t n = 0;
    const int64_t n_wanted = o->show < 1024 ? o->show : 1024;
    const weft_status st = weft_tokenize_peek(ids, &n, o->out, n_wanted);
    for (int64_t i = 0; st == WEFT_OK && i < n; i++)
        (void)printf("%s%d", i == 0 ? "" : " ", ids[i]);
    if (st == WEFT_OK && n > 0)
        (void)putchar('\n');
    return st;
}

static int encode(const weft_tokenize_options *o)
{
    weft_tokenize_result r;
    weft_status st = weft_tokenize_run(&r, o);
    if (st == WEFT_OK) {
        char tokens[32], bytes[32], ids[32];
        (void)printf("%s: %s tokens of %d bytes (ids below %s) from %s bytes of text\n", o->out,
                     weft_i_cli_thousands(r.n_tokens, tokens, sizeof(tokens)), r.id_bytes,
                     weft_i_cli_thousands(r.vocab_size, ids, sizeof(ids)),
                     weft_i_cli_thousands(r.n_bytes, bytes, sizeof(bytes)));
        st = o->show > 0 ? show_ids(o) : WEFT_OK;
    }
    return st == WEFT_OK ? weft_i_cli_finish(WEFT_EXIT_OK) : weft_i_cli_fail(st);
}

int weft_i_cli_tokenize(int argc, const char *const *argv)
{
    weft_tokenize_options o;
    weft_options *options = NULL;
    int exit_code = WEFT_EXIT_OK;
    if (!weft_i_cli_parse(&options, &o, &exit_code, WEFT_COMMAND_TOKENIZE, argc, argv))
        return exit_code;
    exit_code = o.decode ? decode(&o) : encode(&o);
    weft_options_destroy(options);
    return exit_code;
}
