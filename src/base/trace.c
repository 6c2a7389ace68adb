/*
 * Events of one rank for a Chrome/Perfetto trace.
 *
 * Source: "Trace Event Format" (Google): an array of objects; "X" is an event with its duration, "M" says names; times
 * are microseconds. The origin is the monotonic clock's own, so that ranks need not agree on one.
 *
 * Every rank writes a file of its own while it runs: objects with a comma between them, the first being its name. join puts
 * the files one after another between brackets.
 *
 * Viewers draw the events of a line as a stack: two that overlap must lie one within the other. Calls on their way at once
 * do not, so a line has up to MAX_LANES lanes ("dp", "dp 2", ...) and an event takes the first lane where it fits those
 * before it. Where none fits it takes the last.
 *
 * Invariants: 1. adding takes no memory and never fails; the first fault is kept for finish.
 *             2. what is written is one JSON text whatever bytes a name has.
 * Communication: none; join reads the files of all ranks, after they were finished.
 */
#include "base/trace.h"

#include "base/file.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER_BYTES ((size_t)65536)
#define EVENT_BYTES                                                                                \
    ((size_t)2560) /* more than an event can be: three texts, each byte six when escaped */
#define NAME_BYTES ((size_t)96)
#define MAX_LINES 16
#define MAX_LANES 8
#define N_RECENT 32 /* events that a lane remembers */

typedef struct trace_lane {
    int n; /* events in all; 0: not in use */
    double start_s[N_RECENT], end_s[N_RECENT];
} trace_lane;

typedef struct trace_line {
    const char *name;
    trace_lane lanes[MAX_LANES];
} trace_line;

struct weft_trace {
    weft_alloc *alloc;
    pthread_mutex_t lock; /* of all below */
    int rank;
    weft_writer file;
    bool is_open;
    weft_status st; /* of the first write that failed */
    char message[512];
    int n_lines;
    trace_line lines[MAX_LINES];
    size_t n_used;
    char buffer[BUFFER_BYTES];
};

/* ---- text ---- */

/* Bytes of the UTF-8 character that begins here; 0: none does. */
static size_t utf8_bytes(const unsigned char *s, size_t n)
{
    const size_t length = s[0] < 0x80              ? 1
                          : (s[0] & 0xe0u) == 0xc0 ? 2
                          : (s[0] & 0xf0u) == 0xe0 ? 3
                          : (s[0] & 0xf8u) == 0xf0 ? 4
                                                   : 0;
    if (length == 0 || length > n)
        return 0;
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t code = length == 1 ? s[0] : s[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((s[i] & 0xc0u) != 0x80)
            return 0;
        code = code << 6 | (s[i] & 0x3fu);
    }
    const bool is_surrogate = code >= 0xd800 && code < 0xe000;
    return code < least[length] || code > 0x10ffff || is_surrogate ? 0 : length;
}

/* Adds `text`, cut to NAME_BYTES, as it stands between the quotes of a JSON string. There is room for it. */
static size_t add_escaped(char *out, const char *text)
{
    const unsigned char *const s = (const unsigned char *)text;
    const size_t n = strnlen(text, NAME_BYTES);
    size_t used = 0;
    for (size_t i = 0; i < n;) {
        const size_t length = utf8_bytes(&s[i], n - i);
        if (length == 0) {
            out[used++] = '?';
        } else if (length == 1 && (s[i] == '"' || s[i] == '\\')) {
            out[used++] = '\\';
            out[used++] = (char)s[i];
        } else if (length == 1 && (s[i] < 0x20 || s[i] == 0x7f)) {
            used += (size_t)snprintf(&out[used], 7, "\\u%04x", (unsigned)s[i]);
        } else {
            memcpy(&out[used], &s[i], length);
            used += length;
        }
        i += length == 0 ? 1 : length;
    }
    out[used] = '\0';
    return used;
}

/* Microseconds with three digits after the point, whatever the locale writes there. */
static size_t add_us(char *out, size_t size, double seconds)
{
    const double ns = seconds > 0.0 && seconds < 9e9 ? nearbyint(seconds * 1e9) : 0.0;
    const long long n = (long long)ns;
    return (size_t)snprintf(out, size, "%lld.%03lld", n / 1000, n % 1000);
}

/* ---- the rank's file ---- */

static void flush(weft_trace *t)
{
    if (t->st == WEFT_OK && t->n_used > 0) {
        t->st = weft_i_writer_write(&t->file, t->buffer, t->n_used);
        if (t->st != WEFT_OK)
            (void)snprintf(t->message, sizeof(t->message), "%s", weft_last_error());
    }
    t->n_used = 0;
}

/* Where the next object is written; at most EVENT_BYTES. */
static char *next_object(weft_trace *t)
{
    if (t->n_used + EVENT_BYTES > BUFFER_BYTES)
        flush(t);
    return &t->buffer[t->n_used];
}

static void add_name(weft_trace *t, const char *what, int tid, const char *name, int number)
{
    char escaped[6 * NAME_BYTES + 1], suffix[16] = "";
    char *const out = next_object(t);
    (void)add_escaped(escaped, name);
    if (number > 1)
        (void)snprintf(suffix, sizeof(suffix), " %d", number);
    t->n_used += (size_t)snprintf(out, EVENT_BYTES,
                                  ",\n{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,"
                                  "\"args\":{\"name\":\"%s%s\"}}",
                                  what, t->rank, tid, escaped, suffix);
}

static void path_of_rank(char *out, size_t size, const char *path, int rank)
{
    (void)snprintf(out, size, "%s.rank-%d", path, rank);
}

static weft_status check_path(const char *path)
{
    if (strlen(path) + 32 > WEFT_PATH_MAX)
        WEFT_FAIL(WEFT_STATUS_IO, "%.64s...: is too long for the name of a trace", path);
    return WEFT_OK;
}

/* Only a file: what else has that name (a pipe, a device, a link to one) is not ours to remove. */
static weft_status remove_earlier(const char *path)
{
    struct stat info;
    if (lstat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return WEFT_OK;
    return unlink(path) == 0 ? WEFT_OK : weft_i_file_fail("removing an earlier trace", path);
}

weft_status weft_i_trace_prepare(const char *path)
{
    WEFT_TRY(check_path(path));
    WEFT_TRY(weft_i_file_check_place(path));
    return remove_earlier(path);
}

weft_status
weft_i_trace_create(weft_trace **out, weft_alloc *alloc, const char *path, int rank, int n_ranks)
{
    char own[WEFT_PATH_MAX], name[64];
    void *p = NULL;
    *out = NULL;
    WEFT_TRY(check_path(path));
    path_of_rank(own, sizeof(own), path, rank);
    WEFT_TRY(weft_i_alloc_new(alloc, 1, sizeof(weft_trace), &p));
    weft_trace *const t = p;
    t->alloc = alloc;
    t->rank = rank;
    const weft_status st = weft_i_writer_open(&t->file, own);
    if (st != WEFT_OK) {
        weft_i_alloc_put(alloc, t);
        return st;
    }
    (void)pthread_mutex_init(&t->lock, NULL);
    t->is_open = true;
    (void)snprintf(name, sizeof(name), "rank %d of %d", rank, n_ranks);
    add_name(t, "process_name", 0, name, 1);
    memmove(t->buffer, t->buffer + 2, t->n_used - 2); /* nothing is before the first object */
    t->n_used -= 2;
    t->n_used += (size_t)snprintf(next_object(t), EVENT_BYTES,
                                  ",\n{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":%d,"
                                  "\"tid\":0,\"args\":{\"sort_index\":%d}}",
                                  rank, rank);
    *out = t;
    return WEFT_OK;
}

/* ---- lines and lanes ---- */

/* Nothing that the lane remembers overlaps [start, end] in part. */
static bool fits(const trace_lane *lane, double start_s, double end_s)
{
    const int n = lane->n < N_RECENT ? lane->n : N_RECENT;
    for (int i = 0; i < n; i++) {
        const double a = lane->start_s[i], b = lane->end_s[i];
        const bool is_apart = b <= start_s || end_s <= a;
        const bool is_within = (a <= start_s && end_s <= b) || (start_s <= a && b <= end_s);
        if (!is_apart && !is_within)
            return false;
    }
    return true;
}

static trace_line *find_line(weft_trace *t, const char *name)
{
    for (int i = 0; i < t->n_lines; i++) {
        if (strcmp(t->lines[i].name, name) == 0)
            return &t->lines[i];
    }
    if (t->n_lines == MAX_LINES)
        return &t->lines[MAX_LINES - 1];
    trace_line *const line = &t->lines[t->n_lines++];
    line->name = name;
    return line;
}

/* The number of the line in the viewer. */
static int place(weft_trace *t, const weft_trace_event *e)
{
    trace_line *const line = find_line(t, e->line);
    int l = 0;
    while (l + 1 < MAX_LANES && !fits(&line->lanes[l], e->start_s, e->end_s))
        l++;
    trace_lane *const lane = &line->lanes[l];
    const int tid = 1 + (int)(line - t->lines) * MAX_LANES + l;
    if (lane->n == 0)
        add_name(t, "thread_name", tid, line->name, l + 1);
    lane->start_s[lane->n % N_RECENT] = e->start_s;
    lane->end_s[lane->n % N_RECENT] = e->end_s;
    lane->n =
        lane->n < 2 * N_RECENT - 1 ? lane->n + 1 : N_RECENT; /* the place, and that it is full */
    return tid;
}

void weft_i_trace_add(weft_trace *t, const weft_trace_event *event)
{
    if (t == NULL)
        return;
    weft_trace_event e = *event;
    if (!(e.end_s >= e.start_s))
        e.end_s = e.start_s;
    (void)pthread_mutex_lock(&t->lock);
    const int tid = place(t, &e);
    char *const out = next_object(t);
    size_t n = (size_t)snprintf(out, EVENT_BYTES, ",\n{\"ph\":\"X\",\"name\":\"");
    n += add_escaped(out + n, e.name);
    n += (size_t)snprintf(out + n, EVENT_BYTES - n, "\",\"ts\":");
    n += add_us(out + n, EVENT_BYTES - n, e.start_s);
    n += (size_t)snprintf(out + n, EVENT_BYTES - n, ",\"dur\":");
    n += add_us(out + n, EVENT_BYTES - n, e.end_s - e.start_s);
    n += (size_t)snprintf(out + n, EVENT_BYTES - n, ",\"pid\":%d,\"tid\":%d,\"args\":{", t->rank,
                          tid);
    const char *const keys[] = {"tensor", "axis"}, *const values[] = {e.tensor, e.axis};
    const char *comma = "";
    for (int i = 0; i < 2; i++) {
        if (values[i] == NULL)
            continue;
        n += (size_t)snprintf(out + n, EVENT_BYTES - n, "%s\"%s\":\"", comma, keys[i]);
        n += add_escaped(out + n, values[i]);
        n += (size_t)snprintf(out + n, EVENT_BYTES - n, "\"");
        comma = ",";
    }
    if (e.bytes >= 0)
        n += (size_t)snprintf(out + n, EVENT_BYTES - n, "%s\"bytes\":%lld", comma,
                              (long long)e.bytes);
    n += (size_t)snprintf(out + n, EVENT_BYTES - n, "}}");
    t->n_used += n;
    (void)pthread_mutex_unlock(&t->lock);
}

weft_status weft_i_trace_finish(weft_trace *t)
{
    if (t == NULL || !t->is_open)
        return WEFT_OK;
    (void)pthread_mutex_lock(&t->lock);
    flush(t);
    weft_status st = t->st;
    if (st == WEFT_OK)
        st = weft_i_writer_close(&t->file);
    else
        (void)weft_i_error_set(st, "%s", t->message);
    weft_i_writer_abandon(&t->file);
    t->is_open = false;
    (void)pthread_mutex_unlock(&t->lock);
    return st;
}

void weft_i_trace_destroy(weft_trace *t)
{
    if (t == NULL)
        return;
    weft_i_writer_abandon(&t->file);
    (void)pthread_mutex_destroy(&t->lock);
    weft_i_alloc_put(t->alloc, t);
}

/* ---- one file of all ranks ---- */

static weft_status add_file(weft_writer *w, const char *path)
{
    weft_map map;
    WEFT_TRY(weft_i_map_open(&map, path));
    const weft_status st = weft_i_writer_write(w, map.data, map.n_bytes);
    weft_i_map_close(&map);
    return st;
}

weft_status weft_i_trace_join(weft_alloc *alloc, const char *path, int n_ranks)
{
    char temporary[WEFT_PATH_MAX], of_rank[WEFT_PATH_MAX];
    weft_writer w = {.fd = -1};
    weft_status st = WEFT_OK;
    (void)alloc;
    WEFT_TRY(check_path(path));
    WEFT_TRY(weft_i_file_temporary(temporary, path));
    WEFT_TRY(weft_i_writer_open(&w, temporary));
    for (int r = 0; r < n_ranks; r++) {
        path_of_rank(of_rank, sizeof(of_rank), path, r);
        const char *const before = r == 0 ? "[\n" : ",\n";
        WEFT_TRY_GOTO(st, weft_i_writer_write(&w, before, strlen(before)), out);
        WEFT_TRY_GOTO(st, add_file(&w, of_rank), out);
    }
    WEFT_TRY_GOTO(st, weft_i_writer_write(&w, "\n]\n", 3), out);
    WEFT_TRY_GOTO(st, weft_i_writer_close(&w), out);
    WEFT_TRY_GOTO(st, weft_i_file_appear(temporary, path), out);
    for (int r = 0; r < n_ranks; r++) {
        path_of_rank(of_rank, sizeof(of_rank), path, r);
        if (unlink(of_rank) != 0 && errno != ENOENT)
            WEFT_TRY_GOTO(st, weft_i_file_fail("removing", of_rank), out);
    }
out:
    weft_i_writer_abandon(&w);
    if (st != WEFT_OK)
        weft_i_file_discard(temporary, path);
    return st;
}
