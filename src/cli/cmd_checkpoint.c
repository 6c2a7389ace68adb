/*
 * weft checkpoint: which checkpoints there are, and whether they are whole. Exit codes of verify: 0 whole, 1 damaged, 2 usage,
 * 3 could not be read.
 */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* "2026-07-01 12:00:05", local time. */
static const char *time_text(int64_t seconds, char *out, size_t size)
{
    struct tm t;
    const time_t clock = (time_t)seconds;
    if (seconds == 0 || localtime_r(&clock, &t) == NULL ||
        strftime(out, size, "%Y-%m-%d %H:%M:%S", &t) == 0)
        (void)snprintf(out, size, "-");
    return out;
}

/* 1 means damaged here, so no failure may look like it. */
static int fail(weft_status st)
{
    const int code = weft_i_cli_fail(st);
    return st == WEFT_STATUS_ARG ? code : WEFT_EXIT_INPUT;
}

/* ---- list ---- */

static const char *count_text(int64_t value, char *out, size_t size)
{
    if (value >= 0)
        return weft_i_cli_thousands(value, out, size);
    (void)snprintf(out, size, "-");
    return out;
}

static void show_entry(const weft_checkpoint_entry *e, int name_columns)
{
    char step[32], tokens[32], bytes[32], when[32];
    (void)printf("%-*s  %9s  %15s  %-19s  %9s  %-20s  %s%s%s%s\n", name_columns, e->name,
                 count_text(e->step, step, sizeof(step)),
                 count_text(e->total_tokens, tokens, sizeof(tokens)),
                 time_text(e->written_at, when, sizeof(when)),
                 weft_i_cli_bytes((double)e->n_bytes, bytes, sizeof(bytes)),
                 e->layout[0] != '\0' ? e->layout : "-", e->is_complete ? "complete" : "incomplete",
                 e->is_latest ? ", latest" : "",
                 e->is_complete && !e->has_checksums ? ", no checksums" : "",
                 e->is_complete ? "" : ":");
    if (!e->is_complete)
        (void)printf("    %s\n", e->fault);
}

static void show_list(const weft_checkpoint_list *list)
{
    int columns = (int)strlen("checkpoint");
    for (size_t i = 0; i < list->n; i++) {
        const int n = (int)strlen(list->entries[i].name);
        columns = n > columns ? n : columns;
    }
    (void)printf("%-*s  %9s  %15s  %-19s  %9s  %-20s  %s\n", columns, "checkpoint", "step",
                 "tokens", "written", "size", "by", "state");
    for (size_t i = 0; i < list->n; i++)
        show_entry(&list->entries[i], columns);
}

static void json_text(const char *key, const char *text)
{
    (void)printf(", \"%s\": ", key);
    weft_i_cli_json_string(text);
}

static void json_list(const weft_checkpoint_list *list)
{
    (void)fputs("[", stdout);
    for (size_t i = 0; i < list->n; i++) {
        const weft_checkpoint_entry *e = &list->entries[i];
        (void)printf("%s\n  {\"step\": %lld, \"total_tokens\": %lld, \"written_at\": %lld, "
                     "\"bytes\": %llu, \"complete\": %s, \"latest\": %s, \"checksums\": %s",
                     i == 0 ? "" : ",", (long long)e->step, (long long)e->total_tokens,
                     (long long)e->written_at, (unsigned long long)e->n_bytes,
                     e->is_complete ? "true" : "false", e->is_latest ? "true" : "false",
                     e->has_checksums ? "true" : "false");
        json_text("name", e->name);
        json_text("layout", e->layout);
        json_text("fault", e->fault);
        (void)fputs("}", stdout);
    }
    (void)fputs("\n]\n", stdout);
}

static int list(const weft_checkpoint_options *o)
{
    weft_checkpoint_list *l = NULL;
    const weft_status st = weft_checkpoint_list_create(&l, o);
    if (st != WEFT_OK)
        return fail(st);
    if (o->json)
        json_list(l);
    else
        show_list(l);
    weft_checkpoint_list_destroy(l);
    return weft_i_cli_finish(WEFT_EXIT_OK);
}

/* ---- verify ---- */

static const char *fault_name(weft_checkpoint_fault fault)
{
    switch (fault) {
    case WEFT_CHECKPOINT_MISSING:
        return "missing";
    case WEFT_CHECKPOINT_DAMAGED:
        return "damaged";
    case WEFT_CHECKPOINT_UNREADABLE:
        break;
    }
    return "unreadable";
}

static const char *verdict_name(const weft_checkpoint_verdict *v)
{
    bool is_damaged = false;
    for (size_t i = 0; i < v->n_findings; i++)
        is_damaged = is_damaged || v->findings[i].fault != WEFT_CHECKPOINT_UNREADABLE;
    if (v->n_findings == 0)
        return "whole";
    return is_damaged ? "damaged" : "unreadable";
}

static void show_verdict(const weft_checkpoint_verdict *v)
{
    char files[32], tensors[32], bytes[32];
    (void)printf("%s: %s; %s file%s, %s bytes", v->path, verdict_name(v),
                 weft_i_cli_thousands((int64_t)v->n_files, files, sizeof(files)),
                 v->n_files == 1 ? "" : "s",
                 weft_i_cli_thousands((int64_t)v->n_bytes, bytes, sizeof(bytes)));
    if (v->has_checksums)
        (void)printf(", %s tensors compared with their checksums\n",
                     weft_i_cli_thousands((int64_t)v->n_tensors, tensors, sizeof(tensors)));
    else
        (void)printf("; no checksums.json to compare with: only the form of the files was "
                     "checked, not the numbers in them\n");
    for (size_t i = 0; i < v->n_findings; i++) {
        const weft_checkpoint_finding *f = &v->findings[i];
        (void)printf("  %s: %s%s%s: %s\n", fault_name(f->fault), f->file,
                     f->tensor[0] != '\0' ? ": tensor " : "", f->tensor, f->detail);
    }
}

static void json_verdict(const weft_checkpoint_verdict *v, bool is_first)
{
    (void)printf("%s\n  {\"files\": %llu, \"tensors\": %llu, \"bytes\": %llu, \"checksums\": %s",
                 is_first ? "" : ",", (unsigned long long)v->n_files,
                 (unsigned long long)v->n_tensors, (unsigned long long)v->n_bytes,
                 v->has_checksums ? "true" : "false");
    json_text("path", v->path);
    json_text("verdict", verdict_name(v));
    (void)fputs(", \"findings\": [", stdout);
    for (size_t i = 0; i < v->n_findings; i++) {
        const weft_checkpoint_finding *f = &v->findings[i];
        (void)printf("%s\n    {\"fault\": \"%s\"", i == 0 ? "" : ",", fault_name(f->fault));
        json_text("file", f->file);
        json_text("tensor", f->tensor);
        json_text("detail", f->detail);
        (void)fputs("}", stdout);
    }
    (void)fputs("]}", stdout);
}

static int verify(const weft_checkpoint_options *o)
{
    weft_checkpoint_report *r = NULL;
    int code = WEFT_EXIT_OK;
    const weft_status st = weft_checkpoint_verify_create(&r, o);
    if (st != WEFT_OK)
        return fail(st);
    if (o->json)
        (void)fputs("[", stdout);
    for (size_t i = 0; i < r->n; i++) {
        if (o->json)
            json_verdict(&r->verdicts[i], i == 0);
        else
            show_verdict(&r->verdicts[i]);
    }
    if (o->json)
        (void)fputs("\n]\n", stdout);
    if (r->is_damaged)
        code = 1;
    else if (r->is_unreadable)
        code = WEFT_EXIT_INPUT;
    weft_checkpoint_verify_destroy(r);
    return weft_i_cli_finish(code);
}

int weft_i_cli_checkpoint(int argc, const char *const *argv)
{
    weft_checkpoint_options o;
    weft_options *options = NULL;
    int code = WEFT_EXIT_OK;
    if (!weft_i_cli_parse(&options, &o, &code, WEFT_COMMAND_CHECKPOINT, argc, argv))
        return code;
    code = strcmp(o.action, "list") == 0 ? list(&o) : verify(&o);
    weft_options_destroy(options);
    return code;
}
