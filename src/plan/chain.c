#include "plan/chain.h"

#include <string.h>

#include "base/mem.h"

enum status chain_create(int count, struct chain *out) {
    if (count < 1 || count > CHAIN_BLOCKS_MAX)
        return status_set(STATUS_BAD_INPUT, "a chain of %d stages: must be 1 to %d", count, CHAIN_BLOCKS_MAX);
    struct chain_block *blocks = mem_array((size_t)count, sizeof *blocks);
    if (!blocks) return STATUS_FAILED;
    *out = (struct chain){.count = count, .blocks = blocks};
    return STATUS_OK;
}

void chain_free(struct chain *chain) {
    mem_free(chain->blocks);
    *chain = (struct chain){0};
}

static enum status check_size(int block, const char *field, int64_t size) {
    if (size >= 0 && size <= CHAIN_SIZE_MAX) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "stage %d: %s: %lld is outside 0 to %lld", block, field, (long long)size,
                      (long long)CHAIN_SIZE_MAX);
}

static enum status check_time(int block, const char *field, double time) {
    if (time >= 0 && time <= CHAIN_TIME_MAX) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "stage %d: %s: %g is outside 0 to %g", block, field, time, CHAIN_TIME_MAX);
}

enum status chain_check(const struct chain *chain) {
    if (chain->count < 1 || chain->count > CHAIN_BLOCKS_MAX)
        return status_set(STATUS_BAD_INPUT, "a chain of %d stages: must be 1 to %d", chain->count, CHAIN_BLOCKS_MAX);
    TRY(check_size(0, "input", chain->input));
    for (int i = 0; i < chain->count; i++) {
        const struct chain_block *block = &chain->blocks[i];
        TRY(check_time(i, "forward_time", block->forward_time));
        TRY(check_time(i, "backward_time", block->backward_time));
        TRY(check_size(i, "output", block->output));
        TRY(check_size(i, "saved", block->saved));
        TRY(check_size(i, "forward_temporary", block->forward_temporary));
        TRY(check_size(i, "backward_temporary", block->backward_temporary));
    }
    return STATUS_OK;
}

struct slot_size {
    int64_t budget_bytes, slots;
};

static int64_t slots_of(const struct slot_size *size, int64_t bytes) {
    __int128 scaled = (__int128)bytes * size->slots;
    return (int64_t)((scaled + size->budget_bytes - 1) / size->budget_bytes);
}

enum status chain_discretise(const struct chain *chain, int64_t budget_bytes, int64_t slots, struct chain *out) {
    TRY(chain_check(chain));
    if (budget_bytes < 1 || slots < 1 || slots > budget_bytes)
        return status_set(STATUS_BAD_INPUT, "%lld slots of a budget of %lld bytes: must be at least one byte each",
                          (long long)slots, (long long)budget_bytes);
    const struct slot_size size = {budget_bytes, slots};
    TRY(chain_create(chain->count, out));
    memcpy(out->blocks, chain->blocks, (size_t)chain->count * sizeof *chain->blocks);
    out->input = slots_of(&size, chain->input);
    for (int i = 0; i < chain->count; i++) {
        struct chain_block *block = &out->blocks[i];
        block->output = slots_of(&size, block->output);
        block->saved = slots_of(&size, block->saved);
        block->forward_temporary = slots_of(&size, block->forward_temporary);
        block->backward_temporary = slots_of(&size, block->backward_temporary);
    }
    return STATUS_OK;
}
