/*
 * weft info: what a model is.
 */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

#define MAX_NAMES 10 /* of a list, as text; JSON has all */

/* ---- text ---- */

static void show_count(const char *label, int64_t value, int64_t total)
{
    char text[32];
    (void)printf("%-16s %s", label, weft_i_cli_thousands(value, text, sizeof(text)));
    if (total > 0)
        (void)printf("  (%.1f %%)", 100.0 * (double)value / (double)total);
    (void)putchar('\n');
}

static void show_model(const weft_info *info)
{
    const weft_config *c = &info->config;
    char text[32];
    const size_t element = weft_dtype_bytes(c->dtype);
    (void)printf("%-16s %s\n", "family", weft_family_name(c->family));
    show_count("parameters", info->params.total, 0);
    for (int k = 0; k < WEFT_PARAM_KIND_COUNT; k++) {
        char label[32];
        (void)snprintf(label, sizeof(label), "  %s", weft_param_kind_name((weft_param_kind)k));
        show_count(label, info->params.by_kind[k], info->params.total);
    }
    (void)printf("%-16s %s, %s parameters", "largest layer", info->params.largest_name,
                 weft_i_cli_thousands(info->params.largest, text, sizeof(text)));
    (void)printf(", %s\n", weft_i_cli_bytes((double)info->params.largest * (double)element, text,
                                            sizeof(text)));
    (void)printf("%-16s %lld blocks, width %lld, %lld heads of %lld", "shape",
                 (long long)c->n_layers, (long long)c->hidden_size, (long long)c->n_heads,
                 (long long)c->head_dim);
    if (c->n_kv_heads != c->n_heads)
        (void)printf(" (%lld for keys and values)", (long long)c->n_kv_heads);
    (void)printf(", MLP %lld, %lld ids%s\n", (long long)c->ffn_size, (long long)c->vocab_size,
                 c->is_tied ? ", head tied to the embedding" : "");
    (void)printf("%-16s %lld tokens\n", "context", (long long)c->max_positions);
    (void)printf("%-16s %s%s\n", "type", weft_dtype_name(c->dtype),
                 c->has_dtype ? "" : " (the config names none)");
}

static void show_list(const char *label, const char *const *names, size_t n)
{
    if (n == 0)
        return;
    (void)printf("%-16s %llu\n", label, (unsigned long long)n);
    for (size_t i = 0; i < n && i < MAX_NAMES; i++)
        (void)printf("  %s\n", names[i]);
    if (n > MAX_NAMES)
        (void)printf("  ... and %llu more\n", (unsigned long long)(n - MAX_NAMES));
}

static void show_weights(const weft_info *info)
{
    char text[32], elems[32];
    if (info->weights_fault[0] != '\0')
        (void)printf("%-16s cannot be read: %s\n", "weights", info->weights_fault);
    else if (!info->has_weights)
        (void)printf("%-16s none\n", "weights");
    if (!info->has_weights || info->weights_fault[0] != '\0')
        return;
    (void)printf("%-16s %llu tensors, %s elements, %s, %s, in %llu file%s\n", "weights",
                 (unsigned long long)info->n_tensors,
                 weft_i_cli_thousands(info->n_file_elems, elems, sizeof(elems)), info->dtypes,
                 weft_i_cli_bytes((double)info->n_bytes, text, sizeof(text)),
                 (unsigned long long)info->n_files, info->n_files == 1 ? "" : "s");
    show_list("missing tensors", info->missing, info->n_missing);
    show_list("extra tensors", info->extra, info->n_extra);
    show_list("wrong shapes", info->misshapen, info->n_misshapen);
}

static void show_unsupported(const char *reasons)
{
    (void)printf("%-16s %s\n", "unsupported", reasons[0] == '\0' ? "nothing" : "");
    while (*reasons != '\0') {
        const size_t n = strcspn(reasons, "\n");
        (void)printf("  %.*s\n", (int)n, reasons);
        reasons += n + (reasons[n] == '\n');
    }
}

/* ---- JSON ---- */

static void json_list(const char *key, const char *const *names, size_t n)
{
    (void)printf(",\n  \"%s\": [", key);
    for (size_t i = 0; i < n; i++) {
        (void)fputs(i == 0 ? "" : ", ", stdout);
        weft_i_cli_json_string(names[i]);
    }
    (void)putchar(']');
}

static void json_model(const weft_info *info)
{
    const weft_config *c = &info->config;
    (void)printf(",\n  \"family\": \"%s\",\n  \"parameters\": {\"total\": %lld",
                 weft_family_name(c->family), (long long)info->params.total);
    for (int k = 0; k < WEFT_PARAM_KIND_COUNT; k++)
        (void)printf(", \"%s\": %lld", weft_param_kind_name((weft_param_kind)k),
                     (long long)info->params.by_kind[k]);
    (void)printf(
        "},\n  \"largest_layer\": {\"name\": \"%s\", \"parameters\": %lld, \"bytes\": %lld}",
        info->params.largest_name, (long long)info->params.largest,
        (long long)info->params.largest * (long long)weft_dtype_bytes(c->dtype));
    (void)printf(
        ",\n  \"layers\": %lld, \"hidden_size\": %lld, \"heads\": %lld, \"kv_heads\": %lld, "
        "\"head_dim\": %lld, \"ffn_size\": %lld, \"vocab_size\": %lld, \"context\": %lld, "
        "\"tied\": %s",
        (long long)c->n_layers, (long long)c->hidden_size, (long long)c->n_heads,
        (long long)c->n_kv_heads, (long long)c->head_dim, (long long)c->ffn_size,
        (long long)c->vocab_size, (long long)c->max_positions, c->is_tied ? "true" : "false");
    (void)printf(",\n  \"dtype\": \"%s\"", weft_dtype_name(c->dtype));
}

static void show_json(const weft_info *info)
{
    (void)fputs("{\n  \"model_type\": ", stdout);
    weft_i_cli_json_string(info->model_type);
    (void)fputs(",\n  \"unsupported\": ", stdout);
    weft_i_cli_json_string(info->unsupported);
    if (info->is_readable)
        json_model(info);
    if (info->has_weights) {
        (void)fputs(",\n  \"weights_fault\": ", stdout);
        weft_i_cli_json_string(info->weights_fault);
        (void)printf(",\n  \"files\": %llu, \"tensors\": %llu, \"bytes\": %llu, \"elements\": "
                     "%lld, \"dtypes\": \"%s\"",
                     (unsigned long long)info->n_files, (unsigned long long)info->n_tensors,
                     (unsigned long long)info->n_bytes, (long long)info->n_file_elems,
                     info->dtypes);
        json_list("missing", info->missing, info->n_missing);
        json_list("extra", info->extra, info->n_extra);
        json_list("wrong_shapes", info->misshapen, info->n_misshapen);
    }
    (void)puts("\n}");
}

int weft_i_cli_info(int argc, const char *const *argv)
{
    weft_info_options o;
    weft_options *options = NULL;
    int exit_code = WEFT_EXIT_OK;
    if (!weft_i_cli_parse(&options, &o, &exit_code, WEFT_COMMAND_INFO, argc, argv))
        return exit_code;
    weft_info *info = NULL;
    const weft_status st = weft_info_create(&info, &o);
    if (st != WEFT_OK) {
        exit_code = weft_i_cli_fail(st);
    } else {
        if (o.json) {
            show_json(info);
        } else {
            if (info->is_readable)
                show_model(info);
            else
                (void)printf("%-16s %s\n", "family", info->model_type);
            show_weights(info);
            show_unsupported(info->unsupported);
        }
        exit_code = weft_i_cli_finish(WEFT_EXIT_OK);
    }
    weft_info_destroy(info);
    weft_options_destroy(options);
    return exit_code;
}
