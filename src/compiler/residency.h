/* Residency intervals: runs of instructions that use a buffer on another tier than its home tier, through one copy. If
 * the buffer is kept on another tier, move.c copies it; if it is kept in shards, move.c gathers it.
 *
 * A copy is live from the place of its fetch in the list to that of its store: `lookahead` groups before the first use,
 * as many after the last, so that the bytes have space while other groups compute. When it really happens is up to the
 * streams. */
#pragma once

#include "compiler/program.h"

struct residency {
    int32_t buffer, copy; /* the buffer at its home tier, and the one where it is used */
    int32_t first, last;  /* instructions of its uses */
    int32_t fetch, store; /* instructions before which the copies stand; -1: none */
    enum tier tier;
    bool deferred;
    bool aside;       /* its uses are those of an update overlapped with other work */
    bool overwritten; /* its uses write all of it, and read nothing of it before */
    bool changed;
    bool reads;         /* bytes that none of its uses has written before */
    bool merged;        /* an earlier residency of the same buffer was extended over this one */
    int64_t begin, end; /* the bytes that its uses have written so far before they read any of them */
};

struct use {
    int32_t buffer, instruction;
    enum access access;
    bool away;          /* elsewhere than the buffer is kept */
    int64_t begin, end; /* bytes; of columns of all rows: all */
};

/* A fetch or store to be inserted before instruction `at`, or at the section's end if `at` is that. */
struct transfer {
    int section;
    int32_t at, first; /* first: the residency's first use; orders transfers at one place */
    bool store;
    size_t residency;
};

struct residencies {
    struct scratch memory;
    struct program *program;
    const struct policy *policy;
    /* Whether an instruction uses a buffer elsewhere, and whether residencies are of parameters that wait for one of
     * the policy's places (residency.c). */
    bool (*is_away)(const struct buffer *buffer, const struct instruction *user);
    bool (*is_held)(const struct residencies *residencies, const struct residency *residency);
    struct use *uses; /* by buffer, then instruction: of the buffers that are used away, and of their homes */
    size_t use_count;
    size_t *first_use;          /* by buffer: where its uses begin; one more at the end */
    VEC(struct residency) list; /* by buffer, then instruction */
    VEC(struct transfer) transfers;
    int32_t *begin; /* by group: its first instruction; one more at the end */
    int32_t groups;
};

static inline const struct instruction *residencies_instruction(const struct residencies *residencies, int32_t index) {
    return &residencies->program->instructions.items[index];
}

static inline struct buffer *residencies_buffer(const struct residencies *residencies, int32_t index) {
    return &residencies->program->buffers.items[index];
}

static inline int32_t residencies_group(const struct residencies *residencies, int32_t index) {
    return residencies_instruction(residencies, index)->group;
}

static inline const struct section *residencies_section(const struct residencies *residencies, int32_t index) {
    return &residencies->program->sections.items[residencies_instruction(residencies, index)->section];
}

static inline int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }
static inline int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }

/* Finds uses, groups and residencies; held residencies have their fetch. The caller has set program, policy and the two
 * functions. BAD_INPUT if policy.buffers are too few. The caller frees in any case. */
enum status residencies_find(struct residencies *residencies);
void residencies_free(struct residencies *residencies);

/* The uses of a buffer that are not away next to a residency: the last write before it (-1), the first use after it
 * (INT32_MAX). */
void residencies_original_uses(const struct residencies *residencies, int32_t buffer, const struct residency *residency,
                               int32_t *written, int32_t *next);
/* Places the fetch: not before `written`, nor before the store of the residency before. */
void residencies_place_fetch(const struct residencies *residencies, struct residency *residency,
                             const struct residency *before, int32_t written);

/* Rewrites the program's instructions: transfers, as `make` makes them, at their places, and all others with the
 * residencies' copies as operands. */
typedef enum status residencies_make(struct residencies *residencies, const struct transfer *transfer,
                                     struct instruction *out);
enum status residencies_weave(struct residencies *residencies, residencies_make *make);
