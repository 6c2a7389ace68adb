/*
 * checksums.json (contract: checksums.h).
 *
 * The text ends with a checksum of itself, over everything before its last line: damage to this file must not be taken for
 * damage to the files it tells of.
 */
#include "train/checksums.h"

#include "base/crc32.h"
#include "base/file.h"

#include <inttypes.h>
#include <string.h>

#define MAX_FILE_BYTES ((size_t)1 << 30)
#define SELF "  \"self\": \""

void weft_i_checksums_init(weft_checksums *c, weft_alloc *alloc)
{
    *c = (weft_checksums){.has_file = false};
    weft_i_str_init(&c->text, alloc);
}

void weft_i_checksums_fini(weft_checksums *c)
{
    weft_i_str_fini(&c->text);
}

/* ---- writing ---- */

weft_status
weft_i_checksums_begin(weft_checksums *c, const char *name, uint64_t n_bytes, uint32_t crc)
{
    weft_str *s = &c->text;
    if (c->has_file)
        WEFT_TRY(weft_i_str_addf(s, ",\n    "));
    else
        WEFT_TRY(weft_i_str_addf(s, "{\n  \"version\": %d,\n  \"files\": {\n    ",
                                 WEFT_CHECKSUMS_VERSION));
    c->has_file = true;
    c->has_tensor = false;
    WEFT_TRY(weft_i_json_add_string(s, name));
    return weft_i_str_addf(s, ": {\"bytes\": %" PRIu64 ", \"crc32\": \"%08" PRIx32 "\"", n_bytes,
                           crc);
}

weft_status weft_i_checksums_tensor(weft_checksums *c, const char *name, uint32_t crc)
{
    WEFT_TRY(weft_i_str_addf(&c->text, c->has_tensor ? ",\n      " : ", \"tensors\": {\n      "));
    c->has_tensor = true;
    WEFT_TRY(weft_i_json_add_string(&c->text, name));
    return weft_i_str_addf(&c->text, ": \"%08" PRIx32 "\"", crc);
}

weft_status weft_i_checksums_end(weft_checksums *c)
{
    return weft_i_str_addf(&c->text, c->has_tensor ? "\n    }}" : "}");
}

weft_status weft_i_checksums_add_file(weft_checksums *c, const char *dir, const char *name)
{
    char path[WEFT_PATH_MAX];
    uint64_t n_bytes = 0;
    uint32_t crc = 0;
    WEFT_TRY(weft_i_path_join(path, dir, name));
    WEFT_TRY(weft_i_crc32_file(path, &crc, &n_bytes));
    WEFT_TRY(weft_i_checksums_begin(c, name, n_bytes, crc));
    return weft_i_checksums_end(c);
}

weft_status weft_i_checksums_write(weft_checksums *c, const char *dir)
{
    char path[WEFT_PATH_MAX];
    weft_str *s = &c->text;
    WEFT_TRY(weft_i_path_join(path, dir, WEFT_CHECKSUMS_FILE));
    if (!c->has_file)
        WEFT_TRY(
            weft_i_str_addf(s, "{\n  \"version\": %d,\n  \"files\": {", WEFT_CHECKSUMS_VERSION));
    WEFT_TRY(weft_i_str_addf(s, "\n  },\n"));
    const uint32_t crc = weft_i_crc32(s->text, s->n_bytes);
    WEFT_TRY(weft_i_str_addf(s, SELF "%08" PRIx32 "\"\n}\n", crc));
    return weft_i_file_write(path, s->text, s->n_bytes);
}

/* ---- reading ---- */

bool weft_i_checksums_crc(const json_t *value, uint32_t *out)
{
    const char *text = json_string_value(value);
    uint32_t crc = 0;
    if (text == NULL || strlen(text) != 8)
        return false;
    for (size_t i = 0; i < 8; i++) {
        const char *digit = strchr("0123456789abcdef", text[i]);
        if (digit == NULL)
            return false;
        crc = crc << 4 | (uint32_t)(digit - "0123456789abcdef");
    }
    *out = crc;
    return true;
}

/* Where the last line begins; NULL when there is none of that form. */
static const char *find_self(const char *text, size_t n_bytes)
{
    const size_t n = sizeof(SELF) - 1;
    for (size_t i = n_bytes >= n ? n_bytes - n + 1 : 0; i-- > 0;) {
        if (memcmp(text + i, SELF, n) == 0)
            return text + i;
    }
    return NULL;
}

static weft_status check_root(const json_t *root, const char *path, const char *text, size_t n)
{
    const json_t *version = json_object_get(root, "version");
    const char *self = find_self(text, n);
    uint32_t crc = 0;
    if (json_is_integer(version) && json_integer_value(version) > WEFT_CHECKSUMS_VERSION)
        WEFT_FAIL(WEFT_STATUS_UNSUPPORTED, "%s: its version is %lld, this weft reads %d", path,
                  (long long)json_integer_value(version), WEFT_CHECKSUMS_VERSION);
    if (!json_is_integer(version) || !json_is_object(json_object_get(root, "files")))
        WEFT_FAIL(WEFT_STATUS_FORMAT, "%s: \"version\" or \"files\" is missing", path);
    if (self == NULL || !weft_i_checksums_crc(json_object_get(root, "self"), &crc) ||
        crc != weft_i_crc32(text, (size_t)(self - text)))
        WEFT_FAIL(WEFT_STATUS_FORMAT, "%s: is damaged itself: its own checksum is not right", path);
    return WEFT_OK;
}

static weft_status check_files(json_t *files, const char *path)
{
    const char *name = NULL, *tensor = NULL;
    json_t *file = NULL, *value = NULL;
    uint32_t crc = 0;
    json_object_foreach(files, name, file)
    {
        bool is_good = json_is_integer(json_object_get(file, "bytes")) &&
                       weft_i_checksums_crc(json_object_get(file, "crc32"), &crc) &&
                       strchr(name, '/') == NULL;
        json_object_foreach(json_object_get(file, "tensors"), tensor, value)
        {
            is_good = is_good && weft_i_checksums_crc(value, &crc);
        }
        if (!is_good)
            WEFT_FAIL(WEFT_STATUS_FORMAT, "%s: the entry of \"%s\" is not of the form", path, name);
    }
    return WEFT_OK;
}

weft_status weft_i_checksums_read(json_t **files, weft_alloc *alloc, const char *dir)
{
    char path[WEFT_PATH_MAX];
    char *text = NULL;
    size_t n_bytes = 0;
    json_t *root = NULL;
    weft_status st = WEFT_OK;
    WEFT_TRY(weft_i_path_join(path, dir, WEFT_CHECKSUMS_FILE));
    WEFT_TRY(weft_i_file_read(alloc, path, MAX_FILE_BYTES, &text, &n_bytes));
    WEFT_TRY_GOTO(st, weft_i_json_parse(&root, path, "list of checksums", text, n_bytes), out);
    WEFT_TRY_GOTO(st, check_root(root, path, text, n_bytes), out);
    WEFT_TRY_GOTO(st, check_files(json_object_get(root, "files"), path), out);
    *files = json_incref(json_object_get(root, "files"));
out:
    json_decref(root);
    weft_i_alloc_put(alloc, text);
    return st;
}
