#include "comm/window.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/mem.h"
#include "comm/mpi_comm.h"

/* What a rank tells the others of its memory file. The mark, written at the beginning of the memory, shows that what
 * was opened is that file: process numbers may mean others in another container. */
struct offer {
    bool good;
    int pid, descriptor;
    int64_t mapped;
    uint64_t mark;
};

static uint64_t make_mark(const struct mpi_comm *mpi, int number) {
    return ((uint64_t)getpid() << 40) ^ ((uint64_t)mpi->comm.rank << 20) ^ (uint64_t)number ^ 0x62616c6c61737421u;
}

static void *map(int descriptor, size_t bytes, int populate) {
    void *base = fault_point(FAULT_ALLOCATE)
                     ? MAP_FAILED
                     : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | populate, descriptor, 0);
    return base == MAP_FAILED ? NULL : base;
}

/* Our own file, with all its memory taken. -1 where that cannot be had. */
static int create_file(struct window *window) {
    int descriptor = fault_point(FAULT_OPEN) ? -1 : memfd_create("ballast-window", MFD_CLOEXEC);
    if (descriptor < 0) return -1;
    size_t bytes = window->mapped[window->me];
    if (posix_fallocate(descriptor, 0, (off_t)bytes) == 0)
        window->base[window->me] = map(descriptor, bytes, MAP_POPULATE);
    if (window->base[window->me]) return descriptor;
    close(descriptor);
    return -1;
}

/* Its pages are there; this process's tables lead only to those that it reads, which is a fraction. */
static bool map_peer(struct window *window, int place, const struct offer *offer) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", offer->pid, offer->descriptor);
    int descriptor = fault_point(FAULT_OPEN) ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (descriptor < 0) return false;
    off_t size = lseek(descriptor, 0, SEEK_END);
    window->mapped[place] = (size_t)offer->mapped;
    if (size == (off_t)offer->mapped) window->base[place] = map(descriptor, window->mapped[place], 0);
    close(descriptor);
    return window->base[place] && *(volatile uint64_t *)window->base[place] == offer->mark;
}

static void unmap(struct window *window) {
    for (int place = 0; place < window->ranks; place++) {
        if (window->base[place]) munmap(window->base[place], window->mapped[place]);
        window->base[place] = NULL;
    }
}

static bool map_peers(struct window *window, const struct offer *offers) {
    for (int place = 0; place < window->ranks; place++)
        if (place != window->me && (!offers[place].good || !map_peer(window, place, &offers[place]))) return false;
    return true;
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
static enum status share(struct comm *comm, struct window *window) {
    struct comm_group node = mesh_group(&comm->mesh, comm->rank, MESH_NODE);
    struct offer *offers = mem_array((size_t)node.count, sizeof *offers);
    if (!offers) return STATUS_FAILED;
    int descriptor = window->mpi->settings.messages_only ? -1 : create_file(window);
    struct offer mine = {descriptor >= 0, getpid(), descriptor, (int64_t)window->mapped[window->me],
                         make_mark(window->mpi, window->number)};
    if (descriptor >= 0) *(volatile uint64_t *)window->base[window->me] = mine.mark;
    enum status status = comm_all_gather(comm, &node, &mine, sizeof mine, offers);
    bool mapped = status == STATUS_OK && mine.good && map_peers(window, offers);
    if (status == STATUS_OK) status = all_agree(comm, mapped, &window->shared);
    if (descriptor >= 0) {
        *(volatile uint64_t *)window->base[window->me] = 0;
        close(descriptor);
    }
    mem_free(offers);
    if (status != STATUS_OK || !window->shared) unmap(window);
    return status;
}

static enum status take_private(struct window *window) {
    void *base = fault_point(FAULT_ALLOCATE) ? MAP_FAILED
                                             : mmap(NULL, window->mapped[window->me], PROT_READ | PROT_WRITE,
                                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (base == MAP_FAILED) return status_no_memory(window->mapped[window->me], "a window");
    window->base[window->me] = base;
    return STATUS_OK;
}

static void free_window(struct window *window) {
    if (!window) return;
    if (window->base) unmap(window);
    mem_free(window->base);
    mem_free(window->mapped);
    mem_free(window);
}

/* Without memory yet; NULL without space for it. */
static struct window *make_window(const struct comm *comm, int64_t bytes) {
    struct mpi_comm *mpi = mpi_comm_of(comm);
    struct window *window = mem_array(1, sizeof *window);
    if (!window) return NULL;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), ranks = (size_t)comm->mesh.per_node;
    *window = (struct window){.bytes = bytes,
                              .ranks = comm->mesh.per_node,
                              .me = comm->rank % comm->mesh.per_node,
                              .base = mem_array(ranks, sizeof *window->base),
                              .mapped = mem_array(ranks, sizeof *window->mapped),
                              .mpi = mpi};
    if (window->base && window->mapped) {
        window->mapped[window->me] = ((size_t)bytes + page - 1) / page * page;
        return window;
    }
    free_window(window);
    return NULL;
}

enum status window_open(struct comm *comm, int64_t bytes, struct comm_window *out) {
    struct mpi_comm *mpi = mpi_comm_of(comm);
    struct window *window = make_window(comm, bytes);
    enum status status = comm_agree(comm, window ? STATUS_OK : STATUS_FAILED);
    if (status != STATUS_OK) {
        free_window(window);
        return status;
    }
    window->number = mpi->window_count++;
    TRY_GOTO(status, share(comm, window), failed);
    if (!window->shared) TRY_GOTO(status, comm_agree(comm, take_private(window)), failed);
    pthread_mutex_lock(&mpi->mutex);
    window->next = mpi->windows;
    mpi->windows = window;
    pthread_mutex_unlock(&mpi->mutex);
    *out = (struct comm_window){window->base[window->me], bytes, window->shared, window};
    return STATUS_OK;
failed:
    free_window(window);
    return status;
}

void window_close(struct comm_window *out) {
    struct window *window = out->state;
    struct mpi_comm *mpi = window->mpi;
    pthread_mutex_lock(&mpi->mutex);
    struct window **link = &mpi->windows;
    while (*link != window)
        link = &(*link)->next;
    *link = window->next;
    pthread_mutex_unlock(&mpi->mutex);
    free_window(window);
}

const struct window *window_find(const struct mpi_comm *mpi, const void *address, int64_t bytes) {
    for (const struct window *window = mpi->windows; window; window = window->next) {
        const char *base = window->base[window->me];
        if ((const char *)address >= base && (const char *)address + bytes <= base + window->bytes) return window;
    }
    return NULL;
}
