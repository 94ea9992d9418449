#include "session/rank_costs.h"

#include <string.h>

#include "base/mem.h"

struct head {
    int64_t nodes;
    struct costs costs; /* whose addresses are rank 0's own */
};

static bool all_have(const struct head *heads, int count) {
    for (int rank = 1; rank < count; rank++)
        if (heads[rank].nodes != heads[0].nodes) return false;
    return heads[0].costs.kernels != NULL;
}

static enum status gather_heads(struct comm *comm, const struct head *mine, struct head *first, bool *same) {
    struct comm_group all = comm_group_all(comm);
    struct head *heads = mem_array((size_t)all.count, sizeof *heads);
    enum status status = comm_agree(comm, heads ? STATUS_OK : STATUS_FAILED);
    if (status == STATUS_OK) status = comm_all_gather(comm, &all, mine, sizeof *mine, heads);
    if (status == STATUS_OK) *first = heads[0], *same = all_have(heads, all.count);
    mem_free(heads);
    return status;
}

static enum status share_kernels(struct comm *comm, const struct kernel_cost *mine, int32_t count,
                                 struct kernel_cost **out) {
    size_t bytes = (size_t)count * sizeof **out;
    *out = mem_array((size_t)count, sizeof **out);
    TRY(comm_agree(comm, *out ? STATUS_OK : STATUS_FAILED));
    if (comm->rank == 0) memcpy(*out, mine, bytes);
    return comm_share(comm, *out, bytes);
}

enum status rank_costs_share(struct comm *comm, const struct costs *mine, size_t nodes, struct costs *out) {
    const struct head head = {(int64_t)nodes, *mine};
    struct head first;
    bool same = false;
    *out = (struct costs){0};
    TRY(gather_heads(comm, &head, &first, &same));
    if (!same) return STATUS_OK;
    bool on_host = first.costs.host_kernels != NULL;
    *out = first.costs;
    out->kernels = out->host_kernels = NULL;
    TRY(share_kernels(comm, mine->kernels, out->count, &out->kernels));
    return on_host ? share_kernels(comm, mine->host_kernels, out->count, &out->host_kernels) : STATUS_OK;
}

static enum status add_ranks(void *payload, enum status mine, double *numbers, size_t count) {
    struct comm *comm = payload;
    struct comm_group all = comm_group_all(comm);
    double *each = mem_array((size_t)all.count * count, sizeof *each);
    enum status status = comm_agree(comm, each || mine != STATUS_OK ? mine : STATUS_FAILED);
    if (status == STATUS_OK) status = comm_all_gather(comm, &all, numbers, count * sizeof *numbers, each);
    for (size_t i = 0; i < count && status == STATUS_OK; i++) {
        numbers[i] = 0;
        for (int rank = 0; rank < all.count; rank++)
            numbers[i] += each[(size_t)rank * count + i];
    }
    mem_free(each);
    return status;
}

struct fit_sum_over_ranks rank_costs_sum_over_ranks(struct comm *comm) {
    return (struct fit_sum_over_ranks){add_ranks, comm};
}
