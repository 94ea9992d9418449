#include "support/fault_sweep.h"

#include <jansson.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/unit.h"

/* Runs the body with the nth operation of the kind hit; true when it got that far. */
static bool run_hit(enum fault_kind kind, int nth, bool sticky, enum status (*body)(void *payload), void *payload,
                    enum status *status) {
    int64_t before = fault_count(kind);
    status_clear();
    fault_arm(kind, nth, sticky);
    *status = body(payload);
    fault_arm(kind, 0, false);
    return fault_count(kind) - before >= nth;
}

int fault_sweep(enum fault_kind kind, bool sticky, enum status (*body)(void *payload), void *payload) {
    for (int nth = 1;; nth++) {
        enum status status;
        bool met = run_hit(kind, nth, sticky, body, payload, &status);
        if (!met && status == STATUS_OK) return nth - 1;
        if (!met) fail_msg("without a fault: %s", status_message());
        if (status == STATUS_OK) fail_msg("fault %d of kind %d was not reported", nth, (int)kind);
        if (status_message()[0] == '\0') fail_msg("fault %d of kind %d left no message", nth, (int)kind);
    }
}

int fault_sweep_harmless(enum fault_kind kind, bool sticky, enum status (*body)(void *payload), void *payload) {
    for (int nth = 1;; nth++) {
        enum status status;
        bool met = run_hit(kind, nth, sticky, body, payload, &status);
        if (status != STATUS_OK) fail_msg("operation %d of kind %d hit: %s", nth, (int)kind, status_message());
        if (!met) return nth - 1;
    }
}

/* Its wait status. With nth 0 it is not killed. */
static int run_child(enum fault_kind kind, int nth, enum status (*body)(void *payload), void *payload) {
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (nth > 0) fault_arm_kill(kind, nth);
        enum status status = body(payload);
        if (status != STATUS_OK) fprintf(stderr, "%s\n", status_message());
        _exit(status);
    }
    int state;
    assert_int_equal(waitpid(child, &state, 0), child);
    return state;
}

int fault_sweep_killed(enum fault_kind kind, enum status (*body)(void *payload), void (*after)(void *payload),
                       void *payload) {
    for (int nth = 1;; nth++) {
        int state = run_child(kind, nth, body, payload);
        if (WIFEXITED(state) && WEXITSTATUS(state) == STATUS_OK) return nth - 1;
        if (!WIFSIGNALED(state) || WTERMSIG(state) != SIGKILL)
            fail_msg("kill %d of kind %d: wait status %#x", nth, (int)kind, (unsigned)state);
        after(payload);
    }
}

void run_apart(enum status (*body)(void *payload), void *payload) {
    int state = run_child(FAULT_OPEN, 0, body, payload);
    if (!WIFEXITED(state) || WEXITSTATUS(state) != STATUS_OK) fail_msg("wait status %#x", (unsigned)state);
}

/* jansson may keep a block of its own where another one failed. */
enum { JSON_KEPT = 1 };
static atomic_llong json_blocks; /* that are there now, less those from before json_faults(true) */

static void *malloc_or_fault(size_t bytes) {
    if (fault_point(FAULT_ALLOCATE)) return NULL;
    atomic_fetch_add(&json_blocks, 1);
    return malloc(bytes);
}

static void free_counted(void *block) {
    if (block) atomic_fetch_sub(&json_blocks, 1);
    free(block);
}

void json_faults(bool on) { json_set_alloc_funcs(on ? malloc_or_fault : malloc, on ? free_counted : free); }

static int64_t count_operations(enum fault_kind kind, const struct fault_subject *subject) {
    int64_t before = fault_count(kind);
    status_clear();
    enum status status = subject->body(subject->payload);
    int64_t operations = fault_count(kind) - before;
    if (status != STATUS_OK) fail_msg("without a fault: %s", status_message());
    if (subject->after) subject->after(subject->payload, status);
    return operations;
}

struct fault_tally fault_sweep_bearable(enum fault_kind kind, bool sticky, uint64_t wanted,
                                        const struct fault_subject *subject) {
    struct fault_tally tally = {.operations = count_operations(kind, subject)};
    uint64_t share = (uint64_t)tally.operations / wanted;
    int stride = share > 1 ? (int)share : 1;
    for (int nth = 1; nth <= tally.operations; nth += stride) {
        enum status status;
        long long blocks = json_blocks;
        bool met = run_hit(kind, nth, sticky, subject->body, subject->payload, &status);
        print_message("kind %d, operation %d: %s: %s\n", (int)kind, nth, status_name(status), status_message());
        if (!met && status != STATUS_OK) fail_msg("without a fault: %s", status_message());
        if (status != STATUS_OK && status_message()[0] == '\0')
            fail_msg("fault %d of kind %d left no message", nth, (int)kind);
        if (json_blocks > blocks + JSON_KEPT)
            fail_msg("fault %d: %lld blocks of JSON were left", nth, json_blocks - blocks);
        tally.hit += met;
        tally.reported += status != STATUS_OK;
        if (subject->after) subject->after(subject->payload, status);
        if (!met) break;
    }
    print_message("kind %d: %lld operations, %d made to fail, %d of them reported\n", (int)kind,
                  (long long)tally.operations, tally.hit, tally.reported);
    return tally;
}
