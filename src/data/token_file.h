/**
 * Token files: ids of 2 or 4 bytes after a header of 64 bytes, read through a memory map.
 *
 * Header, little endian: 8 bytes "WEFTTOK1"; u32 bytes of an id (2 or 4); u32 zero; u64 ids of the tokenizer; u64
 * tokens; u64 highest id that occurs + 1; 24 bytes zero. The ids follow, little endian, to the end of the file.
 * Ids have 2 bytes exactly when the tokenizer has at most 65,536 of them, so that no id can ever be cut.
 */
#ifndef WEFT_DATA_TOKEN_FILE_H
#define WEFT_DATA_TOKEN_FILE_H

#include "base/file.h"

#define WEFT_TOKEN_HEADER_BYTES 64

typedef struct weft_token_file {
    weft_map map;
    int id_bytes;
    int64_t vocab_size;
    int64_t n_tokens;
    int64_t highest_id; /* as the header says; -1: no tokens */
} weft_token_file;

/** Whether these first bytes of a file are those of a token file, of any version. */
bool weft_i_token_file_is(const unsigned char *bytes, size_t n_bytes);

/** FORMAT: header and size of the file do not agree; the numbers are in the message. */
weft_status weft_i_token_file_open(weft_token_file *out, const char *path);
void weft_i_token_file_close(weft_token_file *f);

/** ids [first, first + n) into out; the range must lie inside. */
void weft_i_token_file_read(const weft_token_file *f, int64_t first, int64_t n, int32_t *out);

/** MISMATCH: the first id that is not below vocab_size, with its position. Reads the whole file, keeps none of it. */
weft_status weft_i_token_file_check(const weft_token_file *f, const char *path, int64_t vocab_size);

/** A token file being written as PATH.tmp (a link or device: itself); finish gives it its name. */
typedef struct weft_token_writer {
    weft_writer file;
    char path[WEFT_PATH_MAX];
    int id_bytes;
    int64_t vocab_size;
    int64_t n_tokens;
    int64_t highest_id;
} weft_token_writer;

/** ARG: vocab_size not in [1, 2^31]. IO: path cannot be written, or is a pipe. */
weft_status weft_i_token_writer_open(weft_token_writer *w, const char *path, int64_t vocab_size);

/** ARG: an id outside [0, vocab_size). */
weft_status weft_i_token_writer_add(weft_token_writer *w, const int32_t *ids, size_t n_ids);

/** Writes the header, syncs, renames. After a failure there is neither the file nor its .tmp. */
weft_status weft_i_token_writer_finish(weft_token_writer *w);
void weft_i_token_writer_abandon(weft_token_writer *w);

#endif
