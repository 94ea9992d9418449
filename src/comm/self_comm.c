/* One rank: what it would send it has, so an operation copies at most, and is over at once. */
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "comm/comm_engine.h"

struct self_operation {
    struct comm_operation base;
    struct comm_spec spec;
};

static enum status self_all_gather(struct comm *comm, const struct comm_group *group, const void *mine, size_t bytes,
                                   void *all) {
    (void)comm, (void)group;
    memcpy(all, mine, bytes);
    return STATUS_OK;
}

static enum status self_shared_segment_open(struct comm *comm, int64_t bytes, struct comm_shared_segment *out) {
    (void)comm;
    size_t whole = ((size_t)bytes + 4095) / 4096 * 4096;
    void *base = mem_aligned(4096, whole);
    if (!base) return STATUS_FAILED;
    memset(base, 0, whole);
    *out = (struct comm_shared_segment){base, bytes, true, NULL};
    return STATUS_OK;
}

static void self_shared_segment_close(struct comm_shared_segment *shared_segment) { mem_free(shared_segment->base); }

static enum status self_create(struct comm *comm, const struct comm_spec *spec, struct comm_operation **out) {
    struct self_operation *operation = mem_array(1, sizeof *operation);
    if (!operation) return STATUS_FAILED;
    *operation = (struct self_operation){{.comm = comm}, *spec};
    *out = &operation->base;
    return STATUS_OK;
}

static void self_start(struct comm_operation *operation) {
    const struct comm_spec *spec = &((struct self_operation *)operation)->spec;
    if (spec->kind == COMM_ALL_TO_ALL && spec->bytes > 0) memcpy(spec->out, spec->data, (size_t)spec->bytes);
    if (spec->kind == COMM_ALL_GATHER && spec->mine && spec->bytes > 0)
        memcpy(spec->data, spec->mine, (size_t)spec->bytes);
}

static enum status self_wait(struct comm_operation *operation) {
    (void)operation;
    return STATUS_OK;
}

static void self_free(struct comm_operation *operation) { mem_free(operation); }

static void self_read_traffic(const struct comm *comm, struct comm_traffic *out) {
    (void)comm;
    *out = (struct comm_traffic){0};
}

static bool self_speaks(const struct comm *comm) {
    (void)comm;
    return true;
}

static enum status self_close(struct comm *comm) {
    mem_free(comm->host);
    mem_free(comm);
    return STATUS_OK;
}

static void self_abort(struct comm *comm, int exit_status) { (void)comm, (void)exit_status; }

static void self_waits(struct comm *comm, bool begins) { (void)comm, (void)begins; }

static enum status self_check(struct comm *comm) {
    (void)comm;
    return STATUS_OK;
}

static void self_fail(struct comm *comm) { (void)comm; }

static const struct comm_engine self_engine = {
    .name = "self",
    .all_gather = self_all_gather,
    .shared_segment_open = self_shared_segment_open,
    .shared_segment_close = self_shared_segment_close,
    .create = self_create,
    .start = self_start,
    .wait = self_wait,
    .free = self_free,
    .read_traffic = self_read_traffic,
    .speaks = self_speaks,
    .close = self_close,
    .abort = self_abort,
    .waits = self_waits,
    .check = self_check,
    .fail = self_fail,
};

enum status self_comm_open(const struct comm_settings *settings, struct comm **out) {
    if (settings->nodes > 1) return status_set(STATUS_BAD_INPUT, "--nodes %d: there is one rank", settings->nodes);
    struct comm *comm = mem_array(1, sizeof *comm);
    char(*host)[MESH_HOST_BYTES] = mem_array(1, sizeof *host);
    if (!comm || !host) {
        mem_free(comm);
        mem_free(host);
        return STATUS_FAILED;
    }
    *comm = (struct comm){.engine = &self_engine,
                          .library = "none",
                          .mesh = {1, 1},
                          .shares_memory = true,
                          .host = host,
                          .message_bytes = settings->message_bytes};
    if (gethostname(*host, sizeof *host - 1) != 0) strcpy(*host, "this machine");
    *out = comm;
    return STATUS_OK;
}
