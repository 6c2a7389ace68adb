/*
 * Reads the file of --pace. A key that is not known is refused: a misspelt one would leave a layer at full speed.
 *
 *   {"block": {"forward_ms": 1.0, "input_gradient_ms": 1.0, "weight_gradient_ms": 1.0},
 *    "embedding": {...}, "head": {...},
 *    "message": {"latency_us": 20, "bandwidth_gb_per_s": 1.5}}
 *
 * 1 GB is 1e9 bytes. What is absent is not held back.
 */
#include "formats/pace_file.h"

#include "base/file.h"
#include "formats/json.h"

#include <string.h>

#define MAX_BYTES ((size_t)1 << 20)
#define MOST_MS 1e6
#define MOST_US 1e9
#define MOST_GB 1e6
#define LEAST_GB 1e-6 /* 1 kB a second: slower, a mistyped exponent would be waited out for years */

typedef struct pace_key {
    const char *name;
    double least, most;
    double *out;
} pace_key;

typedef struct pace_part {
    const char *name;
    const pace_key *keys;
    size_t n_keys;
} pace_part;

static weft_status read_key(const char *path, const char *part, const pace_key *k, const json_t *v)
{
    char text[64];
    const double x = json_is_number(v) ? json_number_value(v) : -1;
    if (!(x >= k->least && x <= k->most))
        WEFT_FAIL(WEFT_STATUS_FORMAT, "%s: %s.%s is %s; a number >= %g and at most %g is needed",
                  path, part, k->name, weft_i_json_text(v, text, sizeof(text)), k->least, k->most);
    *k->out = x;
    return WEFT_OK;
}

static weft_status read_part(const char *path, const pace_part *part, json_t *object)
{
    char text[64];
    const char *name;
    json_t *value;
    if (!json_is_object(object))
        WEFT_FAIL(WEFT_STATUS_FORMAT, "%s: %s is %s; an object {...} is needed", path, part->name,
                  weft_i_json_text(object, text, sizeof(text)));
    json_object_foreach(object, name, value)
    {
        size_t i = 0;
        while (i < part->n_keys && strcmp(name, part->keys[i].name) != 0)
            i++;
        if (i == part->n_keys)
            WEFT_FAIL(WEFT_STATUS_FORMAT, "%s: %s has no key \"%.64s\"; \"%s\" is one", path,
                      part->name, name, part->keys[0].name);
        WEFT_TRY(read_key(path, part->name, &part->keys[i], value));
    }
    for (size_t i = 0; i < part->n_keys; i++) {
        if (json_object_get(object, part->keys[i].name) == NULL)
            WEFT_FAIL(WEFT_STATUS_FORMAT, "%s: %s lacks %s", path, part->name, part->keys[i].name);
    }
    return WEFT_OK;
}

static weft_status read_root(weft_pace *pace, const char *path, json_t *root)
{
    double latency_us = 0, gb_per_s = 0;
    weft_pace_layer *const layers[] = {&pace->block, &pace->embedding, &pace->head};
    pace_key keys[3][3];
    for (size_t i = 0; i < 3; i++) {
        keys[i][0] = (pace_key){"forward_ms", 0, MOST_MS, &layers[i]->forward_ms};
        keys[i][1] = (pace_key){"input_gradient_ms", 0, MOST_MS, &layers[i]->input_gradient_ms};
        keys[i][2] = (pace_key){"weight_gradient_ms", 0, MOST_MS, &layers[i]->weight_gradient_ms};
    }
    const pace_key message[] = {{"latency_us", 0, MOST_US, &latency_us},
                                {"bandwidth_gb_per_s", LEAST_GB, MOST_GB, &gb_per_s}};
    const pace_part parts[] = {{"block", keys[0], 3},
                               {"embedding", keys[1], 3},
                               {"head", keys[2], 3},
                               {"message", message, 2}};
    const char *name;
    json_t *value;
    json_object_foreach(root, name, value)
    {
        size_t i = 0;
        while (i < WEFT_COUNT_OF(parts) && strcmp(name, parts[i].name) != 0)
            i++;
        if (i == WEFT_COUNT_OF(parts))
            WEFT_FAIL(WEFT_STATUS_FORMAT,
                      "%s: there is no key \"%.64s\"; block, embedding, head and message are", path,
                      name);
        WEFT_TRY(read_part(path, &parts[i], value));
    }
    pace->latency_s = latency_us * 1e-6;
    pace->bytes_per_s = gb_per_s * 1e9;
    return WEFT_OK;
}

weft_status weft_i_pace_file_read(weft_pace *out, const char *path)
{
    weft_alloc *alloc = NULL;
    weft_pace pace = {0};
    char *text = NULL;
    size_t n_bytes = 0;
    json_t *root = NULL;
    WEFT_TRY(weft_i_alloc_create(&alloc, false, 0));
    weft_status st = weft_i_file_read(alloc, path, MAX_BYTES, &text, &n_bytes);
    if (st == WEFT_OK)
        st = weft_i_json_parse(&root, path, "pace file", text, n_bytes);
    if (st == WEFT_OK)
        st = read_root(&pace, path, root);
    if (st == WEFT_OK)
        *out = pace;
    json_decref(root);
    weft_i_alloc_put(alloc, text);
    weft_i_alloc_destroy(alloc);
    return st;
}
