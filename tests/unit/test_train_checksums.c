/* checksums.json: what is written is read back, and what is not right is refused by name. */
#include "check.h"
#include "scratch.h"

#include "base/crc32.h"
#include "train/checksums.h"

#include <unistd.h>

static void write_some(scratch *s, weft_checksums *c)
{
    weft_i_checksums_init(c, s->alloc);
    CHECK_OK(weft_i_checksums_begin(c, "model.safetensors", 5000000000000, 0x0000ab01));
    CHECK_OK(weft_i_checksums_tensor(c, "a \"quoted\" name", 0xffffffff));
    CHECK_OK(weft_i_checksums_tensor(c, "b", 0));
    CHECK_OK(weft_i_checksums_end(c));
    (void)scratch_file(s, "config.json", "123456789", 9);
    CHECK_OK(weft_i_checksums_add_file(c, s->dir, "config.json"));
    CHECK_OK(weft_i_checksums_write(c, s->dir));
    weft_i_checksums_fini(c);
}

static uint32_t crc_of(const json_t *value)
{
    uint32_t crc = 0;
    assert_true(weft_i_checksums_crc(value, &crc));
    return crc;
}

static void test_train_checksums__come_back(void **state)
{
    scratch *s = *state;
    weft_checksums c;
    json_t *files = NULL;
    write_some(s, &c);
    CHECK_OK(weft_i_checksums_read(&files, s->alloc, s->dir));
    assert_int_equal(json_object_size(files), 2);
    const json_t *model = json_object_get(files, "model.safetensors");
    assert_int_equal(json_integer_value(json_object_get(model, "bytes")), 5000000000000);
    assert_int_equal(crc_of(json_object_get(model, "crc32")), 0xab01);
    const json_t *tensors = json_object_get(model, "tensors");
    assert_int_equal(json_object_size(tensors), 2);
    assert_int_equal(crc_of(json_object_get(tensors, "a \"quoted\" name")), 0xffffffff);
    assert_int_equal(crc_of(json_object_get(tensors, "b")), 0);
    const json_t *config = json_object_get(files, "config.json");
    assert_int_equal(crc_of(json_object_get(config, "crc32")), 0xcbf43926);
    assert_int_equal(json_integer_value(json_object_get(config, "bytes")), 9);
    assert_null(json_object_get(config, "tensors"));
    json_decref(files);
}

static void test_train_checksums__of_nothing(void **state)
{
    scratch *s = *state;
    weft_checksums c;
    json_t *files = NULL;
    weft_i_checksums_init(&c, s->alloc);
    CHECK_OK(weft_i_checksums_write(&c, s->dir));
    weft_i_checksums_fini(&c);
    CHECK_OK(weft_i_checksums_read(&files, s->alloc, s->dir));
    assert_int_equal(json_object_size(files), 0);
    json_decref(files);
}

/* Every byte of it, changed: never read as if it were right. */
static void test_train_checksums__any_damage_is_seen(void **state)
{
    scratch *s = *state;
    weft_checksums c;
    json_t *files = NULL;
    char *text = NULL;
    size_t n = 0;
    write_some(s, &c);
    CHECK_OK(weft_i_file_read(s->alloc, scratch_path(s, WEFT_CHECKSUMS_FILE), 1 << 20, &text, &n));
    assert_true(n > 200);
    const char *last = strrchr(text, '"') + 1; /* what follows is white space and a bracket */
    for (size_t i = 0; i < n; i++) {
        const char kept = text[i];
        text[i] = (char)(kept ^ 1);
        (void)scratch_file(s, WEFT_CHECKSUMS_FILE, text, n);
        const weft_status st = weft_i_checksums_read(&files, s->alloc, s->dir);
        if (st == WEFT_OK)
            json_decref(files);
        const bool is_refused = st == WEFT_STATUS_FORMAT || st == WEFT_STATUS_UNSUPPORTED;
        if (!is_refused && text + i < last)
            fail_msg("byte %d, '%c' for '%c', was not seen", (int)i, text[i], kept);
        text[i] = kept;
    }
    for (size_t cut = 0; cut + 2 < n; cut += 7) {
        (void)scratch_file(s, WEFT_CHECKSUMS_FILE, text, cut);
        CHECK_FAILS(weft_i_checksums_read(&files, s->alloc, s->dir), WEFT_STATUS_FORMAT,
                    WEFT_CHECKSUMS_FILE);
    }
    weft_i_alloc_put(s->alloc, text);
}

/* A file made by hand: its own checksum over what stands before the last line. */
static void make(scratch *s, const char *body)
{
    char text[1024];
    const int n = snprintf(text, sizeof(text), "%s  \"self\": \"%08x\"\n}\n", body,
                           weft_i_crc32(body, strlen(body)));
    (void)scratch_file(s, WEFT_CHECKSUMS_FILE, text, (size_t)n);
}

static void test_train_checksums__other_forms_are_refused(void **state)
{
    scratch *s = *state;
    json_t *files = NULL;
    static const struct {
        const char *body;
        weft_status st;
        const char *says;
    } cases[] = {
        {"{\"version\": 2, \"files\": {},\n", WEFT_STATUS_UNSUPPORTED, "version is 2"},
        {"{\"version\": \"1\", \"files\": {},\n", WEFT_STATUS_FORMAT, "\"version\""},
        {"{\"version\": 1, \"files\": [],\n", WEFT_STATUS_FORMAT, "\"files\""},
        {"{\"version\": 1, \"files\": {\"a\": 1},\n", WEFT_STATUS_FORMAT, "\"a\""},
        {"{\"version\": 1, \"files\": {\"a\": {\"bytes\": 1, \"crc32\": \"12\"}},\n",
         WEFT_STATUS_FORMAT, "\"a\""},
        {"{\"version\": 1, \"files\": {\"../a\": {\"bytes\": 1, \"crc32\": \"00000000\"}},\n",
         WEFT_STATUS_FORMAT, "../a"},
        {"{\"version\": 1, \"files\": {\"a\": {\"bytes\": 1, \"crc32\": \"00000000\", \"tensors\": "
         "{\"t\": 5}}},\n",
         WEFT_STATUS_FORMAT, "\"a\""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        make(s, cases[i].body);
        CHECK_FAILS(weft_i_checksums_read(&files, s->alloc, s->dir), cases[i].st, cases[i].says);
    }
    make(s, "{\"version\": 1, \"files\": {\"a\": {\"bytes\": 1, \"crc32\": \"0000000f\"}},\n");
    CHECK_OK(weft_i_checksums_read(&files, s->alloc, s->dir));
    json_decref(files);
    assert_int_equal(unlink(scratch_path(s, WEFT_CHECKSUMS_FILE)), 0);
    CHECK_FAILS(weft_i_checksums_read(&files, s->alloc, s->dir), WEFT_STATUS_IO,
                WEFT_CHECKSUMS_FILE);
}

#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(test_train_checksums__##name, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(come_back),
        TEST(of_nothing),
        TEST(any_damage_is_seen),
        TEST(other_forms_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
