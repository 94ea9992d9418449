/* The table of kernel versions against the backends, and against CHANGELOG.md. */
#include <stdio.h>
#include <string.h>

#include "backend/backend.h"
#include "ballast.h"
#include "base/file.h"
#include "support/unit.h"

static const struct backend *const with_kernels[] = {&backend_cpu, &backend_cuda};
enum { BACKENDS = sizeof with_kernels / sizeof *with_kernels };

/* A raise without a row fails here. */
static void the_newest_row_is_the_backends_version(void **state) {
    (void)state;
    for (int i = 0; i < BACKENDS; i++) {
        const char *name = with_kernels[i]->name;
        int before = 0;
        for (int j = 0; j < kernel_version_count; j++) {
            const struct kernel_version *row = &kernel_versions[j];
            if (strcmp(row->backend, name) != 0) continue;
            if (before && row->version != before + 1) fail_msg("%s %d follows %d", name, row->version, before);
            bool newest = row->version == with_kernels[i]->kernels_version;
            if (newest != !row->last) fail_msg("%s %d: last is %s", name, row->version, row->last ? row->last : "NULL");
            before = row->version;
        }
        if (before != with_kernels[i]->kernels_version)
            fail_msg("%s has kernels_version %d, the table ends with %d", name, with_kernels[i]->kernels_version,
                     before);
    }
}

/* Columns: backend, version, last, what changed, what it does to existing runs. */
static void the_changelog_has_the_same_rows(void **state) {
    (void)state;
    char *text;
    size_t bytes;
    int rows = 0;
    assert_int_equal(file_read(BALLAST_SOURCE "/CHANGELOG.md", 1 << 20, &text, &bytes), STATUS_OK);
    char *table = strstr(text, "\n| Backend | Version | Last with it |");
    assert_non_null(table);
    strtok(table, "\n"); /* its head */
    for (char *line = strtok(NULL, "\n"); line && line[0] == '|'; line = strtok(NULL, "\n")) {
        char backend[16], last[64], reason[512], runs[512];
        int version;
        if (strncmp(line, "|---", 4) == 0) continue;
        if (sscanf(line, "| %15[^ |] | %d | %63[^|]| %511[^|]| %511[^|]|", backend, &version, last, reason, runs) != 5)
            fail_msg("a row lacks a column: %s", line);
        assert_true(rows < kernel_version_count);
        const struct kernel_version *row = &kernel_versions[rows++];
        const char *expected = row->last ? row->last : "this release";
        last[strlen(last) - 1] = '\0'; /* the blank before the bar */
        if (strcmp(backend, row->backend) != 0 || version != row->version || strcmp(last, expected) != 0)
            fail_msg("'%s' is not %s %d, %s", line, row->backend, row->version, expected);
    }
    assert_int_equal(rows, kernel_version_count);
    mem_free(text);
}

/* Its first heading after the introduction is this release. */
static void the_changelog_begins_with_this_release(void **state) {
    (void)state;
    char *text, heading[32];
    size_t bytes;
    assert_int_equal(file_read(BALLAST_SOURCE "/CHANGELOG.md", 1 << 20, &text, &bytes), STATUS_OK);
    snprintf(heading, sizeof heading, "\n## %s - ", ballast_version());
    const char *first = strstr(text, "\n## ");
    if (!first || strncmp(first, heading, strlen(heading)) != 0)
        fail_msg("CHANGELOG.md does not begin with %s", heading);
    mem_free(text);
}

static void versions_that_are_not_there_have_no_last(void **state) {
    (void)state;
    assert_string_equal(kernel_version_last("cuda", 3), "commit 582cd37f (2026-11-22)");
    assert_null(kernel_version_last("cuda", 1));
    assert_null(kernel_version_last("cpu", backend_cpu.kernels_version));
    assert_null(kernel_version_last("cpu", backend_cpu.kernels_version + 1));
}

static void versions_are_alike_where_only_the_balance_changed(void **state) {
    (void)state;
    assert_true(kernel_versions_alike("cpu", 9, 10) && kernel_versions_alike("cpu", 10, 10));
    assert_true(kernel_versions_alike("cuda", 5, 6));
    assert_false(kernel_versions_alike("cpu", 8, 10) || kernel_versions_alike("cpu", 10, 9));
    assert_false(kernel_versions_alike("cuda", 4, 6) || kernel_versions_alike("cuda", 6, 7));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_row_is_the_backends_version),
        cmocka_unit_test(the_changelog_has_the_same_rows),
        cmocka_unit_test(the_changelog_begins_with_this_release),
        cmocka_unit_test(versions_that_are_not_there_have_no_last),
        cmocka_unit_test(versions_are_alike_where_only_the_balance_changed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
