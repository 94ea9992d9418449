/* safetensors files: named tensors after a JSON header, which is checked in full before anything is used.
 *
 * Layout: 8 bytes (the header's length N, little-endian), N bytes of JSON ({"NAME": {"dtype", "shape", "data_offsets":
 * [begin, end]}, ..., "__metadata__": {string: string}}), then the data. Offsets count from the data's first byte. As
 * in the safetensors library, the tensors must cover the data exactly: no overlap, no hole, no rest. */
#pragma once

#include "base/base.h"
#include "base/byte_store.h"
#include "base/file.h"
#include "ir/tensor.h"

/* Recognizes weights in unsupported formats by their first bytes or names, and adds a hint. */

/* The same for a path; opens the file. */
enum status foreign_weights_refuse_file(const char *path);
/* BAD_INPUT if the name is typical of such a format. Other files may have it, too (.bin). */
enum status foreign_weights_refuse_name(const char *path);
/* BAD_INPUT if a file in the directory has the name of such a format. */
enum status foreign_weights_refuse_folder(const char *folder);

/* name in the file, bits of one element */
#define SAFETENSORS_DTYPE_LIST(X)                                                                                      \
    X(BOOL, 8)                                                                                                         \
    X(F4, 4)                                                                                                           \
    X(F6_E2M3, 6)                                                                                                      \
    X(F6_E3M2, 6)                                                                                                      \
    X(U8, 8)                                                                                                           \
    X(I8, 8)                                                                                                           \
    X(F8_E5M2, 8)                                                                                                      \
    X(F8_E4M3, 8)                                                                                                      \
    X(F8_E8M0, 8)                                                                                                      \
    X(F8_E4M3FNUZ, 8)                                                                                                  \
    X(F8_E5M2FNUZ, 8)                                                                                                  \
    X(I16, 16)                                                                                                         \
    X(U16, 16)                                                                                                         \
    X(F16, 16)                                                                                                         \
    X(BF16, 16)                                                                                                        \
    X(I32, 32)                                                                                                         \
    X(U32, 32)                                                                                                         \
    X(F32, 32)                                                                                                         \
    X(C64, 64)                                                                                                         \
    X(F64, 64)                                                                                                         \
    X(I64, 64)                                                                                                         \
    X(U64, 64)

enum safetensors_dtype {
    SAFETENSORS_UNKNOWN, /* a name not in the list: the tensor's size is not checked, and it cannot be converted */
#define SAFETENSORS_ENUM(name, bits) SAFETENSORS_##name,
    SAFETENSORS_DTYPE_LIST(SAFETENSORS_ENUM)
#undef SAFETENSORS_ENUM
};
enum safetensors_dtype safetensors_dtype_find(const char *name);
/* Bits of one element; 0 if unknown. */
size_t safetensors_dtype_bits(enum safetensors_dtype dtype);

struct safetensors_tensor {
    const char *name, *file; /* file: the path it was read from, for messages */
    enum safetensors_dtype dtype;
    const char *dtype_name; /* as written in the file */
    int rank;
    const int64_t *dims;  /* row-major; may hold zeros */
    size_t elements;      /* product of dims, 1 for rank 0 */
    size_t input;         /* index of its file in the set */
    size_t offset, bytes; /* place in that file */
};

/* All tensors of one or several files. */
struct safetensors {
    VEC(struct safetensors_tensor) tensors; /* sorted by name; names are unique over all files */
    VEC(struct file_input) inputs;          /* the files */
    struct scratch memory;                  /* of names, paths and dims */
};

/* Opens one file. BAD_INPUT names the file, the tensor and the error. */
enum status safetensors_open(const char *path, struct safetensors **out);
/* Opens a directory's model.safetensors or, without one, every file in its model.safetensors.index.json. The index and
 * the files must agree on each tensor's file. */
enum status safetensors_open_folder(const char *folder, struct safetensors **out);
/* Whether the directory has all of these files. BAD_INPUT if the index cannot be read. */
enum status safetensors_folder_is_whole(const char *folder, bool *out);
/* Opens a file in memory, which must stay there; `name` replaces the path in messages. */
enum status safetensors_open_memory(const char *name, const void *data, size_t bytes, struct safetensors **out);
void safetensors_close(struct safetensors *set);

/* Replaces each tensor with the name of a stack by its `count` parts, under their own names. All parts of a stack are
 * listed. Missing stacks are skipped. BAD_INPUT if a stack's dimensions do not give so many parts. Call it before
 * anything refers to the set's tensors. */
struct safetensors_part {
    const char *name; /* copied */
    struct tensor_stack stack;
};
enum status safetensors_unstack(struct safetensors *set, const struct safetensors_part *parts, size_t count);

/* Renames a tensor of the set; the name is copied. Call it before anything refers to the set's tensors. */
enum status safetensors_rename(struct safetensors *set, const struct safetensors_tensor *tensor, const char *name);

/* NULL if no tensor has that name. */
const struct safetensors_tensor *safetensors_find(const struct safetensors *set, const char *name);
/* Whether the tensor has exactly these dimensions. */
bool safetensors_has_shape(const struct safetensors_tensor *tensor, const struct shape *shape);
/* BAD_INPUT "FILE: NAME: …". */
#define SAFETENSORS_REFUSE(tensor, ...)                                                                                \
    status_prefix(status_set(STATUS_BAD_INPUT, __VA_ARGS__), "%s: %s", (tensor)->file, (tensor)->name)
/* "[211, 30]", truncated if it does not fit; returns `text`. */
char *safetensors_print_dims(const struct safetensors_tensor *tensor, char text[SHAPE_TEXT]);

/* Whether values of this dtype can be converted to `to`: F32, BF16, F16 and F64 to fp32 and bf16; F64 to fp64, I32 to
 * int32. */
bool safetensors_can_convert(enum safetensors_dtype from, enum dtype to);
/* Reads elements [first, first + count) and converts them to `to`, rounding to nearest even. The range must lie inside
 * the tensor, and the conversion must be possible. Any number of threads may convert at once. FAILED, naming the file,
 * if it cannot be read, for example because it was truncated. */
enum status safetensors_convert(const struct safetensors *set, const struct safetensors_tensor *tensor, size_t first,
                                size_t count, enum dtype to, void *out);
/* Bytes [offset, offset + bytes) of a tensor, as in the file. FAILED like safetensors_convert. */
enum status safetensors_read(const struct safetensors *set, const struct safetensors_tensor *tensor, size_t offset,
                             size_t bytes, void *out);

/* Elements [first, first + elements) of a tensor, to be converted. */
struct safetensors_load {
    const struct safetensors *set;
    const struct safetensors_tensor *tensor;
    size_t first, elements;
    size_t to;        /* the store's element for the first one */
    enum dtype dtype; /* a dtype that safetensors_can_convert to */
    void *out;        /* destination of the first; NULL: to `store`, under `key` */
    const struct byte_store *store;
    const void *key;
};
struct safetensors_loads {
    struct safetensors_load *items;
    size_t count, capacity;
};
/* Adds the loads of elements [first, first + elements) of a rank's part of the tensor, given in `load` as if of the
 * whole tensor. If the tensor is no part, adds `load` itself. FAILED without memory. The caller frees with vec_free. */
enum status safetensors_add_part(const struct safetensors_load *load, const struct tensor *part,
                                 struct safetensors_loads *out);
/* Converts them with OpenMP's threads, in the order of the files, which are read ahead. FAILED without memory, or if a
 * file cannot be read or a store fails. */
enum status safetensors_load(const struct safetensors_load *loads, size_t count);

/* Whether both hold the same dtype, shape and bytes. FAILED without memory or if a file cannot be read. */
enum status safetensors_equal(const struct safetensors *set, const struct safetensors_tensor *a,
                              const struct safetensors_tensor *b, bool *equal);

/* One tensor to be written: a shape with data or, if `carried` is not NULL, that tensor of `carried_from` unchanged, in
 * any dtype. */
struct safetensors_item {
    const char *name; /* unique */
    const struct safetensors_tensor *carried;
    const struct safetensors *carried_from;
    struct shape shape; /* F32, BF16, F64 or I32 */
    /* If stack.name is not NULL, the item is this part of a tensor of that name, whose other parts are items, too. */
    struct tensor_stack stack;
    const void *data;          /* shape_bytes(&shape) bytes, contiguous; NULL: in `store`, under `key` */
    const struct tensor *part; /* for runs: data and store hold this part of it (tensor_part_find); NULL: all of it */
    const struct byte_store *store;
    const void *key;
    uint64_t *hash; /* set to the XXH3 of the written bytes; NULL: not wanted */
    /* Items of the same group are contiguous; the sum of their bytes is a multiple of SAFETENSORS_GROUP_BYTES. NULL: in
     * no group. */
    const char *group;
};
enum { SAFETENSORS_GROUP_BYTES = 8 };
/* Writes a new file, streaming from the items' data. Groups come first. Within and after them wider dtypes come first,
 * then names, so that all data is aligned to its own size. Syncs the file; leaves none on failure. FAILED also for a
 * value that is not finite, naming only the item. `sums`, begun and without other bytes, receives those of the file;
 * NULL: not wanted. */
enum status safetensors_write(const char *path, const struct safetensors_item *items, size_t count,
                              struct file_sums *sums);
/* Size of their file in bytes. FAILED without memory. */
enum status safetensors_measure(const struct safetensors_item *items, size_t count, uint64_t *bytes);
/* Writes bytes [range->begin, range->end) of that file, while other callers may write its other ranges. Creates a
 * missing file. `begin` is a multiple of FILE_BLOCK_BYTES_MIN. Syncs; written bytes stay on failure. `sums` receives
 * only those bytes. The range with an item's first byte makes its hash, over all its bytes; other ranges do not touch
 * it. Only values in the range must be finite. `range` NULL: like safetensors_write. */
enum status safetensors_write_range(const char *path, const struct safetensors_item *items, size_t count,
                                    const struct file_range *range, struct file_sums *sums);

/* Elements [first, first + elements) of an item, or of its part if it has one; bytes of a carried item. */
struct safetensors_run {
    int64_t first, elements;
};
/* One process's share of a file whose items no process has as a whole: its run of each item, read from the item's
 * store. The runs of all processes cover the items once. */
struct safetensors_runs {
    const struct safetensors_item *items; /* without data, the same in all processes */
    const struct safetensors_run *of;     /* by item; may be empty */
    size_t count;
    bool head; /* this process also writes the file's head */
};
/* Writes the bytes of its runs in the file that safetensors_write would make, while other processes may write theirs.
 * Creates a missing file, and syncs it; written bytes stay on failure. FAILED also for a value that is not finite. */
enum status safetensors_write_runs(const char *path, const struct safetensors_runs *mine);
/* After all have written: reads bytes [range->begin, range->end) of the file again, for their checksums. Makes hashes
 * like safetensors_write_range. */
enum status safetensors_sum_range(const char *path, const struct safetensors_item *items, size_t count,
                                  const struct file_range *range, struct file_sums *sums);
