/*
 * Opening safetensors files by memory map and looking tensors up by name.
 *
 * Source: see safetensors_parse.c, which checks the header. Tensors are sorted by name, so that lookup is a binary search
 * and two sets can be compared in one pass.
 *
 * Invariant: every tensor's data lies inside its file's map until weft_i_st_close.
 */
#include "formats/safetensors_file.h"

#include <stdlib.h>
#include <string.h>

weft_status weft_i_st_new(weft_st **out, weft_alloc *alloc, size_t n_files)
{
    weft_status st = WEFT_OK;
    weft_st *s = NULL;
    void *block = NULL;
    void *files = NULL;
    WEFT_TRY(weft_i_alloc_new(alloc, 1, sizeof(*s), &block));
    s = block;
    s->alloc = alloc;
    WEFT_TRY_GOTO(st, weft_i_alloc_new(alloc, n_files, sizeof(*s->files), &files), out);
    s->files = files;
    s->n_files = n_files;
    *out = s;
    return WEFT_OK;
out:
    weft_i_st_close(s);
    return st;
}

static void fini_file(weft_st_file *f, weft_alloc *alloc)
{
    weft_i_alloc_put(alloc, f->tensors);
    weft_i_alloc_put(alloc, f->metas);
    weft_i_alloc_put(alloc, f->strings);
    weft_i_alloc_put(alloc, f->path);
    if (f->map.n_bytes > 0)
        weft_i_map_close(&f->map);
}

void weft_i_st_close(weft_st *s)
{
    if (s == NULL)
        return;
    for (size_t i = 0; i < s->n_files; i++)
        fini_file(&s->files[i], s->alloc);
    weft_i_alloc_put(s->alloc, s->files);
    weft_i_alloc_put(s->alloc, s->tensors);
    weft_i_alloc_put(s->alloc, s);
}

static void set_file_number(weft_st_file *f, size_t number)
{
    for (size_t i = 0; i < f->n_tensors; i++)
        f->tensors[i].file = number;
}

weft_status weft_i_st_load(weft_st *s, size_t i, const char *path)
{
    weft_st_file *f = &s->files[i];
    WEFT_TRY(weft_i_str_copy(s->alloc, path, &f->path));
    WEFT_TRY(weft_i_map_open(&f->map, path));
    WEFT_TRY(weft_i_st_file_parse(f, s->alloc, f->map.data, f->map.n_bytes));
    set_file_number(f, i);
    return WEFT_OK;
}

static int compare_pointers(const void *a, const void *b)
{
    const weft_st_tensor *const *x = a;
    const weft_st_tensor *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

weft_status weft_i_st_merge(weft_st *s)
{
    size_t n = 0;
    void *block = NULL;
    for (size_t i = 0; i < s->n_files; i++)
        n += s->files[i].n_tensors;
    WEFT_TRY(weft_i_alloc_new(s->alloc, n, sizeof(*s->tensors), &block));
    s->tensors = block;
    for (size_t i = 0; i < s->n_files; i++) {
        for (size_t j = 0; j < s->files[i].n_tensors; j++)
            s->tensors[s->n_tensors++] = &s->files[i].tensors[j];
    }
    if (n > 0 && s->n_files > 1)
        qsort(s->tensors, n, sizeof(*s->tensors), compare_pointers);
    for (size_t i = 1; i < n; i++) {
        if (strcmp(s->tensors[i - 1]->name, s->tensors[i]->name) == 0)
            WEFT_FAIL(WEFT_STATUS_FORMAT, "tensor '%.200s' is in two files: %s and %s",
                      s->tensors[i]->name, s->files[s->tensors[i - 1]->file].path,
                      s->files[s->tensors[i]->file].path);
    }
    return WEFT_OK;
}

weft_status weft_i_st_open(weft_st **out, weft_alloc *alloc, const char *path)
{
    weft_status st = WEFT_OK;
    weft_st *s = NULL;
    WEFT_TRY(weft_i_st_new(&s, alloc, 1));
    WEFT_TRY_GOTO(st, weft_i_st_load(s, 0, path), out);
    WEFT_TRY_GOTO(st, weft_i_st_merge(s), out);
    *out = s;
    return WEFT_OK;
out:
    weft_i_st_close(s);
    return st;
}

weft_status weft_i_st_parse(
    weft_st **out, weft_alloc *alloc, const char *path, const void *bytes, size_t n_bytes)
{
    weft_status st = WEFT_OK;
    weft_st *s = NULL;
    WEFT_TRY(weft_i_st_new(&s, alloc, 1));
    WEFT_TRY_GOTO(st, weft_i_str_copy(alloc, path, &s->files[0].path), out);
    WEFT_TRY_GOTO(st, weft_i_st_file_parse(&s->files[0], alloc, bytes, n_bytes), out);
    WEFT_TRY_GOTO(st, weft_i_st_merge(s), out);
    *out = s;
    return WEFT_OK;
out:
    weft_i_st_close(s);
    return st;
}

size_t weft_i_st_count(const weft_st *s)
{
    return s->n_tensors;
}

const weft_st_tensor *weft_i_st_at(const weft_st *s, size_t i)
{
    return s->tensors[i];
}

const weft_st_tensor *weft_i_st_find(const weft_st *s, const char *name)
{
    size_t low = 0;
    size_t high = s->n_tensors;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int order = strcmp(name, s->tensors[middle]->name);
        if (order == 0)
            return s->tensors[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

size_t weft_i_st_file_count(const weft_st *s)
{
    return s->n_files;
}

const char *weft_i_st_file(const weft_st *s, size_t file)
{
    return s->files[file].path;
}

size_t weft_i_st_meta_count(const weft_st *s)
{
    return s->n_files == 0 ? 0 : s->files[0].n_metas;
}

weft_st_meta weft_i_st_meta_at(const weft_st *s, size_t i)
{
    return s->files[0].metas[i];
}

void weft_i_st_drop(const weft_st *s, const weft_st_tensor *t)
{
    const weft_map *map = &s->files[t->file].map;
    if (map->n_bytes > 0 && t->n_bytes > 0)
        weft_i_map_drop(map, (size_t)((const unsigned char *)t->data - map->data), t->n_bytes);
}
