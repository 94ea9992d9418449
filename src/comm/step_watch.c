#include "comm/step_watch.h"

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
