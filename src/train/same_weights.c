#include "train/same_weights.h"

#include "base/mem.h"

static struct comm *comm_of(const struct engine *engine) { return engine->plan->session->comm; }

/* A rank's part of the model's files, and the next rank's, as this rank's files have them. */
struct file_parts {
    uint64_t mine, next;
};

static enum status hash_parts(const struct engine *engine, struct file_parts *out) {
    int ranks = mesh_ranks(&comm_of(engine)->mesh), rank = comm_of(engine)->rank;
    TRY(model_hash_files(engine_model(engine), rank, ranks, &out->mine));
    return model_hash_files(engine_model(engine), (rank + 1) % ranks, ranks, &out->next);
}

/* Where no rank has read all, each looks at the next one's part too: who has another model is found by a neighbour. */
static enum status require_same_files(const struct engine *engine) {
    struct comm *comm = comm_of(engine);
    struct comm_group all = comm_group_all(comm);
    struct file_parts mine, *each = mem_array((size_t)all.count, sizeof *each);
    enum status status = each ? hash_parts(engine, &mine) : STATUS_FAILED;
    TRY_GOTO(status, comm_agree(comm_of(engine), status), done);
    TRY_GOTO(status, comm_all_gather(comm, &all, &mine, sizeof mine, each), done);
    for (int rank = 0; rank < all.count && status == STATUS_OK; rank++) {
        int next = (rank + 1) % all.count;
        if (each[rank].next == each[next].mine) continue;
        comm->agreed_failure = true;
        status = status_set(STATUS_BAD_INPUT,
                            "ranks differ in the model's weights: rank %d on %s has others than rank "
                            "%d on %s",
                            next, comm->host[next], rank, comm->host[rank]);
    }
done:
    mem_free(each);
    return status;
}

enum status same_weights_require(const struct engine *engine) {
    uint64_t hash;
    if (mesh_ranks(&comm_of(engine)->mesh) == 1) return STATUS_OK;
    if (engine_is_cut(engine, TENSOR_PARAMETER)) return require_same_files(engine);
    TRY(comm_agree(comm_of(engine), engine_hash(engine, &hash)));
    return comm_check_same(comm_of(engine), "the model's weights", &hash, sizeof hash);
}
