/* Translation of patterns for PCRE2, and their matches, also if the text continues. */
#include <stdlib.h>
#include <string.h>

#include "support/unit.h"
#include "text/tokenizer/pattern.h"

static const char *const refused[][2] = {
    {"^*a", "nothing to repeat"},
    {"a$+", "nothing to repeat"},
    {"\\ba", "\\b is not"},
    {"\\Aa", "\\A is not"},
    {"\\w", "\\w is not"},
    {"(a)\\1", "\\1 is not"},
    {"\\h", "\\h is not"},
    {"\\R", "\\R is not"},
    {"\\p{Han}", "\\p{Han}"},
    {"\\p{Cn}", "\\p{Cn}"},
    {"\\pL", "needs {"},
    {"\\p{L", "no }"},
    {"(?<=a)b", "group"},
    {"(?i)a", "group"},
    {"(?m:a)", "group"},
    {"(*UTF)a", "group"},
    {"(?#x)a", "group"},
    {"(?<n>a)", "group"},
    {"a)", ") without ("},
    {"[a", "no ]"},
    {"[]", "empty set"},
    {"[a[bc]]", "set within a set"},
    {"[[:alpha:]]", "set within a set"},
    {"[a&&b]", "&&"},
    {"[z-a]", "not a range"},
    {"[\\s-a]", "cannot begin a range"},
    {"[\\P{L}]", "\\P"},
    {"*a", "nothing to repeat"},
    {"a**", "nothing to repeat"},
    {"(?=a)*b", "nothing to repeat"},
    {"a{,3}", "{ does not begin"},
    {"a{2", "not a repeat"},
    {"a{3,2}", "numbers out of order"},
    {"a{99999}", "number too big"},
    {"a{2}?", "{n}?"},
    {"\\x{110000}", "number of a character"},
    {"\\x{d800}", "number of a character"},
    {"\\xff", "half a character"},
    {"a\\", "ends with"},
    {"(?i:ss)", "ss, st"},
    {"(?i:s(?:T))", "ss, st"},
    {"(?i:\\p{Lu})", "class within"},
    {"(?i:[^a])", "[^...]"},
    {"(?i:é)", "ASCII"},
};

static void what_may_differ_is_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct split_pattern *made = NULL;
        enum status status = split_pattern_compile("here", refused[i][0], strlen(refused[i][0]), false, &made);
        if (status != STATUS_BAD_INPUT) fail_msg("%s is not refused", refused[i][0]);
        if (!strstr(status_message(), refused[i][1]) || strncmp(status_message(), "here: ", 6) != 0)
            fail_msg("%s: \"%s\" does not say \"%s\"", refused[i][0], status_message(), refused[i][1]);
        split_pattern_free(made);
    }
}

static struct split_pattern *compile(const char *pattern) {
    struct split_pattern *made;
    if (split_pattern_compile("here", pattern, strlen(pattern), false, &made) != STATUS_OK)
        fail_msg("%s: %s", pattern, status_message());
    return made;
}

static enum split_result find(const char *pattern, const char *text, bool end, size_t *start, size_t *stop) {
    struct split_pattern *compiled = compile(pattern);
    struct split_matcher *matcher;
    enum split_result result;
    assert_int_equal(split_matcher_create(compiled, &matcher), STATUS_OK);
    enum status status = split_pattern_find(compiled, matcher, text, strlen(text), 0, end, &result, start, stop);
    if (status != STATUS_OK) fail_msg("%s", status_message());
    split_matcher_free(matcher);
    split_pattern_free(compiled);
    return result;
}

/* pattern, text, start and stop of the first match */
static const struct {
    const char *pattern, *text;
    size_t start, stop;
} found[] = {
    {"b+", "abbbc", 1, 4},
    {"b+?", "abbbc", 1, 2},
    {"b{2}", "abbbc", 1, 3},
    {"b{1,2}+c", "abbbbbc", 1, 7}, /* as in Ruby: (?:b{1,2})+ */
    {"x|(?:b|bb){1}+c", "abbbbbc", 1, 7},
    {"b++c|b", "abbb", 1, 2},
    {"(a|ab)(?!c)", "abcab", 0, 1},
    {"(?=b)..", "abc", 1, 3},
    {"(?>b+)c", "abbc", 1, 4},
    {"(?i:L)L", "lLL", 0, 2},
    {"'(?i:s)", "x'\xC5\xBF", 1, 4},            /* the long s */
    {"\\s", "a\xE1\xA0\x8E\xE3\x80\x80", 4, 7}, /* U+180E is none, U+3000 is one */
    {"\\S+", " \xE1\xA0\x8E ", 1, 4},
    {"[^\\s]+", " \xE1\xA0\x8E ", 1, 4},
    {"[\\S]", " \xF4\x8F\xBF\xBF", 1, 5},
    {"\\v", "\n\x0B", 1, 2},
    {".", "\n\r", 1, 2},
    {"[a-c\\-x]+", "z-abx", 1, 5},
    {"[.(*+]+", "a.(*+b", 1, 5},
    {"#x y", "#x y", 0, 4},
    {"\\x{e9}\\u00e9\\x41",
     "\xC3\xA9\xC3\xA9"
     "A",
     0, 5},
    {"\\D", "1\xF0\x90\xB5\x80z", 5, 6}, /* U+10D40 is a digit of Unicode 16 */
    {"\\P{L}", "a\xF0\xB1\x8D\x90.", 5, 6},
    {"\\p{^Lu}", "Aa", 1, 2},
    {"\\p{Mn}+", "\xF0\x91\x9C\x9E\xCC\x81\xF0\x91\x84\x80", 4, 10}, /* U+1171E is Mc since Unicode 16 */
    {"\\p{Mc}+", "\xCC\x81\xF0\x91\x9C\x9E", 2, 6},
    {"[^\\p{Mn}x]", "x\xCC\x81\xF0\x91\x9C\x9E", 3, 7},
    {"^b", "ab\nb", 3, 4},
    {"b$", "bab\nb", 2, 3},
    {"\\s+$", " a \n ", 2, 5},
    {"\\s++$|\\s", "a b  ", 1, 2},
    {"(?i:A$)", "ab\na", 3, 4},
    {"[^\\p{L}\\p{N}]", "a\xF0\xB1\x8D\x90.", 5, 6},
};

static void what_is_let_through_means_the_same(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof found / sizeof *found; i++) {
        size_t start = 0, stop = 0;
        if (find(found[i].pattern, found[i].text, true, &start, &stop) != SPLIT_FOUND || start != found[i].start ||
            stop != found[i].stop)
            fail_msg("%s in \"%s\": [%zu, %zu)", found[i].pattern, found[i].text, start, stop);
    }
}

static void matches_that_more_text_may_change_wait(void **state) {
    (void)state;
    size_t start, stop;
    assert_int_equal(find("a+", "baa", true, &start, &stop), SPLIT_FOUND);
    assert_int_equal(find("a+", "baa", false, &start, &stop), SPLIT_MORE);
    assert_int_equal(find("a+", "baab", false, &start, &stop), SPLIT_FOUND);
    assert_int_equal(find("a+", "bbb", false, &start, &stop), SPLIT_NONE);
    assert_int_equal(find("\\s+(?!\\S)", "a  ", false, &start, &stop), SPLIT_MORE);
    assert_int_equal(find("\\s+(?!\\S)", "a  b", false, &start, &stop), SPLIT_FOUND);
    assert_int_equal(find("ab|a", "xa", false, &start, &stop), SPLIT_MORE);
    assert_int_equal(find("a$", "ba", false, &start, &stop), SPLIT_MORE);
    assert_int_equal(find("a$", "ba\n", false, &start, &stop), SPLIT_FOUND);
    assert_int_equal(find("\\s++$|\\s", "b ", false, &start, &stop), SPLIT_MORE);
}

/* Whether a line begins where a text goes on depends on what is no longer there. */
static void lines_begin_after_newlines(void **state) {
    (void)state;
    struct split_pattern *pattern = compile("^a");
    struct split_matcher *matcher;
    enum split_result result;
    size_t start, stop;
    assert_int_equal(split_matcher_create(pattern, &matcher), STATUS_OK);
    static const struct {
        const char *before;
        enum split_result result;
    } cases[] = {{"", SPLIT_FOUND}, {"b", SPLIT_NONE}, {"", SPLIT_NONE}, {"b\n", SPLIT_FOUND}, {"", SPLIT_FOUND}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        split_matcher_pass(matcher, cases[i].before, strlen(cases[i].before));
        assert_int_equal(split_pattern_find(pattern, matcher, "ab", 2, 0, true, &result, &start, &stop), STATUS_OK);
        assert_int_equal(result, cases[i].result);
    }
    split_matcher_pass(matcher, "b", 1);
    split_matcher_reset(matcher);
    assert_int_equal(split_pattern_find(pattern, matcher, "ab", 2, 0, true, &result, &start, &stop), STATUS_OK);
    assert_int_equal(result, SPLIT_FOUND);
    split_matcher_free(matcher);
    split_pattern_free(pattern);
}

static void literal_patterns_are_taken_as_they_are(void **state) {
    (void)state;
    static const char text[] = "a.(\xC3\xA9[\\";
    struct split_pattern *pattern;
    struct split_matcher *matcher;
    enum split_result result;
    size_t start, stop;
    assert_int_equal(split_pattern_compile("here", text, strlen(text), true, &pattern), STATUS_OK);
    assert_int_equal(split_matcher_create(pattern, &matcher), STATUS_OK);
    assert_int_equal(split_pattern_find(pattern, matcher, "xa.(\xC3\xA9[\\y", 9, 0, true, &result, &start, &stop),
                     STATUS_OK);
    assert_int_equal(result, SPLIT_FOUND);
    assert_int_equal(start, 1);
    assert_int_equal(stop, 8);
    split_matcher_free(matcher);
    split_pattern_free(pattern);
    assert_int_equal(split_pattern_compile("here", "", 0, true, &pattern), STATUS_BAD_INPUT);
}

/* Matches are looked for in prefixes of a text: where these end changes nothing. */
static void prefixes_change_no_match(void **state) {
    (void)state;
    enum { MAX = 1100 };
    char *text = malloc(2 * MAX + 8);
    for (size_t letters = 1; letters<MAX; letters += letters> 110 && letters < 140 ? 1 : 13) {
        memset(text, 0, 2 * MAX + 8);
        for (size_t i = 0; i < letters; i++)
            memcpy(text + 2 * i, "\xC3\xA9", 2);
        memcpy(text + 2 * letters, "  .", 3);
        size_t start = 9, stop = 9;
        assert_int_equal(find("\\p{L}+", text, true, &start, &stop), SPLIT_FOUND);
        assert_true(start == 0 && stop == 2 * letters);
        assert_int_equal(find("\\s+(?!\\S)|\\s", text, true, &start, &stop), SPLIT_FOUND);
        assert_true(start == 2 * letters && stop == 2 * letters + 1);
        assert_int_equal(find("\\.$", text, true, &start, &stop), SPLIT_FOUND);
        assert_int_equal(start, 2 * letters + 2);
        assert_int_equal(find("\\p{L}+(?=.*x)|\\.", text, true, &start, &stop), SPLIT_FOUND);
        assert_int_equal(start, 2 * letters + 2);
        assert_int_equal(find("\\p{L}+\\.", text, true, &start, &stop), SPLIT_NONE);
        assert_int_equal(find("  \\.a|\\p{L}+$", text, false, &start, &stop), SPLIT_MORE);
    }
    free(text);
}

/* How many matches, at most `max`, are found before the pattern is refused or the text ends. */
static int matches_before_refusal(const char *pattern, const char *text, size_t bytes, int max, enum status *status) {
    struct split_pattern *compiled = compile(pattern);
    struct split_matcher *matcher;
    enum split_result result = SPLIT_FOUND;
    size_t place = 0, start, stop;
    int count = 0;
    assert_int_equal(split_matcher_create(compiled, &matcher), STATUS_OK);
    *status = STATUS_OK;
    for (; place < bytes && count < max; place = stop, count++) {
        *status = split_pattern_find(compiled, matcher, text, bytes, place, true, &result, &start, &stop);
        if (*status != STATUS_OK || result != SPLIT_FOUND) break;
    }
    split_matcher_free(matcher);
    split_pattern_free(compiled);
    return count;
}

/* To look at the rest of a line for each of its characters takes the square of its length. */
static void looking_ahead_without_end_is_refused(void **state) {
    (void)state;
    static const char *const costly[] = {"a(?=.*b)|a", "a(?!.*b)", "a*b|a", "a(?=a*b)|a"};
    enum { BYTES = 1 << 20, MANY = BYTES + 1, FEW = 1000 };
    char *text = malloc(BYTES);
    memset(text, 'a', BYTES);
    for (size_t i = 0; i < sizeof costly / sizeof *costly; i++) {
        enum status status;
        int count = matches_before_refusal(costly[i], text, BYTES, FEW, &status);
        if (status != STATUS_BAD_INPUT || !strstr(status_message(), "too costly"))
            fail_msg("%s: %d matches, status %d, '%s'", costly[i], count, status, status_message());
    }
    enum status status;
    assert_int_equal(matches_before_refusal("a", text, BYTES, MANY, &status), BYTES);
    assert_int_equal(status, STATUS_OK);
    assert_int_equal(matches_before_refusal("a+", text, BYTES, MANY, &status), 1);
    assert_int_equal(status, STATUS_OK);
    memset(text + 100, '\n', 1);
    assert_int_equal(matches_before_refusal("[a\\n](?!b)", text, BYTES, MANY, &status), BYTES);
    assert_int_equal(status, STATUS_OK);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefixes_change_no_match),
        cmocka_unit_test(looking_ahead_without_end_is_refused),
        cmocka_unit_test(what_may_differ_is_refused),
        cmocka_unit_test(what_is_let_through_means_the_same),
        cmocka_unit_test(matches_that_more_text_may_change_wait),
        cmocka_unit_test(lines_begin_after_newlines),
        cmocka_unit_test(literal_patterns_are_taken_as_they_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
