/**
 * trainer_state.json: where a run stands, what it was told, what it was trained on. Layout of the file: docs/formats.md.
 */
#ifndef WEFT_TRAIN_TRAINER_STATE_H
#define WEFT_TRAIN_TRAINER_STATE_H

#include "data/dataset.h"
#include "formats/json.h"
#include "parallel/layout.h"
#include "train/settings.h"

#define WEFT_TRAINER_STATE_FILE "trainer_state.json"
#define WEFT_TRAINER_STATE_VERSION 1

/** `settings` and `data` are objects of the file's form, owned. */
typedef struct weft_trainer_state {
    int64_t step;         /* of the last update */
    int64_t total_tokens; /* input tokens so far */
    int64_t next_sample;  /* number of the first sample that was not seen */
    json_t *settings;     /* name of an option: value */
    json_t *data;         /* files, tokens, hash of the training data */
    weft_layout layout; /* of the ranks that write it, or wrote it (dp, tp, pp, n_ranks, zero_stage,
                             is_data_parallel); n_ranks 0: one rank, or not said. Compared with nothing */
} weft_trainer_state;

/** A line for a person. */
typedef struct weft_note_sink {
    void (*line)(void *user, const char *text); /* NULL: nobody listens */
    void *user;
} weft_note_sink;

/** What the run is told, as it will stand in the file. @return WEFT_OK | NOMEM */
weft_status
weft_i_trainer_state_settings(json_t **out, const weft_train_settings *settings, weft_dtype dtype);

/**
 * What a run reads: each file's path and bytes, tokens of the stream, tokens of its training part (-1: left out), and a hash
 * of tokens at its start, middle and end.
 */
weft_status weft_i_trainer_state_data(json_t **out,
                                      const char **files,
                                      size_t n_files,
                                      const weft_dataset *data,
                                      int64_t train_tokens);

/** A whole number of the settings; `fallback` when it is not there. */
int64_t weft_i_trainer_state_number(const weft_trainer_state *s, const char *key, int64_t fallback);

/** The whole file's text, added to `text`. */
weft_status weft_i_trainer_state_print(const weft_trainer_state *s, weft_str *text);

/**
 * Reads DIR/trainer_state.json.
 *
 * @return WEFT_OK | IO | FORMAT file, key and what was wanted | UNSUPPORTED a newer format
 */
weft_status weft_i_trainer_state_read(weft_trainer_state *out, weft_alloc *alloc, const char *dir);
void weft_i_trainer_state_fini(weft_trainer_state *s);

/** A text among the settings ("dtype"); "" when it is none. Borrowed. */
const char *weft_i_trainer_state_text(const weft_trainer_state *s, const char *key);

/**
 * Compares what the checkpoint was trained with to what is asked now. Harmless changes (micro_batch_size) pass; changes
 * that a user may want (learning rate, decay, clipping, dropout, length of the run) pass with a note each; what would
 * make the run another one (type, optimizer, sequence length, global batch, seed, order, frozen parameters, data) is
 * refused.
 *
 * @param[in] dir  of the checkpoint, for messages
 * @return WEFT_OK | MISMATCH the name and both values
 */
weft_status weft_i_trainer_state_compare(const weft_trainer_state *saved,
                                         const weft_trainer_state *now,
                                         const char *dir,
                                         const weft_note_sink *notes);

#endif
