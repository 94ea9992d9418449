#include "comm/pulse.h"

#include "base/mem.h"

enum status pulse_create(int ranks, int me, int64_t timeout_ns, int64_t now_ns, struct pulse *out) {
    struct pulse pulse = {.ranks = ranks,
                          .me = me,
                          .entry = mem_array((size_t)ranks, sizeof *pulse.entry),
                          .heard_ns = mem_array((size_t)ranks, sizeof *pulse.heard_ns),
                          .worked_ns = mem_array((size_t)ranks, sizeof *pulse.worked_ns),
                          .even_ns = now_ns,
                          .timeout_ns = timeout_ns};
    if (!pulse.entry || !pulse.heard_ns || !pulse.worked_ns) {
        pulse_free(&pulse);
        return STATUS_FAILED;
    }
    for (int rank = 0; rank < ranks; rank++)
        pulse.heard_ns[rank] = pulse.worked_ns[rank] = now_ns;
    *out = pulse;
    return STATUS_OK;
}

void pulse_free(struct pulse *pulse) {
    mem_free(pulse->entry);
    mem_free(pulse->heard_ns);
    mem_free(pulse->worked_ns);
    *pulse = (struct pulse){0};
}

static void note_even(struct pulse *pulse, int64_t now_ns) {
    if (pulse_behind(pulse) >= 0)
        pulse->even_ns = -1;
    else if (pulse->even_ns < 0)
        pulse->even_ns = now_ns;
}

void pulse_beat(struct pulse *pulse, uint32_t started, bool worked, int64_t now_ns) {
    struct pulse_entry *mine = &pulse->entry[pulse->me];
    bool was_stopped = now_ns - pulse->heard_ns[pulse->me] > pulse->timeout_ns / 2;
    for (int rank = 0; was_stopped && rank < pulse->ranks; rank++)
        pulse->heard_ns[rank] = pulse->worked_ns[rank] = now_ns;
    mine->beat++;
    mine->started = started;
    mine->worked += worked;
    pulse->heard_ns[pulse->me] = now_ns;
    if (worked) pulse->worked_ns[pulse->me] = now_ns;
    note_even(pulse, now_ns);
}

void pulse_merge(struct pulse *pulse, const struct pulse_entry *theirs, int64_t now_ns) {
    for (int rank = 0; rank < pulse->ranks; rank++) {
        if (rank == pulse->me || (int32_t)(theirs[rank].beat - pulse->entry[rank].beat) <= 0) continue;
        bool moved =
            theirs[rank].worked != pulse->entry[rank].worked || theirs[rank].started != pulse->entry[rank].started;
        pulse->entry[rank] = theirs[rank];
        pulse->heard_ns[rank] = now_ns;
        if (moved) pulse->worked_ns[rank] = now_ns;
    }
}

int pulse_silent(const struct pulse *pulse, int64_t now_ns) {
    for (int rank = 0; rank < pulse->ranks; rank++)
        if (rank != pulse->me && now_ns - pulse->heard_ns[rank] > pulse->timeout_ns) return rank;
    return -1;
}

/* Less than 0: the rank has started fewer than the other. */
static int32_t started_beyond(const struct pulse *pulse, int rank, int other) {
    return (int32_t)(pulse->entry[rank].started - pulse->entry[other].started);
}

int pulse_behind(const struct pulse *pulse) {
    int slowest = pulse->me;
    for (int rank = 0; rank < pulse->ranks; rank++)
        if (started_beyond(pulse, rank, slowest) < 0) slowest = rank;
    return slowest == pulse->me ? -1 : slowest;
}

int pulse_hanging(const struct pulse *pulse, int64_t now_ns) {
    int slowest = pulse_behind(pulse);
    for (int rank = 0; rank < pulse->ranks && slowest >= 0; rank++)
        if (started_beyond(pulse, rank, slowest) == 0 && now_ns - pulse->worked_ns[rank] > pulse->timeout_ns)
            return rank;
    return -1;
}

int pulse_distances(int ranks) {
    int count = 0;
    while (1 << count < ranks)
        count++;
    return count;
}
