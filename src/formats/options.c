/*
 * What every reader of the option tables needs: finding rows, defaults, checks of single values and of whole structs,
 * and the nearest name to a misspelt one.
 *
 * Invariant: a struct that weft_options_init filled in passes weft_options_check but for what is required.
 */
#include "formats/option.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define NAME_MAX_BYTES 64

/* ---- rows ---- */

const weft_option_spec *weft_i_option_spec(weft_command command)
{
    switch (command) {
    case WEFT_COMMAND_TRAIN:
        return &weft_i_option_spec_train;
    case WEFT_COMMAND_EVAL:
        return &weft_i_option_spec_eval;
    case WEFT_COMMAND_GENERATE:
        return &weft_i_option_spec_generate;
    case WEFT_COMMAND_PROBE:
        return &weft_i_option_spec_probe;
    case WEFT_COMMAND_INFO:
        return &weft_i_option_spec_info;
    case WEFT_COMMAND_DIFF:
        return &weft_i_option_spec_diff;
    case WEFT_COMMAND_TOKENIZE:
        return &weft_i_option_spec_tokenize;
    case WEFT_COMMAND_CHECKPOINT:
        return &weft_i_option_spec_checkpoint;
    case WEFT_COMMAND_SIMULATE:
        return &weft_i_option_spec_simulate;
    case WEFT_COMMAND_LAYOUT:
        return &weft_i_option_spec_layout;
    case WEFT_COMMAND_COUNT:
        break;
    }
    return NULL;
}

const weft_option *weft_i_option_at(const weft_option_spec *spec, size_t i, size_t *base)
{
    for (size_t g = 0; g < spec->n_groups; g++) {
        if (i < spec->groups[g].n_options) {
            *base = spec->groups[g].base;
            return &spec->groups[g].options[i];
        }
        i -= spec->groups[g].n_options;
    }
    return NULL;
}

/* ---- texts about a row ---- */

const char *weft_i_option_argument(const weft_option *o)
{
    if (o->argument != NULL)
        return o->argument;
    if (o->type == WEFT_OPTION_CHOICE)
        return o->choices;
    if (o->type == WEFT_OPTION_SWITCH)
        return "on|off";
    return o->type == WEFT_OPTION_REAL ? "X" : "N";
}

const char *weft_i_option_default(const weft_option *o)
{
    const char *text = o->shown != NULL ? o->shown : o->fallback;
    if (text == NULL && o->type == WEFT_OPTION_SWITCH)
        return "off";
    return text == NULL || text[0] == '\0' ? NULL : text;
}

/* "a number >= 0 and < 1" */
static void number_allowed(const weft_option *o, char *out, size_t size)
{
    const char *what = o->type == WEFT_OPTION_INT ? "a whole number" : "a number";
    const char *low = o->is_low_open ? ">" : ">=";
    const char *high = o->is_high_open ? "<" : "<=";
    if (o->high == 0)
        (void)snprintf(out, size, "%s %s %.10g", what, low, o->low);
    else
        (void)snprintf(out, size, "%s %s %.10g and %s %.10g", what, low, o->low, high, o->high);
}

static void choices_allowed(const weft_option *o, char *out, size_t size)
{
    const bool is_one = strchr(o->choices, '|') == NULL;
    int used = snprintf(out, size, "%s", is_one ? "" : "one of ");
    for (const char *c = o->choices; *c != '\0' && (size_t)used + 3 < size; c++) {
        if (*c == '|')
            out[used++] = ',';
        out[used++] = *c == '|' ? ' ' : *c;
    }
    out[used] = '\0';
}

const char *weft_i_option_allowed(const weft_option *o, char *out, size_t size)
{
    switch (o->type) {
    case WEFT_OPTION_INT:
    case WEFT_OPTION_REAL:
        number_allowed(o, out, size);
        break;
    case WEFT_OPTION_CHOICE:
        choices_allowed(o, out, size);
        break;
    case WEFT_OPTION_SWITCH:
        (void)snprintf(out, size, "on or off");
        break;
    case WEFT_OPTION_STRING:
    case WEFT_OPTION_MAYBE:
    case WEFT_OPTION_LIST:
    case WEFT_OPTION_EACH:
        (void)snprintf(out, size, "%s", weft_i_option_argument(o));
        break;
    }
    return out;
}

bool weft_i_option_in_range(const weft_option *o, double value)
{
    if (!isfinite(value))
        return false;
    if (o->is_low_open ? value <= o->low : value < o->low)
        return false;
    return o->high == 0 || (o->is_high_open ? value < o->high : value <= o->high);
}

bool weft_i_option_is_choice(const weft_option *o, const char *text)
{
    const size_t n = strchr(text, '|') == NULL ? strlen(text) : 0;
    for (const char *c = o->choices; n > 0 && c != NULL; c = strchr(c, '|')) {
        c += *c == '|';
        if (strncmp(c, text, n) == 0 && (c[n] == '|' || c[n] == '\0'))
            return true;
    }
    return false;
}

/* ---- whole structs ---- */

static void set_default(const weft_option *o, char *at, char *at_count)
{
    const char *text = o->fallback;
    switch (o->type) {
    case WEFT_OPTION_STRING:
    case WEFT_OPTION_MAYBE:
    case WEFT_OPTION_CHOICE:
        memcpy(at, &text, sizeof(text));
        break;
    case WEFT_OPTION_LIST:
    case WEFT_OPTION_EACH: {
        const char **none = NULL;
        const size_t zero = 0;
        memcpy(at, &none, sizeof(none));
        memcpy(at_count, &zero, sizeof(zero));
        break;
    }
    case WEFT_OPTION_INT: {
        int64_t value = 0;
        const bool is_number = text == NULL || weft_i_str_to_int64(text, &value);
        WEFT_ASSERT(is_number);
        (void)is_number;
        memcpy(at, &value, sizeof(value));
        break;
    }
    case WEFT_OPTION_REAL: {
        double value = 0;
        const bool is_number = text == NULL || weft_i_str_to_double(text, &value);
        WEFT_ASSERT(is_number);
        (void)is_number;
        memcpy(at, &value, sizeof(value));
        break;
    }
    case WEFT_OPTION_SWITCH: {
        const bool value = text != NULL && strcmp(text, "on") == 0;
        memcpy(at, &value, sizeof(value));
        break;
    }
    }
}

static void init_rows(const weft_option_spec *spec, char *values)
{
    size_t base = 0;
    const weft_option *o;
    for (size_t i = 0; spec != NULL && (o = weft_i_option_at(spec, i, &base)) != NULL; i++) {
        set_default(o, values + base + o->offset, values + base + o->offset_count);
    }
}

void weft_options_init(weft_command command, void *values)
{
    init_rows(weft_i_option_spec(command), values);
}

void weft_train_options_init(weft_train_options *o)
{
    weft_options_init(WEFT_COMMAND_TRAIN, o);
}

void weft_layout_options_init(weft_layout_options *o)
{
    const weft_option_group groups[] = {
        {"", 0, weft_i_options_layout, WEFT_OPTIONS_LAYOUT},
        {"", 0, weft_i_options_compute, WEFT_OPTIONS_COMPUTE},
    };
    const weft_option_spec spec = {.groups = groups, .n_groups = WEFT_COUNT_OF(groups)};
    init_rows(&spec, (char *)o);
}

static weft_status check_text(const weft_option *o, const char *text)
{
    char allowed[256];
    if (o->is_required && (text == NULL || text[0] == '\0'))
        WEFT_FAIL(WEFT_STATUS_ARG, "--%s is needed: %s", o->name,
                  weft_i_option_allowed(o, allowed, sizeof(allowed)));
    if (o->type != WEFT_OPTION_CHOICE || (text != NULL && strcmp(text, o->fallback) == 0))
        return WEFT_OK;
    if (text == NULL || !weft_i_option_is_choice(o, text))
        WEFT_FAIL(WEFT_STATUS_ARG, "--%s %s is not possible: %s is needed", o->name,
                  text == NULL ? "NULL" : text, weft_i_option_allowed(o, allowed, sizeof(allowed)));
    return WEFT_OK;
}

static weft_status check_number(const weft_option *o, double value)
{
    double usual = 0;
    if (o->fallback != NULL)
        (void)weft_i_str_to_double(o->fallback, &usual);
    char allowed[256];
    if (value != usual && !weft_i_option_in_range(o, value))
        WEFT_FAIL(WEFT_STATUS_ARG, "--%s %.10g is not possible: %s is needed", o->name, value,
                  weft_i_option_allowed(o, allowed, sizeof(allowed)));
    return WEFT_OK;
}

static weft_status check_row(const weft_option *o, const char *at, const char *at_count)
{
    switch (o->type) {
    case WEFT_OPTION_STRING:
    case WEFT_OPTION_MAYBE:
    case WEFT_OPTION_CHOICE: {
        const char *text;
        memcpy(&text, at, sizeof(text));
        return check_text(o, text);
    }
    case WEFT_OPTION_LIST:
    case WEFT_OPTION_EACH: {
        size_t n;
        memcpy(&n, at_count, sizeof(n));
        if (o->is_required && n == 0)
            WEFT_FAIL(WEFT_STATUS_ARG, "--%s is needed: %s", o->name, weft_i_option_argument(o));
        return WEFT_OK;
    }
    case WEFT_OPTION_INT: {
        int64_t value;
        memcpy(&value, at, sizeof(value));
        return check_number(o, (double)value);
    }
    case WEFT_OPTION_REAL: {
        double value;
        memcpy(&value, at, sizeof(value));
        return check_number(o, value);
    }
    case WEFT_OPTION_SWITCH:
        break;
    }
    return WEFT_OK;
}

weft_status weft_options_check(weft_command command, const void *values)
{
    const weft_option_spec *spec = weft_i_option_spec(command);
    if (spec == NULL || values == NULL)
        WEFT_FAIL(WEFT_STATUS_ARG, "options of command %d were asked for", (int)command);
    const char *bytes = values;
    size_t base = 0;
    const weft_option *o;
    for (size_t i = 0; (o = weft_i_option_at(spec, i, &base)) != NULL; i++) {
        WEFT_TRY(check_row(o, bytes + base + o->offset, bytes + base + o->offset_count));
    }
    return WEFT_OK;
}

/* ---- names ---- */

const char *weft_command_name(weft_command command)
{
    const weft_option_spec *spec = weft_i_option_spec(command);
    return spec == NULL ? "" : spec->name;
}

const char *weft_command_summary(weft_command command)
{
    const weft_option_spec *spec = weft_i_option_spec(command);
    return spec == NULL ? "" : spec->summary;
}

weft_command weft_command_from_name(const char *name)
{
    int c = 0;
    while (c < WEFT_COMMAND_COUNT && strcmp(weft_command_name((weft_command)c), name) != 0)
        c++;
    return (weft_command)c;
}

static char folded(char c)
{
    return c == '_' ? '-' : (char)tolower((unsigned char)c);
}

size_t weft_i_option_distance(const char *a, const char *b)
{
    const size_t n_a = strlen(a);
    const size_t n_b = strlen(b);
    if (n_a >= NAME_MAX_BYTES || n_b >= NAME_MAX_BYTES)
        return SIZE_MAX;
    size_t row[NAME_MAX_BYTES]; /* edits from a[0..i) to b[0..j) */
    for (size_t j = 0; j <= n_b; j++)
        row[j] = j;
    for (size_t i = 1; i <= n_a; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            const size_t replaced = diagonal + (folded(a[i - 1]) != folded(b[j - 1]));
            diagonal = row[j];
            row[j] = WEFT_MIN(replaced, WEFT_MIN(row[j], row[j - 1]) + 1);
        }
    }
    return row[n_b];
}

/* Near enough to be what was meant: a third of the letters wrong at most, two in a short name. */
static bool is_near(size_t distance, const char *name)
{
    const size_t third = strlen(name) / 3;
    return distance <= WEFT_MAX(third, (size_t)2) && distance < strlen(name);
}

const char *weft_command_nearest(const char *name)
{
    const char *best = NULL;
    size_t best_distance = SIZE_MAX;
    for (int c = 0; c < WEFT_COMMAND_COUNT; c++) {
        const char *candidate = weft_command_name((weft_command)c);
        const size_t distance = weft_i_option_distance(name, candidate);
        if (distance < best_distance && is_near(distance, candidate)) {
            best = candidate;
            best_distance = distance;
        }
    }
    return best;
}

/* What other programs call it. */
static const struct {
    const char *other;
    const char *ours;
} other_names[] = {
    {"learning-rate", "lr"},
    {"batch-size", "micro-batch-size"},
    {"per-device-train-batch-size", "micro-batch-size"},
    {"max-steps", "train-steps"},
    {"train-iters", "train-steps"},
    {"iterations", "train-steps"},
    {"block-size", "seq-length"},
    {"max-seq-length", "seq-length"},
    {"context-length", "seq-length"},
    {"warmup-steps", "lr-warmup-steps"},
    {"lr-scheduler-type", "lr-schedule"},
    {"max-grad-norm", "clip-grad"},
    {"grad-clip", "clip-grad"},
    {"output-dir", "out"},
    {"save-steps", "save-interval"},
    {"eval-steps", "eval-interval"},
    {"threads", "threads-per-rank"},
    {"precision", "dtype"},
    {"bf16", "dtype"},
    {"max-length", "max-new-tokens"},
    {"tensor-model-parallel-size", "tp"},
    {"pipeline-model-parallel-size", "pp"},
};

static const weft_option *find_named(const weft_option_spec *spec, const char *name)
{
    size_t base = 0;
    const weft_option *o;
    for (size_t i = 0; (o = weft_i_option_at(spec, i, &base)) != NULL; i++) {
        if ((!o->is_positional || o->is_also_named) && weft_i_option_distance(o->name, name) == 0)
            return o;
    }
    return NULL;
}

const char *weft_i_option_nearest(const weft_option_spec *spec, const char *name)
{
    for (size_t i = 0; i < WEFT_COUNT_OF(other_names); i++) {
        if (weft_i_option_distance(name, other_names[i].other) == 0 &&
            find_named(spec, other_names[i].ours) != NULL)
            return other_names[i].ours;
    }
    const char *best = NULL;
    size_t best_distance = SIZE_MAX;
    size_t base = 0;
    const weft_option *o;
    for (size_t i = 0; (o = weft_i_option_at(spec, i, &base)) != NULL; i++) {
        const size_t distance = weft_i_option_distance(name, o->name);
        if (distance < best_distance && is_near(distance, o->name) &&
            (!o->is_positional || o->is_also_named)) {
            best = o->name;
            best_distance = distance;
        }
    }
    return best;
}
