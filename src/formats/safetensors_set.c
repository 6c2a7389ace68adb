/*
 * A folder's shards as one set: the index says which files there are, and every promise it makes is checked.
 *
 * Source: the layout transformers writes, {"metadata": {"total_size": bytes}, "weight_map": {tensor: file}}. total_size is
 * not believed or checked: published files have it wrong.
 *
 * Invariant after WEFT_OK: every tensor the index lists is in the file the index names, and in no other.
 */
#include "formats/json.h"
#include "formats/safetensors_file.h"

#include <stdlib.h>
#include <string.h>

#define INDEX_MAX_BYTES ((size_t)256 << 20)
#define SUFFIX ".safetensors"

typedef struct index_file {
    char path[WEFT_PATH_MAX];
    json_t *root;
    json_t *weight_map;
    const char **files; /* sorted, each once */
    size_t n_files;
} index_file;

static int compare_text(const void *a, const void *b)
{
    const char *const *x = a;
    const char *const *y = b;
    return strcmp(*x, *y);
}

static weft_status check_entry(const index_file *x, const char *tensor, const json_t *file)
{
    const char *name = json_string_value(file);
    char text[200];
    if (name == NULL || name[0] == '\0')
        WEFT_FAIL(WEFT_STATUS_FORMAT, "%s: weight_map places tensor '%.200s' in %s, not in a file",
                  x->path, tensor, weft_i_json_text(file, text, sizeof(text)));
    if (strchr(name, '/') != NULL || strcmp(name, "..") == 0 || strcmp(name, ".") == 0)
        WEFT_FAIL(WEFT_STATUS_FORMAT,
                  "%s: weight_map places tensor '%.200s' in '%.200s', outside the folder", x->path,
                  tensor, name);
    return WEFT_OK;
}

/* The distinct files that the index names. */
static weft_status list_files(index_file *x, weft_alloc *alloc)
{
    const char *tensor;
    json_t *file;
    void *block = NULL;
    size_t n = 0;
    WEFT_TRY(weft_i_alloc_new(alloc, json_object_size(x->weight_map), sizeof(*x->files), &block));
    x->files = block;
    json_object_foreach(x->weight_map, tensor, file)
    {
        WEFT_TRY(check_entry(x, tensor, file));
        x->files[n++] = json_string_value(file);
    }
    qsort(x->files, n, sizeof(*x->files), compare_text);
    for (size_t i = 0; i < n; i++) {
        if (x->n_files == 0 || strcmp(x->files[x->n_files - 1], x->files[i]) != 0)
            x->files[x->n_files++] = x->files[i];
    }
    return WEFT_OK;
}

static weft_status read_index(index_file *x, weft_alloc *alloc)
{
    weft_status st = WEFT_OK;
    char *text = NULL;
    size_t n_bytes = 0;
    WEFT_TRY(weft_i_file_read(alloc, x->path, INDEX_MAX_BYTES, &text, &n_bytes));
    st = weft_i_json_parse(&x->root, x->path, "index", text, n_bytes);
    weft_i_alloc_put(alloc, text);
    WEFT_TRY(st);
    x->weight_map = json_object_get(x->root, "weight_map");
    if (!json_is_object(x->weight_map) || json_object_size(x->weight_map) == 0)
        WEFT_FAIL(WEFT_STATUS_FORMAT, "%s: no weight_map that places tensors in files", x->path);
    return list_files(x, alloc);
}

static weft_status find_missing(const index_file *x, weft_alloc *alloc, const char *dir)
{
    weft_status st = WEFT_OK;
    weft_str names;
    size_t n_missing = 0;
    char path[WEFT_PATH_MAX];
    weft_i_str_init(&names, alloc);
    for (size_t i = 0; i < x->n_files; i++) {
        WEFT_TRY_GOTO(st, weft_i_path_join(path, dir, x->files[i]), out);
        if (weft_i_file_exists(path))
            continue;
        n_missing++;
        WEFT_TRY_GOTO(st, weft_i_str_addf(&names, "%s%s", n_missing > 1 ? ", " : "", x->files[i]),
                      out);
    }
    if (n_missing > 0)
        st = weft_i_error_set(WEFT_STATUS_IO, "%s names %zu files, of which %zu %s missing: %s",
                              x->path, x->n_files, n_missing, n_missing == 1 ? "is" : "are",
                              names.text);
out:
    weft_i_str_fini(&names);
    return st;
}

static weft_status check_places(const index_file *x, const weft_st *s)
{
    const char *tensor;
    json_t *file;
    json_object_foreach(x->weight_map, tensor, file)
    {
        const char *wanted = json_string_value(file);
        const weft_st_tensor *t = weft_i_st_find(s, tensor);
        if (t == NULL)
            WEFT_FAIL(WEFT_STATUS_FORMAT, "%s places tensor '%.200s' in %s, which does not hold it",
                      x->path, tensor, wanted);
        if (strcmp(wanted, x->files[t->file]) != 0)
            WEFT_FAIL(WEFT_STATUS_FORMAT, "%s places tensor '%.200s' in %s, but it is in %s",
                      x->path, tensor, wanted, x->files[t->file]);
    }
    return WEFT_OK;
}

static weft_status
open_indexed(weft_st **out, index_file *x, weft_alloc *alloc, const char *dir, const char *single)
{
    weft_status st = WEFT_OK;
    weft_st *s = NULL;
    char path[WEFT_PATH_MAX];
    WEFT_TRY(read_index(x, alloc));
    bool names_single = false;
    for (size_t i = 0; i < x->n_files; i++)
        names_single = names_single || strcmp(x->files[i], single) == 0;
    WEFT_TRY(weft_i_path_join(path, dir, single));
    if (!names_single && weft_i_file_exists(path))
        WEFT_FAIL(WEFT_STATUS_FORMAT,
                  "%s holds %s and an index that does not name it: two models, or one and what is "
                  "left of another; "
                  "remove one of them",
                  dir, single);
    WEFT_TRY(find_missing(x, alloc, dir));
    WEFT_TRY(weft_i_st_new(&s, alloc, x->n_files));
    for (size_t i = 0; i < x->n_files; i++) {
        WEFT_TRY_GOTO(st, weft_i_path_join(path, dir, x->files[i]), out);
        WEFT_TRY_GOTO(st, weft_i_st_load(s, i, path), out);
    }
    WEFT_TRY_GOTO(st, weft_i_st_merge(s), out);
    WEFT_TRY_GOTO(st, check_places(x, s), out);
    *out = s;
    return WEFT_OK;
out:
    weft_i_st_close(s);
    return st;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text);
    const size_t n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

/* Neither an index nor the single file: says what there is instead. */
static weft_status explain_absence(weft_alloc *alloc, const char *dir, const char *base)
{
    weft_status st = WEFT_OK;
    weft_str found;
    char **names = NULL;
    size_t n_names = 0;
    size_t n_shards = 0;
    bool has_pickle = false;
    if (!weft_i_dir_exists(dir))
        WEFT_FAIL(WEFT_STATUS_IO, "%s: no such folder", dir);
    weft_i_str_init(&found, alloc);
    WEFT_TRY_GOTO(st, weft_i_dir_list(alloc, dir, &names, &n_names), out);
    for (size_t i = 0; i < n_names; i++) {
        has_pickle = has_pickle || ends_with(names[i], ".bin") || ends_with(names[i], ".pth");
        if (!ends_with(names[i], SUFFIX))
            continue;
        n_shards++;
        WEFT_TRY_GOTO(st, weft_i_str_addf(&found, "%s%s", n_shards > 1 ? ", " : "", names[i]), out);
    }
    if (n_shards > 0)
        st = weft_i_error_set(WEFT_STATUS_FORMAT,
                              "%s has no %s" SUFFIX " and no %s" SUFFIX
                              ".index.json to say which files belong "
                              "together; it holds %s",
                              dir, base, base, found.text);
    else
        st = weft_i_error_set(
            WEFT_STATUS_IO, "%s has neither %s" SUFFIX " nor %s" SUFFIX ".index.json%s", dir, base,
            base,
            has_pickle ? "; weft does not read .bin or .pth files, save the model as safetensors"
                       : "");
out:
    weft_i_names_free(alloc, names, n_names);
    weft_i_str_fini(&found);
    return st;
}

weft_status
weft_i_st_open_folder(weft_st **out, weft_alloc *alloc, const char *dir, const char *base)
{
    char single[256];
    char name[256];
    char path[WEFT_PATH_MAX];
    index_file x = {.root = NULL};
    WEFT_TRY(weft_i_str_print(single, sizeof(single), "%s" SUFFIX, base));
    WEFT_TRY(weft_i_str_print(name, sizeof(name), "%s.index.json", single));
    WEFT_TRY(weft_i_path_join(x.path, dir, name));
    if (weft_i_file_exists(x.path)) {
        const weft_status st = open_indexed(out, &x, alloc, dir, single);
        weft_i_alloc_put(alloc, x.files);
        json_decref(x.root);
        return st;
    }
    WEFT_TRY(weft_i_path_join(path, dir, single));
    if (weft_i_file_exists(path))
        return weft_i_st_open(out, alloc, path);
    return explain_absence(alloc, dir, base);
}
