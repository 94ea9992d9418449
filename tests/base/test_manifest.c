/* Checksums of blocks, and the manifest that lists them: changes in a directory are found and named. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/file.h"
#include "base/json.h"
#include "base/manifest.h"
#include "base/random.h"
#include "support/fault_sweep.h"
#include "support/temp_folder.h"
#include "support/unit.h"

enum { LARGE_BYTES = FILE_BLOCK_BYTES + 12345 };
static const char small_text[] = "one small file\n";

static unsigned char *make_bytes(size_t bytes) {
    unsigned char *data = mem_array(bytes, 1);
    assert_non_null(data);
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t value = random_u64(7, RANDOM_TEST, 0, i);
        memcpy(data + i, &value, sizeof value);
    }
    return data;
}

/* However the bytes come, the sums are those of whole blocks and the rest. */
static void sums_are_by_blocks(void **state) {
    (void)state;
    unsigned char *data = make_bytes(LARGE_BYTES);
    static const size_t pieces[] = {LARGE_BYTES, 1 << 20, 999983};
    for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
        struct file_sums sums;
        assert_int_equal(file_sums_begin(&sums), STATUS_OK);
        for (size_t at = 0; at < LARGE_BYTES; at += pieces[p])
            file_sums_add(&sums, data + at, LARGE_BYTES - at < pieces[p] ? LARGE_BYTES - at : pieces[p]);
        assert_int_equal(file_sums_end(&sums), STATUS_OK);
        assert_int_equal(sums.bytes, LARGE_BYTES);
        assert_int_equal(sums.blocks.count, 2);
        assert_true(sums.blocks.items[0] == XXH3_64bits(data, FILE_BLOCK_BYTES));
        assert_true(sums.blocks.items[1] == XXH3_64bits(data + FILE_BLOCK_BYTES, LARGE_BYTES - FILE_BLOCK_BYTES));
        file_sums_free(&sums);
    }
    mem_free(data);
    assert_true(file_blocks(0, FILE_BLOCK_BYTES) == 0 && file_blocks(1, FILE_BLOCK_BYTES) == 1);
    assert_true(file_blocks(FILE_BLOCK_BYTES, FILE_BLOCK_BYTES) == 1);
    assert_true(file_blocks(LARGE_BYTES, FILE_BLOCK_BYTES) == 2);
}

/* A file written by each of the ways that there are, and an empty one. */
static enum status write_folder(const char *folder, const unsigned char *large, struct manifest *manifest) {
    struct file_sums *sums;
    struct file_writer writer;
    char source[600];
    snprintf(source, sizeof source, "%s.source", folder);
    TRY(folder_create(folder));
    TRY(manifest_add(manifest, temp_path(folder, "small.txt"), &sums));
    TRY(file_copy_summed(source, temp_path(folder, "small.txt"), sums));
    TRY(manifest_add(manifest, temp_path(folder, "value.json"), &sums));
    json_t *value = json_pack("{s:i}", "a", 1);
    enum status status = json_write_summed(temp_path(folder, "value.json"), value, sums);
    json_decref(value);
    TRY(status);
    TRY(manifest_add(manifest, temp_path(folder, "empty"), &sums));
    TRY(file_writer_open(temp_path(folder, "empty"), &writer));
    writer.sums = sums;
    TRY(file_writer_close(&writer));
    if (large) {
        TRY(manifest_add(manifest, temp_path(folder, "large.bin"), &sums));
        TRY(file_writer_open(temp_path(folder, "large.bin"), &writer));
        writer.sums = sums;
        file_writer_pass_cache(&writer);
        file_writer_write(&writer, large, LARGE_BYTES);
        TRY(file_writer_close(&writer));
    }
    return manifest_write(manifest, folder);
}

static void make_folder(const char *folder, const unsigned char *large) {
    struct manifest manifest = {0};
    char source[600];
    snprintf(source, sizeof source, "%s.source", folder);
    temp_write_text(source, small_text);
    if (write_folder(folder, large, &manifest) != STATUS_OK) fail_msg("%s", status_message());
    manifest_free(&manifest);
}

static enum status examine(const char *folder, struct manifest_findings *out) {
    struct manifest manifest;
    *out = (struct manifest_findings){0};
    TRY(manifest_read(folder, &manifest));
    enum status status = manifest_verify(&manifest, folder, NULL, (struct manifest_share){0}, out);
    if (status == STATUS_OK) status = manifest_find_added(&manifest, folder, out);
    manifest_free(&manifest);
    return status;
}

/* What is found, one a line. */
static char *found_text(const char *folder) {
    struct manifest_findings findings;
    char text[MANIFEST_TEXT_BYTES], *all = mem_string("");
    if (examine(folder, &findings) != STATUS_OK) fail_msg("%s", status_message());
    for (size_t i = 0; i < findings.items.count; i++) {
        char *longer = mem_format("%s%s\n", all, manifest_finding_print(&findings.items.items[i], text));
        assert_non_null(longer);
        mem_free(all);
        all = longer;
    }
    vec_free(&findings.items);
    return all;
}

static void expect_found(const char *folder, const char *expected) {
    char *text = found_text(folder);
    assert_string_equal(text, expected);
    mem_free(text);
}

static void flip(const char *path, long at) {
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    int byte = fgetc(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    assert_int_equal(fputc(byte ^ 1, file), byte ^ 1);
    assert_int_equal(fclose(file), 0);
}

static void what_changed_is_named(void **state) {
    char folder[512];
    snprintf(folder, sizeof folder, "%s/directory", (const char *)*state);
    unsigned char *large = make_bytes(LARGE_BYTES);
    make_folder(folder, large);
    mem_free(large);
    expect_found(folder, "");
    flip(temp_path(folder, "large.bin"), FILE_BLOCK_BYTES + 77);
    expect_found(folder, "large.bin: block 1 (bytes 67108864 to 67121208) is not as it was written\n");
    flip(temp_path(folder, "large.bin"), 0);
    expect_found(folder, "large.bin: block 0 (bytes 0 to 67108863) is not as it was written\n"
                         "large.bin: block 1 (bytes 67108864 to 67121208) is not as it was written\n");
    flip(temp_path(folder, "large.bin"), FILE_BLOCK_BYTES + 77);
    flip(temp_path(folder, "large.bin"), 0);
    flip(temp_path(folder, "small.txt"), 3);
    expect_found(folder, "small.txt: block 0 (bytes 0 to 14) is not as it was written\n");
    temp_write_text(temp_path(folder, "small.txt"), "longer than it was before\n");
    expect_found(folder, "small.txt: has 26 bytes, was written with 15\n");
    temp_write_text(temp_path(folder, "small.txt"), small_text);
    assert_int_equal(unlink(temp_path(folder, "empty")), 0);
    expect_found(folder, "empty: is missing\n");
    /* A FIFO is not waited for; hidden files are none of a model's. */
    assert_int_equal(mkfifo(temp_path(folder, "empty"), 0600), 0);
    temp_write_text(temp_path(folder, ".nfs0001"), "");
    temp_write_text(temp_path(folder, "added_tokens.json"), "{}");
    expect_found(folder, "empty: cannot be read\nadded_tokens.json: was added later\n");
}

/* A file of small blocks, some of them made elsewhere: the same sums, and damage is found by one share of several. */
static void blocks_are_shared_out(void **state) {
    enum { BYTES = 10 * FILE_BLOCK_BYTES_MIN + 5, SHARES = 3 };
    struct manifest manifest = {.block_bytes = FILE_BLOCK_BYTES_MIN};
    struct file_sums *sums, part = {0};
    char folder[512], path[600];
    unsigned char *data = make_bytes(BYTES);
    snprintf(folder, sizeof folder, "%s/shares", (const char *)*state);
    snprintf(path, sizeof path, "%s/file.bin", folder);
    assert_int_equal(folder_create(folder), STATUS_OK);
    temp_write(path, data, BYTES);
    assert_int_equal(manifest_add(&manifest, path, &sums), STATUS_OK);
    file_sums_add(sums, data, 3 * FILE_BLOCK_BYTES_MIN);
    assert_int_equal(file_sums_begin(&part), STATUS_OK);
    part.block_bytes = FILE_BLOCK_BYTES_MIN;
    file_sums_add(&part, data + 3 * FILE_BLOCK_BYTES_MIN, BYTES - 3 * FILE_BLOCK_BYTES_MIN);
    assert_int_equal(file_sums_end(&part), STATUS_OK);
    assert_int_equal(file_sums_append(sums, part.blocks.items, part.blocks.count, part.bytes), STATUS_OK);
    file_sums_free(&part);
    assert_int_equal(manifest_write(&manifest, folder), STATUS_OK);
    manifest_free(&manifest);
    expect_found(folder, "");
    assert_int_equal(manifest_read(folder, &manifest), STATUS_OK);
    for (long block = 0; block <= 10; block++) {
        size_t found = 0;
        flip(path, block * FILE_BLOCK_BYTES_MIN + 4);
        for (int share = 0; share < SHARES; share++) {
            struct manifest_findings findings = {0};
            struct manifest_share of = {share, SHARES};
            assert_int_equal(manifest_verify(&manifest, folder, NULL, of, &findings), STATUS_OK);
            if (findings.items.count > 0) assert_int_equal(findings.items.items[0].block, block);
            found += findings.items.count;
            vec_free(&findings.items);
        }
        assert_int_equal(found, 1);
        flip(path, block * FILE_BLOCK_BYTES_MIN + 4);
    }
    manifest_free(&manifest);
    mem_free(data);
}

/* Of the manifest itself: whatever digit, letter or sign is another one, it is refused. */
static void the_manifest_covers_itself(void **state) {
    char folder[512], *text;
    size_t bytes, spaces = 0;
    struct manifest manifest;
    snprintf(folder, sizeof folder, "%s/itself", (const char *)*state);
    make_folder(folder, NULL);
    assert_int_equal(file_read(temp_path(folder, manifest_name), 1 << 20, &text, &bytes), STATUS_OK);
    for (size_t i = 0; i < bytes; i++) {
        text[i] ^= 1;
        enum status status = manifest_parse("manifest", text, bytes, &manifest);
        text[i] ^= 1;
        if (status == STATUS_OK) {
            spaces++; /* a space that became "!" is no JSON; a line's end that became a tabulator is no change */
            assert_true(text[i] == '\n' || text[i] == '\t');
            manifest_free(&manifest);
        } else {
            assert_int_equal(status, STATUS_BAD_INPUT);
            assert_non_null(strstr(status_message(), "manifest: "));
        }
    }
    assert_true(spaces < bytes / 10);
    mem_free(text);
}

static void refuse(const json_t *good, const char *path, json_t *value, const char *message) {
    struct manifest manifest;
    json_t *object = json_deep_copy(good), *inner = object;
    const char *field = path;
    if (strncmp(path, "file.", 5) == 0) {
        inner = json_array_get(json_object_get(object, "files"), 0);
        field = path + 5;
    }
    if (value)
        assert_int_equal(json_object_set_new(inner, field, value), 0);
    else
        assert_int_equal(json_object_del(inner, field), 0);
    char *text = json_text(object, 0);
    enum status status = manifest_parse("m", text, strlen(text), &manifest);
    if (status != STATUS_BAD_INPUT || !strstr(status_message(), message))
        fail_msg("%s: status %d: '%s', expected '%s'", path, (int)status, status_message(), message);
    mem_free(text);
    json_decref(object);
}

static void bad_manifests_are_refused(void **state) {
    char folder[512], *text;
    size_t bytes;
    json_t *good;
    snprintf(folder, sizeof folder, "%s/bad", (const char *)*state);
    make_folder(folder, NULL);
    assert_int_equal(file_read(temp_path(folder, manifest_name), 1 << 20, &text, &bytes), STATUS_OK);
    assert_int_equal(json_parse_object("m", text, bytes, &good), STATUS_OK);
    mem_free(text);
    refuse(good, "version", NULL, "m: version: missing");
    refuse(good, "version", json_integer(2), "m: version: 2 needs a newer Ballast");
    refuse(good, "checksum", json_string("crc32"), "m: checksum: must be \"xxh3-64\"");
    refuse(good, "block_bytes", json_integer(1), "m: block_bytes: 1 is outside");
    refuse(good, "block_bytes", json_integer(12288), "m: block_bytes: 12288 is not a power of two");
    refuse(good, "files", json_object(), "m: files: must be an array");
    refuse(good, "self", NULL, "m: self: must be 16");
    refuse(good, "self", json_string("0123456789abcdef"), "the manifest is damaged");
    refuse(good, "more", json_true(), "the manifest is damaged");
    refuse(good, "file.name", NULL, "m: files: number 0: name: missing");
    refuse(good, "file.name", json_string(""), "number 0: name: is no file of this directory");
    refuse(good, "file.name", json_string(".."), "number 0: name: is no file of this directory");
    refuse(good, "file.name", json_string("../../etc/passwd"), "number 0: name: is no file of this directory");
    refuse(good, "file.name", json_string(manifest_name), "number 0: name: is no file of this directory");
    refuse(good, "file.name", json_string("empty"), "name: 'empty' is there twice");
    refuse(good, "file.bytes", json_integer(-1), "bytes: -1 is outside");
    refuse(good, "file.bytes", json_integer(INT64_MAX), "blocks: must be an array of 137438953472 for");
    refuse(good, "file.bytes", json_integer(0), "blocks: must be an array of 0 for 0 bytes");
    refuse(good, "file.blocks", json_pack("[i]", 5), "blocks: number 0 must be 16 hexadecimal digits");
    refuse(good, "file.blocks", json_pack("[s]", "0123456789ABCDEF"), "blocks: number 0 must be 16");
    json_decref(good);
}

static enum status write_and_examine(void *payload) {
    struct manifest manifest = {0};
    struct manifest_findings findings = {0};
    enum status status = write_folder(payload, NULL, &manifest);
    manifest_free(&manifest);
    if (status == STATUS_OK) status = examine(payload, &findings);
    if (status == STATUS_OK && findings.items.count > 0) status = status_set(STATUS_BAD_INPUT, "findings");
    vec_free(&findings.items);
    return status;
}

static void faults_are_reported(void **state) {
    static const enum fault_kind kinds[] = {FAULT_ALLOCATE, FAULT_OPEN, FAULT_READ,
                                            FAULT_WRITE,    FAULT_SYNC, FAULT_RENAME};
    char folder[512];
    snprintf(folder, sizeof folder, "%s/faults", (const char *)*state);
    make_folder(folder, NULL);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        assert_true(fault_sweep(kinds[k], false, write_and_examine, folder) > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_by_blocks),        cmocka_unit_test(what_changed_is_named),
        cmocka_unit_test(blocks_are_shared_out),     cmocka_unit_test(the_manifest_covers_itself),
        cmocka_unit_test(bad_manifests_are_refused), cmocka_unit_test(faults_are_reported),
    };
    return cmocka_run_group_tests(tests, temp_folder_make, temp_folder_drop);
}
