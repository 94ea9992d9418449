#include "comm/mpi_comm.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fault.h"

/* What a rank tells the others of its memory file. The mark, written at the beginning of the memory, shows that what
 * was opened is that file: process numbers may mean others in another container. */
struct offer {
    bool good;
    int pid, descriptor;
    int64_t mapped;
    uint64_t mark;
};

static void *map(int descriptor, size_t bytes, int flags) {
    void *base =
        fault_point(FAULT_ALLOCATE) ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, descriptor, 0);
    return base == MAP_FAILED ? NULL : base;
}

/* Our own file, with all its memory taken. -1 where that cannot be had. */
static int create_file(struct shared_segment *shared_segment) {
    int descriptor = fault_point(FAULT_OPEN) ? -1 : memfd_create("ballast-window", MFD_CLOEXEC);
    if (descriptor < 0) return -1;
    size_t bytes = shared_segment->mapped[shared_segment->me];
    if (posix_fallocate(descriptor, 0, (off_t)bytes) == 0)
        shared_segment->base[shared_segment->me] = map(descriptor, bytes, MAP_SHARED | MAP_POPULATE);
    if (shared_segment->base[shared_segment->me]) return descriptor;
    close(descriptor);
    return -1;
}

/* Its pages are there; this process's tables lead only to those that it reads, which is a fraction. */
static bool map_peer(struct shared_segment *shared_segment, int place, const struct offer *offer) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", offer->pid, offer->descriptor);
    int descriptor = fault_point(FAULT_OPEN) ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (descriptor < 0) return false;
    off_t size = lseek(descriptor, 0, SEEK_END);
    shared_segment->mapped[place] = (size_t)offer->mapped;
    if (size == (off_t)offer->mapped)
        shared_segment->base[place] = map(descriptor, shared_segment->mapped[place], MAP_SHARED);
    close(descriptor);
    return shared_segment->base[place] && *(volatile uint64_t *)shared_segment->base[place] == offer->mark;
}

static void unmap(struct shared_segment *shared_segment) {
    for (int place = 0; place < shared_segment->ranks; place++) {
        if (shared_segment->base[place]) munmap(shared_segment->base[place], shared_segment->mapped[place]);
        shared_segment->base[place] = NULL;
    }
}

/* Whether all ranks say so. */
static enum status all_agree(struct comm *comm, bool mine, bool *out) {
    struct comm_group all = comm_group_all(comm);
    bool *votes = mem_array((size_t)all.count, sizeof *votes);
    if (!votes) return STATUS_FAILED;
    enum status status = comm_all_gather(comm, &all, &mine, sizeof mine, votes);
    *out = true;
    for (int rank = 0; rank < all.count; rank++)
        *out = *out && votes[rank];
    mem_free(votes);
    return status;
}

/* All or none: where one rank cannot have it, all have private memory. */
static enum status share(struct comm *comm, struct shared_segment *shared_segment) {
    struct comm_group node = mesh_group(&comm->mesh, comm->rank, MESH_NODE);
    struct offer *offers = mem_array((size_t)node.count, sizeof *offers);
    if (!offers) return STATUS_FAILED;
    int descriptor = shared_segment->mpi->settings.messages_only ? -1 : create_file(shared_segment);
    struct offer mine = {descriptor >= 0, getpid(), descriptor, (int64_t)shared_segment->mapped[shared_segment->me],
                         ((uint64_t)getpid() << 40) ^ ((uint64_t)comm->rank << 20) ^ (uint64_t)shared_segment->number ^
                             0x62616c6c61737421u};
    if (descriptor >= 0) *(volatile uint64_t *)shared_segment->base[shared_segment->me] = mine.mark;
    enum status status = comm_all_gather(comm, &node, &mine, sizeof mine, offers);
    bool mapped = status == STATUS_OK && mine.good;
    for (int place = 0; place < shared_segment->ranks && mapped; place++)
        if (place != shared_segment->me) mapped = offers[place].good && map_peer(shared_segment, place, &offers[place]);
    if (status == STATUS_OK) status = all_agree(comm, mapped, &shared_segment->shared);
    if (descriptor >= 0) {
        *(volatile uint64_t *)shared_segment->base[shared_segment->me] = 0;
        close(descriptor);
    }
    mem_free(offers);
    if (status != STATUS_OK || !shared_segment->shared) unmap(shared_segment);
    return status;
}

static void free_shared_segment(struct shared_segment *shared_segment) {
    if (!shared_segment) return;
    if (shared_segment->base) unmap(shared_segment);
    mem_free(shared_segment->base);
    mem_free(shared_segment->mapped);
    mem_free(shared_segment);
}

/* Without memory yet; NULL without space for it. */
static struct shared_segment *make_shared_segment(const struct comm *comm, int64_t bytes) {
    struct mpi_comm *mpi = mpi_comm_of(comm);
    struct shared_segment *shared_segment = mem_array(1, sizeof *shared_segment);
    if (!shared_segment) return NULL;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), ranks = (size_t)comm->mesh.per_node;
    *shared_segment = (struct shared_segment){.bytes = bytes,
                                              .ranks = comm->mesh.per_node,
                                              .me = comm->rank % comm->mesh.per_node,
                                              .base = mem_array(ranks, sizeof *shared_segment->base),
                                              .mapped = mem_array(ranks, sizeof *shared_segment->mapped),
                                              .mpi = mpi};
    if (shared_segment->base && shared_segment->mapped) {
        shared_segment->mapped[shared_segment->me] = ((size_t)bytes + page - 1) / page * page;
        return shared_segment;
    }
    free_shared_segment(shared_segment);
    return NULL;
}

enum status shared_segment_open(struct comm *comm, int64_t bytes, struct comm_shared_segment *out) {
    struct mpi_comm *mpi = mpi_comm_of(comm);
    struct shared_segment *shared_segment = make_shared_segment(comm, bytes);
    enum status status = comm_agree(comm, shared_segment ? STATUS_OK : STATUS_FAILED);
    if (status != STATUS_OK) {
        free_shared_segment(shared_segment);
        return status;
    }
    shared_segment->number = mpi->shared_segment_count++;
    TRY_GOTO(status, share(comm, shared_segment), failed);
    if (!shared_segment->shared) {
        size_t own = shared_segment->mapped[shared_segment->me];
        void *base = map(-1, own, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE);
        shared_segment->base[shared_segment->me] = base;
        TRY_GOTO(status, comm_agree(comm, base ? STATUS_OK : status_no_memory(own, "a window")), failed);
    }
    pthread_mutex_lock(&mpi->mutex);
    shared_segment->next = mpi->shared_segments;
    mpi->shared_segments = shared_segment;
    pthread_mutex_unlock(&mpi->mutex);
    *out = (struct comm_shared_segment){shared_segment->base[shared_segment->me], bytes, shared_segment->shared,
                                        shared_segment};
    return STATUS_OK;
failed:
    free_shared_segment(shared_segment);
    return status;
}

void shared_segment_close(struct comm_shared_segment *out) {
    struct shared_segment *shared_segment = out->state;
    struct mpi_comm *mpi = shared_segment->mpi;
    pthread_mutex_lock(&mpi->mutex);
    struct shared_segment **link = &mpi->shared_segments;
    while (*link != shared_segment)
        link = &(*link)->next;
    *link = shared_segment->next;
    pthread_mutex_unlock(&mpi->mutex);
    free_shared_segment(shared_segment);
}

const struct shared_segment *shared_segment_find(const struct mpi_comm *mpi, const void *address, int64_t bytes) {
    for (const struct shared_segment *shared_segment = mpi->shared_segments; shared_segment;
         shared_segment = shared_segment->next) {
        const char *base = shared_segment->base[shared_segment->me];
        if ((const char *)address >= base && (const char *)address + bytes <= base + shared_segment->bytes)
            return shared_segment;
    }
    return NULL;
}
