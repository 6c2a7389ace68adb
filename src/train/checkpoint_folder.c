/* Which checkpoints a path stands for (contract: checkpoint_folder.h). */
#include "train/checkpoint_folder.h"

#include "base/str.h"

#include <stdlib.h>

static int by_step(const void *a, const void *b)
{
    const weft_checkpoint_place *x = a;
    const weft_checkpoint_place *y = b;
    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    return (x->kind > y->kind) - (x->kind < y->kind);
}

/* Whether a folder has a file that only a checkpoint, or a model's folder, has. */
static bool is_checkpoint(const char *dir)
{
    static const char *const files[] = {WEFT_TRAINER_STATE_FILE, WEFT_CHECKSUMS_FILE, "config.json",
                                        "model.safetensors", "model.safetensors.index.json"};
    char path[WEFT_PATH_MAX];
    for (size_t i = 0; i < WEFT_COUNT_OF(files); i++) {
        if (weft_i_path_join(path, dir, files[i]) == WEFT_OK && weft_i_file_exists(path))
            return true;
    }
    return false;
}

static weft_status add_named(weft_checkpoint_place *places,
                             size_t *n_places,
                             const char *dir,
                             char *const *names,
                             size_t n_names)
{
    for (size_t i = 0; i < n_names; i++) {
        weft_checkpoint_place *p = &places[*n_places];
        p->kind = weft_i_checkpoint_kind(names[i], &p->step);
        if (p->kind == WEFT_CHECKPOINT_OTHER)
            continue;
        WEFT_TRY(weft_i_path_join(p->path, dir, names[i]));
        if (weft_i_dir_exists(p->path))
            (*n_places)++;
    }
    return WEFT_OK;
}

weft_status weft_i_checkpoint_places(weft_checkpoint_place **places,
                                     size_t *n_places,
                                     weft_alloc *alloc,
                                     const char *dir)
{
    char **names = NULL;
    size_t n_names = 0, n = 0;
    weft_checkpoint_place *list = NULL;
    weft_status st = WEFT_OK;
    WEFT_TRY(weft_i_dir_list(alloc, dir, &names, &n_names));
    for (size_t i = 0; i < n_names; i++) {
        int64_t step = 0;
        n += weft_i_checkpoint_kind(names[i], &step) != WEFT_CHECKPOINT_OTHER;
    }
    WEFT_TRY_GOTO(st, weft_i_alloc_array(alloc, (int64_t)n + 1, sizeof(*list), &list), out);
    n = 0;
    WEFT_TRY_GOTO(st, add_named(list, &n, dir, names, n_names), out);
    if (n == 0 && !is_checkpoint(dir)) {
        st = weft_i_error_set(WEFT_STATUS_IO,
                              "%s: holds no checkpoint (no folder checkpoint-STEP), and is none",
                              dir);
    } else if (n == 0) {
        list[n].step = -1;
        st = weft_i_str_print(list[n++].path, WEFT_PATH_MAX, "%s", dir);
    } else {
        qsort(list, n, sizeof(*list), by_step);
    }
out:
    weft_i_names_free(alloc, names, n_names);
    if (st != WEFT_OK) {
        weft_i_alloc_put(alloc, list);
        return st;
    }
    *places = list;
    *n_places = n;
    return WEFT_OK;
}
