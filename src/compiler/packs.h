/* Packs: tensors of a chunk side by side, whole ones or the slices that a shard has of them. */
#ifndef BALLAST_COMPILER_PACKS_H
#define BALLAST_COMPILER_PACKS_H

#include "compiler/step_buffers.h"

/* A tensor and the pack that it belongs to: all of one chunk, and of one block where parts have blocks; `apart` are a
 * tied parameter's other uses. Of several roles (state) one comes after the other where they are cut. */
struct packed {
    struct chunk_part part;
    bool apart;
    int role;
    int id;        /* of the tensor */
    int64_t order; /* its place in the pack */
};

struct packed_list {
    VEC(struct packed) list; /* pack by pack, each in its order */
};

/* Tensors of a kind that belong to chunks: of results, those by parameter. The caller frees with vec_free, also after a
 * failure. */
enum status packed_list_create(const struct step_buffers *buffers, enum tensor_kind kind, struct packed_list *out);
/* Where the pack that begins at `first` ends. Where nothing is cut a pack's other uses lie at its end, else they are a
 * pack of their own. */
size_t packed_list_end(const struct step_buffers *buffers, const struct packed_list *list, size_t first);

/* Whole tensors, each at a multiple of BUFFER_ALIGNMENT. */
enum status pack_whole(const struct step_buffers *buffers, const struct packed *list, size_t count, struct pack **out,
                       int64_t *bytes);
/* What this rank's shard of `width` has of them, role by role; width 1: all. As many bytes on every rank. */
enum status pack_shard(const struct step_buffers *buffers, const struct packed *list, size_t count, int width,
                       struct pack **out, int64_t *bytes);

#endif
