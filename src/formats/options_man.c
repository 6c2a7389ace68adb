/*
 * The manual pages, from the same tables as --help, in mdoc (mandoc's mdoc(7)): they are generated, so they cannot
 * say another thing than the program does.
 */
#include "formats/option.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define LINE_BYTES 512
#define DATE "July 1, 2025"

typedef struct page {
    weft_line_fn *line;
    void *user;
    char text[LINE_BYTES]; /* the line being put together */
    size_t n;
} page;

static void put(page *p, const char *line)
{
    p->line(p->user, line);
}

static void flush(page *p)
{
    if (p->n > 0)
        put(p, p->text);
    p->n = 0;
}

static void add(page *p, const char *text)
{
    const size_t n = WEFT_MIN(strlen(text), LINE_BYTES - 1 - p->n);
    memcpy(p->text + p->n, text, n);
    p->n += n;
    p->text[p->n] = '\0';
}

/* One byte of plain text: what roff would take for something else is escaped. */
static void add_escaped(page *p, char c)
{
    if (c == '\\')
        add(p, "\\e");
    else if (c == '-')
        add(p, "\\-");
    else
        add(p, (const char[]){c, '\0'});
}

/* Sentences, each on a line of its own, as mdoc wants them; cross-references "weft-x(1)" become links. */
static void sentences(page *p, const char *text)
{
    while (*text != '\0') {
        const size_t n = strcspn(text, " ");
        size_t name = n;
        if (strncmp(text, "weft-", 5) == 0) {
            name = strcspn(text, "(");
            if (name < n && strncmp(text + name, "(1)", 3) == 0) {
                flush(p);
                char link[LINE_BYTES];
                const int n_end = (int)(n - name - 3);
                (void)snprintf(link, sizeof(link), ".Xr %.*s 1%s%.*s", (int)name, text,
                               n_end > 0 ? " " : "", n_end, text + name + 3);
                put(p, link);
                text += n + (text[n] == ' ');
                continue;
            }
        }
        if (p->n == 0 && (*text == '.' || *text == '\''))
            add(p, "\\&");
        if (p->n > 0)
            add(p, " ");
        for (size_t i = 0; i < n; i++)
            add_escaped(p, text[i]);
        if (p->n > 62 || (n > 1 && (text[n - 1] == '.' || text[n - 1] == '?') && text[n] == ' '))
            flush(p);
        text += n + (text[n] == ' ');
    }
    flush(p);
}

/* An argument in mdoc: alternatives, ellipses and commas are only text. */
static void argument(page *p, const weft_option *o)
{
    add(p, " Ar ");
    const char *text = weft_i_option_argument(o);
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '|')
            add(p, "\\||\\|");
        else
            add_escaped(p, *c);
    }
}

static void option_line(page *p, const char *macro, const weft_option *o)
{
    add(p, macro);
    if (!o->is_positional) {
        add(p, "Fl \\-");
        for (const char *c = o->name; *c != '\0'; c++)
            add_escaped(p, *c);
    }
    if (o->is_positional) {
        add(p, "Ar ");
        for (const char *c = weft_i_option_argument(o); *c != '\0'; c++)
            add_escaped(p, *c);
    } else if (o->type == WEFT_OPTION_SWITCH || o->type == WEFT_OPTION_MAYBE) {
        add(p, " Oo");
        argument(p, o);
        add(p, " Oc");
    } else {
        argument(p, o);
    }
    flush(p);
}

static void head(page *p, const char *name, const char *summary)
{
    char line[LINE_BYTES];
    put(p, ".\\\" Made by `weft help --man` from the tables of options; changes belong there.");
    put(p, ".Dd " DATE);
    (void)snprintf(line, sizeof(line), ".Dt %s 1", name);
    for (char *c = line + 4; *c != '\0'; c++)
        *c = (char)toupper((unsigned char)*c);
    put(p, line);
    put(p, ".Os");
    put(p, ".Sh NAME");
    (void)snprintf(line, sizeof(line), ".Nm %s", name);
    put(p, line);
    (void)snprintf(line, sizeof(line), ".Nd %s", summary);
    put(p, line);
    put(p, ".Sh SYNOPSIS");
}

static void synopsis(page *p, const weft_option_spec *spec)
{
    char line[LINE_BYTES];
    put(p, ".Nm weft");
    (void)snprintf(line, sizeof(line), ".Cm %s", spec->name);
    put(p, line);
    if (spec->takes_run_file)
        put(p, ".Op Ar RUN.json");
    size_t base = 0;
    const weft_option *o;
    for (size_t i = 0; (o = weft_i_option_at(spec, i, &base)) != NULL; i++) {
        if (o->is_required && !o->is_positional)
            option_line(p, ".", o);
    }
    put(p, ".Op Ar OPTION ...");
    for (size_t i = 0; (o = weft_i_option_at(spec, i, &base)) != NULL; i++) {
        if (o->is_positional)
            option_line(p, ".", o);
    }
}

static void options(page *p, const weft_option_spec *spec)
{
    put(p, ".Sh OPTIONS");
    for (size_t g = 0; g < spec->n_groups; g++) {
        if (spec->n_groups > 1) {
            char line[LINE_BYTES];
            (void)snprintf(line, sizeof(line), ".Ss %s", spec->groups[g].title);
            put(p, line);
        }
        put(p, ".Bl -tag -width Ds");
        for (size_t i = 0; i < spec->groups[g].n_options; i++) {
            const weft_option *o = &spec->groups[g].options[i];
            option_line(p, ".It ", o);
            sentences(p, o->help);
            const char *usual = weft_i_option_default(o);
            if (usual == NULL || o->is_required)
                continue;
            char line[LINE_BYTES];
            (void)snprintf(line, sizeof(line), "Default: %s.", usual);
            sentences(p, line);
        }
        put(p, ".El");
    }
}

static void exit_status(page *p)
{
    static const char *const codes[][2] = {
        {"0", "All went well."},
        {"1", "A bug in weft."},
        {"2", "A wrong command line or run configuration."},
        {"3", "A file that cannot be read, is damaged, or asks for what weft does not support."},
        {"4", "A parallel layout that this model or batch cannot take."},
        {"5",
         "The run failed: memory ran out, a loss or gradient was not finite, or a rank stopped."},
    };
    put(p, ".Sh EXIT STATUS");
    put(p, ".Bl -tag -width Ds");
    for (size_t i = 0; i < WEFT_COUNT_OF(codes); i++) {
        char line[LINE_BYTES];
        (void)snprintf(line, sizeof(line), ".It %s", codes[i][0]);
        put(p, line);
        sentences(p, codes[i][1]);
    }
    put(p, ".El");
}

static void examples(page *p, const char *const *list)
{
    put(p, ".Sh EXAMPLES");
    for (size_t i = 0; list[i] != NULL; i += 2) {
        if (i > 0)
            put(p, ".Pp");
        sentences(p, list[i + 1]);
        add(p, ".Dl ");
        for (const char *c = list[i]; *c != '\0'; c++) {
            if (*c == '\'')
                add(p, "\\(aq");
            else
                add_escaped(p, *c);
        }
        flush(p);
    }
}

static void paragraphs(page *p, const char *const *list)
{
    for (size_t i = 0; list[i] != NULL; i++) {
        if (i > 0)
            put(p, ".Pp");
        sentences(p, list[i]);
    }
}

/* weft(1): the commands, and what they have in common. */
static void main_page(page *p)
{
    static const char *const about[] = {
        "Plans, trains, fine-tunes and runs Transformer language models. Models are Hugging Face "
        "folders: "
        "config.json, safetensors files and the tokenizer's files.",
        "Options are written --name value or --name=value, switches --name, --name on or --name "
        "off. A list goes on "
        "to the next option. Where an option is given twice the last one counts, and lists are "
        "joined. The command's "
        "product goes to standard output, everything else to standard error.",
        NULL,
    };
    static const char *const lines[] = {
        "weft train --model config.json --data book.txt --out runs/book --train-steps 500",
        "Trains fresh weights on a text.",
        "weft generate --model runs/book/latest --prompt 'It was'",
        "Continues a text with them.",
        NULL,
    };
    head(p, "weft", "plan, train and run Transformer language models");
    put(p, ".Nm");
    put(p, ".Ar COMMAND");
    put(p, ".Op Ar OPTION ...");
    put(p, ".Nm");
    put(p, ".Cm help");
    put(p, ".Op Ar COMMAND");
    put(p, ".Nm");
    put(p, ".Fl \\-version");
    put(p, ".Sh DESCRIPTION");
    paragraphs(p, about);
    put(p, ".Sh COMMANDS");
    put(p, ".Bl -tag -width Ds");
    char line[LINE_BYTES];
    for (int c = 0; c < WEFT_COMMAND_COUNT; c++) {
        (void)snprintf(line, sizeof(line), ".It Xr weft-%s 1", weft_command_name((weft_command)c));
        put(p, line);
        sentences(p, weft_command_summary((weft_command)c));
    }
    put(p, ".El");
    exit_status(p);
    examples(p, lines);
}

/* The command whose name comes after `last` in the alphabet; COUNT behind the end. */
static weft_command next_by_name(const char *last)
{
    weft_command best = WEFT_COMMAND_COUNT;
    for (int c = 0; c < WEFT_COMMAND_COUNT; c++) {
        const char *name = weft_command_name((weft_command)c);
        const bool is_first =
            best == WEFT_COMMAND_COUNT || strcmp(name, weft_command_name(best)) < 0;
        if (strcmp(name, last) > 0 && is_first)
            best = (weft_command)c;
    }
    return best;
}

static void see_also(page *p, weft_command command)
{
    put(p, ".Sh SEE ALSO");
    if (command != WEFT_COMMAND_COUNT) {
        put(p, ".Xr weft 1");
        return;
    }
    weft_command next;
    for (weft_command c = next_by_name(""); c != WEFT_COMMAND_COUNT; c = next) {
        char line[LINE_BYTES];
        next = next_by_name(weft_command_name(c));
        (void)snprintf(line, sizeof(line), ".Xr weft-%s 1%s", weft_command_name(c),
                       next == WEFT_COMMAND_COUNT ? "" : " ,");
        put(p, line);
    }
}

void weft_options_man(weft_command command, weft_line_fn *line, void *user)
{
    page p = {.line = line, .user = user};
    const weft_option_spec *spec = weft_i_option_spec(command);
    if (spec == NULL) {
        main_page(&p);
    } else {
        char name[64];
        (void)snprintf(name, sizeof(name), "weft-%s", spec->name);
        head(&p, name, spec->summary);
        synopsis(&p, spec);
        put(&p, ".Sh DESCRIPTION");
        paragraphs(&p, spec->description);
        options(&p, spec);
        if (command != WEFT_COMMAND_DIFF &&
            command != WEFT_COMMAND_CHECKPOINT) /* their own codes are in the description */
            exit_status(&p);
        examples(&p, spec->examples);
    }
    see_also(&p, command);
}
