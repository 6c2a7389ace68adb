/*
 * The check of a layout while weft runs on one rank only: an axis longer than 1, or more ranks, is refused by name
 * and never quietly run as one rank.
 */
#include "formats/layout_one_rank.h"

#include "base/str.h"

#include <string.h>

/* "6,3,5": the number of stages, or -1 when it is no such list. */
static int count_stages(const char *text)
{
    int n_stages = 0;
    while (*text != '\0') {
        const size_t n = strcspn(text, ",");
        char count[24];
        int64_t n_layers;
        if (n >= sizeof(count) ||
            weft_i_str_print(count, sizeof(count), "%.*s", (int)n, text) != WEFT_OK ||
            !weft_i_str_to_int64(count, &n_layers) || n_layers < 1)
            return -1;
        n_stages++;
        text += n;
        if (*text == ',' && *++text == '\0')
            return -1;
    }
    return n_stages;
}

weft_status weft_i_layout_check_one_rank(const weft_layout_options *o)
{
    const struct {
        const char *name;
        int64_t value;
    } axes[] = {{"dp", o->dp}, {"tp", o->tp}, {"pp", o->pp}, {"ranks", o->ranks}};
    for (size_t i = 0; i < WEFT_COUNT_OF(axes); i++) {
        if (axes[i].value < 0)
            WEFT_FAIL(WEFT_STATUS_ARG, "--%s %lld is not possible: a whole number >= 1 is needed",
                      axes[i].name, (long long)axes[i].value);
        if (axes[i].value > 1)
            WEFT_FAIL(WEFT_STATUS_UNSUPPORTED,
                      "--%s %lld asks for more than one rank, which this version of weft does not "
                      "run; use --%s 1",
                      axes[i].name, (long long)axes[i].value, axes[i].name);
    }
    const int n_stages = o->stage_layers == NULL ? 0 : count_stages(o->stage_layers);
    if (n_stages < 0)
        WEFT_FAIL(WEFT_STATUS_ARG,
                  "--stage-layers %s is not possible: layers of each stage as 6,3,5 are needed",
                  o->stage_layers);
    if (n_stages > 1)
        WEFT_FAIL(
            WEFT_STATUS_UNSUPPORTED,
            "--stage-layers %s asks for %d pipeline stages, but this version of weft runs one rank",
            o->stage_layers, n_stages);
    return WEFT_OK;
}
