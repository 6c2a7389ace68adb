/*
 * Comparing the tensors of two files or folders (weft/inspect.h).
 *
 * A folder has kinds of tensors: the model's, and beside them the optimizer's. Names are compared within a kind. Where
 * one side is a single file, only that kind of the other side's folder counts.
 *
 * Invariants: equal bytes of one type are never looked at as numbers, so NaN and unknown types compare too; integers of
 * 64 bits that differ never count as equal because a double cannot tell them apart.
 */
#include "weft/inspect.h"
#include "weft/options.h"

#include "base/str.h"
#include "formats/safetensors.h"
#include "train/tensor_values.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_KINDS 2
#define BLOCK 4096

static const char *const kind_base[N_KINDS] = {"model", "optimizer"};

/* One side of the comparison. */
typedef struct side {
    const char *path;
    bool is_folder;
    weft_st *kind[N_KINDS]; /* NULL: the folder has none */
} side;

typedef struct diff_store {
    weft_diff diff;
    weft_alloc *alloc;
    weft_diff_tensor *tensors;
    size_t capacity;
} diff_store;

/* ---- opening ---- */

/* Whether a folder holds files of a kind: BASE*.safetensors or its index. */
static bool has_kind(char **names, size_t n_names, const char *base)
{
    const size_t n_base = strlen(base);
    for (size_t i = 0; i < n_names; i++) {
        if (strncmp(names[i], base, n_base) == 0 &&
            strstr(names[i] + n_base, ".safetensors") != NULL)
            return true;
    }
    return false;
}

static weft_status open_folder(side *s, weft_alloc *alloc)
{
    char **names = NULL;
    size_t n_names = 0;
    WEFT_TRY(weft_i_dir_list(alloc, s->path, &names, &n_names));
    weft_status st = WEFT_OK;
    size_t n_found = 0;
    for (int k = 0; k < N_KINDS && st == WEFT_OK; k++) {
        if (!has_kind(names, n_names, kind_base[k]))
            continue;
        n_found++;
        st = weft_i_st_open_folder(&s->kind[k], alloc, s->path, kind_base[k]);
    }
    weft_i_names_free(alloc, names, n_names);
    if (st == WEFT_OK && n_found == 0)
        WEFT_FAIL(WEFT_STATUS_FORMAT,
                  "%s: holds no model*.safetensors and no optimizer*.safetensors", s->path);
    return st;
}

static weft_status open_side(side *s, weft_alloc *alloc)
{
    s->is_folder = weft_i_dir_exists(s->path);
    if (s->is_folder)
        return open_folder(s, alloc);
    const char *name = strrchr(s->path, '/');
    name = name == NULL ? s->path : name + 1;
    const int kind = strncmp(name, kind_base[1], strlen(kind_base[1])) == 0;
    return weft_i_st_open(&s->kind[kind], alloc, s->path);
}

/* Two files compare whatever they are called. */
static void align_files(side *a, side *b)
{
    if (a->is_folder || b->is_folder)
        return;
    for (int k = 0; k < N_KINDS; k++) {
        if (a->kind[k] != NULL && b->kind[k] == NULL) {
            b->kind[k] = b->kind[1 - k];
            b->kind[1 - k] = NULL;
        }
    }
}

static void close_side(side *s)
{
    for (int k = 0; k < N_KINDS; k++)
        weft_i_st_close(s->kind[k]);
}

/* ---- one pair of tensors ---- */

static weft_status add_entry(diff_store *d, const char *name, weft_diff_tensor **out)
{
    void *memory = d->tensors;
    WEFT_TRY(weft_i_alloc_grow(d->alloc, d->diff.n_different + 1, sizeof(weft_diff_tensor),
                               &d->capacity, &memory));
    d->tensors = memory;
    weft_diff_tensor *t = &d->tensors[d->diff.n_different];
    *t = (weft_diff_tensor){0};
    char *copy = NULL;
    WEFT_TRY(weft_i_str_copy(d->alloc, name, &copy));
    t->name = copy;
    d->diff.n_different++;
    *out = t;
    return WEFT_OK;
}

static weft_status add_only(diff_store *d, const weft_st_tensor *t, weft_diff_kind kind)
{
    weft_diff_tensor *entry = NULL;
    WEFT_TRY(add_entry(d, t->name, &entry));
    entry->kind = kind;
    entry->n_elems = t->n_elems;
    return WEFT_OK;
}

/* Shapes or types of a pair, for people. */
static weft_status
add_unlike(diff_store *d, const weft_st_tensor *a, const weft_st_tensor *b, weft_diff_kind kind)
{
    weft_diff_tensor *entry = NULL;
    WEFT_TRY(add_entry(d, a->name, &entry));
    entry->kind = kind;
    entry->n_elems = a->n_elems;
    if (kind == WEFT_DIFF_SHAPE) {
        char shape_a[80], shape_b[80];
        (void)snprintf(entry->detail, sizeof(entry->detail), "shape %s in A, %s in B",
                       weft_i_shape_text(&a->shape, shape_a, sizeof(shape_a)),
                       weft_i_shape_text(&b->shape, shape_b, sizeof(shape_b)));
    } else {
        (void)snprintf(entry->detail, sizeof(entry->detail), "type %s in A, %s in B",
                       weft_dtype_name(a->dtype), weft_dtype_name(b->dtype));
    }
    return WEFT_OK;
}

static bool is_wide_integer(weft_dtype t)
{
    return t == WEFT_DTYPE_I64 || t == WEFT_DTYPE_U64;
}

/* Largest finite magnitude of a tensor. */
static double largest_value(const weft_st_tensor *t)
{
    double values[BLOCK];
    double largest = 0;
    for (int64_t first = 0; first < t->n_elems; first += BLOCK) {
        const int64_t n = WEFT_MIN(t->n_elems - first, BLOCK);
        weft_i_tensor_values(values, t, first, n);
        for (int64_t i = 0; i < n; i++) {
            if (isfinite(values[i]))
                largest = fmax(largest, fabs(values[i]));
        }
    }
    return largest;
}

/* |a - b| with NaN = NaN and infinities equal to themselves; infinite where only one side is finite. */
static double distance(double a, double b)
{
    if (a == b || (isnan(a) && isnan(b)))
        return 0;
    return isfinite(a) && isfinite(b) ? fabs(a - b) : HUGE_VAL;
}

typedef struct difference {
    double max_abs;
    int64_t at;
    double value_a, value_b;
    int64_t n_over; /* by more than is allowed */
    int64_t n_bits; /* of another bit pattern */
} difference;

static bool is_same_bits(const weft_st_tensor *a, const weft_st_tensor *b, int64_t i)
{
    const size_t size = weft_dtype_bytes(a->dtype);
    const char *x = a->data;
    const char *y = b->data;
    return memcmp(x + (size_t)i * size, y + (size_t)i * size, size) == 0;
}

static difference measure(const weft_st_tensor *a, const weft_st_tensor *b, double allowed)
{
    difference d = {.max_abs = 0};
    double x[BLOCK], y[BLOCK];
    const bool is_one_type = a->dtype == b->dtype;
    for (int64_t first = 0; first < a->n_elems; first += BLOCK) {
        const int64_t n = WEFT_MIN(a->n_elems - first, BLOCK);
        weft_i_tensor_values(x, a, first, n);
        weft_i_tensor_values(y, b, first, n);
        for (int64_t i = 0; i < n; i++) {
            const bool is_same = is_one_type && is_same_bits(a, b, first + i);
            double far = is_same ? 0 : distance(x[i], y[i]);
            if (is_one_type && !is_same && is_wide_integer(a->dtype))
                far = fmax(far, 1); /* a double may not tell them apart */
            d.n_bits += !is_same;
            d.n_over += far > allowed;
            if (far > d.max_abs) {
                d.max_abs = far;
                d.at = first + i;
                d.value_a = x[i];
                d.value_b = y[i];
            }
        }
    }
    return d;
}

/* "[1, 20]" of a flat index. */
static void index_text(const weft_shape *shape, int64_t at, char *out, size_t size)
{
    int64_t index[WEFT_SHAPE_MAX] = {0};
    for (int k = shape->n_dims - 1; k >= 0; k--) {
        index[k] = at % shape->dim[k];
        at /= shape->dim[k];
    }
    weft_shape text = *shape;
    for (int k = 0; k < shape->n_dims; k++)
        text.dim[k] = index[k];
    (void)weft_i_shape_text(&text, out, size);
}

/* Exact, and a type whose values weft cannot read: only that bits differ is known. */
static weft_status add_opaque(diff_store *d, const weft_st_tensor *a)
{
    weft_diff_tensor *entry = NULL;
    WEFT_TRY(add_entry(d, a->name, &entry));
    entry->kind = WEFT_DIFF_BITS;
    entry->n_elems = a->n_elems;
    entry->n_different = a->n_elems;
    (void)snprintf(entry->detail, sizeof(entry->detail), "of a type that weft cannot read");
    return WEFT_OK;
}

static weft_status compare_values(diff_store *d,
                                  const weft_st_tensor *a,
                                  const weft_st_tensor *b,
                                  const weft_diff_options *o)
{
    double scale = largest_value(a);
    if (scale == 0)
        scale = largest_value(b);
    const difference found = measure(a, b, o->exact ? 0 : o->tolerance * scale);
    const bool is_bits_only = o->exact && found.n_over == 0;
    if (found.n_over == 0 && !(is_bits_only && found.n_bits > 0))
        return WEFT_OK;
    weft_diff_tensor *t = NULL;
    WEFT_TRY(add_entry(d, a->name, &t));
    t->kind = is_bits_only ? WEFT_DIFF_BITS : WEFT_DIFF_VALUE;
    t->max_abs = found.max_abs;
    t->max_rel = found.max_abs == 0 ? 0 : scale == 0 ? HUGE_VAL : found.max_abs / scale;
    t->at = found.at;
    t->value_a = found.value_a;
    t->value_b = found.value_b;
    t->n_different = o->exact ? found.n_bits : found.n_over;
    t->n_elems = a->n_elems;
    if (!is_bits_only)
        index_text(&a->shape, found.at, t->detail, sizeof(t->detail));
    return WEFT_OK;
}

static weft_status compare_pair(diff_store *d,
                                const weft_st_tensor *a,
                                const weft_st_tensor *b,
                                const weft_diff_options *o)
{
    d->diff.n_compared++;
    d->diff.n_elems += a->n_elems;
    if (!weft_i_shape_equal(&a->shape, &b->shape))
        return add_unlike(d, a, b, WEFT_DIFF_SHAPE);
    if (o->exact && a->dtype != b->dtype)
        return add_unlike(d, a, b, WEFT_DIFF_DTYPE);
    if (a->dtype == b->dtype && a->n_bytes == b->n_bytes &&
        (a->n_bytes == 0 || memcmp(a->data, b->data, a->n_bytes) == 0))
        return WEFT_OK;
    if (!weft_i_tensor_is_readable(a->dtype) || !weft_i_tensor_is_readable(b->dtype)) {
        if (o->exact)
            return add_opaque(d, a);
        WEFT_FAIL(WEFT_STATUS_UNSUPPORTED,
                  "tensor '%.200s' is %s in A and %s in B: weft cannot read its values; --exact "
                  "compares bits",
                  a->name, weft_dtype_name(a->dtype), weft_dtype_name(b->dtype));
    }
    return compare_values(d, a, b, o);
}

/* ---- all tensors ---- */

static weft_status
compare_kind(diff_store *d, const weft_st *a, const weft_st *b, const weft_diff_options *o)
{
    const size_t n_a = a == NULL ? 0 : weft_i_st_count(a);
    const size_t n_b = b == NULL ? 0 : weft_i_st_count(b);
    for (size_t i = 0; i < n_a; i++) {
        const weft_st_tensor *t = weft_i_st_at(a, i);
        const weft_st_tensor *other = b == NULL ? NULL : weft_i_st_find(b, t->name);
        if (other == NULL) {
            WEFT_TRY(add_only(d, t, WEFT_DIFF_ONLY_A));
            continue;
        }
        WEFT_TRY(compare_pair(d, t, other, o));
        weft_i_st_drop(a, t);
        weft_i_st_drop(b, other);
    }
    for (size_t i = 0; i < n_b; i++) {
        const weft_st_tensor *t = weft_i_st_at(b, i);
        if (a == NULL || weft_i_st_find(a, t->name) == NULL)
            WEFT_TRY(add_only(d, t, WEFT_DIFF_ONLY_B));
    }
    return WEFT_OK;
}

/* The worst first: what cannot be compared, then by relative difference, then by name. */
static int by_weight(const void *x, const void *y)
{
    const weft_diff_tensor *a = x;
    const weft_diff_tensor *b = y;
    const bool is_value_a = a->kind == WEFT_DIFF_VALUE || a->kind == WEFT_DIFF_BITS;
    const bool is_value_b = b->kind == WEFT_DIFF_VALUE || b->kind == WEFT_DIFF_BITS;
    if (is_value_a != is_value_b)
        return is_value_a ? 1 : -1;
    if (is_value_a && a->max_rel != b->max_rel)
        return a->max_rel > b->max_rel ? -1 : 1;
    return strcmp(a->name, b->name);
}

static weft_status compare(diff_store *d, side *a, side *b, const weft_diff_options *o)
{
    WEFT_TRY(open_side(a, d->alloc));
    WEFT_TRY(open_side(b, d->alloc));
    align_files(a, b);
    for (int k = 0; k < N_KINDS; k++) {
        /* A single file has one kind; the other kinds of a folder are not its business. */
        const bool is_outside =
            (!a->is_folder && a->kind[k] == NULL) || (!b->is_folder && b->kind[k] == NULL);
        if (!is_outside)
            WEFT_TRY(compare_kind(d, a->kind[k], b->kind[k], o));
    }
    if (d->diff.n_different > 0)
        qsort(d->tensors, d->diff.n_different, sizeof(weft_diff_tensor), by_weight);
    d->diff.tensors = d->tensors;
    return WEFT_OK;
}

weft_status weft_diff_create(weft_diff **out, const weft_diff_options *options)
{
    *out = NULL;
    WEFT_TRY(weft_options_check(WEFT_COMMAND_DIFF, options));
    if (options->exact && options->tolerance > 0)
        WEFT_FAIL(WEFT_STATUS_ARG, "--exact and --tolerance %.10g exclude each other",
                  options->tolerance);
    weft_alloc *alloc = NULL;
    WEFT_TRY(weft_i_alloc_create(&alloc, false, 0));
    void *memory = NULL;
    weft_status st = weft_i_alloc_new(alloc, 1, sizeof(diff_store), &memory);
    if (st != WEFT_OK) {
        weft_i_alloc_destroy(alloc);
        return st;
    }
    diff_store *d = memory;
    d->alloc = alloc;
    side a = {.path = options->a};
    side b = {.path = options->b};
    st = compare(d, &a, &b, options);
    close_side(&b);
    close_side(&a);
    if (st != WEFT_OK) {
        weft_diff_destroy(&d->diff);
        return st;
    }
    *out = &d->diff;
    return WEFT_OK;
}

void weft_diff_destroy(weft_diff *diff)
{
    if (diff == NULL)
        return;
    diff_store *d = (diff_store *)diff; /* its first member */
    weft_alloc *alloc = d->alloc;
    for (size_t i = 0; i < d->diff.n_different; i++)
        weft_i_alloc_put(alloc, (void *)(uintptr_t)d->tensors[i].name);
    weft_i_alloc_put(alloc, d->tensors);
    weft_i_alloc_put(alloc, d);
    weft_i_alloc_destroy(alloc);
}
