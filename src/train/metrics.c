/*
 * metrics.jsonl: the numbers of each step as JSON lines.
 *
 * Invariants
 *  1. Every line begins {"step": N, and steps rise from line to line; so the place to cut is found by looking at the
 *     beginnings of lines alone.
 *  2. Reals are written in as few digits as read back to the same bits, so a file can be compared to another exactly.
 *     What is not finite is left out.
 */
#include "train/metrics.h"

#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES 1024

static const char BEGINNING[] = "{\"step\": ";

/* ---- lines ---- */

typedef struct line_writer {
    char *out;
    size_t size;
    size_t n;
} line_writer;

static void add_text(line_writer *w, const char *text)
{
    const size_t n = strlen(text);
    if (w->n + n < w->size)
        memcpy(w->out + w->n, text, n + 1);
    w->n += n;
}

static void add_key(line_writer *w, const char *key)
{
    add_text(w, ", \"");
    add_text(w, key);
    add_text(w, "\": ");
}

static void add_integer(line_writer *w, const char *key, int64_t value)
{
    char text[32];
    (void)snprintf(text, sizeof(text), "%lld", (long long)value);
    add_key(w, key);
    add_text(w, text);
}

static void add_real(line_writer *w, const char *key, double value)
{
    char text[40];
    if (!isfinite(value))
        return;
    for (int digits = 6; digits <= 17; digits++) {
        (void)snprintf(text, sizeof(text), "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    add_key(w, key);
    add_text(w, text);
}

weft_status weft_i_metrics_line(char *out, size_t size, const weft_train_step *s)
{
    line_writer w = {.out = out, .size = size};
    char text[64];
    (void)snprintf(text, sizeof(text), "%s%lld", BEGINNING, (long long)s->step);
    add_text(&w, text);
    add_integer(&w, "train_steps", s->train_steps);
    add_real(&w, "loss", s->loss);
    add_real(&w, "lr", s->lr);
    add_real(&w, "grad_norm", s->grad_norm);
    add_integer(&w, "tokens", s->tokens);
    add_integer(&w, "total_tokens", s->total_tokens);
    (void)snprintf(text, sizeof(text), "\"%016llx\"", (unsigned long long)s->batch_hash);
    add_key(&w, "batch_hash");
    add_text(&w, text);
    if (s->eval_tokens > 0) {
        add_real(&w, "eval_loss", s->eval_loss);
        add_integer(&w, "eval_tokens", s->eval_tokens);
    }
    add_real(&w, "seconds", s->seconds);
    add_real(&w, "tokens_per_second", s->tokens_per_second);
    add_real(&w, "gflops", s->gflops);
    add_integer(&w, "memory_bytes", (int64_t)s->memory_bytes);
    add_integer(&w, "resident_bytes", (int64_t)s->resident_bytes);
    add_real(&w, "seconds_left", s->seconds_left);
    add_text(&w, "}");
    if (w.n >= size)
        WEFT_FAIL(WEFT_STATUS_ARG, "a line of metrics is %zu bytes, there is room for %zu", w.n,
                  size);
    return WEFT_OK;
}

/* ---- the file ---- */

/* Whether a line stays: one of a step up to last_step, or one that is no step's. */
static bool is_kept(const char *line, int64_t last_step)
{
    const size_t n = sizeof(BEGINNING) - 1;
    return strncmp(line, BEGINNING, n) != 0 || strtoll(line + n, NULL, 10) <= last_step;
}

/* Bytes of the lines that stay: up to the first that does not, or that is cut off. */
static off_t kept_bytes(FILE *file, int64_t last_step)
{
    char line[LINE_BYTES];
    off_t kept = 0;
    bool is_at_start = true;
    off_t at = 0;
    while (fgets(line, sizeof(line), file) != NULL) {
        const size_t n = strlen(line);
        if (is_at_start && !is_kept(line, last_step))
            break;
        at += (off_t)n;
        is_at_start = n > 0 && line[n - 1] == '\n';
        if (is_at_start)
            kept = at;
    }
    return kept;
}

static weft_status cut(const char *path, int64_t last_step)
{
    off_t kept = 0;
    if (last_step > 0) {
        FILE *file = fopen(path, "re");
        if (file == NULL)
            return errno == ENOENT ? WEFT_OK : weft_i_file_fail("opening", path);
        kept = kept_bytes(file, last_step);
        (void)fclose(file);
    }
    if (truncate(path, kept) != 0 && errno != ENOENT)
        return weft_i_file_fail("cutting", path);
    return WEFT_OK;
}

weft_status weft_i_metrics_open(weft_metrics *m, const char *path, int64_t last_step)
{
    *m = (weft_metrics){.file = {.fd = -1}};
    WEFT_TRY(cut(path, last_step));
    WEFT_TRY(weft_i_str_print(m->file.path, sizeof(m->file.path), "%s", path));
    m->file.fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    return m->file.fd < 0 ? weft_i_file_fail("opening for writing", path) : WEFT_OK;
}

weft_status weft_i_metrics_write(weft_metrics *m, const weft_train_step *step)
{
    char line[LINE_BYTES];
    WEFT_TRY(weft_i_metrics_line(line, sizeof(line) - 1, step));
    const size_t n = strlen(line);
    line[n] = '\n';
    return weft_i_writer_write(&m->file, line, n + 1);
}

weft_status weft_i_metrics_close(weft_metrics *m)
{
    return m->file.fd < 0 ? WEFT_OK : weft_i_writer_close(&m->file);
}
