/*
 * weft tokenize: texts to a token file and back.
 */
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool write_bytes(void *user, const char *bytes, size_t n_bytes)
{
    FILE *f = user;
    return fwrite(bytes, 1, n_bytes, f) == n_bytes;
}

static int decode(const weft_tokenize_options *o)
{
    const bool is_file = o->out[0] != '\0';
    FILE *f = is_file ? fopen(o->out, "wb") : stdout;
    if (f == NULL) {
        (void)fprintf(stderr, "weft: error: %s: opening failed: %s\n", o->out, strerror(errno));
        return WEFT_EXIT_INPUT;
    }
    const weft_status st = weft_tokenize_decode(o, write_bytes, f);
    bool is_written = true;
    if (is_file) {
        is_written = ferror(f) == 0;
        is_written = fclose(f) == 0 && is_written;
    }
    if (st != WEFT_OK)
        return weft_i_cli_fail(st);
    if (!is_written) {
        (void)fprintf(stderr, "weft: error: %s: writing failed: %s\n", o->out, strerror(errno));
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
