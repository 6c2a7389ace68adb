/*
 * weft probe: one pass on a given batch, written to a file; the loss on standard output.
 */
#include "cli/cli.h"

#include <stdio.h>

int weft_i_cli_probe(int argc, const char *const *argv)
{
    weft_probe_options o;
    weft_options *options = NULL;
    int exit_code = WEFT_EXIT_OK;
    if (!weft_i_cli_parse(&options, &o, &exit_code, WEFT_COMMAND_PROBE, argc, argv))
        return exit_code;
    weft_cli_screen screen;
    weft_i_cli_screen_init(&screen);
    const weft_ctx_options ctx_options = weft_i_cli_ctx_options(&screen);
    weft_probe_result r;
    const weft_status st = weft_probe_run(&r, &o, &ctx_options);
    if (st == WEFT_OK) {
        (void)printf("loss %.9g over %lld targets of %lld sequences of %lld tokens", r.loss,
                     (long long)r.n_targets, (long long)r.n_sequences, (long long)r.seq_length);
        if (o.grads)
            (void)printf("; %lld gradients", (long long)r.n_grads);
        (void)printf("; written to %s\n", o.out);
    }
    exit_code = st == WEFT_OK ? weft_i_cli_finish(WEFT_EXIT_OK) : weft_i_cli_fail(st);
    weft_options_destroy(options);
    return exit_code;
}
