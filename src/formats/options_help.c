/*
 * The text of --help, from the tables: usage, what the command does, options by group with their defaults, examples.
 *
 * Invariant: no line is longer than the columns asked for, unless a single word is.
 */
#include "formats/option.h"

#include <stdio.h>
#include <string.h>

#define NAME_COLUMN 2
#define TEXT_COLUMN 30
#define MIN_COLUMNS 60
#define LINE_BYTES 512

/* Puts words into lines. */
typedef struct wrap {
    char text[LINE_BYTES];
    size_t n;      /* bytes in the line */
    size_t indent; /* of the lines that follow */
    size_t columns;
    bool has_word; /* on this line, after its indent */
    weft_line_fn *line;
    void *user;
} wrap;

static void flush(wrap *w)
{
    if (w->has_word)
        w->line(w->user, w->text);
    w->n = 0;
    w->has_word = false;
}

static void pad_to(wrap *w, size_t column)
{
    while (w->n < column && w->n + 1 < LINE_BYTES)
        w->text[w->n++] = ' ';
    w->text[w->n] = '\0';
}

static void add_word(wrap *w, const char *word, size_t n)
{
    if (w->has_word && w->n + 1 + n > w->columns)
        flush(w);
    if (w->n == 0)
        pad_to(w, w->indent);
    else if (w->has_word && w->n > 0 && w->text[w->n - 1] != ' ')
        pad_to(w, w->n + 1);
    n = WEFT_MIN(n, LINE_BYTES - 1 - w->n);
    memcpy(w->text + w->n, word, n);
    w->n += n;
    w->text[w->n] = '\0';
    w->has_word = true;
}

/* The tables write commands as manual pages do; help writes them as they are typed: weft-eval(1) as "weft eval". */
static void add_command(wrap *w, const char *word, size_t n)
{
    char text[LINE_BYTES];
    const size_t n_name = strcspn(word, "(") - 5;
    (void)snprintf(text, sizeof(text), "`weft %.*s`%.*s", (int)n_name, word + 5,
                   (int)(n - n_name - 8), word + n_name + 8);
    add_word(w, text, strlen(text));
}

static void add_words(wrap *w, const char *text)
{
    while (*text != '\0') {
        const size_t n = strcspn(text, " ");
        const char *section = strstr(text, "(1)");
        if (strncmp(text, "weft-", 5) == 0 && section != NULL && section < text + n)
            add_command(w, text, n);
        else if (n > 0)
            add_word(w, text, n);
        text += n + (text[n] == ' ');
    }
}

static void blank(wrap *w)
{
    flush(w);
    w->line(w->user, "");
}

static void paragraph(wrap *w, size_t indent, const char *text)
{
    w->indent = indent;
    add_words(w, text);
    flush(w);
}

static void usage(wrap *w, const weft_option_spec *spec)
{
    char text[LINE_BYTES];
    (void)snprintf(text, sizeof(text), "Usage: weft %s", spec->name);
    w->indent = 0;
    add_words(w, text);
    w->indent = strlen(text) + 1;
    if (spec->takes_run_file)
        add_words(w, "[RUN.json]");
    size_t base = 0;
    const weft_option *o;
    for (size_t i = 0; (o = weft_i_option_at(spec, i, &base)) != NULL; i++) {
        if (!o->is_required || o->is_positional)
            continue;
        (void)snprintf(text, sizeof(text), "--%s %s", o->name, weft_i_option_argument(o));
        add_word(w, text, strlen(text));
    }
    add_words(w, "[OPTION...]");
    for (size_t i = 0; (o = weft_i_option_at(spec, i, &base)) != NULL; i++) {
        if (o->is_positional)
            add_words(w, weft_i_option_argument(o));
    }
    flush(w);
}

/* "--lr X", "--grads", "--resume [DIR]", "MODEL" */
static void option_name(const weft_option *o, char *out, size_t size)
{
    const char *argument = weft_i_option_argument(o);
    if (o->is_positional)
        (void)snprintf(out, size, "%s", argument);
    else if (o->type == WEFT_OPTION_SWITCH)
        (void)snprintf(out, size, "--%s [on|off]", o->name);
    else if (o->type == WEFT_OPTION_MAYBE)
        (void)snprintf(out, size, "--%s [%s]", o->name, argument);
    else
        (void)snprintf(out, size, "--%s %s", o->name, argument);
}

static void option_text(wrap *w, const weft_option *o)
{
    char text[LINE_BYTES];
    option_name(o, text, sizeof(text));
    pad_to(w, NAME_COLUMN);
    w->indent = TEXT_COLUMN;
    add_word(w, text, strlen(text));
    if (w->n + 2 > TEXT_COLUMN)
        flush(w);
    pad_to(w, TEXT_COLUMN);
    add_words(w, o->help);
    const char *usual = weft_i_option_default(o);
    if (usual != NULL && !(o->type == WEFT_OPTION_SWITCH && strcmp(usual, "off") == 0)) {
        (void)snprintf(text, sizeof(text), "[%s]", usual);
        add_words(w, text);
    }
    flush(w);
}

void weft_options_help(weft_command command, int columns, weft_line_fn *line, void *user)
{
    const weft_option_spec *spec = weft_i_option_spec(command);
    if (spec == NULL)
        return;
    const size_t width = (size_t)WEFT_MIN(WEFT_MAX(columns, MIN_COLUMNS), LINE_BYTES - 1);
    wrap w = {.columns = width, .line = line, .user = user};
    char title[LINE_BYTES];
    (void)snprintf(title, sizeof(title), "weft %s - %s", spec->name, spec->summary);
    paragraph(&w, 0, title);
    blank(&w);
    usage(&w, spec);
    for (size_t i = 0; spec->description[i] != NULL; i++) {
        blank(&w);
        paragraph(&w, 0, spec->description[i]);
    }
    for (size_t g = 0; g < spec->n_groups; g++) {
        blank(&w);
        (void)snprintf(title, sizeof(title),
                       g == 0 ? "%s ([x]: the default is x):" : "%s:", spec->groups[g].title);
        paragraph(&w, 0, title);
        for (size_t i = 0; i < spec->groups[g].n_options; i++)
            option_text(&w, &spec->groups[g].options[i]);
    }
    blank(&w);
    paragraph(&w, 0, "Examples:");
    for (size_t i = 0; spec->examples[i] != NULL; i += 2) {
        paragraph(&w, 2, spec->examples[i]);
        paragraph(&w, 6, spec->examples[i + 1]);
    }
}
