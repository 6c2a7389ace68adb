/*
 * Arguments and run configurations, read into an options struct by the command's table.
 *
 * Invariants: a value is checked when it is read, with the option and what is allowed in the message; what the command
 * line gives replaces what the run configuration gives, whole lists included. Strings are borrowed from the arguments
 * or from the parsed JSON, which weft_options keeps alive.
 */
#include "formats/option.h"

#include "base/file.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define RUN_FILE_MAX_BYTES ((size_t)16 << 20)

typedef enum origin { ORIGIN_NONE, ORIGIN_FILE, ORIGIN_LINE } origin;

struct weft_options {
    weft_alloc *alloc;
    const weft_option_spec *spec;
    char *values;
    origin *given; /* of every row */
    size_t n_rows;
    const char ***lists; /* of every row; room for every argument */
    size_t n_room;
    json_t *run_file;
    const char *run_path;
    size_t n_positional;
};

/* One row, its place in the struct, and how messages call it. */
typedef struct slot {
    const weft_option *row;
    size_t index;
    char *at;
    char *at_count;
    char label[WEFT_PATH_MAX / 4];
} slot;

/* ---- single values ---- */

static weft_status fail_value(const slot *s, const char *text)
{
    char allowed[256];
    WEFT_FAIL(WEFT_STATUS_ARG, "%s %s is not possible: %s is needed", s->label, text,
              weft_i_option_allowed(s->row, allowed, sizeof(allowed)));
}

static weft_status set_int(const slot *s, int64_t value)
{
    char text[32];
    (void)snprintf(text, sizeof(text), "%lld", (long long)value);
    if (!weft_i_option_in_range(s->row, (double)value))
        return fail_value(s, text);
    memcpy(s->at, &value, sizeof(value));
    return WEFT_OK;
}

static weft_status set_real(const slot *s, double value)
{
    char text[32];
    (void)snprintf(text, sizeof(text), "%.10g", value);
    if (!weft_i_option_in_range(s->row, value))
        return fail_value(s, text);
    memcpy(s->at, &value, sizeof(value));
    return WEFT_OK;
}

static weft_status set_string(const slot *s, const char *text)
{
    if (s->row->type == WEFT_OPTION_CHOICE && !weft_i_option_is_choice(s->row, text))
        return fail_value(s, text[0] == '\0' ? "\"\"" : text);
    if (s->row->type == WEFT_OPTION_STRING && s->row->is_required && text[0] == '\0')
        return fail_value(s, "\"\"");
    memcpy(s->at, &text, sizeof(text));
    return WEFT_OK;
}

static weft_status add_to_list(weft_options *p, const slot *s, const char *text, size_t n_room)
{
    if (p->lists[s->index] == NULL) {
        void *memory = NULL;
        WEFT_TRY(weft_i_alloc_new(p->alloc, n_room, sizeof(const char *), &memory));
        p->lists[s->index] = memory;
    }
    size_t n;
    memcpy(&n, s->at_count, sizeof(n));
    WEFT_ASSERT(n < n_room);
    p->lists[s->index][n++] = text;
    memcpy(s->at, &p->lists[s->index], sizeof(const char **));
    memcpy(s->at_count, &n, sizeof(n));
    return WEFT_OK;
}

static void clear_list(weft_options *p, const slot *s)
{
    const size_t zero = 0;
    const char **none = NULL;
    weft_i_alloc_put(p->alloc, p->lists[s->index]);
    p->lists[s->index] = NULL;
    memcpy(s->at, &none, sizeof(none));
    memcpy(s->at_count, &zero, sizeof(zero));
}

/* One text, as the command line has it. */
static weft_status set_text(weft_options *p, const slot *s, const char *text)
{
    switch (s->row->type) {
    case WEFT_OPTION_INT: {
        int64_t value;
        return weft_i_str_to_int64(text, &value) ? set_int(s, value) : fail_value(s, text);
    }
    case WEFT_OPTION_REAL: {
        double value;
        return weft_i_str_to_double(text, &value) ? set_real(s, value) : fail_value(s, text);
    }
    case WEFT_OPTION_SWITCH: {
        const bool value = strcmp(text, "on") == 0;
        if (!value && strcmp(text, "off") != 0)
            return fail_value(s, text);
        memcpy(s->at, &value, sizeof(value));
        return WEFT_OK;
    }
    case WEFT_OPTION_LIST:
    case WEFT_OPTION_EACH:
        return add_to_list(p, s, text, p->n_room);
    case WEFT_OPTION_STRING:
    case WEFT_OPTION_MAYBE:
    case WEFT_OPTION_CHOICE:
        break;
    }
    return set_string(s, text);
}

/* ---- finding rows ---- */

static slot slot_of(weft_options *p, size_t index)
{
    size_t base = 0;
    const weft_option *row = weft_i_option_at(p->spec, index, &base);
    WEFT_ASSERT(row != NULL);
    return (slot){
        .row = row,
        .index = index,
        .at = p->values + base + row->offset,
        .at_count = p->values + base + row->offset_count,
    };
}

/* Row named by the n bytes at `name`; `separator` is what words are joined with there. */
static bool find_row(weft_options *p, const char *name, size_t n, char separator, slot *out)
{
    for (size_t i = 0; i < p->n_rows; i++) {
        const slot s = slot_of(p, i);
        if ((s.row->is_positional && !s.row->is_also_named) || strlen(s.row->name) != n)
            continue;
        size_t k = 0;
        while (k < n && (s.row->name[k] == '-' ? separator : s.row->name[k]) == name[k])
            k++;
        if (k == n) {
            *out = s;
            return true;
        }
    }
    return false;
}

/* ---- the command line ---- */

typedef struct line {
    const char *const *argv;
    int argc;
    int at;
} line;

static bool is_option(const char *text)
{
    return strncmp(text, "--", 2) == 0;
}

static bool has_value(const line *l)
{
    return l->at < l->argc && !is_option(l->argv[l->at]);
}

static weft_status fail_unknown(const weft_options *p, const char *name, size_t n)
{
    char text[64];
    (void)snprintf(text, sizeof(text), "%.*s", (int)WEFT_MIN(n, (size_t)63), name);
    const char *nearest = weft_i_option_nearest(p->spec, text);
    if (nearest != NULL)
        WEFT_FAIL(WEFT_STATUS_ARG, "there is no option --%s; the nearest is --%s", text, nearest);
    WEFT_FAIL(WEFT_STATUS_ARG, "there is no option --%s (`weft %s --help` lists them)", text,
              p->spec->name);
}

/* What the command line gives replaces the run configuration's list. */
static void mark_given(weft_options *p, const slot *s)
{
    const bool is_list = s->row->type == WEFT_OPTION_LIST || s->row->type == WEFT_OPTION_EACH;
    if (is_list && p->given[s->index] == ORIGIN_FILE)
        clear_list(p, s);
    p->given[s->index] = ORIGIN_LINE;
}

static weft_status take_value(weft_options *p, const slot *s, line *l)
{
    const weft_option_type type = s->row->type;
    if (type == WEFT_OPTION_SWITCH) {
        const bool is_said = l->at < l->argc && (strcmp(l->argv[l->at], "on") == 0 ||
                                                 strcmp(l->argv[l->at], "off") == 0);
        return set_text(p, s, is_said ? l->argv[l->at++] : "on");
    }
    if (type == WEFT_OPTION_MAYBE)
        return set_text(p, s, has_value(l) ? l->argv[l->at++] : "");
    if (!has_value(l)) {
        char allowed[256];
        WEFT_FAIL(WEFT_STATUS_ARG,
                  "%s needs a value: %s (one that starts with two dashes is written %s=VALUE)",
                  s->label, weft_i_option_allowed(s->row, allowed, sizeof(allowed)), s->label);
    }
    do {
        WEFT_TRY(set_text(p, s, l->argv[l->at++]));
    } while (type == WEFT_OPTION_LIST && has_value(l));
    return WEFT_OK;
}

static weft_status take_option(weft_options *p, line *l)
{
    const char *name = l->argv[l->at++] + 2;
    const size_t n = strcspn(name, "=");
    slot s;
    if (!find_row(p, name, n, '-', &s))
        return fail_unknown(p, name, n);
    (void)snprintf(s.label, sizeof(s.label), "--%s", s.row->name);
    mark_given(p, &s);
    return name[n] == '=' ? set_text(p, &s, name + n + 1) : take_value(p, &s, l);
}

static weft_status take_positional(weft_options *p, const char *text)
{
    size_t n_before = 0;
    for (size_t i = 0; i < p->n_rows; i++) {
        slot s = slot_of(p, i);
        if (!s.row->is_positional)
            continue;
        if (s.row->type != WEFT_OPTION_LIST && n_before++ < p->n_positional)
            continue;
        p->n_positional += s.row->type != WEFT_OPTION_LIST;
        (void)snprintf(s.label, sizeof(s.label), "%s", weft_i_option_argument(s.row));
        mark_given(p, &s);
        return set_text(p, &s, text);
    }
    WEFT_FAIL(WEFT_STATUS_ARG,
              "\"%s\" is one argument too many (`weft %s --help` says what it takes)", text,
              p->spec->name);
}

static weft_status parse_line(weft_options *p, line *l, bool *is_help)
{
    bool is_only_positional = false;
    while (l->at < l->argc) {
        const char *text = l->argv[l->at];
        if (is_only_positional || text[0] != '-' || text[1] == '\0') {
            l->at++;
            WEFT_TRY(take_positional(p, text));
        } else if (strcmp(text, "--") == 0) {
            l->at++;
            is_only_positional = true;
        } else if (strcmp(text, "-h") == 0) {
            *is_help = true;
            return WEFT_OK;
        } else if (is_option(text)) {
            WEFT_TRY(take_option(p, l));
        } else {
            WEFT_FAIL(WEFT_STATUS_ARG, "there is no option %s (`weft %s --help` lists them)", text,
                      p->spec->name);
        }
    }
    return WEFT_OK;
}

/* ---- the run configuration ---- */

static weft_status fail_json_value(const slot *s, const json_t *value)
{
    char text[128] = "a value of another type";
    if (json_is_string(value))
        (void)snprintf(text, sizeof(text), "\"%.100s\"", json_string_value(value));
    else if (json_is_integer(value))
        (void)snprintf(text, sizeof(text), "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        (void)snprintf(text, sizeof(text), "%.10g", json_real_value(value));
    else if (json_is_boolean(value))
        (void)snprintf(text, sizeof(text), "%s", json_is_true(value) ? "true" : "false");
    char allowed[256];
    (void)weft_i_option_allowed(s->row, allowed, sizeof(allowed));
    WEFT_FAIL(WEFT_STATUS_ARG, "%s %s is not possible: %s is needed", s->label, text,
              s->row->type == WEFT_OPTION_SWITCH ? "true or false" : allowed);
}

static weft_status set_json_list(weft_options *p, const slot *s, const json_t *value)
{
    if (json_is_string(value))
        return add_to_list(p, s, json_string_value(value), 1);
    if (!json_is_array(value))
        return fail_json_value(s, value);
    const size_t n = json_array_size(value);
    for (size_t i = 0; i < n; i++) {
        const char *text = json_string_value(json_array_get(value, i));
        if (text == NULL)
            return fail_json_value(s, json_array_get(value, i));
        WEFT_TRY(add_to_list(p, s, text, n));
    }
    return WEFT_OK;
}

static weft_status set_json(weft_options *p, const slot *s, const json_t *value)
{
    switch (s->row->type) {
    case WEFT_OPTION_INT:
        return json_is_integer(value) ? set_int(s, json_integer_value(value))
                                      : fail_json_value(s, value);
    case WEFT_OPTION_REAL:
        return json_is_number(value) ? set_real(s, json_number_value(value))
                                     : fail_json_value(s, value);
    case WEFT_OPTION_SWITCH: {
        if (!json_is_boolean(value))
            return fail_json_value(s, value);
        const bool is_on = json_is_true(value);
        memcpy(s->at, &is_on, sizeof(is_on));
        return WEFT_OK;
    }
    case WEFT_OPTION_LIST:
    case WEFT_OPTION_EACH:
        return set_json_list(p, s, value);
    case WEFT_OPTION_MAYBE:
        if (json_is_boolean(value))
            return json_is_true(value) ? set_string(s, "") : WEFT_OK;
        break;
    case WEFT_OPTION_STRING:
    case WEFT_OPTION_CHOICE:
        break;
    }
    return json_is_string(value) ? set_string(s, json_string_value(value))
                                 : fail_json_value(s, value);
}

static weft_status take_key(weft_options *p, const char *key, const json_t *value)
{
    slot s;
    if (!find_row(p, key, strlen(key), '_', &s)) {
        char nearest[64] = "";
        const char *name = weft_i_option_nearest(p->spec, key);
        if (name != NULL)
            (void)snprintf(nearest, sizeof(nearest), "%s", name);
        for (char *c = nearest; *c != '\0'; c++)
            *c = *c == '-' ? '_' : *c;
        if (name != NULL)
            WEFT_FAIL(WEFT_STATUS_ARG, "%s: there is no key \"%.60s\"; the nearest is \"%s\"",
                      p->run_path, key, nearest);
        WEFT_FAIL(WEFT_STATUS_ARG,
                  "%s: there is no key \"%.60s\" (keys are the options of `weft %s --help`)",
                  p->run_path, key, p->spec->name);
    }
    if (json_is_null(value))
        return WEFT_OK;
    (void)snprintf(s.label, sizeof(s.label), "%.700s: \"%s\":", p->run_path, key);
    p->given[s.index] = ORIGIN_FILE;
    return set_json(p, &s, value);
}

static weft_status parse_run_file(weft_options *p, const char *path)
{
    char *text = NULL;
    size_t n_bytes = 0;
    p->run_path = path;
    WEFT_TRY(weft_i_file_read(p->alloc, path, RUN_FILE_MAX_BYTES, &text, &n_bytes));
    json_error_t error;
    p->run_file = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES, &error);
    weft_i_alloc_put(p->alloc, text);
    if (p->run_file == NULL && error.line < 0)
        WEFT_FAIL(WEFT_STATUS_NOMEM, "%s: no memory to parse it (%zu bytes)", path, n_bytes);
    if (p->run_file == NULL)
        WEFT_FAIL(WEFT_STATUS_FORMAT, "%s:%d:%d: no JSON: %s", path, error.line, error.column,
                  error.text);
    if (!json_is_object(p->run_file))
        WEFT_FAIL(WEFT_STATUS_FORMAT, "%s: a run configuration is a JSON object", path);
    const char *key;
    json_t *value;
    json_object_foreach(p->run_file, key, value)
    {
        WEFT_TRY(take_key(p, key, value));
    }
    return WEFT_OK;
}

static bool is_run_file(const weft_options *p, const char *text)
{
    const size_t n = strlen(text);
    return p->spec->takes_run_file && text[0] != '-' && n > 5 && strcmp(text + n - 5, ".json") == 0;
}

/* ---- the whole ---- */

static weft_status check_required(weft_options *p)
{
    for (size_t i = 0; i < p->n_rows; i++) {
        const slot s = slot_of(p, i);
        if (!s.row->is_required || p->given[i] != ORIGIN_NONE)
            continue;
        if (s.row->is_positional)
            WEFT_FAIL(WEFT_STATUS_ARG, "weft %s needs %s (`weft %s --help` explains it)",
                      p->spec->name, weft_i_option_argument(s.row), p->spec->name);
        WEFT_FAIL(WEFT_STATUS_ARG, "weft %s needs --%s %s (`weft %s --help` explains it)",
                  p->spec->name, s.row->name, weft_i_option_argument(s.row), p->spec->name);
    }
    return WEFT_OK;
}

static weft_status parse_all(weft_options *p, bool *is_help, int argc, const char *const *argv)
{
    line l = {.argv = argv, .argc = argc};
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        *is_help = *is_help || strcmp(argv[i], "--help") == 0;
    if (*is_help)
        return WEFT_OK;
    if (argc > 0 && is_run_file(p, argv[0]))
        WEFT_TRY(parse_run_file(p, argv[l.at++]));
    WEFT_TRY(parse_line(p, &l, is_help));
    return *is_help ? WEFT_OK : check_required(p);
}

static weft_status create(weft_options **out, const weft_option_spec *spec, void *values, int argc)
{
    weft_alloc *alloc = NULL;
    WEFT_TRY(weft_i_alloc_create(&alloc, false, 0));
    void *memory = NULL;
    weft_status st = weft_i_alloc_new(alloc, 1, sizeof(weft_options), &memory);
    if (st != WEFT_OK) {
        weft_i_alloc_destroy(alloc);
        return st;
    }
    weft_options *p = memory;
    *p = (weft_options){.alloc = alloc, .spec = spec, .values = values, .n_room = (size_t)argc};
    size_t base = 0;
    while (weft_i_option_at(spec, p->n_rows, &base) != NULL)
        p->n_rows++;
    WEFT_TRY_GOTO(st, weft_i_alloc_new(alloc, p->n_rows, sizeof(origin), &memory), failed);
    p->given = memory;
    WEFT_TRY_GOTO(st, weft_i_alloc_new(alloc, p->n_rows, sizeof(const char **), &memory), failed);
    p->lists = memory;
    *out = p;
    return WEFT_OK;
failed:
    weft_options_destroy(p);
    return st;
}

weft_status weft_options_parse(weft_options **out,
                               void *values,
                               bool *is_help,
                               weft_command command,
                               int argc,
                               const char *const *argv)
{
    *out = NULL;
    *is_help = false;
    const weft_option_spec *spec = weft_i_option_spec(command);
    if (spec == NULL || argc < 0)
        WEFT_FAIL(WEFT_STATUS_ARG, "options of command %d were asked for", (int)command);
    weft_options_init(command, values);
    weft_options *p = NULL;
    WEFT_TRY(create(&p, spec, values, argc));
    const weft_status st = parse_all(p, is_help, argc, argv);
    if (st != WEFT_OK) {
        weft_options_destroy(p);
        return st;
    }
    *out = p;
    return WEFT_OK;
}

void weft_options_destroy(weft_options *options)
{
    if (options == NULL)
        return;
    weft_alloc *alloc = options->alloc;
    for (size_t i = 0; options->lists != NULL && i < options->n_rows; i++)
        weft_i_alloc_put(alloc, options->lists[i]);
    weft_i_alloc_put(alloc, options->lists);
    weft_i_alloc_put(alloc, options->given);
    json_decref(options->run_file);
    weft_i_alloc_put(alloc, options);
    weft_i_alloc_destroy(alloc);
}

bool weft_options_is_given(const weft_options *options, const char *name)
{
    size_t base = 0;
    const weft_option *o;
    for (size_t i = 0; (o = weft_i_option_at(options->spec, i, &base)) != NULL; i++) {
        if (strcmp(o->name, name) == 0)
            return options->given[i] != ORIGIN_NONE;
    }
    return false;
}
