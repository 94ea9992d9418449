/* Text ends before the first stop, in whatever pieces it arrives, and is held back no longer than necessary. */
#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "generate/writer.h"
#include "support/unit.h"

struct output {
    char text[256];
    size_t bytes;
    size_t max; /* bytes that the sink takes */
};

static bool take(void *payload, const char *text, size_t bytes) {
    struct output *output = payload;
    memcpy(output->text + output->bytes, text, bytes);
    output->bytes += bytes;
    output->text[output->bytes] = '\0';
    return output->bytes < output->max;
}

static struct stop_text start(const char *const *stops, size_t count, struct output *output) {
    *output = (struct output){.max = sizeof output->text};
    return (struct stop_text){.stops = stops, .stop_count = count, .sink = take, .payload = output};
}

static void push(struct stop_text *text, const char *bytes) {
    assert_int_equal(stop_text_push(text, bytes, strlen(bytes)), STATUS_OK);
}

static void what_may_be_a_stop_is_held_back(void **state) {
    (void)state;
    static const char *const stops[] = {"END", "###"};
    struct output output;
    struct stop_text text = start(stops, 2, &output);
    push(&text, "one E");
    assert_string_equal(output.text, "one ");
    push(&text, "N");
    assert_string_equal(output.text, "one ");
    push(&text, "X ##");
    assert_string_equal(output.text, "one ENX ");
    push(&text, "x#");
    stop_text_finish(&text);
    assert_string_equal(output.text, "one ENX ##x#");
    assert_false(text.stopped);
    stop_text_free(&text);
    text = start(stops, 2, &output);
    push(&text, "a##");
    push(&text, "#END");
    assert_string_equal(output.text, "a");
    assert_true(text.stopped);
    push(&text, "more");
    stop_text_finish(&text);
    assert_string_equal(output.text, "a");
    stop_text_free(&text);
}

static void text_goes_on_without_stops(void **state) {
    (void)state;
    struct output output;
    struct stop_text text = start(NULL, 0, &output);
    push(&text, "all ");
    push(&text, "of it");
    assert_string_equal(output.text, "all of it");
    stop_text_free(&text);
    text = start(NULL, 0, &output);
    output.max = 2;
    push(&text, "abc");
    assert_true(text.stopped);
    push(&text, "d");
    assert_string_equal(output.text, "abc");
    stop_text_free(&text);
}

/* Random texts of few letters in random pieces, against strstr. */
static void stops_are_found_across_pieces(void **state) {
    (void)state;
    static const char *const stops[] = {"aab", "ba", "bbbb"};
    enum { SEED = 77, ROUNDS = 2000, LENGTH = 24 };
    print_message("seed %d\n", SEED);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        char whole[LENGTH + 1] = "", piece[LENGTH + 1];
        struct output output;
        size_t count = 1 + round % 3;
        for (int i = 0; i < LENGTH; i++)
            whole[i] = random_u64(SEED, RANDOM_TEST, (uint32_t)round, (uint64_t)i) % 4 ? 'b' : 'a';
        struct stop_text text = start(stops, count, &output);
        for (int at = 0, size; at < LENGTH; at += size) {
            size = 1 + (int)(random_u64(SEED, RANDOM_TEST, (uint32_t)round, (uint64_t)(1000 + at)) % 5);
            snprintf(piece, sizeof piece, "%.*s", size, whole + at);
            push(&text, piece);
        }
        stop_text_finish(&text);
        char *end = NULL;
        for (size_t i = 0; i < count; i++) {
            char *found = strstr(whole, stops[i]);
            if (found && (!end || found < end)) end = found;
        }
        if (end) *end = '\0';
        if (strcmp(whole, output.text) != 0) fail_msg("round %d: '%s', not '%s'", (int)round, output.text, whole);
        stop_text_free(&text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_may_be_a_stop_is_held_back),
        cmocka_unit_test(text_goes_on_without_stops),
        cmocka_unit_test(stops_are_found_across_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
