/* A directory that several ranks write equals that of one rank, byte for byte. If one rank fails, or all are killed,
 * the previous directory stays valid. */
/* ctest: PROCESSORS 2 TIMEOUT 300 LABELS long */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/random.h"
#include "session/checkpoint/joint_folder.h"
#include "session/checkpoint/run_folder.h"
#include "support/fault_sweep.h"
#include "support/temp_folder.h"
#include "support/thread_ranks.h"
#include "support/tiny_run.h"
#include "support/unit.h"

enum { FILES = 2, TENSORS = 9, ELEMENTS_MAX = 6000, BLOCK_BYTES = FILE_BLOCK_BYTES_MIN };

/* What is written: tensors of both files, of any size. */
struct content {
    int elements[FILES][TENSORS];
    float values[FILES][TENSORS][ELEMENTS_MAX];
    char names[FILES][TENSORS][16];
};

/* Which files ranks have but runs of. */
enum cut { CUT_NONE, CUT_SECOND, CUT_BOTH, CUT_KINDS };

struct job {
    const struct content *content;
    enum cut cut;
    uint64_t seed;                /* of the runs */
    char place[400], source[500]; /* source: of the small file */
    uint64_t hashes[FILES * TENSORS];
    bool faulty;
    enum fault_kind kind;
    int nth;
    int64_t before;
};

static void make_content(uint64_t seed, struct content *out) {
    for (int f = 0; f < FILES; f++)
        for (int t = 0; t < TENSORS; t++) {
            uint64_t draw = random_u64(seed, RANDOM_TEST, (uint32_t)f, (uint64_t)t);
            out->elements[f][t] = draw % 4 == 0 ? 1 + (int)((draw >> 8) % 5) : 1 + (int)((draw >> 8) % ELEMENTS_MAX);
            snprintf(out->names[f][t], sizeof out->names[f][t], "t%d", t);
            for (int i = 0; i < out->elements[f][t]; i++)
                out->values[f][t][i] = (float)random_u64(seed, RANDOM_TEST, (uint32_t)(f * 100 + t), (uint64_t)i);
        }
}

static bool is_cut(const struct job *job, int f) { return job->cut == CUT_BOTH || (job->cut == CUT_SECOND && f == 1); }

/* Where the run of a rank begins: at any element, all ranks' may be one's. */
static int64_t run_begin(const struct job *job, int f, int t, int rank, int ranks) {
    int64_t elements = job->content->elements[f][t];
    uint32_t draw = (uint32_t)(f * TENSORS + t);
    bool one = random_u64(job->seed, RANDOM_TEST, 7, draw) % 3 == 0;
    int owner = (int)(random_u64(job->seed, RANDOM_TEST, 8, draw) % (uint64_t)ranks);
    if (rank == ranks) return elements;
    return one ? (rank <= owner ? 0 : elements) : elements * rank / ranks;
}

static struct safetensors_run run_of(const struct job *job, int f, int t, const struct comm *comm) {
    int ranks = mesh_ranks(&comm->mesh);
    int64_t begin = run_begin(job, f, t, comm->rank, ranks), end = run_begin(job, f, t, comm->rank + 1, ranks);
    return (struct safetensors_run){begin, end - begin};
}

/* What a rank has of the tensors; the store refuses everything else. */
struct holder {
    const struct job *job;
    const struct comm *comm;
    struct held {
        int f, t;
    } held[FILES][TENSORS];
};

static enum status read_held(void *payload, const void *key, int64_t offset, int64_t bytes, void *to) {
    const struct holder *holder = payload;
    const struct held *held = key;
    struct safetensors_run run = run_of(holder->job, held->f, held->t, holder->comm);
    if (offset < 4 * run.first || offset + bytes > 4 * (run.first + run.elements))
        return status_set(STATUS_FAILED, "rank %d does not have these bytes", holder->comm->rank);
    memcpy(to, (const char *)holder->job->content->values[held->f][held->t] + offset, (size_t)bytes);
    return STATUS_OK;
}

static struct safetensors_run *make_runs(const struct job *job, int f, const struct comm *comm) {
    struct safetensors_run *runs = mem_array(TENSORS, sizeof *runs);
    for (int t = 0; runs && t < TENSORS; t++)
        runs[t] = run_of(job, f, t, comm);
    return runs;
}

static enum status add_file(const struct job *job, int f, const struct byte_store *store, struct holder *holder,
                            uint64_t *hashes, struct joint_folder *folder) {
    const struct content *content = job->content;
    struct safetensors_item *items = mem_array(TENSORS, sizeof *items);
    struct safetensors_run *runs = is_cut(job, f) ? make_runs(job, f, folder->comm) : NULL;
    if (!items || (is_cut(job, f) && !runs)) return STATUS_FAILED;
    for (int t = 0; t < TENSORS; t++) {
        holder->held[f][t] = (struct held){f, t};
        items[t] =
            (struct safetensors_item){.name = content->names[f][t],
                                      .shape = {.dtype = DTYPE_F32, .rank = 1, .dims = {content->elements[f][t]}},
                                      .data = is_cut(job, f) ? NULL : content->values[f][t],
                                      .store = store,
                                      .key = &holder->held[f][t],
                                      .hash = &hashes[f * TENSORS + t]};
    }
    return joint_folder_add(folder, f == 0 ? "a.safetensors" : "b.safetensors", items, runs, TENSORS);
}

static enum status write_part(const struct job *job, struct joint_folder *folder) {
    TRY(joint_folder_write(folder));
    if (folder->comm->rank != 0) return STATUS_OK;
    struct file_sums *sums;
    char *path = path_join(folder->path, "small.txt");
    enum status status = path ? manifest_add(&folder->manifest, path, &sums) : STATUS_FAILED;
    if (status == STATUS_OK) status = file_copy_summed(job->source, path, sums);
    mem_free(path);
    return status;
}

/* Nobody writes before the fault is armed, which is where all ranks meet. */
static enum status arm(struct comm *comm, struct job *job) {
    if (job->faulty && comm->rank == 0) {
        job->before = fault_count(job->kind);
        fault_arm(job->kind, job->nth, false);
    }
    return comm_agree(comm, STATUS_OK);
}

static enum status check_hashes(const struct content *content, const uint64_t *hashes) {
    for (int f = 0; f < FILES; f++)
        for (int t = 0; t < TENSORS; t++)
            if (hashes[f * TENSORS + t] != XXH3_64bits(content->values[f][t], 4 * (size_t)content->elements[f][t]))
                return status_set(STATUS_FAILED, "the hash of tensor %d of file %d", t, f);
    return STATUS_OK;
}

static enum status write_parts(const struct job *job, struct joint_folder *folder, uint64_t *hashes) {
    enum status status = write_part(job, folder);
    assert_int_equal(folder->has_runs, job->cut != CUT_NONE);
    if (folder->has_runs) {
        TRY(joint_folder_meet(folder, status));
        status = joint_folder_sum(folder);
    }
    return joint_folder_gather(folder, status, hashes, FILES * TENSORS);
}

static enum status write_together(struct comm *comm, void *payload) {
    struct job *job = payload;
    struct joint_folder folder;
    struct holder holder = {.job = job, .comm = comm};
    struct byte_store store = {.read = read_held, .payload = &holder};
    uint64_t hashes[FILES * TENSORS] = {0};
    enum status status = joint_folder_open(comm, job->place, "made", BLOCK_BYTES, &folder);
    for (int f = 0; f < FILES && status == STATUS_OK; f++)
        status = add_file(job, f, &store, &holder, hashes, &folder);
    if (status == STATUS_OK) status = arm(comm, job);
    status = joint_folder_begin(&folder, status);
    if (status == STATUS_OK) status = write_parts(job, &folder, hashes);
    if (status == STATUS_OK) status = check_hashes(job->content, hashes);
    if (status == STATUS_OK) status = joint_folder_publish(&folder);
    return joint_folder_end(&folder, status);
}

static enum status run(struct job *job, uint64_t seed, int ranks) {
    struct thread_ranks threads = {.ranks = ranks,
                                   .seed = seed,
                                   .settings = {.rank_timeout_s = 60, .message_bytes = 4096},
                                   .body = write_together,
                                   .payload = job,
                                   .may_fail = true};
    return thread_ranks_run(&threads);
}

static void make_job(const char *place, const char *name, const struct content *content, struct job *out) {
    *out = (struct job){.content = content};
    snprintf(out->place, sizeof out->place, "%s/%s", place, name);
    snprintf(out->source, sizeof out->source, "%s/%s.source", place, name);
    temp_write_text(out->source, "small\n");
}

static const char *const names[] = {"a.safetensors", "b.safetensors", "small.txt", "ballast_manifest.json"};

static void expect_same_folders(const char *a, const char *b) {
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char x[600], y[600];
        snprintf(x, sizeof x, "%s/made/%s", a, names[i]);
        snprintf(y, sizeof y, "%s/made/%s", b, names[i]);
        if (!files_equal(x, y)) fail_msg("%s and %s differ", x, y);
    }
}

static void expect_whole(const char *place) {
    struct manifest manifest;
    struct manifest_findings findings = {0};
    char made[500];
    snprintf(made, sizeof made, "%s/made", place);
    assert_int_equal(manifest_read(made, &manifest), STATUS_OK);
    assert_int_equal(manifest_verify(&manifest, made, NULL, (struct manifest_share){0}, &findings), STATUS_OK);
    assert_int_equal(findings.items.count, 0);
    manifest_free(&manifest);
}

static void any_number_of_ranks_writes_the_files_of_one(void **state) {
    static struct content content;
    for (uint64_t seed = 1; seed <= (uint64_t)unit_sweep(3, 30); seed++) {
        struct job one, many;
        char name[40];
        make_content(seed, &content);
        snprintf(name, sizeof name, "one-%d", (int)seed);
        make_job(*state, name, &content, &one);
        assert_int_equal(run(&one, seed, 1), STATUS_OK);
        expect_whole(one.place);
        for (int ranks = 2; ranks <= 9; ranks++)
            for (enum cut cut = CUT_NONE; cut < CUT_KINDS; cut++) {
                snprintf(name, sizeof name, "many-%d-%d-%d", (int)seed, ranks, (int)cut);
                make_job(*state, name, &content, &many);
                many.cut = cut, many.seed = seed;
                if (run(&many, seed, ranks) != STATUS_OK) fail_msg("%d ranks: %s", ranks, status_message());
                expect_same_folders(one.place, many.place);
                assert_int_equal(temp_count(many.place), 1);
            }
    }
    print_message("seeds 1 to %d\n", (int)unit_sweep(3, 30));
}

/* More ranks than blocks: those without any write nothing. */
static void ranks_without_a_block_wait_for_the_others(void **state) {
    static struct content content;
    struct job one, many;
    for (int f = 0; f < FILES; f++)
        for (int t = 0; t < TENSORS; t++) {
            content.elements[f][t] = 2;
            snprintf(content.names[f][t], sizeof content.names[f][t], "t%d", t);
        }
    make_job(*state, "small-one", &content, &one);
    make_job(*state, "small-many", &content, &many);
    assert_int_equal(run(&one, 1, 1), STATUS_OK);
    assert_int_equal(run(&many, 1, 8), STATUS_OK);
    expect_same_folders(one.place, many.place);
}

static void all_ranks_report_a_failure_of_any_rank(void **state) {
    static const enum fault_kind kinds[] = {FAULT_OPEN, FAULT_WRITE, FAULT_SYNC, FAULT_RENAME, FAULT_SUBMIT};
    static struct content before, after;
    make_content(1, &before);
    make_content(2, &after);
    for (int ranks = 1; ranks <= 4; ranks += 3)
        for (enum cut cut = CUT_NONE; cut < (ranks == 1 ? CUT_SECOND : CUT_KINDS); cut += CUT_BOTH)
            for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
                int met = 0;
                for (int nth = 1; met == nth - 1; nth++) {
                    struct job old, new;
                    char name[40];
                    snprintf(name, sizeof name, "fault-%d-%d-%zu-%d", ranks, (int)cut, k, nth);
                    make_job(*state, name, &before, &old);
                    assert_int_equal(run(&old, 1, 1), STATUS_OK);
                    make_job(*state, name, &after, &new);
                    new.cut = cut, new.seed = (uint64_t)nth;
                    new.faulty = true, new.kind = kinds[k], new.nth = nth;
                    enum status status = run(&new, (uint64_t)nth, ranks);
                    fault_arm(kinds[k], 0, false);
                    assert_int_equal(run_folder_clear(old.place), STATUS_OK);
                    assert_int_equal(temp_count(old.place), 1);
                    expect_whole(old.place); /* the old one, or the new one where only the last sync failed */
                    if (fault_count(kinds[k]) - new.before < nth) {
                        if (status != STATUS_OK)
                            fail_msg("%d ranks, kind %d, %d: %s", ranks, (int)kinds[k], nth, status_message());
                        assert_int_equal(status, STATUS_OK);
                        break;
                    }
                    met++;
                    if (status == STATUS_OK) continue; /* what was there before could not be cleared away */
                    assert_int_not_equal(status_message()[0], '\0');
                    new.faulty = false;
                    assert_int_equal(run(&new, 1, 2), STATUS_OK);
                }
                print_message("%d ranks, cut %d, kind %d: %d faults\n", ranks, (int)cut, (int)kinds[k], met);
                assert_true(met > 0 ||
                            (cut == CUT_BOTH && kinds[k] == FAULT_SUBMIT)); /* runs are written by no thread */
            }
}

static void values_that_are_not_finite_are_found_by_whoever_has_them(void **state) {
    static struct content content;
    struct job job;
    make_content(3, &content);
    content.values[1][TENSORS - 1][content.elements[1][TENSORS - 1] - 1] = NAN;
    for (enum cut cut = CUT_NONE; cut < CUT_KINDS; cut++) {
        make_job(*state, "finite", &content, &job);
        job.cut = cut;
        assert_int_equal(run(&job, 1, 3), STATUS_FAILED);
        assert_non_null(strstr(status_message(), "t8: value"));
        assert_int_equal(temp_count(job.place), 0);
    }
}

static enum status save_again(void *payload) { return run(payload, 1, 4); }

static const char *killed_place;

static void expect_one_whole(void *payload) {
    (void)payload;
    assert_int_equal(run_folder_clear(killed_place), STATUS_OK);
    assert_int_equal(temp_count(killed_place), 1);
    expect_whole(killed_place);
}

/* First of all: it forks. */
static void a_kill_at_any_moment_leaves_a_whole_folder(void **state) {
    static const enum fault_kind kinds[] = {FAULT_WRITE, FAULT_SYNC, FAULT_RENAME, FAULT_OPEN};
    static struct content content;
    struct job job;
    make_content(4, &content);
    make_job(*state, "killed", &content, &job);
    killed_place = job.place;
    run_apart(save_again, &job);
    for (job.cut = CUT_NONE; job.cut < CUT_KINDS; job.cut += CUT_BOTH)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            int killed = fault_sweep_killed(kinds[k], save_again, expect_one_whole, &job);
            print_message("cut %d, kind %d: killed %d times\n", (int)job.cut, (int)kinds[k], killed);
            assert_true(killed > 0);
        }
}

/* The directory that is to hold it is made, but not the one above, which somebody may have removed: a run's. */
static void a_removed_parent_stays_removed(void **state) {
    static struct content content;
    struct job job;
    const char *gone = temp_path(*state, "gone");
    make_content(1, &content);
    assert_int_equal(folder_create(gone), STATUS_OK);
    make_job(*state, "gone/checkpoints", &content, &job);
    assert_int_equal(folder_remove(gone), STATUS_OK);
    for (int ranks = 1; ranks <= 2; ranks++) {
        expect_status(run(&job, 1, ranks), STATUS_FAILED, "gone/checkpoints");
        assert_false(file_exists(gone));
    }
    assert_int_equal(folder_create(gone), STATUS_OK);
    make_job(*state, "gone/checkpoints", &content, &job);
    expect_status(run(&job, 1, 2), STATUS_OK, NULL);
    expect_whole(job.place);
}

/* ---- Shared directories ---- */

static enum status check_shared(struct comm *comm, void *payload) {
    char(*folders)[400] = payload;
    return shared_folder_check(comm, folders[comm->rank]);
}

static void a_host_that_does_not_see_the_folder_is_named(void **state) {
    char folders[4][400];
    for (int rank = 0; rank < 4; rank++) {
        snprintf(folders[rank], sizeof folders[rank], "%s/shared-%d", (const char *)*state, rank == 2);
        assert_int_equal(folder_create(folders[rank]), STATUS_OK);
    }
    struct thread_ranks threads = {.ranks = 4,
                                   .seed = 1,
                                   .settings = {.rank_timeout_s = 60, .message_bytes = 4096},
                                   .body = check_shared,
                                   .payload = folders,
                                   .may_fail = true};
    expect_status(thread_ranks_run(&threads), STATUS_BAD_INPUT, "does not see there what host");
    assert_non_null(strstr(status_message(), "rank 2 on "));
    assert_non_null(strstr(status_message(), "shared-1"));
    for (int i = 0; i < 2; i++)
        assert_int_equal(temp_count(folders[i + 1]), 0);
    memcpy(folders[2], folders[0], sizeof folders[2]);
    expect_status(thread_ranks_run(&threads), STATUS_OK, NULL);
    fault_arm(FAULT_WRITE, 1, true);
    expect_status(thread_ranks_run(&threads), STATUS_FAILED, "shared-0");
    fault_arm(FAULT_WRITE, 0, false);
    assert_int_equal(temp_count(folders[0]), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kill_at_any_moment_leaves_a_whole_folder),
        cmocka_unit_test(any_number_of_ranks_writes_the_files_of_one),
        cmocka_unit_test(ranks_without_a_block_wait_for_the_others),
        cmocka_unit_test(all_ranks_report_a_failure_of_any_rank),
        cmocka_unit_test(values_that_are_not_finite_are_found_by_whoever_has_them),
        cmocka_unit_test(a_removed_parent_stays_removed),
        cmocka_unit_test(a_host_that_does_not_see_the_folder_is_named),
    };
    return cmocka_run_group_tests(tests, temp_folder_make, temp_folder_drop);
}
