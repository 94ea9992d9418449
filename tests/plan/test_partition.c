/* Partitions and shards: the legal partitions, and the elements of each rank. */
#include "base/mem.h"
#include "plan/chunks.h"
#include "support/unit.h"

static const struct mesh meshes[] = {{1, 1}, {1, 2}, {2, 1}, {1, 3}, {1, 4}, {2, 2},
                                     {4, 2}, {2, 4}, {3, 2}, {2, 6}, {5, 12}};
enum { MESHES = sizeof meshes / sizeof *meshes };

static int count_triples(const struct mesh *mesh) {
    struct partition *list;
    int count;
    assert_int_equal(partition_list(mesh, &list, &count), STATUS_OK);
    for (int i = 0; i < count; i++) {
        assert_int_equal(partition_check(&list[i], mesh), STATUS_OK);
        for (int k = 0; k < i; k++)
            assert_true(!partition_equal(&list[i], &list[k]));
    }
    mem_free(list);
    return count;
}

static void the_number_of_legal_triples_is_the_paper_s(void **unused) {
    (void)unused;
    assert_int_equal(count_triples(&(struct mesh){128, 8}), 121);
    assert_int_equal(count_triples(&(struct mesh){1, 1}), 1);
    assert_int_equal(count_triples(&(struct mesh){1, 2}), 4);
}

static void names_and_widths_are_read_as_written(void **unused) {
    (void)unused;
    const struct mesh mesh = {4, 8};
    static const char *const same[][2] = {{"ddp", "1x1|1x1|1x1"},      {"zero1", "1x1|1x1|8x4"}, {"zero2", "1|32|32"},
                                          {"zero3", "8x4|8x4|8x4"},    {"mics:8", "8|8|8"},      {"hpz", "8|8x4|8x4"},
                                          {"hybrid:4", "4x1|4x1|8x4"}, {"2|2x1|8x2", "2|2|16"}};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        struct partition a, b, c;
        char text[PARTITION_BYTES];
        assert_int_equal(partition_parse(same[i][0], &mesh, &a), STATUS_OK);
        assert_int_equal(partition_parse(same[i][1], &mesh, &b), STATUS_OK);
        assert_int_equal(partition_parse(partition_print(&a, &mesh, text), &mesh, &c), STATUS_OK);
        assert_true(partition_equal(&a, &b) && partition_equal(&a, &c));
    }
}

static void what_is_not_legal_is_refused(void **unused) {
    (void)unused;
    const struct mesh mesh = {4, 8};
    static const char *const wrong[] = {"",      "zero4",  "1|1",     "1|1|1|1",  "0|1|1",       "1|1|64",
                                        "2|1|2", "1|2|4",  "3|3|3",   "12|12|12", "4x2|8x2|8x2", "mics:0",
                                        "mics:", "mics:5", "1|1|8x5", " 1|1|1",   "1|1|1 ",      "99999999999|1|1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct partition partition;
        assert_int_equal(partition_parse(wrong[i], &mesh, &partition), STATUS_BAD_INPUT);
    }
}

/* Every element of a chunk is held once by each group of a width's ranks, and the finer shard lies in the coarser. */
static void check_shards(const struct shard_cut *cut) {
    const int widths[] = {1, partition_width(cut->partition.parameters), partition_width(cut->partition.gradients),
                          partition_width(cut->partition.optimizer), cut->ranks};
    for (int level = 0; level < 5; level++)
        for (int rank = 0; rank < cut->ranks; rank++) {
            int width = widths[level], coarser = widths[level > 0 ? level - 1 : 0];
            struct shard_range own = shard_range_of(cut, width, rank), outer = shard_range_of(cut, coarser, rank);
            assert_true(own.begin >= outer.begin && own.end <= outer.end && own.begin <= own.end);
            assert_true(own.end - own.begin <= shard_elements(cut, width));
            int owners[64];
            struct comm_group group = shard_group(rank, coarser, width);
            shard_owners(&cut->partition, cut->ranks, rank, coarser, width, owners);
            int64_t at = outer.begin;
            for (int part = 0; part < group.count; part++) {
                struct shard_range theirs = shard_range_of(cut, width, mesh_group_rank(&group, owners[part]));
                assert_int_equal(theirs.begin, at);
                at = theirs.end;
            }
            assert_int_equal(at, outer.end);
        }
}

/* Every rank has a piece of its own. */
static void check_pieces(const struct partition *partition, int ranks) {
    bool taken[64] = {false};
    for (int rank = 0; rank < ranks; rank++) {
        int piece = shard_piece_of(partition, ranks, rank);
        assert_true(piece >= 0 && piece < ranks && !taken[piece]);
        taken[piece] = true;
    }
}

static void shards_lie_in_each_other_and_cover_the_chunk(void **unused) {
    (void)unused;
    for (size_t m = 0; m < MESHES; m++) {
        struct partition *list;
        int count, ranks = mesh_ranks(&meshes[m]);
        assert_int_equal(partition_list(&meshes[m], &list, &count), STATUS_OK);
        for (int i = 0; i < count; i++)
            for (int64_t blocks = 1; blocks < 100; blocks += 7) {
                const struct shard_cut cut = {list[i], ranks, blocks * SHARD_BLOCK};
                check_pieces(&list[i], ranks);
                check_shards(&cut);
            }
        mem_free(list);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_number_of_legal_triples_is_the_paper_s),
                                       cmocka_unit_test(names_and_widths_are_read_as_written),
                                       cmocka_unit_test(what_is_not_legal_is_refused),
                                       cmocka_unit_test(shards_lie_in_each_other_and_cover_the_chunk)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
