/* Which items of a model's list (embedding, blocks, final norm + head) every stage, or chunk of a stage, has. */
#ifndef WEFT_PARALLEL_STAGE_CUT_H
#define WEFT_PARALLEL_STAGE_CUT_H

#include "base/alloc.h"
#include "weft/config.h"

#define WEFT_STAGE_CUT_TOKENS                                                                      \
    1024 /* of a sequence, where a layout is cut: the same for all commands */

typedef struct weft_stage_cut {
    weft_alloc *alloc;
    int64_t *first; /* [n + 1] item where part i begins; first[n] = n_items */
    int n;          /* parts: stages x chunks, in model order */
    int64_t n_items;
} weft_stage_cut;

/**
 * Cuts the list of the model into n parts in order, none empty: as `counts` says ("6,3,5": items of each), or so that the
 * most expensive part is as cheap as can be, counting the products of each item's forward.
 *
 * @collective  none
 * @param[in] n_tokens  of a sequence: attention's share grows with it
 * @param[in] counts    "" for a balanced cut
 * @return      WEFT_OK | LAYOUT more parts than items, or counts that do not add up, with the arithmetic | NOMEM
 */
weft_status weft_i_stage_cut_make(weft_stage_cut *out,
                                  weft_alloc *alloc,
                                  const weft_config *config,
                                  int64_t n_tokens,
                                  int n,
                                  const char *counts);

/** The parts of "6,3,5" and, in *n_items, the items of all (INT_MAX: so many or more); -1: it is no such list. */
int weft_i_stage_cut_count(const char *counts, int64_t *n_items);

/** Whether it can be made, without making it. @return WEFT_OK | LAYOUT */
weft_status weft_i_stage_cut_check(const weft_config *config, int n, const char *counts);
void weft_i_stage_cut_fini(weft_stage_cut *c);

/** "embedding, blocks 0-5", "block 6, norm + head" of part i, cut to size. */
void weft_i_stage_cut_text(const weft_stage_cut *c, int part, char *out, size_t size);

#endif
