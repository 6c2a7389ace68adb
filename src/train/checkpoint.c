/*
 * Folders of checkpoints: making one appear whole, finding the newest, removing old ones.
 *
 *   tmp-checkpoint-STEP        being written
 *   replaced-checkpoint-STEP   an older one of the same step, from before the rename of the new one until after it
 *   tmp-removed-STEP           an old one being removed
 *
 * Invariants
 *  1. A folder checkpoint-STEP is complete: its files and itself were synced before it got its name.
 *  2. Until the new one has its name, no older one is touched but one of the same step, which is only renamed; clean
 *     gives it its name back when the new one never came.
 *  3. `latest` moves after the rename and before anything is removed.
 * Rank 0 alone makes, renames, links and removes. Communication, over the world: an agreement when the folder is there, one
 * when it has its name, and those of writing its files in between; so a failure on any rank is everyone's.
 */
#include "train/checkpoint.h"

#include "base/ctx.h"
#include "base/file.h"
#include "train/agree.h"

#include <stdlib.h>
#include <string.h>

#define FINAL "checkpoint-"
#define WRITTEN "tmp-checkpoint-"
#define REPLACED "replaced-checkpoint-"
#define REMOVED "tmp-removed-"

/* The step of "PREFIX<digits>"; -1 when the name is none. */
static int64_t step_of(const char *name, const char *prefix)
{
    const size_t n = strlen(prefix);
    int64_t step = -1;
    if (strncmp(name, prefix, n) != 0 || name[n] < '0' || name[n] > '9')
        return -1;
    return weft_i_str_to_int64(name + n, &step) ? step : -1;
}

weft_checkpoint_kind weft_i_checkpoint_kind(const char *name, int64_t *step)
{
    static const char *const prefix[] = {
        [WEFT_CHECKPOINT_FINAL] = FINAL,
        [WEFT_CHECKPOINT_WRITTEN] = WRITTEN,
        [WEFT_CHECKPOINT_REPLACED] = REPLACED,
        [WEFT_CHECKPOINT_REMOVED] = REMOVED,
    };
    for (int k = WEFT_CHECKPOINT_FINAL; k <= WEFT_CHECKPOINT_REMOVED; k++) {
        *step = step_of(name, prefix[k]);
        if (*step >= 0)
            return (weft_checkpoint_kind)k;
    }
    return WEFT_CHECKPOINT_OTHER;
}

static weft_status path_of(char *path, const char *out, const char *prefix, int64_t step)
{
    char name[64];
    WEFT_TRY(weft_i_str_print(name, sizeof(name), "%s%lld", prefix, (long long)step));
    return weft_i_path_join(path, out, name);
}

/* ---- cleaning and finding ---- */

static weft_status clean_one(const char *out, const char *name)
{
    char path[WEFT_PATH_MAX], final[WEFT_PATH_MAX];
    const int64_t replaced = step_of(name, REPLACED);
    WEFT_TRY(weft_i_path_join(path, out, name));
    if (replaced >= 0) {
        WEFT_TRY(path_of(final, out, FINAL, replaced));
        if (!weft_i_dir_exists(final))
            return weft_i_file_rename(path, final);
        return weft_i_dir_remove(path);
    }
    if (step_of(name, WRITTEN) >= 0 || step_of(name, REMOVED) >= 0)
        return weft_i_dir_remove(path);
    return WEFT_OK;
}

weft_status weft_i_checkpoint_clean(weft_alloc *alloc, const char *out)
{
    char **names = NULL;
    size_t n_names = 0;
    weft_status st = WEFT_OK;
    if (!weft_i_dir_exists(out))
        return WEFT_OK;
    WEFT_TRY(weft_i_dir_list(alloc, out, &names, &n_names));
    for (size_t i = 0; i < n_names && st == WEFT_OK; i++)
        st = clean_one(out, names[i]);
    weft_i_names_free(alloc, names, n_names);
    return st;
}

weft_status weft_i_checkpoint_latest(weft_alloc *alloc, const char *out, char *dir)
{
    char **names = NULL;
    size_t n_names = 0;
    int64_t best = -1;
    dir[0] = '\0';
    if (!weft_i_dir_exists(out))
        return WEFT_OK;
    WEFT_TRY(weft_i_path_join(dir, out, "latest"));
    if (weft_i_dir_exists(dir))
        return WEFT_OK;
    dir[0] = '\0';
    WEFT_TRY(weft_i_dir_list(alloc, out, &names, &n_names));
    for (size_t i = 0; i < n_names; i++)
        best = WEFT_MAX(best, step_of(names[i], FINAL));
    weft_i_names_free(alloc, names, n_names);
    return best < 0 ? WEFT_OK : path_of(dir, out, FINAL, best);
}

/* ---- saving ---- */

/* The finished folder gets its name; one that has it already steps aside for the moment in between. */
static weft_status put_in_place(const char *out, int64_t step)
{
    char written[WEFT_PATH_MAX], final[WEFT_PATH_MAX], replaced[WEFT_PATH_MAX];
    WEFT_TRY(path_of(written, out, WRITTEN, step));
    WEFT_TRY(path_of(final, out, FINAL, step));
    WEFT_TRY(path_of(replaced, out, REPLACED, step));
    const bool is_there = weft_i_file_exists(final);
    if (is_there) {
        WEFT_TRY(weft_i_dir_remove(replaced));
        WEFT_TRY(weft_i_file_rename(final, replaced));
    }
    const weft_status st = weft_i_file_rename(written, final);
    if (st != WEFT_OK && is_there)
        (void)weft_i_file_rename(replaced, final);
    if (st == WEFT_OK && is_there)
        (void)weft_i_dir_remove(replaced); /* what stays, the next clean removes */
    return st;
}

static int compare_steps(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a;
    const int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Removes all but the newest keep - 1 of the checkpoints before `step`; those after it belong to another past. */
static weft_status remove_old(weft_alloc *alloc, const char *out, int64_t step, int64_t keep)
{
    char **names = NULL;
    size_t n_names = 0, n = 0;
    void *block = NULL;
    int64_t *steps = NULL;
    weft_status st = WEFT_OK;
    WEFT_TRY(weft_i_dir_list(alloc, out, &names, &n_names));
    WEFT_TRY_GOTO(st, weft_i_alloc_new(alloc, n_names, sizeof(int64_t), &block), out);
    steps = block;
    for (size_t i = 0; i < n_names; i++) {
        const int64_t other = step_of(names[i], FINAL);
        if (other >= 0 && other < step)
            steps[n++] = other;
    }
    if (n > 0)
        qsort(steps, n, sizeof(*steps), compare_steps);
    for (size_t i = 0; (int64_t)(n - i) > keep - 1; i++) {
        char from[WEFT_PATH_MAX], to[WEFT_PATH_MAX];
        WEFT_TRY_GOTO(st, path_of(from, out, FINAL, steps[i]), out);
        WEFT_TRY_GOTO(st, path_of(to, out, REMOVED, steps[i]), out);
        WEFT_TRY_GOTO(st, weft_i_file_rename(from, to), out);
        WEFT_TRY_GOTO(st, weft_i_dir_remove(to), out);
    }
out:
    weft_i_alloc_put(alloc, block);
    weft_i_names_free(alloc, names, n_names);
    return st;
}

/* Rank 0: an empty folder to write into. */
static weft_status begin(const char *written)
{
    WEFT_TRY(weft_i_dir_remove(written));
    return weft_i_dir_make(written);
}

/* Rank 0, when all files are written and synced: name, link, and the old ones away. */
static weft_status end(const weft_checkpoint *c, const char *written)
{
    const int64_t step = c->state->step;
    char latest[WEFT_PATH_MAX], name[64];
    WEFT_TRY(weft_i_path_join(latest, c->out, "latest"));
    WEFT_TRY(weft_i_str_print(name, sizeof(name), "%s%lld", FINAL, (long long)step));
    WEFT_TRY(weft_i_dir_sync(written));
    WEFT_TRY(put_in_place(c->out, step));
    WEFT_TRY(weft_i_link_replace(name, latest));
    return c->keep == 0 ? WEFT_OK : remove_old(c->ctx->alloc, c->out, step, c->keep);
}

weft_status weft_i_checkpoint_save(const weft_checkpoint *c)
{
    const bool is_first = weft_i_train_is_first(c->mesh);
    char written[WEFT_PATH_MAX];
    weft_status st = path_of(written, c->out, WRITTEN, c->state->step);
    if (st == WEFT_OK && is_first)
        st = begin(written);
    st = weft_i_train_agree(c->mesh, st);
    if (st == WEFT_OK)
        st = weft_i_checkpoint_write(c, written);
    if (st == WEFT_OK)
        st = weft_i_train_agree(c->mesh, is_first ? end(c, written) : WEFT_OK);
    if (st != WEFT_OK && is_first)
        (void)weft_i_dir_remove(written); /* gone already where it has its name */
    return st;
}
