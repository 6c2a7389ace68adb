/*
 * Pictures of schedules and runs (contract: timeline.h). Plain SVG without scripts or fonts of its own; what a bar is
 * stands in its tooltip.
 *
 * Invariants: the axis begins at the first bar's start; a bar is never narrower than a hairline; numbers are left out where
 * they would not fit.
 * Communication: none.
 */
#include "parallel/timeline.h"

#include <math.h>
#include <stdio.h>

#define WIDTH 1200.0
#define LEFT 64.0
#define RIGHT 16.0
#define TOP 84.0
#define ROW 38.0
#define BAR 22.0
#define COMM 4.0
#define AXIS 34.0
#define DIGIT 7.0 /* width of a digit in a bar */
#define EDGED 3.0 /* narrower bars have no white edge, of which little else would be left */

static const struct {
    const char *name, *fill, *dark; /* dark: every second chunk */
} styles[WEFT_STEP_COUNT] = {
    [WEFT_STEP_FORWARD] = {"forward", "#7fb2e5", "#4a86c5"},
    [WEFT_STEP_BACKWARD] = {"backward", "#8fcf8f", "#55a555"},
    [WEFT_STEP_INPUT] = {"input gradient", "#a5dcb5", "#6dbb84"},
    [WEFT_STEP_WEIGHT] = {"weight gradient", "#f2c069", "#d79a30"},
    [WEFT_STEP_OPTIMIZER] = {"optimizer", "#9d8ad6", "#9d8ad6"},
    [WEFT_STEP_MESSAGE] = {"communication", "#c46fa8", "#c46fa8"},
    [WEFT_STEP_REDUCTION] = {"over dp", "#d9534f", "#d9534f"},
};

typedef struct frame {
    double begin, scale; /* x = LEFT + (time - begin) * scale */
    double end;
} frame;

static double x_of(const frame *f, double time)
{
    return LEFT + (time - f->begin) * f->scale;
}

static frame frame_of(const weft_timeline *t)
{
    frame f = {.begin = (double)INFINITY, .end = -(double)INFINITY};
    for (int64_t i = 0; i < t->n_bars; i++) {
        f.begin = fmin(f.begin, t->bars[i].start);
        f.end = fmax(f.end, t->bars[i].end);
    }
    if (t->n_bars == 0)
        f.begin = f.end = 0.0;
    f.scale = (WIDTH - LEFT - RIGHT) / fmax(f.end - f.begin, 1e-12);
    return f;
}

/* Text with the characters that SVG minds replaced. */
static weft_status add_text(weft_str *out, const char *text)
{
    for (const char *p = text; *p != '\0'; p++) {
        const char *const as = *p == '<' ? "&lt;" : *p == '&' ? "&amp;" : *p == '>' ? "&gt;" : NULL;
        WEFT_TRY(as != NULL ? weft_i_str_addf(out, "%s", as) : weft_i_str_add(out, p, 1));
    }
    return WEFT_OK;
}

static weft_status add_head(weft_str *out, const weft_timeline *t, double height)
{
    WEFT_TRY(weft_i_str_addf(out,
                             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" "
                             "height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
                             "font-family=\"sans-serif\" font-size=\"12\">\n"
                             "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n"
                             "<text x=\"%.0f\" y=\"22\" font-size=\"16\">",
                             WIDTH, height, WIDTH, height, LEFT));
    WEFT_TRY(add_text(out, t->title));
    WEFT_TRY(weft_i_str_addf(out, "</text>\n<text x=\"%.0f\" y=\"42\" fill=\"#444444\">", LEFT));
    WEFT_TRY(add_text(out, t->note));
    return weft_i_str_addf(out, "</text>\n");
}

static weft_status add_legend(weft_str *out, const weft_timeline *t)
{
    bool is_there[WEFT_STEP_COUNT] = {false};
    double x = LEFT;
    for (int64_t i = 0; i < t->n_bars; i++)
        is_there[t->bars[i].kind] = true;
    for (int k = 0; k < WEFT_STEP_COUNT; k++) {
        if (!is_there[k])
            continue;
        WEFT_TRY(weft_i_str_addf(out,
                                 "<rect x=\"%.1f\" y=\"54\" width=\"14\" height=\"12\" "
                                 "fill=\"%s\"/><text x=\"%.1f\" y=\"64\">%s</text>\n",
                                 x, styles[k].fill, x + 19.0, styles[k].name));
        x += 130.0;
    }
    WEFT_TRY(
        weft_i_str_addf(out,
                        "<rect x=\"%.1f\" y=\"54\" width=\"14\" height=\"12\" fill=\"#eeeeee\" "
                        "stroke=\"#cccccc\"/><text x=\"%.1f\" y=\"64\">idle</text>\n",
                        x, x + 19.0));
    if (t->n_chunks < 2)
        return WEFT_OK;
    x += 130.0;
    return weft_i_str_addf(out,
                           "<rect x=\"%.1f\" y=\"54\" width=\"7\" height=\"12\" fill=\"%s\"/><rect "
                           "x=\"%.1f\" y=\"54\" width=\"7\" height=\"12\" fill=\"%s\"/><text "
                           "x=\"%.1f\" y=\"64\">dark: every second chunk</text>\n",
                           x, styles[WEFT_STEP_FORWARD].dark, x + 7.0,
                           styles[WEFT_STEP_BACKWARD].dark, x + 19.0);
}

static weft_status add_rows(weft_str *out, const weft_timeline *t, const frame *f)
{
    for (int r = 0; r < t->n_rows; r++) {
        const double y = TOP + ROW * r;
        WEFT_TRY(weft_i_str_addf(out,
                                 "<text x=\"8\" y=\"%.1f\">rank %d</text><rect x=\"%.1f\" "
                                 "y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"#eeeeee\"/>\n",
                                 y + BAR * 0.7, r, LEFT, y, (f->end - f->begin) * f->scale, BAR));
        if (t->row_notes != NULL)
            WEFT_TRY(weft_i_str_addf(out,
                                     "<text x=\"8\" y=\"%.1f\" font-size=\"8\" "
                                     "fill=\"#666666\">%s</text>\n",
                                     y + BAR * 0.7 + 11.0, t->row_notes[r]));
    }
    return WEFT_OK;
}

/* Thin lines below the others. */
static bool is_thin(const weft_bar *b)
{
    return b->kind == WEFT_STEP_MESSAGE || b->kind == WEFT_STEP_REDUCTION;
}

static double width_of(const frame *f, const weft_bar *b)
{
    return fmax((b->end - b->start) * f->scale, 0.5);
}

static weft_status add_bar(weft_str *out, const weft_timeline *t, const frame *f, const weft_bar *b)
{
    const double y = TOP + ROW * b->row + (is_thin(b) ? BAR + 1.5 : 0.0) +
                     (b->kind == WEFT_STEP_REDUCTION ? COMM + 1.5 : 0.0);
    const bool is_dark = t->n_chunks > 1 && b->chunk % 2 == 1;
    WEFT_TRY(weft_i_str_addf(
        out, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.0f\" fill=\"%s\"%s><title>%s",
        x_of(f, b->start), y, width_of(f, b), is_thin(b) ? COMM : BAR,
        is_dark ? styles[b->kind].dark : styles[b->kind].fill,
        !is_thin(b) && width_of(f, b) < EDGED ? " stroke=\"none\"" : "", styles[b->kind].name));
    if (b->micro_batch >= 0)
        WEFT_TRY(weft_i_str_addf(out, ", micro-batch %d", b->micro_batch));
    if (t->n_chunks > 1 && !is_thin(b))
        WEFT_TRY(weft_i_str_addf(out, ", chunk %d", b->chunk));
    return weft_i_str_addf(out, ": %.5g to %.5g%s%s</title></rect>\n", b->start - f->begin,
                           b->end - f->begin, t->unit[0] != '\0' ? " " : "", t->unit);
}

static weft_status add_number(weft_str *out, const frame *f, const weft_bar *b)
{
    char number[16] = "";
    const double width = width_of(f, b);
    const int n = snprintf(number, sizeof(number), "%d", b->micro_batch);
    if (is_thin(b) || b->micro_batch < 0 || width < DIGIT * n + 2.0)
        return WEFT_OK;
    return weft_i_str_addf(out, "<text x=\"%.1f\" y=\"%.1f\">%s</text>\n",
                           x_of(f, b->start) + width / 2.0, TOP + ROW * b->row + BAR * 0.7, number);
}

/* What is alike in all stands once, in a group. */
static weft_status add_bars(weft_str *out, const weft_timeline *t, const frame *f)
{
    WEFT_TRY(weft_i_str_addf(out, "<g stroke=\"#ffffff\" stroke-width=\"0.6\">\n"));
    for (int64_t i = 0; i < t->n_bars; i++) {
        if (!is_thin(&t->bars[i]))
            WEFT_TRY(add_bar(out, t, f, &t->bars[i]));
    }
    WEFT_TRY(weft_i_str_addf(out, "</g>\n"));
    for (int64_t i = 0; i < t->n_bars; i++) {
        if (is_thin(&t->bars[i]))
            WEFT_TRY(add_bar(out, t, f, &t->bars[i]));
    }
    WEFT_TRY(weft_i_str_addf(out, "<g text-anchor=\"middle\" pointer-events=\"none\">\n"));
    for (int64_t i = 0; i < t->n_bars; i++)
        WEFT_TRY(add_number(out, f, &t->bars[i]));
    return weft_i_str_addf(out, "</g>\n");
}

/* A step of 1, 2 or 5 times a power of ten, some ten of them. */
static double tick_of(double length)
{
    const double power = pow(10.0, floor(log10(fmax(length / 10.0, 1e-12))));
    const double rest = length / 10.0 / power;
    return power * (rest > 5.0 ? 10.0 : rest > 2.0 ? 5.0 : rest > 1.0 ? 2.0 : 1.0);
}

static weft_status add_axis(weft_str *out, const weft_timeline *t, const frame *f)
{
    const double length = f->end - f->begin;
    const double y = TOP + ROW * t->n_rows + 6.0;
    const double step = tick_of(length);
    const int n_ticks = (int)(length / step + 1e-9);
    for (int i = 0; i <= n_ticks; i++) {
        const double x = x_of(f, f->begin + step * i);
        WEFT_TRY(weft_i_str_addf(out,
                                 "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" "
                                 "stroke=\"#888888\"/><text x=\"%.1f\" y=\"%.1f\" "
                                 "text-anchor=\"middle\" fill=\"#444444\">%.4g%s%s</text>\n",
                                 x, y, x, y + 5.0, x, y + 18.0, step * i,
                                 t->unit[0] != '\0' ? " " : "", t->unit));
    }
    return WEFT_OK;
}

weft_status weft_i_timeline_svg(weft_str *out, const weft_timeline *t)
{
    const frame f = frame_of(t);
    WEFT_TRY(add_head(out, t, TOP + ROW * t->n_rows + AXIS));
    WEFT_TRY(add_legend(out, t));
    WEFT_TRY(add_rows(out, t, &f));
    WEFT_TRY(add_bars(out, t, &f));
    WEFT_TRY(add_axis(out, t, &f));
    return weft_i_str_addf(out, "</svg>\n");
}
