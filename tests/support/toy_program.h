/* Programs without data, for tests of timing: instructions with durations on streams, and their waits. */
#pragma once

#include "search/sim/costs.h"

enum { TOY_WAITS = 4 };

struct toy_instruction {
    int stream;
    double seconds;
    enum activity activity;
    enum phase phase;
    int32_t waits[TOY_WAITS]; /* instructions, from 1; 0: no more */
};

struct toy_section {
    int32_t count;
    int64_t repeat;
};

struct toy {
    struct graph *graph;
    struct program program;
    struct costs costs; /* nothing slows anything, until a test says so */
};

/* `sections` and `instructions` end with an entry of no count and of no seconds. Every instruction is a kernel. Ends
 * the test on any failure. */
void toy_create(const struct toy_section *sections, const struct toy_instruction *instructions, int streams,
                struct toy *out);
void toy_free(struct toy *toy);

/* Costs for any program: kernels of 1 to 100 us, transfers of like size, activities and slowdowns (1 to 3) by the
 * seed. Free with costs_free. */
void random_costs(const struct graph *graph, uint64_t seed, struct costs *out);
/* Sets all slowdowns: 1, all are apart; 2, all use one resource. */
void set_slowdowns(struct costs *costs, double slowdown);
