/**
 * checksums.json of a checkpoint's folder: length and CRC-32 of every file, and of every tensor, so that damage can be
 * named. Layout of the file: docs/formats.md.
 */
#ifndef WEFT_TRAIN_CHECKSUMS_H
#define WEFT_TRAIN_CHECKSUMS_H

#include "base/str.h"
#include "formats/json.h"

#define WEFT_CHECKSUMS_FILE "checksums.json"
#define WEFT_CHECKSUMS_VERSION 1

/** The file's text as it grows. */
typedef struct weft_checksums {
    weft_str text;
    bool has_file, has_tensor;
} weft_checksums;

void weft_i_checksums_init(weft_checksums *c, weft_alloc *alloc);
void weft_i_checksums_fini(weft_checksums *c);

/** A file; then its tensors in any number, then end. @return WEFT_OK | NOMEM | ARG a name that is no UTF-8 */
weft_status
weft_i_checksums_begin(weft_checksums *c, const char *name, uint64_t n_bytes, uint32_t crc);
weft_status weft_i_checksums_tensor(weft_checksums *c, const char *name, uint32_t crc);
weft_status weft_i_checksums_end(weft_checksums *c);

/** Reads DIR/NAME and adds it, without tensors. */
weft_status weft_i_checksums_add_file(weft_checksums *c, const char *dir, const char *name);

/** Writes DIR/checksums.json and syncs it. Nothing can be added after it. */
weft_status weft_i_checksums_write(weft_checksums *c, const char *dir);

/**
 * Reads DIR/checksums.json: {NAME: {"bytes", "crc32", "tensors": {NAME: crc32}}}.
 *
 * @param[out] files  an object, to be freed with json_decref
 * @return     WEFT_OK | IO | FORMAT not of this form, or its own checksum is wrong | UNSUPPORTED a newer version
 */
weft_status weft_i_checksums_read(json_t **files, weft_alloc *alloc, const char *dir);

/** A CRC as it stands in the file: 8 hexadecimal digits. false: it is none. */
bool weft_i_checksums_crc(const json_t *value, uint32_t *out);

#endif
