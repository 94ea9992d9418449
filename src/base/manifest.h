/* The list of a directory's files: ballast_manifest.json has each file's size and the checksums of its blocks
 * (manifest.h), and a checksum of itself. It shows by name and block which file was changed, lost or cut.
 *
 *     {"version": 1, "checksum": "xxh3-64", "block_bytes": 67108864,
 *      "files": [{"name": "config.json", "bytes": 712, "blocks": ["9bd21f6ac2f8fe01"]}, ...], "self": "..."}
 *
 * Any power of two from 4096 to 67108864 is read as block_bytes. "self" is the XXH3 of the rest, as compact JSON with
 * sorted keys. */
#pragma once

#include "base/base.h"

/* Checksums of a file by blocks of 64 MiB, made while its bytes are written: XXH3 (64 bits) of each block. Blocks lie
 * at fixed places, so several processes may each write some blocks of a file and make the checksums of those. */

/* Bytes of a block, and the minimum that a manifest may have (a page: tests cut small files into many blocks). */
enum { FILE_BLOCK_BYTES = 64 << 20, FILE_BLOCK_BYTES_MIN = 4096 };

/* Blocks that a file of so many bytes has; the last one may be shorter. */
static inline uint64_t file_blocks(uint64_t bytes, uint64_t block_bytes) {
    return bytes / block_bytes + (bytes % block_bytes != 0);
}

/* Bytes [begin, end) of a file. */
struct file_range {
    uint64_t begin, end;
};

struct file_sums {
    uint64_t block_bytes;            /* FILE_BLOCK_BYTES, unless set after file_sums_begin */
    uint64_t bytes;                  /* that were added */
    VEC(uint64_t) blocks;            /* complete blocks; after file_sums_end also the last one */
    struct XXH3_state_s *unfinished; /* of the block that is not whole */
    enum status status;              /* the first failure; sticks */
};

/* FAILED without memory. Free with file_sums_free in both cases. */
enum status file_sums_begin(struct file_sums *out);
void file_sums_add(struct file_sums *sums, const void *data, size_t bytes);
/* Adds whole blocks (the last one may be the file's last) that others have made, of so many bytes. FAILED without
 * memory. */
enum status file_sums_append(struct file_sums *sums, const uint64_t *blocks, size_t count, uint64_t bytes);
/* After the last byte: FAILED where an addition had no memory. */
enum status file_sums_end(struct file_sums *sums);
void file_sums_free(struct file_sums *sums);

enum { MANIFEST_NAME_BYTES = 256, MANIFEST_TEXT_BYTES = 512 };
extern const char manifest_name[]; /* of its file */

struct manifest_file {
    char name[MANIFEST_NAME_BYTES]; /* within the directory */
    struct file_sums sums;
};
/* Zero-initialise; free with manifest_free. */
struct manifest {
    uint64_t block_bytes; /* of the files that are added; 0: FILE_BLOCK_BYTES. A power of two */
    VEC(struct manifest_file) files;
};
void manifest_free(struct manifest *manifest);

/* Adds the file that is written to `path` (its last part is the name). Returns the sums that take its bytes, valid
 * until the next file is added. FAILED without memory. A NULL manifest gives NULL sums, which all writers take for "not
 * wanted". */
enum status manifest_add(struct manifest *manifest, const char *path, struct file_sums **sums);
/* The same with its name in the directory, which may be DIR/NAME. */
enum status manifest_add_named(struct manifest *manifest, const char *name, struct file_sums **sums);
/* Leaves out the files whose names do not end so. */
void manifest_keep(struct manifest *manifest, const char *ending);
/* Writes it into the directory: the last of its files. */
enum status manifest_write(struct manifest *manifest, const char *folder);

/* Whether the directory has one. */
bool manifest_exists(const char *folder);
/* BAD_INPUT naming file and field for one that is damaged or of another version. */
enum status manifest_read(const char *folder, struct manifest *out);
/* The same from text; `name` stands for the path in messages. */
enum status manifest_parse(const char *name, const char *text, size_t bytes, struct manifest *out);

enum manifest_fault {
    MANIFEST_MISSING,    /* the file is not there */
    MANIFEST_UNREADABLE, /* it cannot be opened, or a block of it not be read */
    MANIFEST_RESIZED,    /* it has other bytes than it was written with */
    MANIFEST_CHANGED,    /* a block is not as it was written */
    MANIFEST_ADDED       /* a file that is not listed */
};
struct manifest_finding {
    char name[MANIFEST_NAME_BYTES];
    enum manifest_fault fault;
    uint64_t bytes, written_bytes; /* of the file; of the first where it is resized */
    bool in_block;                 /* the fault is in one block, whose number follows */
    size_t block;
    uint64_t block_bytes;
};
struct manifest_findings {
    VEC(struct manifest_finding) items;
};
/* Who reads which blocks, where several processes verify one directory: counted through all files, this one reads every
 * block b with b % count == index. Zeros: all. */
struct manifest_share {
    int index, count;
};
/* Reads the directory's files again, with OpenMP's threads, and adds what is wrong with them; whether they are there,
 * and their sizes, in every share. `wanted` says which by name; NULL: all. OK whatever it finds; FAILED without memory.
 */
enum status manifest_verify(const struct manifest *manifest, const char *folder, bool (*wanted)(const char *name),
                            struct manifest_share share, struct manifest_findings *out);
/* Adds the files of the directory that are not listed; hidden ones are passed over. */
enum status manifest_find_added(const struct manifest *manifest, const char *folder, struct manifest_findings *out);
/* "model.safetensors: block 3 (bytes 201326592 to 268435455): not as it was written"; returns `text`. */
char *manifest_finding_print(const struct manifest_finding *finding, char text[MANIFEST_TEXT_BYTES]);
