/* Offsets: buffers that are live at the same time do not overlap, gaps are few, and copies reuse free bytes in turn. */
#include <string.h>

#include "compiler/program.h"
#include "support/unit.h"

/* Sizes of one layer's buffers, in units of the alignment: activations from its forward to its backward, gradients from
 * its backward to the end, and what is there within each of the two. */
struct layer {
    int64_t activations[3], gradients[3], within;
};

static void add(struct program *program, int64_t units, int32_t first, int32_t last) {
    struct buffer buffer = {.id = (int)program->buffers.count,
                            .tier = TIER_DEVICE,
                            .bytes = units * program->alignment,
                            .first = first,
                            .last = last};
    assert_int_equal(vec_push(&program->buffers, buffer), STATUS_OK);
}

static void make_step(int layers, const struct layer *layer, struct program *program) {
    int32_t end = layers * 8 + 8;
    *program = (struct program){.alignment = 64};
    for (int32_t i = 0; i < end + 5; i++)
        assert_int_equal(vec_push(&program->instructions, (struct instruction){.section = 0}), STATUS_OK);
    for (int32_t l = 0; l < layers; l++) {
        for (int32_t k = 0; k < 3; k++)
            add(program, layer->activations[k], 4 * l + k, end - 4 * l - k - 1);
        add(program, layer->within, 4 * l + 2, 4 * l + 3);
    }
    for (int32_t l = layers; l-- > 0;) {
        int32_t at = end - 4 * l - 4;
        for (int32_t k = 0; k < 3; k++)
            add(program, layer->gradients[k], at + k, end + 4);
        add(program, layer->within, at, at + 2);
        add(program, layer->within / 2 + 1, at + 1, at + 3);
    }
}

static bool share_bytes(const struct buffer *a, const struct buffer *b) {
    return a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

static void require_apart(const struct program *program) {
    for (size_t i = 0; i < program->buffers.count; i++)
        for (size_t j = 0; j < i; j++) {
            const struct buffer *a = &program->buffers.items[i], *b = &program->buffers.items[j];
            bool together = a->first <= b->last && b->first <= a->last;
            if (a->tier == b->tier && together && share_bytes(a, b)) fail_msg("buffers %zu and %zu share bytes", i, j);
        }
}

static void free_step(struct program *program) {
    vec_free(&program->instructions);
    vec_free(&program->buffers);
}

/* Without moves the best of the orders leaves 7% of gaps here. */
static void moves_close_gaps(void **state) {
    (void)state;
    const struct layer layer = {{7, 20, 9}, {13, 5, 17}, 31};
    struct program program;
    make_step(8, &layer, &program);
    assert_int_equal(program_place(&program), STATUS_OK);
    int64_t top = program.tier_bytes[TIER_DEVICE], live = program.live_bytes[TIER_DEVICE];
    print_message("%lld bytes, at least %lld\n", (long long)top, (long long)live);
    require_apart(&program);
    assert_true(top >= live && (double)top <= 1.04 * (double)live);
    free_step(&program);
}

static void any_sizes_stay_apart(void **state) {
    (void)state;
    for (int64_t seed = 1; seed <= 50; seed++) {
        struct layer layer = {
            {1 + seed % 7, 1 + seed % 13, 1 + seed % 5}, {1 + seed % 11, 1 + seed % 3, 1 + seed % 17}, 1 + seed % 23};
        struct program program;
        make_step(1 + (int)(seed % 9), &layer, &program);
        assert_int_equal(program_place(&program), STATUS_OK);
        require_apart(&program);
        for (size_t i = 0; i < program.buffers.count; i++) {
            const struct buffer *buffer = &program.buffers.items[i];
            assert_true(buffer->offset + buffer->bytes <= program.tier_bytes[TIER_DEVICE]);
        }
        free_step(&program);
    }
}

/* ---- copies ---- */

enum { GROUPS = 12, IN_GROUP = 4, COPY_UNITS = 10, COPIES = 3 };

/* A copy in each group but the last, whose own buffer has space for `COPIES` of them and a bit; next to each copy what
 * its group computes with. */
static void make_copies(struct program *program) {
    *program = (struct program){.alignment = 64};
    for (int32_t i = 0; i < GROUPS * IN_GROUP; i++)
        assert_int_equal(vec_push(&program->instructions, (struct instruction){.group = i / IN_GROUP}), STATUS_OK);
    for (int32_t g = 0; g + 1 < GROUPS; g++) {
        add(program, COPY_UNITS, g * IN_GROUP, g * IN_GROUP + 3);
        add(program, 2, g * IN_GROUP + 1, g * IN_GROUP + 2);
    }
    add(program, COPIES * COPY_UNITS + 4, (GROUPS - 1) * IN_GROUP, GROUPS * IN_GROUP - 1);
    struct buffer original = {.id = (int)program->buffers.count, .tier = TIER_DISK, .persistent = true, .original = -1};
    for (int b = 0; b < original.id; b++)
        program->buffers.items[b].original = program->buffers.items[b].bytes == COPY_UNITS * 64 ? original.id : -1;
    assert_int_equal(vec_push(&program->buffers, original), STATUS_OK);
}

/* So that the next copies are fetched while one is still in use; the arena stays as small as it can be. The last copies
 * are all near the buffer of the last group. */
static void copies_take_turns(void **state) {
    (void)state;
    struct program program;
    make_copies(&program);
    assert_int_equal(program_place(&program), STATUS_OK);
    require_apart(&program);
    assert_int_equal(program.tier_bytes[TIER_DEVICE], program.live_bytes[TIER_DEVICE]);
    for (int32_t g = 0; g + 1 < GROUPS; g++)
        for (int32_t next = g + 1; next < g + COPIES && next + COPIES < GROUPS; next++) {
            const struct buffer *copy = &program.buffers.items[2 * g], *later = &program.buffers.items[2 * next];
            assert_true(copy->offset + copy->bytes <= program.tier_bytes[TIER_DEVICE]);
            if (share_bytes(copy, later)) fail_msg("the copies of groups %d and %d share bytes", g, next);
        }
    free_step(&program);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(moves_close_gaps), cmocka_unit_test(any_sizes_stay_apart),
                                       cmocka_unit_test(copies_take_turns)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
