#include "support/block_chunks.h"

#include "base/mem.h"

enum status max_chunks_in_a_block(const struct graph *graph, const struct chunk_list *chunks, int64_t first,
                                  int64_t *out) {
    size_t blocks = graph->blocks.count + 1, columns = chunks->chunks.count;
    bool *used = mem_array(blocks * columns, sizeof *used);
    if (!used) return STATUS_FAILED;
    for (size_t n = 0; n < graph->nodes.count; n++) {
        const struct node *node = graph->nodes.items[n];
        for (int i = 0; i < node->op->inputs; i++) {
            int32_t chunk = node->in[i] ? chunks->chunk_of[node->in[i]->id] : -1;
            if (chunk >= 0 && chunk >= first) used[(size_t)node->block * columns + (size_t)chunk] = true;
        }
    }
    *out = 0;
    for (size_t block = 0; block < blocks; block++) {
        int64_t count = 0;
        for (size_t chunk = 0; chunk < columns; chunk++)
            count += used[block * columns + chunk];
        if (count > *out) *out = count;
    }
    mem_free(used);
    return STATUS_OK;
}
