#include "comm/mpi_comm.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fault.h"

/* A rank's message about its memory file. The mark at the beginning of the memory shows that the opened file is the
 * right one: process numbers may refer to other processes in another container. */
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
static int create_file(struct shared_segment *segment) {
    int descriptor = fault_point(FAULT_OPEN) ? -1 : memfd_create("ballast-window", MFD_CLOEXEC);
    if (descriptor < 0) return -1;
    size_t bytes = segment->mapped[segment->me];
    if (posix_fallocate(descriptor, 0, (off_t)bytes) == 0)
        segment->base[segment->me] = map(descriptor, bytes, MAP_SHARED | MAP_POPULATE);
    if (segment->base[segment->me]) return descriptor;
    close(descriptor);
    return -1;
}

/* Pages of the peer exist already; this process's page tables only map those that it reads, which is a fraction. */
static bool map_peer(struct shared_segment *segment, int place, const struct offer *offer) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", offer->pid, offer->descriptor);
    int descriptor = fault_point(FAULT_OPEN) ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (descriptor < 0) return false;
    off_t size = lseek(descriptor, 0, SEEK_END);
    segment->mapped[place] = (size_t)offer->mapped;
    if (size == (off_t)offer->mapped) segment->base[place] = map(descriptor, segment->mapped[place], MAP_SHARED);
    close(descriptor);
    return segment->base[place] && *(volatile uint64_t *)segment->base[place] == offer->mark;
}

static void unmap(struct shared_segment *segment) {
    for (int place = 0; place < segment->ranks; place++) {
        if (segment->base[place]) munmap(segment->base[place], segment->mapped[place]);
        segment->base[place] = NULL;
    }
}

/* Whether all ranks say so. */
static enum status all_agree(struct comm *comm, bool mine, bool *out) {
    struct comm_group all = comm_group_all(comm);
    AUTO_FREE bool *votes = mem_array((size_t)all.count, sizeof *votes);
    if (!votes) return STATUS_FAILED;
    enum status status = comm_all_gather(comm, &all, &mine, sizeof mine, votes);
    *out = true;
    for (int rank = 0; rank < all.count; rank++)
        *out = *out && votes[rank];
    return status;
}

/* All or none: where one rank cannot have it, all have private memory. */
static enum status share(struct comm *comm, struct shared_segment *segment) {
    struct comm_group node = mesh_group(&comm->mesh, comm->rank, MESH_NODE);
    struct offer *offers = mem_array((size_t)node.count, sizeof *offers);
    if (!offers) return STATUS_FAILED;
    int descriptor = segment->mpi->settings.messages_only ? -1 : create_file(segment);
    struct offer mine = {descriptor >= 0, getpid(), descriptor, (int64_t)segment->mapped[segment->me],
                         ((uint64_t)getpid() << 40) ^ ((uint64_t)comm->rank << 20) ^ (uint64_t)segment->number ^
                             0x62616c6c61737421u};
    if (descriptor >= 0) *(volatile uint64_t *)segment->base[segment->me] = mine.mark;
    enum status status = comm_all_gather(comm, &node, &mine, sizeof mine, offers);
    bool mapped = status == STATUS_OK && mine.good;
    for (int place = 0; place < segment->ranks && mapped; place++)
        if (place != segment->me) mapped = offers[place].good && map_peer(segment, place, &offers[place]);
    if (status == STATUS_OK) status = all_agree(comm, mapped, &segment->shared);
    if (descriptor >= 0) {
        *(volatile uint64_t *)segment->base[segment->me] = 0;
        close(descriptor);
    }
    mem_free(offers);
    if (status != STATUS_OK || !segment->shared) unmap(segment);
    return status;
}

static void free_shared_segment(struct shared_segment *segment) {
    if (!segment) return;
    if (segment->base) unmap(segment);
    mem_free(segment->base);
    mem_free(segment->mapped);
    mem_free(segment);
}

/* Without memory yet; NULL without space for it. */
static struct shared_segment *make_shared_segment(const struct comm *comm, int64_t bytes) {
    struct mpi_comm *mpi = mpi_comm_of(comm);
    struct shared_segment *segment = mem_array(1, sizeof *segment);
    if (!segment) return NULL;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), ranks = (size_t)comm->mesh.per_node;
    *segment = (struct shared_segment){.bytes = bytes,
                                       .ranks = comm->mesh.per_node,
                                       .me = comm->rank % comm->mesh.per_node,
                                       .base = mem_array(ranks, sizeof *segment->base),
                                       .mapped = mem_array(ranks, sizeof *segment->mapped),
                                       .mpi = mpi};
    if (segment->base && segment->mapped) {
        segment->mapped[segment->me] = ((size_t)bytes + page - 1) / page * page;
        return segment;
    }
    free_shared_segment(segment);
    return NULL;
}

enum status shared_segment_open(struct comm *comm, int64_t bytes, struct comm_shared_segment *out) {
    struct mpi_comm *mpi = mpi_comm_of(comm);
    struct shared_segment *segment = make_shared_segment(comm, bytes);
    enum status status = comm_agree(comm, segment ? STATUS_OK : STATUS_FAILED);
    if (status != STATUS_OK) {
        free_shared_segment(segment);
        return status;
    }
    segment->number = mpi->shared_segment_count++;
    TRY_GOTO(status, share(comm, segment), failed);
    if (!segment->shared) {
        size_t own = segment->mapped[segment->me];
        void *base = map(-1, own, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE);
        segment->base[segment->me] = base;
        TRY_GOTO(status, comm_agree(comm, base ? STATUS_OK : status_no_memory(own, "a window")), failed);
    }
    pthread_mutex_lock(&mpi->mutex);
    segment->next = mpi->shared_segments;
    mpi->shared_segments = segment;
    pthread_mutex_unlock(&mpi->mutex);
    *out = (struct comm_shared_segment){segment->base[segment->me], bytes, segment->shared, segment};
    return STATUS_OK;
failed:
    free_shared_segment(segment);
    return status;
}

void shared_segment_close(struct comm_shared_segment *out) {
    struct shared_segment *segment = out->state;
    struct mpi_comm *mpi = segment->mpi;
    pthread_mutex_lock(&mpi->mutex);
    struct shared_segment **link = &mpi->shared_segments;
    while (*link != segment)
        link = &(*link)->next;
    *link = segment->next;
    pthread_mutex_unlock(&mpi->mutex);
    free_shared_segment(segment);
}

const struct shared_segment *shared_segment_find(const struct mpi_comm *mpi, const void *address, int64_t bytes) {
    for (const struct shared_segment *segment = mpi->shared_segments; segment; segment = segment->next) {
        const char *base = segment->base[segment->me];
        if ((const char *)address >= base && (const char *)address + bytes <= base + segment->bytes) return segment;
    }
    return NULL;
}
