/* Event files, record by record: lengths, checksums, messages; and the file of a resumed run. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/folder.h"
#include "base/hash.h"
#include "support/temp_folder.h"
#include "support/tiny_run.h"
#include "support/unit.h"
#include "train/metrics.h"

/* RFC 3720, B.4, and the check value of the catalogue of CRCs. */
static void checksums_are_crc32c(void **state) {
    (void)state;
    unsigned char bytes[32] = {0};
    assert_int_equal(crc32c("123456789", 9), 0xe3069283);
    assert_int_equal(crc32c("", 0), 0);
    assert_int_equal(crc32c(bytes, 32), 0x8a9136aa);
    memset(bytes, 0xff, 32);
    assert_int_equal(crc32c(bytes, 32), 0x62a8ab43);
    for (unsigned char i = 0; i < 32; i++)
        bytes[i] = i;
    assert_int_equal(crc32c(bytes, 32), 0x46dd794e);
}

struct reader {
    const unsigned char *at, *end;
};

static uint64_t number(const unsigned char *at, int bytes) {
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--)
        value = value << 8 | at[i];
    return value;
}

static uint32_t masked(const unsigned char *data, size_t bytes) {
    uint32_t crc = crc32c(data, bytes);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* The data of the next record. */
static struct reader next_record(struct reader *file) {
    assert_true(file->end - file->at >= 16);
    uint64_t bytes = number(file->at, 8);
    assert_int_equal(number(file->at + 8, 4), masked(file->at, 8));
    assert_true((uint64_t)(file->end - file->at) >= 16 + bytes);
    struct reader record = {file->at + 12, file->at + 12 + bytes};
    assert_int_equal(number(record.end, 4), masked(record.at, bytes));
    file->at = record.end + 4;
    return record;
}

static uint64_t varint(struct reader *reader) {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        assert_true(reader->at < reader->end && shift < 64);
        value |= (uint64_t)(*reader->at & 0x7f) << shift;
        if (!(*reader->at++ & 0x80)) return value;
    }
}

/* The next field of a message: its number; its value as bits, or its bytes. */
struct field {
    uint64_t number, bits;
    struct reader bytes;
};

static bool next_field(struct reader *message, struct field *out) {
    if (message->at == message->end) return false;
    uint64_t key = varint(message);
    *out = (struct field){.number = key >> 3};
    switch (key & 7) {
    case 0: out->bits = varint(message); return true;
    case 1: out->bits = number(message->at, 8), message->at += 8; return true;
    case 5: out->bits = number(message->at, 4), message->at += 4; return true;
    default: break;
    }
    assert_int_equal(key & 7, 2);
    uint64_t bytes = varint(message);
    out->bytes = (struct reader){message->at, message->at + bytes};
    message->at += bytes;
    return true;
}

/* "step TAG=VALUE …", or what else the event is; the field numbers are TensorBoard's (event.proto, summary.proto). */
static void describe_event(struct reader event, char text[256]) {
    struct field field, part, value;
    char tag[32] = "", what[200] = "";
    uint64_t step = 0;
    while (next_field(&event, &field)) {
        if (field.number == 1) {
            double seconds;
            memcpy(&seconds, &field.bits, sizeof seconds);
            assert_true(seconds > 1.6e9 && seconds < 1e11);
        }
        if (field.number == 2) step = field.bits;
        if (field.number == 3)
            snprintf(what, sizeof what, " %.*s", (int)(field.bytes.end - field.bytes.at), field.bytes.at);
        if (field.number == 7 && next_field(&field.bytes, &part) && part.number == 1 && part.bits == 1)
            snprintf(what, sizeof what, " start");
        while (field.number == 5 && next_field(&field.bytes, &part))
            while (next_field(&part.bytes, &value)) {
                if (value.number == 1)
                    snprintf(tag, sizeof tag, "%.*s", (int)(value.bytes.end - value.bytes.at), value.bytes.at);
                float number_found;
                uint32_t bits = (uint32_t)value.bits;
                memcpy(&number_found, &bits, sizeof bits);
                if (value.number == 2)
                    snprintf(what + strlen(what), sizeof what - strlen(what), " %s=%g", tag, (double)number_found);
            }
    }
    snprintf(text, 256, "%d%s", (int)step, what);
}

#define NO_PROTOBUF "this build writes no event files; needs protobuf-c"

/* Every event of the directory's `index`th file, each in a line; false when there is none. */
static bool describe_file(const char *folder, int index, char text[4096]) {
    struct names names;
    assert_int_equal(folder_list(folder, &names), STATUS_OK);
    bool found = false;
    text[0] = '\0';
    for (size_t i = 0; i < names.count && !found; i++) {
        if (strncmp(names.items[i], "events.out.tfevents.", 20) != 0 || index-- > 0) continue;
        char *whole;
        size_t bytes;
        assert_int_equal(file_read(temp_path(folder, names.items[i]), 1 << 24, &whole, &bytes), STATUS_OK);
        struct reader file = {(unsigned char *)whole, (unsigned char *)whole + bytes};
        while (file.at < file.end) {
            char event[256];
            describe_event(next_record(&file), event);
            snprintf(text + strlen(text), 4096 - strlen(text), "%s\n", event);
        }
        mem_free(whole);
        found = true;
    }
    names_free(&names);
    return found;
}

static void records_are_whole(void **state) {
    struct metrics file;
    char text[4096];
    const struct event_scalar scalars[] = {{"loss", 2.5}, {"broken", (double)NAN}, {"lr", 0.001}};
    expect_status(event_file_open(*state, 0, &file), STATUS_OK, NULL);
    expect_status(event_file_write(&file, 1, scalars, 3), STATUS_OK, NULL);
    expect_status(event_file_write(&file, 300, scalars, 1), STATUS_OK, NULL);
    metrics_close(&file);
    if (!describe_file(*state, 0, text)) unit_skip(NO_PROTOBUF);
    assert_string_equal(text, "0 brain.Event:2\n1 loss=2.5 lr=0.001\n300 loss=2.5\n");
    expect_status(event_file_open(*state, 299, &file), STATUS_OK, NULL);
    metrics_close(&file);
    assert_true(describe_file(*state, 1, text));
    assert_string_equal(text, "0 brain.Event:2\n300 start\n");
}

static void a_run_has_its_files(void **state) {
    struct tiny_run run;
    char folder[512], text[4096];
    tiny_run_make(*state, "llama", &run);
    snprintf(folder, sizeof folder, "%s/run", (const char *)*state);
    expect_status(tiny_run_begin(&run, folder, NULL), STATUS_OK, NULL);
    expect_status(tiny_run_resume(folder, 7, NULL), STATUS_OK, NULL);
    if (!describe_file(folder, 0, text)) unit_skip(NO_PROTOBUF);
    int lines = 0;
    for (const char *at = text; (at = strchr(at, '\n')); at++)
        lines++;
    assert_int_equal(lines, 1 + 6 + 2);
    assert_non_null(strstr(text, "\n1 loss="));
    assert_non_null(strstr(text, " grad_norm="));
    assert_non_null(strstr(text, " tokens_per_s="));
    assert_non_null(strstr(text, "\n3 val_loss="));
    assert_true(describe_file(folder, 1, text));
    assert_non_null(strstr(text, "\n7 start\n7 loss="));
    assert_false(describe_file(folder, 2, text));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checksums_are_crc32c),
        cmocka_unit_test(records_are_whole),
        cmocka_unit_test(a_run_has_its_files),
    };
    return cmocka_run_group_tests(tests, temp_folder_make, temp_folder_drop);
}
