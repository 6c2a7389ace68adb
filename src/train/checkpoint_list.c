/*
 * weft_checkpoint_list_create: the checkpoints of a run (contract: weft/checkpoints.h).
 *
 * Headers and lengths are looked at, contents are not: a list of hundreds of gigabytes is quick.
 */
#include "weft/checkpoints.h"

#include "train/checkpoint_folder.h"
#include "weft/options.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct list_store {
    weft_checkpoint_list list; /* first, so that the object is found from it */
    weft_alloc *alloc;
    weft_checkpoint_entry *entries;
} list_store;

/* What is wrong becomes the entry's fault; the first one stays. */
static void blame(weft_checkpoint_entry *e, const char *why)
{
    if (e->fault[0] == '\0')
        (void)snprintf(e->fault, sizeof(e->fault), "%s", why);
}

/* Bytes of all files. */
static weft_status add_bytes(weft_checkpoint_entry *e, weft_alloc *alloc, const char *dir)
{
    char **names = NULL, path[WEFT_PATH_MAX];
    size_t n_names = 0;
    WEFT_TRY(weft_i_dir_list(alloc, dir, &names, &n_names));
    for (size_t i = 0; i < n_names; i++) {
        uint64_t n_bytes = 0;
        if (weft_i_path_join(path, dir, names[i]) == WEFT_OK &&
            weft_i_file_size(path, &n_bytes) == WEFT_OK)
            e->n_bytes += n_bytes;
    }
    weft_i_names_free(alloc, names, n_names);
    return WEFT_OK;
}

static void describe_layout(weft_checkpoint_entry *e, const weft_layout *l)
{
    if (l->n_ranks == 0)
        return;
    if (l->n_ranks == 1) {
        (void)snprintf(e->layout, sizeof(e->layout), "one rank");
        return;
    }
    int n = snprintf(e->layout, sizeof(e->layout), "dp %d", l->dp);
    if (l->tp > 1)
        n += snprintf(e->layout + n, sizeof(e->layout) - (size_t)n, ", tp %d", l->tp);
    if (l->pp > 1)
        n += snprintf(e->layout + n, sizeof(e->layout) - (size_t)n, ", pp %d", l->pp);
    if (l->is_data_parallel)
        (void)snprintf(e->layout + n, sizeof(e->layout) - (size_t)n, ", data-parallel");
    else if (l->zero_stage > 0)
        (void)snprintf(e->layout + n, sizeof(e->layout) - (size_t)n, ", zero stage %d",
                       l->zero_stage);
}

static void read_state(weft_checkpoint_entry *e, weft_alloc *alloc, const char *dir)
{
    char path[WEFT_PATH_MAX];
    struct stat info;
    weft_trainer_state state;
    if (weft_i_path_join(path, dir, WEFT_TRAINER_STATE_FILE) == WEFT_OK && stat(path, &info) == 0)
        e->written_at = (int64_t)info.st_mtime;
    if (weft_i_trainer_state_read(&state, alloc, dir) != WEFT_OK) {
        blame(e, weft_last_error());
        return;
    }
    e->step = state.step;
    e->total_tokens = state.total_tokens;
    describe_layout(e, &state.layout);
    weft_i_trainer_state_fini(&state);
}

/* Whether the files that checksums.json names are there, in their lengths. */
static void check_lengths(weft_checkpoint_entry *e, json_t *files, const char *dir)
{
    char path[WEFT_PATH_MAX], why[256];
    json_t *entry = NULL;
    const char *name = NULL;
    json_object_foreach(files, name, entry)
    {
        const int64_t wanted = (int64_t)json_integer_value(json_object_get(entry, "bytes"));
        uint64_t n_bytes = 0;
        if (weft_i_path_join(path, dir, name) != WEFT_OK)
            continue;
        if (!weft_i_file_exists(path))
            (void)snprintf(why, sizeof(why), "%.100s is missing", name);
        else if (weft_i_file_size(path, &n_bytes) != WEFT_OK || n_bytes != (uint64_t)wanted)
            (void)snprintf(why, sizeof(why), "%.100s has %llu bytes, %lld were written", name,
                           (unsigned long long)n_bytes, (long long)wanted);
        else
            continue;
        blame(e, why);
    }
}

/* Whether the headers are those of whole files. */
static void check_headers(weft_checkpoint_entry *e, weft_alloc *alloc, const char *dir)
{
    static const char *const bases[] = {"model", "optimizer"};
    for (size_t i = 0; i < WEFT_COUNT_OF(bases); i++) {
        weft_st *file = NULL;
        if (weft_i_st_open_folder(&file, alloc, dir, bases[i]) != WEFT_OK)
            blame(e, weft_last_error());
        weft_i_st_close(file);
    }
}

static weft_status
fill_entry(weft_checkpoint_entry *e, weft_alloc *alloc, const weft_checkpoint_place *place)
{
    const char *slash = strrchr(place->path, '/');
    const char *name = slash != NULL && slash[1] != '\0' ? slash + 1 : place->path;
    json_t *files = NULL;
    char path[WEFT_PATH_MAX];
    (void)snprintf(e->name, sizeof(e->name), "%.63s", name);
    e->step = place->step;
    e->total_tokens = -1;
    WEFT_TRY(add_bytes(e, alloc, place->path));
    if (place->kind == WEFT_CHECKPOINT_WRITTEN)
        blame(e, "its save was cut short; the next run into this folder removes it");
    if (place->kind == WEFT_CHECKPOINT_REMOVED)
        blame(e, "its removal was cut short; the next run into this folder finishes it");
    if (place->kind == WEFT_CHECKPOINT_REPLACED)
        blame(e, "stands aside for a new one of the same step; the next run into this folder "
                 "puts that right");
    if (e->fault[0] == '\0') {
        read_state(e, alloc, place->path);
        WEFT_TRY(weft_i_path_join(path, place->path, WEFT_CHECKSUMS_FILE));
        e->has_checksums = weft_i_file_exists(path);
        if (!e->has_checksums)
            check_headers(e, alloc, place->path);
        else if (weft_i_checksums_read(&files, alloc, place->path) != WEFT_OK)
            blame(e, weft_last_error());
        else
            check_lengths(e, files, place->path);
        json_decref(files);
    }
    e->is_complete = e->fault[0] == '\0';
    return WEFT_OK;
}

/* The one that `latest` leads to; without the link, the newest (as weft_i_checkpoint_latest has it). */
static void mark_latest(list_store *s, const char *dir)
{
    char link[WEFT_PATH_MAX], target[128];
    ssize_t n = -1;
    if (weft_i_path_join(link, dir, "latest") == WEFT_OK)
        n = readlink(link, target, sizeof(target) - 1);
    target[n > 0 ? n : 0] = '\0';
    if (n > 0 && !weft_i_dir_exists(link))
        target[0] = '\0';
    weft_checkpoint_entry *newest = NULL;
    for (size_t i = 0; i < s->list.n; i++) {
        weft_checkpoint_entry *e = &s->entries[i];
        int64_t step = 0;
        e->is_latest = strcmp(e->name, target) == 0;
        if (weft_i_checkpoint_kind(e->name, &step) == WEFT_CHECKPOINT_FINAL)
            newest = e;
    }
    if (target[0] == '\0' && newest != NULL)
        newest->is_latest = true;
}

static weft_status fill_list(list_store *s, const char *dir)
{
    weft_checkpoint_place *places = NULL;
    weft_status st = WEFT_OK;
    WEFT_TRY(weft_i_checkpoint_places(&places, &s->list.n, s->alloc, dir));
    WEFT_TRY_GOTO(
        st, weft_i_alloc_array(s->alloc, (int64_t)s->list.n, sizeof(*s->entries), &s->entries),
        out);
    s->list.entries = s->entries;
    for (size_t i = 0; i < s->list.n; i++)
        WEFT_TRY_GOTO(st, fill_entry(&s->entries[i], s->alloc, &places[i]), out);
    if (places[0].kind != WEFT_CHECKPOINT_OTHER)
        mark_latest(s, dir);
out:
    weft_i_alloc_put(s->alloc, places);
    return st;
}

weft_status weft_checkpoint_list_create(weft_checkpoint_list **out,
                                        const weft_checkpoint_options *options)
{
    weft_alloc *alloc = NULL;
    void *memory = NULL;
    *out = NULL;
    WEFT_TRY(weft_options_check(WEFT_COMMAND_CHECKPOINT, options));
    WEFT_TRY(weft_i_alloc_create(&alloc, false, 0));
    weft_status st = weft_i_alloc_new(alloc, 1, sizeof(list_store), &memory);
    if (st != WEFT_OK) {
        weft_i_alloc_destroy(alloc);
        return st;
    }
    list_store *s = memory;
    s->alloc = alloc;
    st = fill_list(s, options->dir);
    if (st == WEFT_OK)
        *out = &s->list;
    else
        weft_checkpoint_list_destroy(&s->list);
    return st;
}

void weft_checkpoint_list_destroy(weft_checkpoint_list *list)
{
    if (list == NULL)
        return;
    list_store *s = (list_store *)list; /* its first member */
    weft_alloc *alloc = s->alloc;
    weft_i_alloc_put(alloc, s->entries);
    weft_i_alloc_put(alloc, s);
    weft_i_alloc_destroy(alloc);
}
