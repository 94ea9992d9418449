/* Files: maps, complete reads, buffered writes and replacement, with each file operation failing in turn. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/random.h"
#include "support/fault_sweep.h"
#include "support/temp_folder.h"
#include "support/unit.h"

static void assert_holds(const char *path, const void *data, size_t bytes) {
    char *text;
    size_t read;
    if (file_read(path, bytes, &text, &read) != STATUS_OK) fail_msg("%s", status_message());
    assert_int_equal(read, bytes);
    if (bytes > 0) assert_memory_equal(text, data, bytes);
    assert_int_equal(text[bytes], 0);
    mem_free(text);
}

static void what_was_written_is_read(void **state) {
    enum { MAX = 3 << 20 };
    const char *path = temp_path(*state, "data");
    unsigned char *data = mem_array(MAX, 1);
    uint64_t seed = 1234;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (size_t i = 0; i < MAX; i += 8) {
        uint64_t draw = random_u64(seed, RANDOM_TEST, 0, i);
        memcpy(data + i, &draw, 8);
    }
    /* Pieces around the buffer's size of 1 MiB, so that every way through the buffer is taken. */
    static const size_t pieces[] = {1, 1000, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, MAX};
    enum { PIECES = sizeof pieces / sizeof *pieces };
    for (size_t way = 0; way < 2 * PIECES; way++) {
        size_t piece = pieces[way % PIECES];
        for (size_t total = 0; total <= MAX; total = total * 7 + 1) {
            struct file_writer writer;
            assert_int_equal(file_writer_open(path, &writer), STATUS_OK);
            if (way >= PIECES) file_writer_pass_cache(&writer);
            for (size_t done = 0; done < total; done += piece)
                file_writer_write(&writer, data + done, total - done < piece ? total - done : piece);
            assert_int_equal(writer.written, total);
            assert_int_equal(file_writer_close(&writer), STATUS_OK);
            assert_holds(path, data, total);
        }
    }
    mem_free(data);
}

static void lines_of_any_length_are_printed(void **state) {
    const char *path = temp_path(*state, "lines");
    static const int widths[] = {0, 1, 4094, 4095, 4096, 100000};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        struct file_writer writer;
        assert_int_equal(file_writer_open(path, &writer), STATUS_OK);
        file_writer_print(&writer, "%*d", widths[i], 7);
        file_writer_print(&writer, "%s", "\n");
        assert_int_equal(file_writer_close(&writer), STATUS_OK);
        char *expected = mem_format("%*d\n", widths[i], 7);
        assert_holds(path, expected, strlen(expected));
        mem_free(expected);
    }
}

static void assert_unreadable(const char *path, const char *message) {
    char *text;
    size_t bytes;
    assert_int_equal(file_read(path, 1000, &text, &bytes), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), path));
    assert_non_null(strstr(status_message(), message));
}

static void what_is_no_file_is_refused(void **state) {
    const char *pipe = temp_path(*state, "pipe");
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_unreadable(temp_path(*state, "absent"), "No such file");
    assert_unreadable(*state, "regular");
    assert_unreadable(pipe, "regular");
    assert_unreadable("/dev/zero", "regular");
    temp_write_text(temp_path(*state, "six"), "123456");
    char *text = NULL;
    size_t bytes;
    assert_int_equal(file_read(temp_path(*state, "six"), 5, &text, &bytes), STATUS_BAD_INPUT);
    assert_null(text);
}

static void unwritable_places_are_reported(void **state) {
    struct file_writer writer;
    assert_int_equal(file_writer_open(temp_path(*state, "no/such/directory"), &writer), STATUS_FAILED);
    assert_non_null(strstr(status_message(), "no/such/directory"));
    assert_int_equal(file_replace(*state, "x", 1), STATUS_FAILED);
    assert_int_equal(file_replace(temp_path(*state, "no/file"), "x", 1), STATUS_FAILED);
}

/* A full disk, by the device that plays one: reported, and the device itself left alone. */
static void full_device_is_reported(void **state) {
    (void)state;
    static unsigned char data[3 << 20];
    for (size_t bytes = 1; bytes <= sizeof data;
         bytes = bytes * 100 < sizeof data ? bytes * 100 : bytes + sizeof data - 1) {
        struct file_writer writer;
        assert_int_equal(file_writer_open("/dev/full", &writer), STATUS_OK);
        file_writer_write(&writer, data, bytes);
        file_writer_write(&writer, data, bytes);
        assert_int_equal(file_writer_close(&writer), STATUS_FAILED);
        assert_non_null(strstr(status_message(), "/dev/full"));
        assert_non_null(strstr(status_message(), "No space"));
    }
    assert_int_equal(file_replace("/dev/full", "text", 4), STATUS_FAILED);
    assert_int_equal(file_replace("/dev/null", "text", 4), STATUS_OK);
    struct stat info;
    assert_int_equal(stat("/dev/full", &info), 0);
    assert_true(S_ISCHR(info.st_mode));
    assert_int_equal(stat("/dev/null", &info), 0);
    assert_true(S_ISCHR(info.st_mode));
}

static void abandoned_files_are_gone(void **state) {
    const char *path = temp_path(*state, "half");
    struct file_writer writer;
    assert_int_equal(file_writer_open(path, &writer), STATUS_OK);
    file_writer_write(&writer, "half", 4);
    file_writer_abandon(&writer);
    assert_false(file_exists(path));
    static const unsigned char data[3 << 20];
    assert_int_equal(file_writer_open(path, &writer), STATUS_OK);
    file_writer_pass_cache(&writer);
    file_writer_write(&writer, data, sizeof data);
    file_writer_abandon(&writer);
    assert_false(file_exists(path));
}

static void copies_are_equal_and_never_of_itself(void **state) {
    const char *from = temp_path(*state, "from"), *to = temp_path(*state, "to"), *link = temp_path(*state, "link");
    temp_write(from, "a\0b", 3);
    assert_int_equal(file_copy(from, to), STATUS_OK);
    assert_holds(to, "a\0b", 3);
    assert_int_equal(symlink(from, link), 0);
    assert_int_equal(file_copy(from, from), STATUS_FAILED);
    assert_int_equal(file_copy(from, link), STATUS_FAILED);
    assert_holds(from, "a\0b", 3);
    assert_int_equal(file_copy(temp_path(*state, "absent"), to), STATUS_BAD_INPUT);
    assert_holds(to, "a\0b", 3);
}

/* A link in place of a file that Ballast writes leads to a file of the user's. */
static void nothing_is_written_through_a_link(void **state) {
    const char *theirs = temp_path(*state, "theirs"), *link = temp_path(*state, "link"),
               *from = temp_path(*state, "from");
    struct file_writer writer;
    temp_write(theirs, "theirs", 6);
    temp_write(from, "ours", 4);
    assert_int_equal(symlink(theirs, link), 0);
    assert_int_equal(file_copy(from, link), STATUS_FAILED);
    assert_non_null(strstr(status_message(), "link: is a symbolic link"));
    assert_int_equal(file_writer_open(link, &writer), STATUS_FAILED);
    assert_int_equal(file_writer_open_part(link, 0, &writer), STATUS_FAILED);
    assert_holds(theirs, "theirs", 6);
    assert_int_equal(file_replace(link, "new", 3), STATUS_OK); /* takes the link's place */
    assert_holds(theirs, "theirs", 6);
    assert_holds(link, "new", 3);
}

/* Of a path that the user names, as /dev/stdout is. */
static void a_named_output_may_be_a_link(void **state) {
    const char *target = temp_path(*state, "target"), *link = temp_path(*state, "link");
    struct file_writer writer;
    temp_write(target, "older text", 10);
    assert_int_equal(symlink(target, link), 0);
    assert_int_equal(file_writer_open_named(link, &writer), STATUS_OK);
    file_writer_write(&writer, "text", 4);
    assert_int_equal(file_writer_close(&writer), STATUS_OK);
    assert_holds(target, "text", 4);
    fault_arm(FAULT_SYNC, 1, false);
    assert_int_equal(file_writer_open_named(link, &writer), STATUS_OK);
    assert_int_equal(file_writer_close(&writer), STATUS_FAILED);
    fault_arm(FAULT_SYNC, 0, false);
    assert_int_equal(file_writer_open_named(link, &writer), STATUS_OK);
    file_writer_abandon(&writer);
    struct stat info;
    assert_int_equal(lstat(link, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
}

static enum status replace(void *folder) { return file_replace(temp_path(folder, "kept"), "new text", 8); }

/* Whatever fails, the name holds the old text or the new one, whole, and nothing is left next to it. */
static void replacement_is_all_or_nothing(void **state) {
    const char *path = temp_path(*state, "kept");
    static const enum fault_kind kinds[] = {FAULT_ALLOCATE, FAULT_OPEN, FAULT_WRITE, FAULT_SYNC, FAULT_RENAME};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        for (int nth = 1;; nth++) {
            temp_write_text(path, "old");
            int64_t before = fault_count(kinds[k]);
            fault_arm(kinds[k], nth, false);
            enum status status = replace(*state);
            fault_arm(kinds[k], 0, false);
            bool met = fault_count(kinds[k]) - before >= nth;
            struct names names;
            assert_int_equal(folder_list(*state, &names), STATUS_OK);
            assert_int_equal(names.count, 1);
            names_free(&names);
            if (status == STATUS_OK) {
                assert_true(!met && nth > 1);
                assert_holds(path, "new text", 8);
                break;
            }
            assert_int_equal(status, STATUS_FAILED);
            if (kinds[k] == FAULT_SYNC && nth == 2)
                assert_holds(path, "new text", 8); /* only the directory's sync was left */
            else
                assert_holds(path, "old", 3);
        }
    }
}

static void expect_taken_over(void *folder) {
    assert_int_equal(replace(folder), STATUS_OK);
    assert_holds(temp_path(folder, "kept"), "new text", 8);
    assert_int_equal(temp_count(folder), 1);
}

/* The next write to the path uses the temporary file of a killed process. */
static void the_next_replacement_takes_over(void **state) {
    static const enum fault_kind kinds[] = {FAULT_OPEN, FAULT_WRITE, FAULT_SYNC, FAULT_RENAME};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        assert_true(fault_sweep_killed(kinds[k], replace, expect_taken_over, *state) > 0);
}

/* The path of the temporary file that a killed process left. */
static char *leave_temporary(const char *folder) {
    struct names names;
    char *path = NULL;
    pid_t process = fork();
    if (process == 0) {
        fault_arm_kill(FAULT_RENAME, 1);
        (void)file_replace(temp_path(folder, "kept"), "new text", 8);
        _exit(0);
    }
    assert_int_equal(waitpid(process, NULL, 0), process);
    assert_int_equal(folder_list(folder, &names), STATUS_OK);
    for (size_t i = 0; i < names.count; i++)
        if (name_is_beside(names.items[i], file_temporary_prefix)) path = path_join(folder, names.items[i]);
    names_free(&names);
    assert_non_null(path);
    return path;
}

/* As on Lustre that is mounted without flock. Ends the process where the kernel has no filters. */
static void refuse_locks(void) {
    struct sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                                 BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_flock, 0, 1),
                                 BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
                                 BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog filter = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
        _exit(77);
}

static void nothing_is_left_where_there_are_no_locks(void **state) {
    int status;
    pid_t process = fork();
    if (process == 0) {
        refuse_locks();
        _exit((int)replace(*state));
    }
    assert_int_equal(waitpid(process, &status, 0), process);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) unit_skip("this kernel filters no system calls");
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == STATUS_OK);
    assert_holds(temp_path(*state, "kept"), "new text", 8);
    assert_int_equal(temp_count(*state), 1);
}

/* The file is as a new one would be, whatever umask the killed process had. */
static void a_temporary_file_passes_on_no_mode(void **state) {
    struct stat info;
    mode_t before = umask(077);
    mem_free(leave_temporary(*state));
    umask(022);
    assert_int_equal(replace(*state), STATUS_OK);
    umask(before);
    assert_int_equal(stat(temp_path(*state, "kept"), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0644);
    assert_int_equal(temp_count(*state), 1);
}

/* A temporary name that another process holds, or that is a link, is left alone. */
static void a_temporary_file_that_is_not_free_is_left(void **state) {
    char *beside = leave_temporary(*state), *other = mem_string(temp_path(*state, "other"));
    int held = open(beside, O_WRONLY | O_CLOEXEC);
    assert_int_equal(flock(held, LOCK_EX), 0);
    assert_int_equal(replace(*state), STATUS_OK);
    assert_int_equal(temp_count(*state), 2);
    close(held);
    assert_int_equal(unlink(beside), 0);
    temp_write_text(other, "theirs");
    assert_int_equal(symlink(other, beside), 0);
    assert_int_equal(replace(*state), STATUS_OK);
    assert_holds(other, "theirs", 6);
    assert_int_equal(temp_count(*state), 3);
    mem_free(beside);
    mem_free(other);
}

static void replacement_touches_no_other_file(void **state) {
    temp_write_text(temp_path(*state, "kept.new"), "the user's own");
    assert_int_equal(replace(*state), STATUS_OK);
    assert_holds(temp_path(*state, "kept"), "new text", 8);
    assert_holds(temp_path(*state, "kept.new"), "the user's own", 14);
}

static enum status write_much(void *folder) {
    static const unsigned char data[3 << 19];
    struct file_writer writer;
    TRY(file_writer_open(temp_path(folder, "much"), &writer));
    for (int i = 0; i < 3; i++) {
        file_writer_write(&writer, data, sizeof data);
        file_writer_print(&writer, "%5000d", i);
    }
    return file_writer_close(&writer);
}

static enum status write_much_behind(void *folder) {
    static const unsigned char data[3 << 19];
    struct file_writer writer;
    TRY(file_writer_open(temp_path(folder, "much"), &writer));
    file_writer_pass_cache(&writer);
    for (int i = 0; i < 3; i++)
        file_writer_write(&writer, data, sizeof data);
    return file_writer_close(&writer);
}

static enum status read_it(void *folder) {
    char *text;
    size_t bytes;
    TRY(file_read(temp_path(folder, "in"), 100, &text, &bytes));
    mem_free(text);
    return file_copy(temp_path(folder, "in"), temp_path(folder, "copy"));
}

static void each_operation_may_fail(void **state) {
    static const enum fault_kind writing[] = {FAULT_ALLOCATE, FAULT_OPEN, FAULT_WRITE, FAULT_SYNC};
    for (size_t i = 0; i < sizeof writing / sizeof *writing; i++)
        for (int sticky = 0; sticky < 2; sticky++)
            assert_true(fault_sweep(writing[i], sticky, write_much, *state) > 0);
    static const enum fault_kind behind[] = {FAULT_ALLOCATE, FAULT_SUBMIT, FAULT_WRITE, FAULT_SYNC};
    for (size_t i = 0; i < sizeof behind / sizeof *behind; i++)
        for (int sticky = 0; sticky < 2; sticky++)
            assert_true(fault_sweep(behind[i], sticky, write_much_behind, *state) > 0);
    fault_arm(FAULT_WRITE, 2, false);
    assert_int_equal(write_much_behind(*state), STATUS_FAILED);
    fault_arm(FAULT_WRITE, 0, false);
    assert_non_null(strstr(status_message(), "No space"));
    assert_false(file_exists(temp_path(*state, "much")));
    fault_arm(FAULT_WRITE, 2, false);
    assert_int_equal(write_much(*state), STATUS_FAILED);
    fault_arm(FAULT_WRITE, 0, false);
    assert_non_null(strstr(status_message(), "No space"));
    assert_false(file_exists(temp_path(*state, "much")));
    temp_write_text(temp_path(*state, "in"), "text");
    static const enum fault_kind reading[] = {FAULT_ALLOCATE, FAULT_OPEN, FAULT_READ, FAULT_WRITE, FAULT_SYNC};
    for (size_t i = 0; i < sizeof reading / sizeof *reading; i++)
        assert_true(fault_sweep(reading[i], false, read_it, *state) > 0);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, temp_folder_make, temp_folder_drop)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(what_was_written_is_read),
        IN_FOLDER(lines_of_any_length_are_printed),
        IN_FOLDER(what_is_no_file_is_refused),
        IN_FOLDER(unwritable_places_are_reported),
        cmocka_unit_test(full_device_is_reported),
        IN_FOLDER(abandoned_files_are_gone),
        IN_FOLDER(copies_are_equal_and_never_of_itself),
        IN_FOLDER(nothing_is_written_through_a_link),
        IN_FOLDER(a_named_output_may_be_a_link),
        IN_FOLDER(replacement_is_all_or_nothing),
        IN_FOLDER(the_next_replacement_takes_over),
        IN_FOLDER(nothing_is_left_where_there_are_no_locks),
        IN_FOLDER(a_temporary_file_passes_on_no_mode),
        IN_FOLDER(a_temporary_file_that_is_not_free_is_left),
        IN_FOLDER(replacement_touches_no_other_file),
        IN_FOLDER(each_operation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
