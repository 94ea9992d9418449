#include "support/rank_references.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "support/temp_folder.h"
#include "support/unit.h"

enum { CASES_MAX = 4096 };

struct reference {
    struct rank_case spec;
    struct rank_result result;
};

const char *rank_references_write(const char *folder, const struct rank_case *cases, size_t count,
                                  const struct backend *backend) {
    const char *path = temp_path(folder, "references");
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (size_t i = 0; i < count; i++) {
        struct reference reference = {.spec = cases[i]};
        assert_int_equal(rank_case_train(&cases[i], backend, NULL, &reference.result), STATUS_OK);
        assert_int_equal(fwrite(&reference, sizeof reference, 1, file), 1);
    }
    assert_int_equal(fclose(file), 0);
    return path;
}

static enum status compare(const struct reference *reference, const struct rank_result *mine) {
    char name[RANK_CASE_NAME_BYTES];
    rank_case_print(&reference->spec, name);
    for (int step = 0; step < RANK_CASE_STEPS; step++)
        if (memcmp(&mine->losses[step], &reference->result.losses[step], sizeof(double)) != 0 ||
            memcmp(&mine->norms[step], &reference->result.norms[step], sizeof(double)) != 0)
            return status_set(STATUS_FAILED, "%s: step %d: loss %.17g, norm %.17g; one rank has %.17g, %.17g", name,
                              step + 1, mine->losses[step], mine->norms[step], reference->result.losses[step],
                              reference->result.norms[step]);
    if (mine->weights == reference->result.weights) return STATUS_OK;
    return status_set(STATUS_FAILED, "%s: the weights differ from one rank's", name);
}

static enum status train_all(struct comm *comm, const struct backend *backend, bool on_device,
                             const struct reference *references, size_t count) {
    int ranks = mesh_ranks(&comm->mesh), trained = 0;
    for (size_t i = 0; i < count; i++) {
        struct rank_result mine;
        if (!rank_case_holds(&references[i].spec, ranks)) continue;
        TRY(rank_case_train(&references[i].spec, backend, comm, &mine));
        if (mine.on_device != on_device)
            return status_set(STATUS_FAILED, "ranks communicate %s", on_device ? "by way of the host" : "on devices");
        TRY(comm_agree(comm, compare(&references[i], &mine)));
        trained++;
    }
    if (comm->rank == 0) printf("%d cases on %d ranks of %d nodes\n", trained, ranks, comm->mesh.nodes);
    return trained > 0 ? STATUS_OK : status_set(STATUS_FAILED, "no case is for %d ranks", ranks);
}

enum status rank_references_train(const char *path, struct comm *comm, const struct backend *backend, bool on_device) {
    char *text;
    size_t bytes;
    TRY(file_read(path, CASES_MAX * sizeof(struct reference), &text, &bytes));
    const struct reference *references = (const struct reference *)(const void *)text;
    enum status status = train_all(comm, backend, on_device, references, bytes / sizeof *references);
    mem_free(text);
    return status;
}
