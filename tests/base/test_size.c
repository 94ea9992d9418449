/* Parses and prints sizes such as 512M. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "base/text.h"
#include "support/unit.h"

static void known_sizes(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t bytes;
    } cases[] = {
        {"0", 0},
        {"310", 310},
        {"512M", 512ll << 20},
        {"8G", 8ll << 30},
        {"1.5T", 3ll << 39},
        {"0.5K", 512},
        {"64k", 64ll << 10},
        {"64KB", 64ll << 10},
        {"64KiB", 64ll << 10},
        {"2P", 2ll << 50},
        {"9007199254740993", 9007199254740993},
        {"9223372036854775807", INT64_MAX},
        {"8191P", 8191ll << 50},
        {"007K", 7ll << 10},
        {"1.1K", 1126},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t bytes = -1;
        if (size_parse(cases[i].text, &bytes) != STATUS_OK) fail_msg("%s", status_message());
        if (bytes != cases[i].bytes) fail_msg("%s gave %lld", cases[i].text, (long long)bytes);
    }
}

static void what_is_no_size_is_refused(void **state) {
    (void)state;
    static const char *const cases[] = {
        "",
        "G",
        "-1",
        "+1",
        " 1",
        "1 ",
        "1X",
        "1GG",
        "1Bi",
        "1iB",
        "0x10",
        "1e3",
        "inf",
        "nan",
        ".5G",
        "1.G",
        "1.5",
        "1..5G",
        "1,5G",
        "1G ",
        "12 G",
        "1K1",
        "8192P",
        "9999999999999999999",
        "9223372036854775808",
        "99999999999999999999999999999999999999P",
        "8191.999999999999999999P",
        "1KiBx",
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t bytes = 77;
        if (size_parse(cases[i], &bytes) != STATUS_BAD_INPUT)
            fail_msg("'%s' was taken as %lld", cases[i], (long long)bytes);
        assert_int_equal(bytes, 77);
        assert_non_null(strstr(status_message(), cases[i]));
    }
}

static void plain_bytes_come_back_exactly(void **state) {
    (void)state;
    uint64_t seed = 8675309;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (uint64_t i = 0; i < 20000; i++) {
        uint64_t draw = random_u64(seed, RANDOM_TEST, 0, 2 * i),
                 shift = random_u64(seed, RANDOM_TEST, 0, 2 * i + 1) % 63;
        int64_t bytes = (int64_t)(draw >> 1 >> shift), read = -1;
        char text[32];
        snprintf(text, sizeof text, "%lld", (long long)bytes);
        assert_int_equal(size_parse(text, &read), STATUS_OK);
        assert_int_equal(read, bytes);
    }
}

/* Printed to three digits or more, below 1024 of its unit, and within half a percent when read again. */
static void printed_sizes_are_close(void **state) {
    (void)state;
    uint64_t seed = 424242;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (uint64_t i = 0; i < 20000; i++) {
        uint64_t draw = random_u64(seed, RANDOM_TEST, 0, 2 * i),
                 shift = random_u64(seed, RANDOM_TEST, 0, 2 * i + 1) % 55;
        int64_t bytes = (int64_t)(draw >> 9 >> shift), read = -1;
        char text[SIZE_TEXT];
        assert_ptr_equal(size_print(bytes, text), text);
        char *space = strchr(text, ' ');
        assert_non_null(space);
        if (atof(text) >= 1024) fail_msg("%lld is printed as %s", (long long)bytes, text);
        if (space[1] == 'B')
            space[0] = '\0';
        else
            memmove(space, space + 1, strlen(space));
        assert_int_equal(size_parse(text, &read), STATUS_OK);
        if (llabs(read - bytes) > bytes / 200 + 1) fail_msg("%lld is printed as %s", (long long)bytes, text);
    }
    static const struct {
        int64_t bytes;
        const char *text;
    } cases[] = {{0, "0 B"},
                 {1023, "1023 B"},
                 {1024, "1.00 KiB"},
                 {1048575, "1.00 MiB"},
                 {10240 - 1, "10.0 KiB"},
                 {102400 - 1, "100 KiB"},
                 {5ll << 28, "1.25 GiB"},
                 {INT64_MAX, "8192 PiB"},
                 {-5, "-5 B"}};
    char text[SIZE_TEXT];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(size_print(cases[i].bytes, text), cases[i].text);
}

static void what_is_rounded_up_is_enough(void **state) {
    (void)state;
    char text[SIZE_TEXT];
    for (int64_t bytes = 1; bytes < INT64_MAX / 3; bytes += 1 + bytes / 7) {
        int64_t read;
        assert_int_equal(size_parse(size_print_option(bytes, text), &read), STATUS_OK);
        if (read < bytes || read > bytes + bytes / 100) fail_msg("%lld is printed as %s", (long long)bytes, text);
    }
    assert_string_equal(size_print_up(1025, text), "1.01 KiB");
    assert_string_equal(size_print_up(1024, text), "1.00 KiB");
    assert_string_equal(size_print_option(1025, text), "1.01KiB");
    assert_string_equal(size_print_option(1000, text), "1000");
}

static void counts_have_their_thousands_apart(void **state) {
    (void)state;
    char text[COUNT_TEXT];
    assert_string_equal(count_print(0, text), "0");
    assert_string_equal(count_print(999, text), "999");
    assert_string_equal(count_print(1000, text), "1,000");
    assert_string_equal(count_print(124439808, text), "124,439,808");
    assert_string_equal(count_print(-123456, text), "-123,456");
    assert_string_equal(count_print(INT64_MIN, text), "-9,223,372,036,854,775,808");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_sizes),
        cmocka_unit_test(what_is_no_size_is_refused),
        cmocka_unit_test(plain_bytes_come_back_exactly),
        cmocka_unit_test(printed_sizes_are_close),
        cmocka_unit_test(what_is_rounded_up_is_enough),
        cmocka_unit_test(counts_have_their_thousands_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
