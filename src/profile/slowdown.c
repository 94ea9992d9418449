#include "profile/slowdown.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "base/clock.h"
#include "base/fault.h"

enum { RACERS = 2, MESSAGE_BYTES = 512, ROUNDS_MIN = 2 };
static const double INTERVAL_MAX_S = 0.007, SAME = 0.05;

/* Concurrent works. Each begins when all are ready and goes on until all have been timed, so that none is timed alone.
 * The first works without pause, as the compute stream does. The second pauses after each piece for as long as the
 * piece took, as streams do that wait for others: the system gives a thread that slept a processor at once, but one
 * that never sleeps only its share, and copies concurrent with GEMMs would seem to take three times as long. */
struct race {
    pthread_barrier_t start;
    atomic_int unfinished;
    int64_t interval_ns;
};

struct racer {
    struct race *race;
    struct rate_work *work;
    bool rests;
    pthread_t thread;
    enum status status;
    char message[MESSAGE_BYTES];
    double seconds; /* of a piece */
    double busy;    /* share of the time that it worked */
};

static bool is_kernel(enum activity activity) { return activity == ACTIVITY_PRODUCT || activity == ACTIVITY_STREAMING; }

static void rest(int64_t ns) {
    const struct timespec time = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    nanosleep(&time, NULL);
}

static void run_racer(struct racer *racer) {
    bool timed = true;
    int64_t pieces = 0, worked = 0, timed_pieces = 0, timed_work = 0, begin, now;
    if (racer->status == STATUS_OK) racer->status = rate_work_run(racer->work);
    pthread_barrier_wait(&racer->race->start);
    begin = now = clock_now_ns();
    while (racer->status == STATUS_OK && (timed || atomic_load(&racer->race->unfinished) > 0)) {
        int64_t before = clock_now_ns();
        racer->status = rate_work_run(racer->work);
        int64_t taken = clock_now_ns() - before;
        pieces++;
        worked += taken;
        if (racer->rests) rest(taken);
        now = clock_now_ns();
        if (!timed || now - begin < racer->race->interval_ns) continue;
        timed = false;
        timed_pieces = pieces;
        timed_work = worked;
        atomic_fetch_sub(&racer->race->unfinished, 1);
    }
    if (timed) atomic_fetch_sub(&racer->race->unfinished, 1);
    racer->seconds = timed_pieces > 0 ? (double)timed_work * 1e-9 / (double)timed_pieces : 0;
    racer->busy = now > begin ? (double)worked / (double)(now - begin) : 1;
}

static void *race_thread(void *argument) {
    struct racer *racer = argument;
    const struct rate_machine *machine = racer->work->machine;
    if (is_kernel(racer->work->activity)) machine->backend->set_threads(machine->threads);
    if (machine->backend->streams) racer->status = machine->backend->streams->enter();
    run_racer(racer);
    if (racer->status != STATUS_OK) snprintf(racer->message, sizeof racer->message, "%s", status_message());
    return NULL;
}

/* The first racer works in the calling thread, so that none waits for a second one that could not be started. */
static enum status race(struct rate_work *const *works, int count, struct racer racers[RACERS]) {
    double interval_s = allowance_next(works[0]->machine->allowance);
    if (interval_s > INTERVAL_MAX_S) interval_s = INTERVAL_MAX_S;
    struct race race = {.unfinished = count, .interval_ns = (int64_t)(interval_s * 1e9)};
    for (int i = 0; i < count; i++)
        racers[i] = (struct racer){.race = &race, .work = works[i], .rests = i > 0};
    pthread_barrier_init(&race.start, NULL, (unsigned)count);
    int error = 0;
    if (count > 1)
        error = fault_point(FAULT_SUBMIT) ? errno : pthread_create(&racers[1].thread, NULL, race_thread, &racers[1]);
    if (error == 0) race_thread(&racers[0]);
    if (error == 0 && count > 1) pthread_join(racers[1].thread, NULL);
    pthread_barrier_destroy(&race.start);
    if (error) return status_set(STATUS_FAILED, "cannot start a thread to measure with: %s", strerror(error));
    for (int i = 0; i < count; i++)
        if (racers[i].status != STATUS_OK) return status_set(racers[i].status, "%s", racers[i].message);
    return STATUS_OK;
}

struct slowdowns {
    struct rate_work works[ACTIVITY_COUNT][RACERS];
    const bool *present;
    struct sample alone[ACTIVITY_COUNT][RACERS][SLOWDOWN_ROUNDS];
    struct beside {
        double seconds; /* of a piece of the first concurrent with the second, */
        double busy;    /* the share of the time that the second worked */
    } beside[ACTIVITY_COUNT][ACTIVITY_COUNT][SLOWDOWN_ROUNDS];
};

static enum status open_works(const struct rate_machine *machine, struct slowdowns *slowdowns) {
    for (int a = 0; a < ACTIVITY_COUNT; a++)
        for (int r = 0; r < RACERS && slowdowns->present[a]; r++)
            TRY(rate_work_open(machine, (enum activity)a, r, &slowdowns->works[a][r]));
    return STATUS_OK;
}

/* Copies go one way as the first and the other way as the second; of all else both are the same. */
static int count_ways(enum activity activity) { return activity == ACTIVITY_COPY ? RACERS : 1; }

static enum status race_alone(struct slowdowns *slowdowns, int round) {
    for (int a = 0; a < ACTIVITY_COUNT; a++)
        for (int r = 0; r < RACERS && slowdowns->present[a]; r++) {
            struct rate_work *works[RACERS] = {&slowdowns->works[a][r]};
            struct racer racers[RACERS];
            if (r < count_ways((enum activity)a)) {
                TRY(race(works, 1, racers));
                slowdowns->alone[a][r][round] = (struct sample){.seconds = racers[0].seconds};
            } else
                slowdowns->alone[a][r][round] = slowdowns->alone[a][0][round];
        }
    return STATUS_OK;
}

/* Whether the activity `a` of a pair was the first or the second. */
static int racer_of(int a, int b) { return a <= b ? 0 : 1; }

static void keep(struct slowdowns *slowdowns, int round, const struct racer *racer, const struct racer *other) {
    slowdowns->beside[racer->work->activity][other->work->activity][round] =
        (struct beside){racer->seconds, other->busy};
}

/* A program has one stream that reads the disk, and one that writes it: no two of these are concurrent. */
static bool is_pair(const bool present[ACTIVITY_COUNT], int a, int b) {
    bool alone = a == b && (a == ACTIVITY_DISK_READ || a == ACTIVITY_DISK_WRITE);
    return present[a] && present[b] && !alone;
}

static double slowdown_in(const struct beside *beside, double alone_s) {
    return 1 + fmax(0, (beside->seconds / alone_s - 1) / beside->busy);
}

/* Whether the last two rounds agree on how much `a` is slowed down by `b`. */
static bool agree(const struct slowdowns *slowdowns, int round, int a, int b) {
    const struct beside *rounds = slowdowns->beside[a][b];
    const struct sample *alone = slowdowns->alone[a][racer_of(a, b)];
    double last = slowdown_in(&rounds[round - 1], alone[round - 1].seconds),
           before = slowdown_in(&rounds[round - 2], alone[round - 2].seconds);
    return fmax(last, before) <= (1 + SAME) * fmin(last, before);
}

/* Two rounds that agree stand for the third. */
static bool is_known(struct slowdowns *slowdowns, int round, int a, int b) {
    if (round < ROUNDS_MIN || !agree(slowdowns, round, a, b) || !agree(slowdowns, round, b, a)) return false;
    slowdowns->beside[a][b][round] = slowdowns->beside[a][b][round - 1];
    slowdowns->beside[b][a][round] = slowdowns->beside[b][a][round - 1];
    return true;
}

static enum status race_pairs(struct slowdowns *slowdowns, int round) {
    for (int a = 0; a < ACTIVITY_COUNT; a++)
        for (int b = a; b < ACTIVITY_COUNT; b++) {
            struct rate_work *works[RACERS] = {&slowdowns->works[a][0], &slowdowns->works[b][1]};
            struct racer racers[RACERS];
            if (!is_pair(slowdowns->present, a, b) || is_known(slowdowns, round, a, b)) continue;
            TRY(race(works, RACERS, racers));
            keep(slowdowns, round, &racers[0], &racers[1]);
            if (a != b) keep(slowdowns, round, &racers[1], &racers[0]);
        }
    return STATUS_OK;
}

/* The least of all rounds. A round in which the other hardly worked gives an uncertain, large value. */
static double min_slowdown(const struct beside *rounds, int count, double alone_s) {
    double min = INFINITY;
    for (int i = 0; i < count; i++)
        min = fmin(min, slowdown_in(&rounds[i], alone_s));
    return min;
}

static void fill_rates(struct slowdowns *slowdowns, int rounds, struct cluster_rates *rates) {
    for (int a = 0; a < ACTIVITY_COUNT; a++) {
        if (!slowdowns->present[a]) continue;
        struct measurement alone[RACERS];
        for (int r = 0; r < RACERS; r++) {
            alone[r] = measurement_of(slowdowns->alone[a][r], rounds);
            if (alone[r].spread > rates->noise) rates->noise = alone[r].spread;
        }
        for (int b = 0; b < ACTIVITY_COUNT; b++)
            if (is_pair(slowdowns->present, a, b))
                rates->slowdown[a][b] = min_slowdown(slowdowns->beside[a][b], rounds, alone[racer_of(a, b)].seconds);
    }
}

static enum status measure(const struct rate_machine *machine, struct slowdowns *slowdowns,
                           struct cluster_rates *rates) {
    int round = 0;
    TRY(open_works(machine, slowdowns));
    for (; round < SLOWDOWN_ROUNDS && (round == 0 || clock_now_ns() < machine->allowance->end_ns); round++) {
        TRY(race_alone(slowdowns, round));
        TRY(race_pairs(slowdowns, round));
    }
    fill_rates(slowdowns, round, rates);
    return STATUS_OK;
}

int slowdown_races(const bool present[ACTIVITY_COUNT]) {
    int count = 0;
    for (int a = 0; a < ACTIVITY_COUNT; a++) {
        count += present[a] ? count_ways((enum activity)a) : 0;
        for (int b = a; b < ACTIVITY_COUNT; b++)
            count += is_pair(present, a, b);
    }
    return SLOWDOWN_ROUNDS * count;
}

void slowdown_none(struct cluster_rates *rates) {
    for (int a = 0; a < ACTIVITY_COUNT; a++)
        for (int b = 0; b < ACTIVITY_COUNT; b++)
            rates->slowdown[a][b] = 1;
}

enum status slowdown_measure(const struct rate_machine *machine, const bool present[ACTIVITY_COUNT],
                             struct cluster_rates *rates) {
    struct slowdowns slowdowns = {.present = present};
    slowdown_none(rates);
    enum status status = measure(machine, &slowdowns, rates);
    for (int a = 0; a < ACTIVITY_COUNT; a++)
        for (int r = 0; r < RACERS; r++)
            rate_work_close(&slowdowns.works[a][r]);
    return status;
}
