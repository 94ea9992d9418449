/* Packing of parameters into chunks. */
#include "plan/chunks.h"

#include <stdio.h>

#include "base/random.h"
#include "support/fault_sweep.h"
#include "support/small_graph.h"
#include "support/unit.h"

static struct graph *build(int layers, bool tied) {
    return small_graph_build(&(struct small_graph_options){
        .layers = layers, .tied = tied, .dtype = DTYPE_BF16, .micro_batch_sequences = 1, .sequence_length = 4});
}

/* Every third matrix of a layer, so that both kinds are in one block. */
static void freeze_some(struct graph *graph, uint64_t seed) {
    for (size_t i = 0; i < graph->tensors.count; i++)
        if (graph->tensors.items[i]->kind == TENSOR_PARAMETER)
            graph->tensors.items[i]->trainable = random_u64(seed, RANDOM_TEST, 1, i) % 3 != 0;
}

/* The first node that reads a parameter, as forward runs. */
static int first_reader(const struct graph *graph, const struct tensor *parameter) {
    for (size_t n = 0; n < graph->nodes.count; n++)
        for (int i = 0; i < OP_INPUTS_MAX; i++)
            if (graph->nodes.items[n]->in[i] == parameter) return (int)n;
    fail_msg("nobody reads %s", parameter->name);
    return -1;
}

static int64_t bytes_of(const struct tensor *parameter) { return shape_bytes(&parameter->shape); }

/* Each parameter is in one chunk, chunks follow each other in the list, and say of themselves what is true. */
static void check_partition(const struct graph *graph, const struct chunk_list *list) {
    int32_t next = 0;
    for (int32_t c = 0; c < (int32_t)list->chunks.count; c++) {
        const struct chunk *chunk = &list->chunks.items[c];
        int64_t bytes = 0;
        assert_int_equal(chunk->first, next);
        assert_true(chunk->count > 0);
        next += chunk->count;
        for (int32_t i = chunk->first; i < next; i++) {
            const struct tensor *parameter = list->parameters.items[i];
            assert_int_equal(parameter->kind, TENSOR_PARAMETER);
            assert_int_equal(list->chunk_of[parameter->id], c);
            assert_int_equal(parameter->trainable, chunk->trained);
            assert_int_equal(parameter->updated_whole, chunk->whole);
            bytes += bytes_of(parameter);
        }
        assert_int_equal(chunk->bytes, bytes);
    }
    assert_int_equal(next, list->parameters.count);
    size_t parameters = 0;
    for (size_t i = 0; i < graph->tensors.count; i++) {
        bool is = graph->tensors.items[i]->kind == TENSOR_PARAMETER;
        parameters += is;
        assert_true(is == (list->chunk_of[i] >= 0));
    }
    assert_int_equal(parameters, list->parameters.count);
}

/* Within a chunk and among chunks of a kind, parameters come as forward first reads them; chunks come as their first
 * parameters do. */
static void check_order(const struct graph *graph, const struct chunk_list *list) {
    int last[2] = {-1, -1}, before = -1;
    for (size_t c = 0; c < list->chunks.count; c++) {
        const struct chunk *chunk = &list->chunks.items[c];
        const struct tensor *first = list->parameters.items[chunk->first];
        assert_true(first_reader(graph, first) >= before);
        before = first_reader(graph, first);
        assert_int_equal(chunk->block, graph->nodes.items[before]->block);
        for (int32_t i = 0; i < chunk->count; i++) {
            int reader = first_reader(graph, list->parameters.items[chunk->first + i]);
            assert_true(reader >= last[chunk->trained]);
            last[chunk->trained] = reader;
        }
    }
}

static int block_of(const struct graph *graph, const struct tensor *parameter) {
    return graph->nodes.items[first_reader(graph, parameter)]->block;
}

/* At most `max` bytes, but for a parameter that is larger by itself; and what a block has of a kind is in one chunk
 * where it fits into one. */
static void check_sizes(const struct graph *graph, const struct chunk_list *list, int64_t max) {
    for (size_t c = 0; c < list->chunks.count; c++)
        assert_true(list->chunks.items[c].bytes <= max || list->chunks.items[c].count == 1);
    for (int block = 0; block < (int)graph->blocks.count; block++)
        for (int trained = 0; trained < 2; trained++) {
            int64_t bytes = 0;
            int32_t first = -1, last = -1;
            for (size_t i = 0; i < list->parameters.count; i++) {
                const struct tensor *parameter = list->parameters.items[i];
                if (block_of(graph, parameter) != block || parameter->trainable != (bool)trained) continue;
                bytes += bytes_of(parameter);
                last = list->chunk_of[parameter->id];
                if (first < 0) first = last;
            }
            if (bytes <= max && first != last)
                fail_msg("block %d, %lld of %lld bytes, is in chunks %d to %d", block, (long long)bytes, (long long)max,
                         first, last);
        }
}

static void random_sizes_are_packed(void **state) {
    (void)state;
    for (uint64_t seed = 1, last = unit_sweep(200, 4000); seed <= last; seed++) {
        struct graph *graph = build(1 + (int)(seed % 5), seed % 2);
        if (seed % 3 == 0) freeze_some(graph, seed);
        int64_t max = 1 + (int64_t)(random_u64(seed, RANDOM_TEST, 2, 0) % 30000);
        struct chunk_list list;
        assert_int_equal(chunks_pack(graph, max, &list), STATUS_OK);
        check_partition(graph, &list);
        check_order(graph, &list);
        check_sizes(graph, &list, max);
        chunks_free(&list);
        graph_free(graph);
    }
}

/* Head and embedding share one: it stays with the embedding, and is there once. */
static void tied_parameters_are_packed_once(void **state) {
    (void)state;
    struct graph *graph = build(2, true);
    struct chunk_list list;
    assert_int_equal(chunks_pack(graph, 1 << 20, &list), STATUS_OK);
    int found = 0;
    for (size_t i = 0; i < list.parameters.count; i++)
        found += list.parameters.items[i] == graph_find(graph, "embedding");
    assert_int_equal(found, 1);
    assert_int_equal(list.chunk_of[graph_find(graph, "embedding")->id], 0);
    chunks_free(&list);
    graph_free(graph);
}

static void larger_tensors_are_chunks_alone(void **state) {
    (void)state;
    struct graph *graph = build(2, false);
    struct chunk_list list;
    assert_int_equal(chunks_pack(graph, 1, &list), STATUS_OK);
    assert_int_equal(list.chunks.count, list.parameters.count);
    check_partition(graph, &list);
    chunks_free(&list);
    graph_free(graph);
}

/* What chunks leave free, and two of them on the device. */
static int64_t cost(const struct graph *graph, int64_t bytes) {
    struct chunk_list list;
    int64_t sum = 2 * bytes;
    assert_int_equal(chunks_pack(graph, bytes, &list), STATUS_OK);
    for (size_t c = 0; c < list.chunks.count; c++)
        if (list.chunks.items[c].bytes < bytes) sum += bytes - list.chunks.items[c].bytes;
    chunks_free(&list);
    return sum;
}

/* Bytes of one of the small graph's layers, which are all alike and larger than embedding or head without the matrix.
 */
static int64_t layer_bytes(const struct graph *graph) {
    int64_t bytes = 0;
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (tensor->kind == TENSOR_PARAMETER && block_of(graph, tensor) == 1) bytes += bytes_of(tensor);
    }
    return bytes;
}

static void the_chosen_size_holds_a_layer(void **state) {
    (void)state;
    for (int layers = 1; layers <= 6; layers++) {
        struct graph *graph = build(layers, layers % 2);
        int64_t chosen, layer = layer_bytes(graph);
        assert_int_equal(chunks_choose_bytes(graph, &chosen), STATUS_OK);
        assert_int_equal(chosen % layer, 0);
        for (int64_t bytes = layer; bytes < chosen; bytes += layer)
            assert_true(cost(graph, bytes) > cost(graph, chosen));
        for (int64_t bytes = chosen; bytes <= chosen + 12 * layer; bytes += layer)
            assert_true(cost(graph, bytes) >= cost(graph, chosen));
        graph_free(graph);
    }
}

/* Each chunk is of one block, and its parameters lie at blocks of elements by their ids. */
static void partitions_have_chunks_within_blocks(void **state) {
    (void)state;
    struct graph *graph = build(3, true);
    struct chunk_list list;
    const struct policy policy = {.chunk_bytes = 1 << 30, .partition = {1, 1, 2}};
    assert_int_equal(chunks_of_policy(graph, &policy, &list), STATUS_OK);
    assert_int_equal(list.chunks.count, 3 + 2);
    for (size_t c = 0; c < list.chunks.count; c++) {
        const struct chunk *chunk = &list.chunks.items[c];
        int64_t next = 0;
        for (size_t i = 0; i < graph->tensors.count; i++) {
            const struct tensor *tensor = graph->tensors.items[i];
            if (list.chunk_of[i] != (int32_t)c) continue;
            assert_int_equal(block_of(graph, tensor), chunk->block);
            assert_int_equal(list.first_element[i], next);
            next += shard_aligned(shape_elements(&tensor->shape));
        }
        assert_int_equal(chunk->elements, next);
    }
    chunks_free(&list);
    graph_free(graph);
}

/* Matrices of many sizes, most of which are updated whole. */
static struct graph *build_matrices(uint64_t seed) {
    struct graph *graph = build(3, false);
    for (size_t i = 0; i < graph->tensors.count; i++) {
        struct tensor *tensor = graph->tensors.items[i];
        if (tensor->kind != TENSOR_PARAMETER || tensor->shape.rank != 2) continue;
        tensor->shape.dims[0] *= 1 + (int64_t)(random_u64(seed, RANDOM_TEST, 2, i) % 5000);
        tensor->updated_whole = random_u64(seed, RANDOM_TEST, 3, i) % 4 != 0;
    }
    return graph;
}

/* No two parameters of a chunk share elements; one that is updated whole lies in one shard of the optimizer's states.
 */
static void check_dealt(const struct chunk_list *list, const struct chunk *chunk, const struct shard_cut *cut) {
    int64_t shard = shard_elements(cut, partition_width(cut->partition.optimizer)), total = 0;
    for (int32_t i = chunk->first; i < chunk->first + chunk->count; i++) {
        const struct tensor *parameter = list->parameters.items[i];
        int64_t first = list->first_element[parameter->id], end = first + shape_elements(&parameter->shape);
        total += shard_aligned(end - first);
        assert_true(first >= 0 && first % SHARD_BLOCK == 0 && end <= chunk->elements);
        if (chunk->whole) assert_int_equal(first / shard, (end - 1) / shard);
        for (int32_t k = chunk->first; k < i; k++) {
            int64_t other = list->first_element[list->parameters.items[k]->id];
            assert_true(other >= end || other + shape_elements(&list->parameters.items[k]->shape) <= first);
        }
    }
    assert_true(chunk->whole ? total <= chunk->elements : total == chunk->elements);
    if (chunk->whole) assert_int_equal(shard * partition_width(cut->partition.optimizer), chunk->elements);
}

static void shards_have_whole_parameters_of_whole_updates(void **state) {
    (void)state;
    static const struct partition partitions[] = {{1, 1, 2}, {2, 2, 2}, {1, 1, 4}, {2, 4, 4}, {4, 4, 4}, {1, 8, 8}};
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct graph *graph = build_matrices(seed);
        for (size_t p = 0; p < sizeof partitions / sizeof *partitions; p++) {
            const struct policy policy = {.chunk_bytes = 1 << 30, .partition = partitions[p]};
            struct chunk_list list, copy;
            assert_int_equal(chunks_of_policy(graph, &policy, &list), STATUS_OK);
            assert_int_equal(chunks_copy_places(&list, &copy), STATUS_OK);
            assert_int_equal(chunks_deal(&copy, &policy.partition, 8), STATUS_OK);
            check_partition(graph, &list);
            for (size_t c = 0; c < copy.chunks.count; c++) {
                const struct chunk *chunk = &copy.chunks.items[c];
                check_dealt(&copy, chunk, &(struct shard_cut){policy.partition, 8, chunk->elements});
            }
            chunks_free_places(&copy);
            chunks_free(&list);
        }
        graph_free(graph);
    }
}

static void no_parameters_make_no_chunk(void **state) {
    (void)state;
    struct graph *graph = graph_create(DTYPE_F32, 1, 1);
    struct chunk_list list;
    int64_t bytes;
    assert_int_equal(chunks_pack(graph, 100, &list), STATUS_OK);
    assert_int_equal(list.chunks.count, 0);
    assert_int_equal(chunks_choose_bytes(graph, &bytes), STATUS_OK);
    assert_true(bytes > 0);
    chunks_free(&list);
    graph_free(graph);
}

static enum status pack_and_free(void *payload) {
    struct chunk_list list;
    int64_t bytes;
    TRY(chunks_choose_bytes(payload, &bytes));
    enum status status = chunks_pack(payload, bytes / 2, &list);
    if (status == STATUS_OK) status = chunks_deal(&list, &(struct partition){1, 1, 2}, 2);
    chunks_free(&list);
    return status;
}

static void faults_are_reported(void **state) {
    (void)state;
    struct graph *graph = build(2, false);
    assert_true(fault_sweep(FAULT_ALLOCATE, false, pack_and_free, graph) > 10);
    graph_free(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_sizes_are_packed),
        cmocka_unit_test(tied_parameters_are_packed_once),
        cmocka_unit_test(larger_tensors_are_chunks_alone),
        cmocka_unit_test(the_chosen_size_holds_a_layer),
        cmocka_unit_test(partitions_have_chunks_within_blocks),
        cmocka_unit_test(shards_have_whole_parameters_of_whole_updates),
        cmocka_unit_test(no_parameters_make_no_chunk),
        cmocka_unit_test(faults_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
