/* A temporary directory for a test. */
#pragma once

#include <stddef.h>

/* cmocka setup and teardown: *state becomes the path of a fresh empty directory (a string), which the teardown removes
 * with all in it. For cmocka_unit_test_setup_teardown or cmocka_run_group_tests. */
int temp_folder_make(void **state);
int temp_folder_drop(void **state);

/* "folder/name", valid until the teardown. From the test's own thread. */
const char *temp_path(const char *folder, const char *name);
/* How many files and directories are in a directory, which there must be. */
size_t temp_count(const char *folder);
/* The path of the only one, as temp_path gives it. */
const char *temp_only(const char *folder);
/* Writes a file without any help from the code under test. */
void temp_write(const char *path, const void *data, size_t bytes);
void temp_write_text(const char *path, const char *text);
