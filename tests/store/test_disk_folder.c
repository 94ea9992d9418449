/* The directory of the disk tier: requirements, its state afterwards, and messages. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/folder.h"
#include "runtime/store/disk.h"
#include "runtime/store/store.h"
#include "support/temp_folder.h"
#include "support/unit.h"

enum { BLOCK = DISK_ALIGNMENT, BLOCKS = 600, BYTES = BLOCKS * BLOCK };
static _Alignas(DISK_ALIGNMENT) char written[BYTES], seen[BYTES];

static enum status open_in(const char *folder, int64_t bytes, struct arena *out) {
    const struct arena_settings settings = {.folder = folder, .channels = 1};
    return arena_open(TIER_DISK, bytes, &settings, out);
}

static void check_refused(const char *folder, int64_t bytes, enum status status, const char *message) {
    struct arena arena;
    assert_int_equal(open_in(folder, bytes, &arena), status);
    if (!strstr(status_message(), folder) || !strstr(status_message(), message))
        fail_msg("'%s' lacks '%s' or '%s'", status_message(), folder, message);
    assert_true(status_hint_text()[0] != '\0');
}

static void check_holds(const struct arena *arena, char fill) {
    memset(written, fill, BYTES);
    memset(seen, 0, BYTES);
    assert_int_equal(arena_read(arena, 0, seen, BYTES, 0), STATUS_OK);
    assert_memory_equal(seen, written, BYTES);
}

static void write_all(const struct arena *arena, char fill) {
    memset(written, fill, BYTES);
    assert_int_equal(arena_write(arena, 0, written, BYTES, 0), STATUS_OK);
}

static void what_is_no_folder_is_refused(void **state) {
    check_refused(temp_path(*state, "absent"), BYTES, STATUS_BAD_INPUT, "no such directory");
    temp_write_text(temp_path(*state, "file"), "text");
    check_refused(temp_path(*state, "file"), BYTES, STATUS_BAD_INPUT, "not a directory");
    check_refused("", BYTES, STATUS_BAD_INPUT, "no such directory");
    assert_int_equal(unlink(temp_path(*state, "file")), 0);
}

static void a_too_large_tier_is_refused(void **state) {
    check_refused(*state, INT64_C(1) << 60, STATUS_FAILED, "cannot reserve 1024 PiB");
    assert_int_equal(temp_count(*state), 0);
}

static void two_share_a_folder(void **state) {
    struct arena first, second, empty;
    assert_int_equal(open_in(*state, BYTES, &first), STATUS_OK);
    assert_int_equal(open_in(*state, BYTES, &second), STATUS_OK);
    assert_int_equal(open_in(*state, 0, &empty), STATUS_OK);
    assert_int_equal(temp_count(*state), 0);
    check_holds(&first, 0);
    write_all(&first, 1);
    check_holds(&second, 0);
    write_all(&second, 2);
    check_holds(&first, 1);
    check_holds(&second, 2);
    arena_close(&first);
    check_holds(&second, 2);
    arena_close(&second);
    arena_close(&empty);
}

static void the_folder_may_vanish(void **state) {
    const char *folder = temp_path(*state, "short-lived");
    struct arena arena;
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_int_equal(open_in(folder, BYTES, &arena), STATUS_OK);
    assert_int_equal(rmdir(folder), 0);
    write_all(&arena, 3);
    check_holds(&arena, 3);
    arena_close(&arena);
}

/* What filesystems without O_TMPFILE get. */
static void the_file_has_no_name(void **state) {
    int file = disk_file_create_unlinked(*state), other = disk_file_create_unlinked(*state);
    assert_true(file >= 0 && other >= 0);
    struct stat info;
    assert_int_equal(fstat(file, &info), 0);
    assert_int_equal(info.st_nlink, 0);
    assert_int_equal(temp_count(*state), 0);
    close(file);
    close(other);
    assert_int_equal(disk_file_create_unlinked(temp_path(*state, "absent")), -1);
    assert_int_equal(errno, ENOENT);
}

/* A file that is shorter than it should be is an error, not zeros. The arena's file is found by its size. */
static void a_file_that_ends_early_is_reported(void **state) {
    struct arena arena;
    assert_int_equal(open_in(*state, BYTES, &arena), STATUS_OK);
    write_all(&arena, 4);
    int cut = -1;
    for (int descriptor = 0; descriptor < 64 && cut < 0; descriptor++) {
        struct stat info;
        if (fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode) && info.st_nlink == 0 && info.st_size == BYTES)
            cut = ftruncate(descriptor, BYTES / 2);
    }
    assert_int_equal(cut, 0);
    assert_int_equal(arena_read(&arena, 0, seen, BYTES, 0), STATUS_FAILED);
    assert_non_null(strstr(status_message(), "the file ends there"));
    arena_close(&arena);
}

/* Runs `body` in a process of its own, which it may restrict; its result is the exit status. */
static int in_child(int (*body)(const char *folder), const char *folder) {
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(body(folder));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

enum { AS_WANTED = 77 };

static int open_unprivileged(const char *folder) {
    struct arena arena;
    const uid_t nobody = 65534;
    if (getuid() == 0 && setresuid(nobody, nobody, nobody) != 0) return 1;
    if (open_in(folder, BYTES, &arena) != STATUS_BAD_INPUT) return 2;
    return strstr(status_message(), strerror(EACCES)) && status_hint_text()[0] != '\0' ? AS_WANTED : 3;
}

static void what_is_not_writable_is_refused(void **state) {
    assert_int_equal(chmod(*state, 0555), 0);
    assert_int_equal(in_child(open_unprivileged, *state), AS_WANTED);
    assert_int_equal(chmod(*state, 0700), 0);
}

static int open_above_limit(const char *folder) {
    struct arena arena;
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &(struct rlimit){BYTES, BYTES}) != 0) return 1;
    if (open_in(folder, BYTES + BLOCK, &arena) != STATUS_FAILED) return 2;
    if (!strstr(status_message(), strerror(EFBIG))) return 3;
    if (open_in(folder, BYTES, &arena) != STATUS_OK) return 4;
    arena_close(&arena);
    return AS_WANTED;
}

static void a_limit_on_file_sizes_is_reported(void **state) {
    assert_int_equal(in_child(open_above_limit, *state), AS_WANTED);
}

static int refuse_uring(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static int open_without_uring(const char *folder) {
    struct arena arena;
    struct arena_settings settings = {.folder = folder, .channels = 2, .engine = DISK_ENGINE_URING};
    if (refuse_uring() != 0) return 1;
    if (arena_open(TIER_DISK, BYTES, &settings, &arena) != STATUS_FAILED) return 2;
    if (!strstr(status_message(), "io_uring cannot be used")) return 3;
    settings.engine = DISK_ENGINE_ANY;
    if (arena_open(TIER_DISK, BYTES, &settings, &arena) != STATUS_OK) return 4;
    if (strcmp(disk_store_describe(&arena).engine, "threads") != 0) return 5;
    memset(written, 6, BYTES);
    if (arena_write(&arena, 0, written, BYTES, 1) != STATUS_OK) return 6;
    if (arena_read(&arena, 0, seen, BYTES, 0) != STATUS_OK) return 7;
    arena_close(&arena);
    return memcmp(seen, written, BYTES) == 0 ? AS_WANTED : 8;
}

static void a_refused_ring_becomes_threads(void **state) {
    assert_int_equal(in_child(open_without_uring, *state), AS_WANTED);
}

/* Each breaks a rule for callers; the defect ends the process. */
static int misuse(const char *folder, int64_t offset, int64_t shift, int64_t bytes, int channel) {
    struct arena arena;
    if (open_in(folder, BYTES, &arena) != STATUS_OK) return 1;
    signal(SIGABRT, SIG_DFL);
    if (!freopen("/dev/null", "w", stderr)) return 2;
    (void)arena_read(&arena, offset, seen + shift, bytes, channel);
    return 3;
}

static void check_defect(const char *folder, int64_t offset, int64_t shift, int64_t bytes, int channel) {
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(misuse(folder, offset, shift, bytes, channel));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void wrong_requests_are_defects(void **state) {
    check_defect(*state, 512, 0, BLOCK, 0);
    check_defect(*state, 0, 64, BLOCK, 0);
    check_defect(*state, 0, 0, BLOCK / 2, 0);
    check_defect(*state, BYTES, 0, BLOCK, 0);
    check_defect(*state, -BLOCK, 0, BLOCK, 0);
    check_defect(*state, 0, 0, BLOCK, 1);
    check_defect(*state, 0, 0, BLOCK, -1);
}

/* Killed in the middle, it leaves nothing. */
static void nothing_is_left(void **state) {
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct arena arena;
        if (open_in(*state, BYTES, &arena) != STATUS_OK || write(ready[1], "r", 1) != 1) _exit(1);
        for (;;)
            (void)arena_write(&arena, 0, written, BYTES, 0);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(temp_count(*state), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_folder_is_refused),
        cmocka_unit_test(a_too_large_tier_is_refused),
        cmocka_unit_test(two_share_a_folder),
        cmocka_unit_test(the_folder_may_vanish),
        cmocka_unit_test(the_file_has_no_name),
        cmocka_unit_test(a_file_that_ends_early_is_reported),
        cmocka_unit_test(what_is_not_writable_is_refused),
        cmocka_unit_test(a_limit_on_file_sizes_is_reported),
        cmocka_unit_test(a_refused_ring_becomes_threads),
        cmocka_unit_test(wrong_requests_are_defects),
        cmocka_unit_test(nothing_is_left),
    };
    return cmocka_run_group_tests(tests, temp_folder_make, temp_folder_drop);
}
