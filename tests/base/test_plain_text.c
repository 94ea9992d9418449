/* Untrusted text on its way to a terminal: file names in notes, output of models. */
#include <stdio.h>
#include <string.h>

#include "base/terminal.h"
#include "support/unit.h"

static char noted[256];

static void keep_note(bool warning, const char *text) {
    (void)warning;
    snprintf(noted, sizeof noted, "%s", text);
}

static void control_characters_are_replaced(void **state) {
    (void)state;
    char text[] = "a\x1b[31m\x07\xc2\x9b\n\tGr\xc3\xbc\xc3\x9f\x7f\xc2\xa0\xc2";
    terminal_make_plain(text, strlen(text));
    assert_string_equal(text, "a?[31m???\n\tGr\xc3\xbc\xc3\x9f?\xc2\xa0\xc2");
}

static void notes_have_none(void **state) {
    (void)state;
    log_listen(keep_note);
    log_note("%s: read", "\x1b]0;title\x07.txt");
    log_listen(NULL);
    assert_string_equal(noted, "?]0;title?.txt: read");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(control_characters_are_replaced),
                                       cmocka_unit_test(notes_have_none)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
