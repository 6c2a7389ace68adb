/*
 * Files that checkpoints take along (contract: companions.h).
 *
 * A run may outlive the folder its model came from: a resumed one removes, by --keep-checkpoints, the checkpoint it went on
 * from; and people move checkpoints away. What is open stays readable, and what cannot be opened is known before the first
 * step.
 * Communication: none.
 */
#include "train/companions.h"

#include "base/compiler.h"
#include "base/file.h"

#include <unistd.h>

/* Beside the weights in the folder that was read; copied when there. */
static const char *const NAMES[] = {
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
};

_Static_assert(sizeof(NAMES) / sizeof(NAMES[0]) <= WEFT_COMPANION_MAX, "a place for each");

weft_status weft_i_companions_open(weft_companions *out, const char *dir)
{
    weft_companions c = {.dir = dir};
    weft_status st = WEFT_OK;
    for (size_t i = 0; i < WEFT_COUNT_OF(NAMES) && dir[0] != '\0' && st == WEFT_OK; i++) {
        char path[WEFT_PATH_MAX];
        uint64_t n_bytes;
        st = weft_i_path_join(path, dir, NAMES[i]);
        if (st != WEFT_OK || !weft_i_file_exists(path))
            continue;
        st = weft_i_file_open_regular(path, &c.fd[c.n], &n_bytes);
        if (st == WEFT_OK)
            c.name[c.n++] = NAMES[i];
    }
    if (st == WEFT_OK)
        *out = c;
    else
        weft_i_companions_close(&c);
    return st;
}

weft_status weft_i_companions_write(const weft_companions *c, const char *dir, weft_checksums *sums)
{
    for (int i = 0; i < c->n; i++) {
        char from[WEFT_PATH_MAX], to[WEFT_PATH_MAX];
        WEFT_TRY(weft_i_path_join(from, c->dir, c->name[i]));
        WEFT_TRY(weft_i_path_join(to, dir, c->name[i]));
        WEFT_TRY(weft_i_file_copy_open(c->fd[i], from, to));
        WEFT_TRY(weft_i_checksums_add_file(sums, dir, c->name[i]));
    }
    return WEFT_OK;
}

void weft_i_companions_close(weft_companions *c)
{
    for (int i = 0; i < c->n; i++)
        (void)close(c->fd[i]);
    *c = (weft_companions){0};
}
