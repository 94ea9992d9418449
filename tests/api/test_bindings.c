/* Structs that other languages redeclare have the sizes that the library writes. */
#include <stdio.h>
#include <string.h>

#include "ballast.h"
#include "base/file.h"
#include "base/mem.h"
#include "support/unit.h"

/* The fields that examples/train.py declares: names between quotes, behind their type. All take eight bytes, as does
 * the version with what aligns the next field. */
static size_t declared_bytes(const char *text, const char *name) {
    char begin[64];
    size_t fields = 1;
    snprintf(begin, sizeof begin, "\"%s\",", name);
    const char *at = strstr(text, begin), *end;
    if (!at) fail_msg("examples/train.py declares no %s", name);
    for (at += strlen(begin); *at != '\0' && strncmp(at, "))", 2) != 0; at++) {
        if (*at != '"') continue;
        end = strchr(at + 1, '"');
        fields++;
        for (const char *space = at; space < end; space++)
            fields += *space == ' ';
        at = end;
    }
    return fields * 8;
}

static void python_declares_whole_structs(void **state) {
    (void)state;
    char *text;
    size_t bytes;
    assert_int_equal(file_read(BALLAST_SOURCE "/examples/train.py", 1 << 20, &text, &bytes), STATUS_OK);
    assert_int_equal(declared_bytes(text, "plan_options"), sizeof(struct ballast_plan_options));
    assert_int_equal(declared_bytes(text, "train_options"), sizeof(struct ballast_train_options));
    assert_int_equal(declared_bytes(text, "generate_options"), sizeof(struct ballast_generate_options));
    assert_int_equal(declared_bytes(text, "train_events"), sizeof(struct ballast_train_events));
    mem_free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(python_declares_whole_structs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
