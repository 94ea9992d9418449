/* Arenas: one block of memory for each tier, of exactly the program's size, allocated in full before the first step.
 *
 * Kernels work on the device tier. On a CPU the host tier is a second block of the same memory, so that programs which
 * move data between the two work without an accelerator; on a GPU the device tier is the GPU's memory and the host tier
 * is pinned memory. The disk tier is an unnamed file in a directory of the user's choice. Device and host tiers have
 * addresses; those of a GPU's memory are for kernels alone (`mapped`). arena_read and arena_write work on every tier.
 *
 * arena_open allocates everything; arena_read and arena_write allocate nothing. Besides its bytes an arena of the disk
 * tier takes, for each channel, DISK_REQUESTS request records (about 1 KiB) and either one io_uring (about
 * 16 KiB in the kernel) or DISK_REQUESTS threads with stacks of 512 KiB, of which they touch 8. */
#pragma once

#include "backend/backend.h"
#include "base/base.h"
#include "comm/comm.h"
#include "compiler/program.h"

/* How requests to the disk are carried out. */
enum disk_engine_choice {
    DISK_ENGINE_ANY,    /* io_uring where the system allows it, threads elsewhere */
    DISK_ENGINE_URING,  /* FAILED where it is not allowed or was not built in */
    DISK_ENGINE_THREADS /* pread and pwrite on threads of the arena's own */
};

/* The memory tiers need none of this but the first two. */
struct arena_settings {
    const struct backend_memory *memory; /* of device and host tier; NULL: memory of the process */
    struct comm *shared_by; /* a memory tier's lies in a shared segment of these ranks, and all of them open it; NULL:
                               it does not. Borrowed */
    const char *folder;     /* where the disk tier's file lies; only arena_open looks at it by name */
    int channels;           /* how many threads may read and write the disk tier at once, at least 1 */
    enum disk_engine_choice engine;
    bool buffered; /* through the page cache even where the filesystem allows transfers past it */
};

struct arena {
    enum tier tier;
    void *base;  /* page-aligned, or as backend_memory says; NULL on the disk tier and when bytes is 0 */
    bool mapped; /* the CPU may use `base` */
    int64_t bytes;
    const struct store *store; /* NULL when bytes is 0 */
    void *state;               /* the store's own */
};

/* Takes `bytes`, which read as zeros until written; an arena of none needs nothing. `settings` may be NULL for device
 * and host.
 * Memory: there in full, and touched; FAILED with a hint when the system refuses, on all ranks where they share it.
 * Disk: `bytes` is a multiple of DISK_ALIGNMENT and reserved in the directory, in a file that no name leads to: nothing
 * of it is left when the process ends in any way, and two runs can share a directory. The directory may vanish
 * afterwards. BAD_INPUT when the directory does not exist, is none or cannot be written in; FAILED when there is too
 * little space, saying how much is needed and free, and when the system refuses anything else. */
enum status arena_open(enum tier tier, int64_t bytes, const struct arena_settings *settings, struct arena *out);
void arena_close(struct arena *arena);

/* Copies [offset, offset + bytes) of the arena to memory, or memory there, and returns when all is done. FAILED, naming
 * directory, offset and the system's reason, if the disk fails; the destination is then undefined. The caller must not
 * pass a range outside the arena, a misaligned one, or a channel that does not exist.
 *
 * On the disk tier, offset, address and bytes are multiples of DISK_ALIGNMENT. The copy is cut into requests of
 * DISK_REQUEST_BYTES, up to DISK_REQUESTS of which are in flight. Different threads may use different channels (0 to
 * settings' channels - 1; memory tiers have any number) at the same time, one thread a channel. A read that begins
 * after a write returned sees the written bytes. */
enum status arena_read(const struct arena *from, int64_t offset, void *to, int64_t bytes, int channel);
enum status arena_write(const struct arena *to, int64_t offset, const void *from, int64_t bytes, int channel);

/* Copies between any two tiers, for the runner and for measurements. */

/* A staging buffer between the disk and device-only memory: two places that take turns, so that disk and device work at
 * the same time. Zero-initialise. */
enum { STAGING_BYTES = 8 << 20, STAGING_PLACES = 2 };
struct copy_staging {
    char *place[STAGING_PLACES];
    void *event[STAGING_PLACES]; /* recorded after the copies out of or into the place */
    int next;                    /* place */
};

/* Takes STAGING_PLACES times STAGING_BYTES of the backend's host memory; the backend has streams, and the thread has
 * entered them. Close in any case, with no copy in flight. */
enum status copy_staging_open(const struct backend *backend, struct copy_staging *staging);
void copy_staging_close(const struct backend *backend, struct copy_staging *staging);

/* One end of a copy. */
struct tier_place {
    const struct arena *arena;
    int64_t offset;
};

/* Copies `bytes`. To and from the disk, offsets and bytes are whole blocks, `channel` is the disk's, and the disk's
 * part is complete on return. The device's part is enqueued on the stream, as are copies between memory tiers of a
 * backend with streams. `staging` is needed between the disk and device-only memory, and may otherwise be NULL. FAILED
 * if disk or device fails. */
enum status tier_copy(const struct backend *backend, struct copy_staging *staging, struct tier_place from,
                      struct tier_place to, int64_t bytes, int channel, void *stream);
