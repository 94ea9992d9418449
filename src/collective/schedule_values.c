#include "collective/schedule_values.h"

#include "collective/schedule_symbols.h"

static bool is_reduction(const struct symbols *symbols) {
    return symbols->spec->kind == COMM_REDUCE_SCATTER || symbols->spec->kind == COMM_ALL_REDUCE;
}

static int owner_of(const struct symbols *symbols, int block) {
    if (symbols->spec->kind == COMM_BROADCAST) return symbols->spec->root;
    return symbols->spec->owner ? symbols->spec->owner[block] : block;
}

/* The block that has a segment. */
static int block_of(const struct symbols *symbols, int segment) {
    int block = 0;
    while (comm_spec_block(symbols->spec, block).end <= symbols->cuts.items[segment])
        block++;
    return block;
}

/* What a rank has in the beginning. */
static symbol first_value(const struct symbols *symbols, const struct comm_spec *spec, int rank, int segment) {
    if (is_reduction(symbols) && spec->empty && spec->empty[rank]) return SYMBOL_NOTHING;
    if (is_reduction(symbols) || spec->kind == COMM_ALL_TO_ALL) return symbol_leaf(rank, segment);
    bool own = owner_of(symbols, block_of(symbols, segment)) == rank && !spec->mine;
    return own ? symbol_leaf(rank, segment) : SYMBOL_NOTHING;
}

static symbol sum_of(const struct symbols *symbols, int segment, symbol *leaves) {
    for (int r = 0; r < symbols->walk->ranks; r++)
        leaves[r] = first_value(symbols, symbols->spec, r, segment);
    symbol sum = symbols_add_up(symbols, 0, leaves);
    return symbols->spec->round_sum ? symbol_rounded(sum) : sum;
}

/* What it must have in the end; nothing: that is undefined. */
static symbol last_value(const struct symbols *symbols, int rank, int segment, symbol *leaves) {
    int block = block_of(symbols, segment);
    if (symbols->spec->kind == COMM_REDUCE_SCATTER && owner_of(symbols, block) != rank) return SYMBOL_NOTHING;
    if (is_reduction(symbols)) return sum_of(symbols, segment, leaves);
    if (symbols->spec->kind != COMM_ALL_TO_ALL) return symbol_leaf(owner_of(symbols, block), segment);
    int in_block = segment - symbols_segment(symbols, comm_spec_block(symbols->spec, block).begin);
    return symbol_leaf(block, symbols_segment(symbols, comm_spec_block(symbols->spec, rank).begin) + in_block);
}

static enum status check_rank(const struct symbols *symbols, int rank, symbol *leaves) {
    const struct comm_schedule *schedule = symbols->walk->of[rank].schedule;
    const struct rank_symbols *own = &symbols->of[rank];
    const symbol *found = symbols->spec->kind == COMM_ALL_TO_ALL ? own->out : own->data;
    for (size_t m = 0; m < schedule->messages.count; m++)
        if (own->flies[m])
            return SCHEDULE_FAULT(symbols->walk, rank, schedule->steps.count, "message %zu is still on its way", m);
    for (int s = 0; s < symbols_count(symbols); s++) {
        symbol expected = last_value(symbols, rank, s, leaves);
        if (expected != SYMBOL_NOTHING && found[s] != expected)
            return SCHEDULE_FAULT(symbols->walk, rank, schedule->steps.count,
                                  "has not what it should from byte %lld on", (long long)symbols->cuts.items[s]);
    }
    return STATUS_OK;
}

static enum status execute(const struct symbols *symbols, const struct comm_spec *const *specs, symbol *leaves) {
    for (int r = 0; r < symbols->walk->ranks; r++)
        for (int s = 0; s < symbols_count(symbols); s++)
            symbols->of[r].data[s] = first_value(symbols, specs[r], r, s);
    for (size_t i = 0; i < symbols->walk->order.count; i++)
        TRY(symbols_take_step(symbols, &symbols->walk->order.items[i], leaves));
    for (int r = 0; r < symbols->walk->ranks; r++)
        TRY(check_rank(symbols, r, leaves));
    return STATUS_OK;
}

enum status schedule_values_check(const struct schedule_walk *walk, const struct comm_spec *const *specs) {
    struct symbols symbols;
    symbol *leaves = mem_array((size_t)walk->ranks, sizeof *leaves);
    enum status status = symbols_create(walk, specs[0], &symbols);
    if (status == STATUS_OK) status = leaves ? execute(&symbols, specs, leaves) : STATUS_FAILED;
    symbols_free(&symbols);
    mem_free(leaves);
    return status;
}
