#include "train/loss_sum.h"

#include "base/mem.h"

enum status loss_sum_add(struct comm *comm, enum status status, const struct loss_sum *mine, struct loss_sum *sum) {
    struct comm_group all = comm_group_all(comm);
    struct loss_sum *every = NULL;
    if (status == STATUS_OK) every = mem_array((size_t)all.count, sizeof *every);
    if (status == STATUS_OK && !every) status = STATUS_FAILED;
    TRY_GOTO(status, comm_agree(comm, status), done);
    TRY_GOTO(status, comm_all_gather(comm, &all, mine, sizeof *mine, every), done);
    for (int rank = 0; rank < all.count; rank++) {
        for (int i = 0; i < LOSS_FIGURES_MAX; i++)
            sum->figures[i] += every[rank].figures[i];
        sum->targets += every[rank].targets;
        sum->stopped |= every[rank].stopped;
    }
done:
    mem_free(every);
    return status;
}

void loss_sum_means(const struct loss_sum *sum, double means[LOSS_FIGURES_MAX]) {
    for (int i = 0; i < LOSS_FIGURES_MAX; i++)
        means[i] = sum->figures[i] / (double)(sum->targets > 0 ? sum->targets : 1);
}
