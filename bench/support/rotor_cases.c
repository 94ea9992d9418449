#include "support/rotor_cases.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "support/case_json.h"

const char *const rotor_case_kind_names[ROTOR_CASE_KINDS] = {
#define ROTOR_CASE_NAME(name, text) text,
    ROTOR_CASE_LIST(ROTOR_CASE_NAME)
#undef ROTOR_CASE_NAME
};

#define SLOTS_MAX (CHAIN_SIZE_MAX * CHAIN_BLOCKS_MAX)

static enum status check_times(const char *place, const json_t *object, const char *field, size_t count,
                               const json_t **out) {
    TRY(case_array_of(place, object, field, count, out));
    for (size_t i = 0; i < count; i++) {
        double time;
        TRY(case_item_double(place, field, *out, i, 0, CHAIN_TIME_MAX, &time));
    }
    return STATUS_OK;
}

static enum status check_sizes(const char *place, const json_t *object, const char *field, size_t count,
                               const json_t **out) {
    TRY(case_array_of(place, object, field, count, out));
    for (size_t i = 0; i < count; i++) {
        int64_t size;
        TRY(case_item_int(place, field, *out, i, 0, CHAIN_SIZE_MAX, &size));
    }
    return STATUS_OK;
}

/* The loss has a time only backward. */
static enum status read_chain_times(const char *place, const json_t *object, struct chain *chain) {
    size_t count = (size_t)chain->count;
    const json_t *forward, *backward;
    TRY(check_times(place, object, "ftime", count - 1, &forward));
    TRY(check_times(place, object, "btime", count, &backward));
    for (size_t i = 0; i < count; i++) {
        chain->blocks[i].forward_time = json_number_value(json_array_get(forward, i)); /* 0 past the end */
        chain->blocks[i].backward_time = json_number_value(json_array_get(backward, i));
    }
    return STATUS_OK;
}

/* Sizes at 0 are the chain's input, those at i+1 are made by block i; the loss makes nothing. */
static enum status read_chain_sizes(const char *place, const json_t *object, struct chain *chain) {
    size_t count = (size_t)chain->count;
    const json_t *values, *saved, *forward, *backward;
    TRY(check_sizes(place, object, "x", count, &values));
    TRY(check_sizes(place, object, "xbar", count, &saved));
    TRY(check_sizes(place, object, "ftmp", count - 1, &forward));
    TRY(check_sizes(place, object, "btmp", count, &backward));
    chain->input = json_integer_value(json_array_get(values, 0));
    for (size_t i = 0; i < count; i++) {
        struct chain_block *block = &chain->blocks[i];
        block->output = json_integer_value(json_array_get(values, i + 1)); /* 0 past the end */
        block->saved = json_integer_value(json_array_get(saved, i + 1));
        block->forward_temporary = json_integer_value(json_array_get(forward, i));
        block->backward_temporary = json_integer_value(json_array_get(backward, i));
    }
    return STATUS_OK;
}

static enum status read_chain(const char *place, const json_t *object, struct chain *out) {
    const json_t *times;
    TRY(case_array(place, object, "ftime", &times));
    size_t blocks = json_array_size(times);
    if (blocks < 1 || blocks >= CHAIN_BLOCKS_MAX)
        return status_set(STATUS_BAD_INPUT, "%s: ftime: must hold 1 to %d numbers", place, CHAIN_BLOCKS_MAX - 1);
    struct chain chain;
    TRY(chain_create((int)blocks + 1, &chain));
    enum status status = read_chain_times(place, object, &chain);
    if (status == STATUS_OK) status = read_chain_sizes(place, object, &chain);
    if (status == STATUS_OK)
        *out = chain;
    else
        chain_free(&chain);
    return status;
}

/* null: no schedule fits. Absent: the file does not say. */
static enum status read_answer(const char *place, const json_t *object, const char *field, struct rotor_case *out) {
    const json_t *value = json_object_get(object, field);
    out->answered = value != NULL;
    out->time = INFINITY;
    return json_read_double(place, object, field, 0, INFINITY, &out->time);
}

static enum status read_slots(const char *place, const json_t *object, struct rotor_case *out) {
    return case_int(place, object, "memory_slots", 0, SLOTS_MAX, &out->slots);
}

/* Adds the case with a copy of the chain. */
static enum status add_case(struct rotor_cases *cases, const struct rotor_case *like) {
    struct rotor_case added = *like;
    TRY(chain_create(like->chain.count, &added.chain));
    added.chain.input = like->chain.input;
    memcpy(added.chain.blocks, like->chain.blocks, (size_t)added.chain.count * sizeof *added.chain.blocks);
    enum status status = vec_push(cases, added);
    if (status != STATUS_OK) chain_free(&added.chain);
    return status;
}

/* The budget must hold for bare chains, so the answer is the one by the original rule, whose limit of a block has the
 * gradient that it makes; "opt_cost" is by a rule without it. */
static enum status read_results(const char *place, const json_t *object, struct rotor_case *row,
                                struct rotor_cases *out) {
    const json_t *results;
    TRY(case_array(place, object, "results", &results));
    for (size_t i = 0; i < json_array_size(results); i++) {
        char at[CASE_PLACE_BYTES];
        snprintf(at, sizeof at, "%s: results[%zu]", place, i);
        const json_t *result;
        TRY(case_item_object(place, "results", results, i, &result));
        TRY(read_slots(at, result, row));
        TRY(read_answer(at, result, "opt_cost_original_rotor_limit", row));
        TRY(add_case(out, row));
    }
    return STATUS_OK;
}

static enum status read_synthetic(const char *place, const json_t *object, struct rotor_case *row,
                                  struct rotor_cases *out) {
    TRY(read_chain(place, object, &row->chain));
    return read_results(place, object, row, out);
}

/* These chains were traced with the gradient that a block makes inside its btmp, and solved by a limit that leaves it
 * out elsewhere. Taking it out of btmp makes both rules the same. */
static void take_gradients_out(struct chain *chain) {
    for (int i = 0; i < chain->count; i++) {
        int64_t rest = chain->blocks[i].backward_temporary - chain_value(chain, i);
        chain->blocks[i].backward_temporary = rest > 0 ? rest : 0;
    }
}

static enum status read_flop_times(const char *place, const json_t *object, struct rotor_case *row,
                                   struct rotor_cases *out) {
    const json_t *times;
    if (!json_object_get(object, "flop_times")) return STATUS_OK;
    TRY(case_object(place, object, "flop_times", &times));
    char at[CASE_PLACE_BYTES];
    snprintf(at, sizeof at, "%s: flop_times", place);
    TRY(read_chain_times(at, times, &row->chain));
    TRY(read_answer(at, times, "opt_cost", row));
    row->kind = ROTOR_CASE_MODEL_FLOPS;
    return add_case(out, row);
}

static enum status read_model(const char *place, const json_t *object, struct rotor_case *row,
                              struct rotor_cases *out) {
    const json_t *traced;
    TRY(case_object(place, object, "chain_discretised", &traced));
    char at[CASE_PLACE_BYTES];
    snprintf(at, sizeof at, "%s: chain_discretised", place);
    TRY(read_chain(at, traced, &row->chain));
    take_gradients_out(&row->chain);
    TRY(read_slots(place, object, row));
    TRY(read_answer(place, object, "opt_cost", row));
    TRY(add_case(out, row));
    return read_flop_times(place, object, row, out);
}

struct section {
    enum rotor_case_kind kind;
    enum status (*read)(const char *place, const json_t *object, struct rotor_case *row, struct rotor_cases *out);
};
static const struct section sections[] = {{ROTOR_CASE_SYNTHETIC, read_synthetic}, {ROTOR_CASE_MODEL, read_model}};
enum { SECTIONS = sizeof sections / sizeof sections[0] };

static enum status read_section(const struct section *section, const json_t *held, struct rotor_cases *out) {
    const char *name = rotor_case_kind_names[section->kind];
    const json_t *cases, *value;
    TRY(case_array(name, held, "cases", &cases));
    for (size_t i = 0; i < json_array_size(cases); i++) {
        char place[CASE_PLACE_BYTES];
        snprintf(place, sizeof place, "cases[%zu]", i);
        TRY(case_item_object(name, "cases", cases, i, &value));
        struct rotor_case row = {.kind = section->kind, .index = (int)i};
        enum status status = section->read(place, value, &row, out);
        chain_free(&row.chain);
        if (status != STATUS_OK) return status_prefix(status, "%s", name);
    }
    return STATUS_OK;
}

enum status rotor_cases_from_json(const char *name, const json_t *section, struct rotor_cases *out) {
    struct rotor_cases cases = {0};
    enum status status = STATUS_OK;
    for (int i = 0; i < SECTIONS && status == STATUS_OK; i++)
        if (strcmp(rotor_case_kind_names[sections[i].kind], name) == 0)
            status = read_section(&sections[i], section, &cases);
    if (status == STATUS_OK)
        *out = cases;
    else
        rotor_cases_free(&cases);
    return status;
}

void rotor_cases_free(struct rotor_cases *cases) {
    for (size_t i = 0; i < cases->count; i++)
        chain_free(&cases->items[i].chain);
    vec_free(cases);
}
