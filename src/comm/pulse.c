#include "comm/pulse.h"

#include "base/mem.h"

enum status pulse_create(int ranks, int me, int64_t timeout_ns, int64_t now_ns, struct pulse *out) {
    struct pulse pulse = {ranks, me, mem_array((size_t)ranks, sizeof *pulse.entry),
                          mem_array((size_t)ranks, sizeof *pulse.heard_ns), timeout_ns};
    if (!pulse.entry || !pulse.heard_ns) {
        pulse_free(&pulse);
        return STATUS_FAILED;
    }
    for (int rank = 0; rank < ranks; rank++)
        pulse.heard_ns[rank] = now_ns;
    *out = pulse;
    return STATUS_OK;
}

void pulse_free(struct pulse *pulse) {
    mem_free(pulse->entry);
    mem_free(pulse->heard_ns);
    *pulse = (struct pulse){0};
}

void pulse_beat(struct pulse *pulse, uint32_t started, int64_t now_ns) {
    bool was_stopped = now_ns - pulse->heard_ns[pulse->me] > pulse->timeout_ns / 2;
    for (int rank = 0; was_stopped && rank < pulse->ranks; rank++)
        pulse->heard_ns[rank] = now_ns;
    pulse->entry[pulse->me].beat++;
    pulse->entry[pulse->me].started = started;
    pulse->heard_ns[pulse->me] = now_ns;
}

void pulse_merge(struct pulse *pulse, const struct pulse_entry *theirs, int64_t now_ns) {
    for (int rank = 0; rank < pulse->ranks; rank++) {
        if (rank == pulse->me || (int32_t)(theirs[rank].beat - pulse->entry[rank].beat) <= 0) continue;
        pulse->entry[rank] = theirs[rank];
        pulse->heard_ns[rank] = now_ns;
    }
}

int pulse_silent(const struct pulse *pulse, int64_t now_ns) {
    for (int rank = 0; rank < pulse->ranks; rank++)
        if (rank != pulse->me && now_ns - pulse->heard_ns[rank] > pulse->timeout_ns) return rank;
    return -1;
}

int pulse_behind(const struct pulse *pulse) {
    int slowest = pulse->me;
    for (int rank = 0; rank < pulse->ranks; rank++)
        if ((int32_t)(pulse->entry[rank].started - pulse->entry[slowest].started) < 0) slowest = rank;
    return pulse->entry[slowest].started == pulse->entry[pulse->me].started ? -1 : slowest;
}

int pulse_distances(int ranks) {
    int count = 0;
    while (1 << count < ranks)
        count++;
    return count;
}
