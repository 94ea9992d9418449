/* Chains with known answers, in the format of bench/parallel_cases: sections "10_rotor_synthetic" and
 * "11_rotor_real_models". */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "plan/recompute.h"

#define ROTOR_CASE_LIST(X)                                                                                             \
    X(SYNTHETIC, "10_rotor_synthetic")                                                                                 \
    X(MODEL, "11_rotor_real_models")                                                                                   \
    X(MODEL_FLOPS, "11_rotor_real_models, flop_times") /* the same chains and slots with other times */

enum rotor_case_kind {
#define ROTOR_CASE_ENUM(name, text) ROTOR_CASE_##name,
    ROTOR_CASE_LIST(ROTOR_CASE_ENUM)
#undef ROTOR_CASE_ENUM
        ROTOR_CASE_KINDS
};
extern const char *const rotor_case_kind_names[ROTOR_CASE_KINDS];

struct rotor_case {
    enum rotor_case_kind kind;
    int index;          /* of the case in its section */
    int64_t slots;      /* the budget, x_0 included */
    struct chain chain; /* in slots; its last block is the loss */
    bool answered;      /* the file holds the least time; rotor_cases_from_json does not need it */
    double time;        /* infinite where no schedule fits */
};

struct rotor_cases {
    struct rotor_case *items;
    size_t count, capacity;
};

/* The cases of one section of that name. BAD_INPUT naming case and field. Free `out` with rotor_cases_free. */
enum status rotor_cases_from_json(const char *name, const json_t *section, struct rotor_cases *out);
void rotor_cases_free(struct rotor_cases *cases);
