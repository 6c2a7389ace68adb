/* Names are found by the number they came with, however many there are. */
#include "check.h"

#include "base/name_table.h"

#include <stdio.h>
#include <string.h>

#define MANY 5000

static void test_base_name_table__finds_what_was_added(void **state)
{
    (void)state;
    static char names[MANY][32], copy[32];
    weft_alloc *alloc = NULL;
    weft_name_table t = {0};
    CHECK_OK(weft_i_alloc_create(&alloc, false, 0));
    assert_int_equal(weft_i_name_table_find(&t, "model.layers.0"), -1);
    for (int i = 0; i < MANY; i++) {
        (void)snprintf(names[i], sizeof(names[i]), "model.layers.%d", i);
        assert_int_equal(weft_i_name_table_find(&t, names[i]), -1);
        CHECK_OK(weft_i_name_table_add(&t, alloc, names[i], 3 * i));
        assert_int_equal(weft_i_name_table_find(&t, names[i / 2]), 3 * (i / 2));
    }
    for (int i = 0; i < MANY; i++) {
        memcpy(copy, names[i], sizeof(copy));
        assert_int_equal(weft_i_name_table_find(&t, copy), 3 * i);
    }
    assert_int_equal(weft_i_name_table_find(&t, "model.layers."), -1);
    assert_int_equal(weft_i_name_table_find(&t, ""), -1);
    weft_i_name_table_fini(&t, alloc);
    weft_i_alloc_destroy(alloc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_base_name_table__finds_what_was_added),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
