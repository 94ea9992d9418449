#include "comm/heartbeat.h"

enum { TIMES_THE_LONGEST = 10 };

void step_watch_begin(struct step_watch *watch, double patience_s) {
    atomic_store(&watch->patience_ns, (int64_t)(patience_s * 1e9));
    step_watch_note(watch);
    atomic_store(&watch->steps, true);
}

void step_watch_end(struct step_watch *watch) { atomic_store(&watch->steps, false); }

void step_watch_hold(struct step_watch *watch) { atomic_fetch_add(&watch->held, 1); }

void step_watch_release(struct step_watch *watch) {
    step_watch_note(watch);
    atomic_fetch_sub(&watch->held, 1);
}

/* Where it moves between any two looks it was never seen to stand. */
static void note_move(struct step_watch *watch, unsigned ended, bool watched, int64_t now_ns) {
    int64_t stood_ns = watch->looked_ns - watch->moved_ns;
    if (watched && watch->watched && !watch->waited && stood_ns > watch->longest_ns) watch->longest_ns = stood_ns;
    watch->seen = ended;
    watch->moved_ns = now_ns;
    watch->watched = watched;
    watch->waited = false;
}

enum step_watch_answer step_watch_look(struct step_watch *watch, bool waits, int64_t now_ns) {
    bool watched = atomic_load(&watch->steps) && atomic_load(&watch->held) == 0;
    unsigned ended = atomic_load(&watch->ended);
    if (ended != watch->seen || watched != watch->watched) note_move(watch, ended, watched, now_ns);
    watch->waited |= waits;
    watch->looked_ns = now_ns;
    if (!watched) return WATCH_NOT;
    int64_t patience_ns = atomic_load(&watch->patience_ns), longest_ns = TIMES_THE_LONGEST * watch->longest_ns;
    if (longest_ns > patience_ns) patience_ns = longest_ns;
    return now_ns - watch->moved_ns > patience_ns ? WATCH_STANDS : WATCH_MOVES;
}

enum status heartbeat_create(int ranks, int me, int64_t timeout_ns, int64_t now_ns, struct heartbeat *out) {
    struct heartbeat heartbeat = {.ranks = ranks,
                                  .me = me,
                                  .entry = mem_array((size_t)ranks, sizeof *heartbeat.entry),
                                  .heard_ns = mem_array((size_t)ranks, sizeof *heartbeat.heard_ns),
                                  .worked_ns = mem_array((size_t)ranks, sizeof *heartbeat.worked_ns),
                                  .even_ns = now_ns,
                                  .timeout_ns = timeout_ns};
    if (!heartbeat.entry || !heartbeat.heard_ns || !heartbeat.worked_ns) {
        heartbeat_free(&heartbeat);
        return STATUS_FAILED;
    }
    for (int rank = 0; rank < ranks; rank++)
        heartbeat.heard_ns[rank] = heartbeat.worked_ns[rank] = now_ns;
    *out = heartbeat;
    return STATUS_OK;
}

void heartbeat_free(struct heartbeat *heartbeat) {
    mem_free(heartbeat->entry);
    mem_free(heartbeat->heard_ns);
    mem_free(heartbeat->worked_ns);
    *heartbeat = (struct heartbeat){0};
}

static void note_even(struct heartbeat *heartbeat, int64_t now_ns) {
    if (heartbeat_behind(heartbeat) >= 0)
        heartbeat->even_ns = -1;
    else if (heartbeat->even_ns < 0)
        heartbeat->even_ns = now_ns;
}

void heartbeat_beat(struct heartbeat *heartbeat, uint32_t started, bool worked, int64_t now_ns) {
    struct heartbeat_entry *mine = &heartbeat->entry[heartbeat->me];
    bool was_stopped = now_ns - heartbeat->heard_ns[heartbeat->me] > heartbeat->timeout_ns / 2;
    for (int rank = 0; was_stopped && rank < heartbeat->ranks; rank++)
        heartbeat->heard_ns[rank] = heartbeat->worked_ns[rank] = now_ns;
    mine->beat++;
    mine->started = started;
    mine->worked += worked;
    heartbeat->heard_ns[heartbeat->me] = now_ns;
    if (worked) heartbeat->worked_ns[heartbeat->me] = now_ns;
    note_even(heartbeat, now_ns);
}

void heartbeat_merge(struct heartbeat *heartbeat, const struct heartbeat_entry *theirs, int64_t now_ns) {
    for (int rank = 0; rank < heartbeat->ranks; rank++) {
        if (rank == heartbeat->me || (int32_t)(theirs[rank].beat - heartbeat->entry[rank].beat) <= 0) continue;
        bool moved = theirs[rank].worked != heartbeat->entry[rank].worked ||
                     theirs[rank].started != heartbeat->entry[rank].started;
        heartbeat->entry[rank] = theirs[rank];
        heartbeat->heard_ns[rank] = now_ns;
        if (moved) heartbeat->worked_ns[rank] = now_ns;
    }
}

int heartbeat_silent(const struct heartbeat *heartbeat, int64_t now_ns) {
    for (int rank = 0; rank < heartbeat->ranks; rank++)
        if (rank != heartbeat->me && now_ns - heartbeat->heard_ns[rank] > heartbeat->timeout_ns) return rank;
    return -1;
}

/* Less than 0: the rank has started fewer than the other. */
static int32_t started_beyond(const struct heartbeat *heartbeat, int rank, int other) {
    return (int32_t)(heartbeat->entry[rank].started - heartbeat->entry[other].started);
}

int heartbeat_behind(const struct heartbeat *heartbeat) {
    int slowest = heartbeat->me;
    for (int rank = 0; rank < heartbeat->ranks; rank++)
        if (started_beyond(heartbeat, rank, slowest) < 0) slowest = rank;
    return slowest == heartbeat->me ? -1 : slowest;
}

int heartbeat_hanging(const struct heartbeat *heartbeat, int64_t now_ns) {
    int slowest = heartbeat_behind(heartbeat);
    for (int rank = 0; rank < heartbeat->ranks && slowest >= 0; rank++)
        if (started_beyond(heartbeat, rank, slowest) == 0 &&
            now_ns - heartbeat->worked_ns[rank] > heartbeat->timeout_ns)
            return rank;
    return -1;
}

int heartbeat_distances(int ranks) {
    int count = 0;
    while (1 << count < ranks)
        count++;
    return count;
}
