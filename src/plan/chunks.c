#include "plan/chunks.h"

enum { LEVELS = 4 };

/* The widths from the coarsest to the finest, each a multiple of the one before. */
static void list_widths(const struct partition *partition, int ranks, int widths[LEVELS]) {
    widths[0] = partition_width(partition->parameters);
    widths[1] = partition_width(partition->gradients);
    widths[2] = partition_width(partition->optimizer);
    widths[3] = ranks;
}

int shard_piece_of(const struct partition *partition, int ranks, int rank) {
    int widths[LEVELS], piece = 0, before = 1;
    list_widths(partition, ranks, widths);
    for (int level = 0; level < LEVELS; level++) {
        int parts = widths[level] / before;
        piece = piece * parts + rank / before % parts;
        before = widths[level];
    }
    return piece;
}

int64_t shard_piece_elements(const struct shard_cut *cut) {
    int64_t blocks = cut->elements / SHARD_BLOCK;
    return (blocks + cut->ranks - 1) / cut->ranks * SHARD_BLOCK;
}

int64_t shard_elements(const struct shard_cut *cut, int width) {
    int64_t elements = shard_piece_elements(cut) * (cut->ranks / width);
    return elements < cut->elements ? elements : cut->elements;
}

struct shard_range shard_range_of(const struct shard_cut *cut, int width, int rank) {
    int pieces = cut->ranks / width, first = shard_piece_of(&cut->partition, cut->ranks, rank) / pieces * pieces;
    struct shard_range range = {first * shard_piece_elements(cut), (first + pieces) * shard_piece_elements(cut)};
    if (range.begin > cut->elements) range.begin = cut->elements;
    if (range.end > cut->elements) range.end = cut->elements;
    return range;
}

struct comm_group shard_group(int rank, int coarse, int fine) {
    return (struct comm_group){.first = rank - rank % fine + rank % coarse, .stride = coarse, .count = fine / coarse};
}

struct comm_group shard_group_of(const struct rank_place *place, int coarse, int fine) {
    struct comm_group data = rank_place_data_group(place);
    struct comm_group part = shard_group(rank_place_data_rank(place), coarse, fine);
    return mesh_group_within(&data, &part);
}

void shard_owners(const struct partition *partition, int ranks, int rank, int coarse, int fine, int *owners) {
    struct comm_group group = shard_group(rank, coarse, fine);
    for (int position = 0; position < group.count; position++) {
        int piece = shard_piece_of(partition, ranks, mesh_group_rank(&group, position));
        owners[piece / (ranks / fine) % group.count] = position;
    }
}

/* A parameter with the node of forward that first reads it, and its chunk. */
struct use {
    const struct tensor *parameter;
    int node, block;
    int32_t chunk;
};

ORDER_BY_BOTH(compare_uses, struct use, item->node, item->parameter->id)

/* Lists parameters in the order of their first use. Parameters that no node reads come last. */
static enum status list_uses(const struct graph *graph, struct scratch *memory, struct use **out, int32_t *count) {
    struct use *uses;
    int32_t *index, found = 0;
    TRY(scratch_items(memory, &uses, graph->tensors.count));
    TRY(scratch_items(memory, &index, graph->tensors.count));
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (tensor->kind != TENSOR_PARAMETER) continue;
        index[i] = found;
        uses[found++] = (struct use){tensor, (int)graph->nodes.count, tensor->block, 0};
    }
    for (size_t n = graph->nodes.count; n-- > 0;) {
        const struct node *node = graph->nodes.items[n];
        for (int i = 0; i < node->op->inputs; i++) {
            const struct tensor *in = node->in[i];
            if (!in || in->kind != TENSOR_PARAMETER) continue;
            uses[index[in->id]].node = node->id;
            uses[index[in->id]].block = node->block;
        }
    }
    qsort(uses, (size_t)found, sizeof *uses, compare_uses);
    *out = uses;
    *count = found;
    return STATUS_OK;
}

/* Parameters of one kind may share a chunk: trained and updated by elements, trained and updated whole, frozen, or
 * frozen and quantized (elements are bytes). */
enum { KINDS = 4 };
static int kind_of(const struct tensor *parameter) {
    return parameter->trainable ? parameter->updated_whole ? 3 : 1 : parameter->code.format == WEIGHT_PLAIN ? 0 : 2;
}

/* Bytes of the consecutive parameters of one block and kind that begin at `first`. */
static int64_t block_bytes(const struct use *uses, int32_t first, int32_t count) {
    int64_t bytes = 0;
    for (int32_t i = first; i < count && uses[i].block == uses[first].block; i++)
        if (kind_of(uses[i].parameter) == kind_of(uses[first].parameter))
            bytes += shape_bytes(&uses[i].parameter->shape);
    return bytes;
}

/* Gives each parameter the number of its chunk. One chunk of each kind is open at a time. */
static enum status assign(struct use *uses, int32_t count, int64_t max, struct chunk_list *list) {
    int32_t open[KINDS] = {-1, -1, -1, -1};
    int last_block[KINDS] = {-1, -1, -1, -1};
    for (int32_t i = 0; i < count; i++) {
        struct use *use = &uses[i];
        int kind = kind_of(use->parameter);
        int64_t bytes = shape_bytes(&use->parameter->shape);
        bool new_block = last_block[kind] != use->block;
        int64_t wanted = new_block ? block_bytes(uses, i, count) : bytes;
        if (wanted > max) wanted = bytes;
        last_block[kind] = use->block;
        bool apart = new_block && list->within_blocks;
        if (open[kind] < 0 || apart || list->chunks.items[open[kind]].bytes + wanted > max) {
            open[kind] = (int32_t)list->chunks.count;
            TRY(vec_push(&list->chunks, (struct chunk){.block = use->block,
                                                       .trained = use->parameter->trainable,
                                                       .whole = use->parameter->updated_whole}));
        }
        struct chunk *chunk = &list->chunks.items[open[kind]];
        chunk->bytes += bytes;
        chunk->count++;
        use->chunk = open[kind];
    }
    return STATUS_OK;
}

static enum status fill(const struct graph *graph, const struct use *uses, int32_t count, struct chunk_list *list) {
    list->tensors = graph->tensors.count + 1;
    TRY(mem_items(&list->chunk_of, graph->tensors.count + 1));
    TRY(mem_items(&list->first_element, graph->tensors.count + 1));
    memset(list->chunk_of, -1, (graph->tensors.count + 1) * sizeof *list->chunk_of);
    for (int32_t c = 0; c < (int32_t)list->chunks.count; c++) {
        list->chunks.items[c].first = (int32_t)list->parameters.count;
        for (int32_t i = 0; i < count; i++) {
            if (uses[i].chunk != c) continue;
            TRY(vec_push(&list->parameters, uses[i].parameter));
            list->chunk_of[uses[i].parameter->id] = c;
        }
    }
    return STATUS_OK;
}

/* In a chunk's buffers parameters lie by their ids. */
static void count_elements(const struct graph *graph, struct chunk_list *list) {
    for (size_t i = 0; i < graph->tensors.count; i++) {
        if (list->chunk_of[i] < 0) continue;
        struct chunk *chunk = &list->chunks.items[list->chunk_of[i]];
        list->first_element[i] = chunk->elements;
        chunk->elements += shard_aligned(shape_elements(&graph->tensors.items[i]->shape));
    }
}

static enum status pack(const struct graph *graph, int64_t chunk_bytes, bool within_blocks, struct chunk_list *out) {
    AUTO(scratch_free) struct scratch memory = {0};
    struct use *uses;
    int32_t count;
    *out = (struct chunk_list){.within_blocks = within_blocks};
    TRY(list_uses(graph, &memory, &uses, &count));
    TRY(assign(uses, count, chunk_bytes, out));
    TRY(fill(graph, uses, count, out));
    count_elements(graph, out);
    return STATUS_OK;
}

enum status chunks_pack(const struct graph *graph, int64_t chunk_bytes, struct chunk_list *out) {
    return pack(graph, chunk_bytes, false, out);
}

enum status chunks_of_policy(const struct graph *graph, const struct policy *policy, struct chunk_list *out) {
    int64_t bytes = policy->chunk_bytes;
    *out = (struct chunk_list){.within_blocks = false};
    if (bytes == 0) TRY(chunks_choose_bytes(graph, &bytes));
    return pack(graph, bytes, partition_cuts(&policy->partition), out);
}

/* ---- whole updates ---- */

static int64_t space_of(const struct tensor *parameter) { return shard_aligned(shape_elements(&parameter->shape)); }

/* The largest of a chunk's parameters without a place; the first of equal ones. NULL if none is left. */
static const struct tensor *largest_left(const struct chunk_list *list, const struct chunk *chunk) {
    const struct tensor *largest = NULL;
    for (int32_t i = chunk->first; i < chunk->first + chunk->count; i++) {
        const struct tensor *parameter = list->parameters.items[i];
        if (list->first_element[parameter->id] < 0 && (!largest || space_of(parameter) > space_of(largest)))
            largest = parameter;
    }
    return largest;
}

/* Shards of one chunk as they fill up. */
struct deal {
    int shards;
    int64_t *filled; /* elements, by shard */
    int *shard_of;   /* by id of a parameter */
};

static int find_min(const struct deal *deal) {
    int min = 0;
    for (int shard = 1; shard < deal->shards; shard++)
        if (deal->filled[shard] < deal->filled[min]) min = shard;
    return min;
}

static int64_t find_max(const struct deal *deal) {
    int64_t max = 0;
    for (int shard = 0; shard < deal->shards; shard++)
        if (deal->filled[shard] > max) max = deal->filled[shard];
    return max;
}

/* A shard has `pieces` pieces (plan/chunks.h), all of as many blocks. */
static void deal_chunk(struct chunk_list *list, struct chunk *chunk, int64_t pieces, struct deal *deal) {
    const struct tensor *parameter;
    memset(deal->filled, 0, (size_t)deal->shards * sizeof *deal->filled);
    for (int32_t i = chunk->first; i < chunk->first + chunk->count; i++)
        list->first_element[list->parameters.items[i]->id] = -1;
    while ((parameter = largest_left(list, chunk))) {
        int shard = deal->shard_of[parameter->id] = find_min(deal);
        list->first_element[parameter->id] = deal->filled[shard];
        deal->filled[shard] += space_of(parameter);
    }
    int64_t unit = pieces * SHARD_BLOCK, shard_elements = (find_max(deal) + unit - 1) / unit * unit;
    for (int32_t i = chunk->first; i < chunk->first + chunk->count; i++) {
        int id = list->parameters.items[i]->id;
        list->first_element[id] += deal->shard_of[id] * shard_elements;
    }
    chunk->elements = shard_elements * deal->shards;
}

enum status chunks_deal(struct chunk_list *chunks, const struct partition *partition, int ranks) {
    struct deal deal = {.shards = partition_width(partition->optimizer)};
    if (deal.shards == 1) return STATUS_OK;
    AUTO(scratch_free) struct scratch memory = {0};
    TRY(scratch_items(&memory, &deal.filled, (size_t)deal.shards));
    TRY(scratch_items(&memory, &deal.shard_of, chunks->tensors));
    for (size_t c = 0; c < chunks->chunks.count; c++)
        if (chunks->chunks.items[c].whole) deal_chunk(chunks, &chunks->chunks.items[c], ranks / deal.shards, &deal);
    return STATUS_OK;
}

enum status chunks_copy_places(const struct chunk_list *chunks, struct chunk_list *out) {
    *out = *chunks;
    out->first_element = NULL;
    TRY(mem_items(&out->chunks.items, chunks->chunks.count));
    TRY(mem_items(&out->first_element, chunks->tensors));
    if (chunks->chunks.count > 0)
        memcpy(out->chunks.items, chunks->chunks.items, chunks->chunks.count * sizeof *out->chunks.items);
    memcpy(out->first_element, chunks->first_element, chunks->tensors * sizeof *out->first_element);
    return STATUS_OK;
}

void chunks_free_places(struct chunk_list *copy) {
    mem_free(copy->chunks.items);
    mem_free(copy->first_element);
    *copy = (struct chunk_list){0};
}

void chunks_free(struct chunk_list *chunks) {
    vec_free(&chunks->parameters);
    vec_free(&chunks->chunks);
    mem_free(chunks->chunk_of);
    mem_free(chunks->first_element);
    *chunks = (struct chunk_list){0};
}

struct layer {
    int64_t sum, max; /* bytes of its parameters, and of the largest of them */
};

/* The most bytes of one block's parameters, without those larger than all others of their block together (embeddings
 * and heads), which are chunks of their own. */
static enum status largest_layer(const struct graph *graph, int64_t *out) {
    struct layer *layers = mem_array(graph->blocks.count + 1, sizeof *layers);
    if (!layers) return STATUS_FAILED;
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (tensor->kind != TENSOR_PARAMETER || tensor->block < 0) continue;
        struct layer *layer = &layers[tensor->block];
        int64_t bytes = shape_bytes(&tensor->shape);
        layer->sum += bytes;
        if (bytes > layer->max) layer->max = bytes;
    }
    *out = 1;
    for (size_t block = 0; block < graph->blocks.count; block++) {
        const struct layer *layer = &layers[block];
        int64_t bytes = 2 * layer->max > layer->sum ? layer->sum - layer->max : layer->sum;
        if (bytes > *out) *out = bytes;
    }
    mem_free(layers);
    return STATUS_OK;
}

static int64_t total_bytes(const struct graph *graph) {
    int64_t bytes = 0;
    for (size_t i = 0; i < graph->tensors.count; i++)
        if (graph->tensors.items[i]->kind == TENSOR_PARAMETER) bytes += shape_bytes(&graph->tensors.items[i]->shape);
    return bytes;
}

static int64_t waste(const struct chunk_list *list, int64_t chunk_bytes) {
    int64_t sum = 0;
    for (size_t c = 0; c < list->chunks.count; c++)
        if (list->chunks.items[c].bytes < chunk_bytes) sum += chunk_bytes - list->chunks.items[c].bytes;
    return sum;
}

/* At least two chunks are on the device: one in use, one being fetched. */
enum { BUFFERS_MIN = 2 };

enum status chunks_choose_bytes(const struct graph *graph, int64_t *out) {
    static const int64_t largest_bytes = (int64_t)256 << 20;
    int64_t layer, min = INT64_MAX;
    TRY(largest_layer(graph, &layer));
    /* Larger sizes change nothing once all parameters are in one chunk. */
    int64_t max = total_bytes(graph) < largest_bytes ? total_bytes(graph) : largest_bytes;
    for (int64_t bytes = layer; bytes == layer || bytes <= max; bytes += layer) {
        struct chunk_list list;
        enum status status = chunks_pack(graph, bytes, &list);
        int64_t cost = waste(&list, bytes) + BUFFERS_MIN * bytes;
        chunks_free(&list);
        TRY(status);
        if (cost < min) min = cost, *out = bytes;
    }
    return STATUS_OK;
}

int32_t chunks_updated_by(const struct chunk_list *chunks, const struct node *node) {
    int32_t chunk = -1;
    for (int i = 0; i < node->op->outputs; i++)
        if (node->out[i] && node->out[i]->kind == TENSOR_PARAMETER) chunk = chunks->chunk_of[node->out[i]->id];
    return chunk;
}

struct chunk_part chunks_part_of(const struct chunk_list *chunks, const struct tensor *tensor) {
    const struct tensor *parameter = tensor->kind == TENSOR_PARAMETER ? tensor : tensor->parameter;
    int32_t chunk = chunks->chunk_of[parameter->id];
    bool by_block = tensor->kind == TENSOR_GRADIENT && !chunks->within_blocks;
    return (struct chunk_part){chunk, by_block ? tensor->block : 0};
}
