/* Faults planted in correct programs, for tests of program_verify. */
#pragma once

#include "compiler/program.h"

struct planted_fault {
    const char *name;
    void (*plant)(struct program *program);
    int streams;          /* for those who make the program */
    const char *expected; /* part of the message */
};

/* Verifies `program`, plants the fault and verifies again: FAILED with the expected words. Frees the program. */
void planted_fault_check(const struct planted_fault *fault, struct program *program);

/* How many instructions have waits, and without how many of these lists verification fails. */
void count_needed_waits(struct program *program, int *with_waits, int *needed);

/* The first kernel of this operator from instruction `from` on. Each of these ends the test where there is none. */
struct instruction *find_kernel(struct program *program, const char *op, size_t from);
struct buffer *find_kind(struct program *program, enum buffer_kind kind, int skip);
/* An instruction with waits, from a third of the program on. */
int32_t find_waiting(struct program *program);
/* Takes an instruction out, and waits for it with it. */
void drop_instruction(struct program *program, int32_t index);
/* Makes all waits anew: what is left to find is no race. */
void synchronise_again(struct program *program);
/* Drops some instruction's waits so that the message has these words. */
void drop_waits(struct program *program, const char *expected);
struct buffer *buffer_of(struct program *program, const struct operand *operand);
