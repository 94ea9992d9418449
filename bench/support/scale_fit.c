#include "support/scale_fit.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

/* name, start, min, max */
#define CALIBRATION_RANGE_LIST(X)                                                                                      \
    X(product_volta, 0.9, 0.5, 1.1)                                                                                    \
    X(product_ampere, 0.9, 0.6, 1.1)                                                                                   \
    X(product_hopper, 0.9, 0.5, 1.1)                                                                                   \
    X(tile_wave_part, 0.7, 0, 1)                                                                                       \
    X(flash2_ampere, 0.55, 0.45, 0.7)                                                                                  \
    X(flash2_hopper, 0.35, 0.25, 0.45)                                                                                 \
    X(flash1_part, 0.75, 0.4, 1.0)                                                                                     \
    X(flash_backward, 0.8, 0.65, 1.1)                                                                                  \
    X(memory_part, 0.85, 0.55, 0.95)                                                                                   \
    X(elementwise_traffic, 1, 0.7, 2.0)                                                                                \
    X(kernel_s, 5e-06, 0, 8e-6)                                                                                        \
    X(launch_s, 1.5e-4, 0, 4e-4)                                                                                       \
    X(collective_slowdown, 0.3, 0, 0.6)                                                                                \
    X(congestion, 0.05, 0, 0.3)                                                                                        \
    X(broadcast_s, 0.0015, 0, 5e-3)                                                                                    \
    X(runtime_bytes, 3e+09, 0.5e9, 9e9)                                                                                \
    X(step_s, 0.03, 0, 0.3)

/* Indexed by field, so that a missing row is one of zeros (tests/scale/test_kernel_rate.c). */
#define FIELD_INDEX(name) (offsetof(struct calibration, name) / sizeof(double))
const struct calibration_range calibration_ranges[CALIBRATION_COUNT] = {
#define CALIBRATION_RANGE(name, start, min, max) [FIELD_INDEX(name)] = {#name, start, min, max},
    CALIBRATION_RANGE_LIST(CALIBRATION_RANGE)
#undef CALIBRATION_RANGE
};

static void calibration_set(struct calibration *calibration, int index, double value) {
    memcpy((char *)calibration + (size_t)index * sizeof value, &value, sizeof value);
}

struct calibration calibration_start(void) {
    struct calibration calibration;
    for (int i = 0; i < CALIBRATION_COUNT; i++)
        calibration_set(&calibration, i, calibration_ranges[i].start);
    return calibration;
}

double calibration_get(const struct calibration *calibration, int index) {
    double value;
    memcpy(&value, (const char *)calibration + (size_t)index * sizeof value, sizeof value);
    return value;
}

/* A fit while it is made. Errors are |log(forecast / known)|, of time and then of memory for each step; numbers are
 * counted in parts of their ranges. */
struct fitting {
    const struct known_step *steps;
    size_t count;
    struct calibration best;
    double error;                        /* of `best` */
    double *errors;                      /* 2 * count: signed, of `best` */
    double *tried;                       /* the same, of another calibration */
    double (*slopes)[CALIBRATION_COUNT]; /* by error: how it changes with each number, near `best` */
};

/* What a linear model of the errors says of them after moves of all numbers. */
struct normal {
    double matrix[CALIBRATION_COUNT][CALIBRATION_COUNT], vector[CALIBRATION_COUNT];
};

static double range_of(int index) { return calibration_ranges[index].max - calibration_ranges[index].min; }

static double log_or_none(double forecast, double known) { return known > 0 ? log(forecast / known) : 0; }

/* Sums are made in order, so they do not depend on threads. */
static double find_errors(const struct fitting *fitting, const struct calibration *calibration, double *errors) {
    double sum = 0, weights = 0;
#pragma omp parallel for schedule(dynamic, 8)
    for (size_t i = 0; i < fitting->count; i++) {
        struct forecast forecast;
        const struct known_step *known = &fitting->steps[i];
        bool done = forecast_step(known->job, calibration, &forecast) == STATUS_OK;
        errors[2 * i] = done ? log_or_none(forecast.step_s, known->step_s) : 10;
        errors[2 * i + 1] = done ? log_or_none((double)forecast.peak_bytes, known->peak_bytes) : 10;
    }
    for (size_t i = 0; i < fitting->count; i++) {
        sum += fitting->steps[i].weight * (fabs(errors[2 * i]) + fabs(errors[2 * i + 1]));
        weights += fitting->steps[i].weight;
    }
    return sum / weights;
}

/* By differences of a fiftieth of each range, towards its middle. */
static void find_slopes(struct fitting *fitting) {
    for (int k = 0; k < CALIBRATION_COUNT; k++) {
        const struct calibration_range *range = &calibration_ranges[k];
        struct calibration other = fitting->best;
        double at = calibration_get(&other, k), step = at < (range->min + range->max) / 2 ? 0.02 : -0.02;
        calibration_set(&other, k, at + step * range_of(k));
        (void)find_errors(fitting, &other, fitting->tried);
        for (size_t i = 0; i < 2 * fitting->count; i++)
            fitting->slopes[i][k] = (fitting->tried[i] - fitting->errors[i]) / step;
    }
}

/* Squares weighted so that their least is near the least sum of absolute errors after the moves. */
static void find_normal(const struct fitting *fitting, const double *moves, struct normal *out) {
    const double small = 0.003; /* an error below which squares are counted */
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < 2 * fitting->count; i++) {
        const double *slopes = fitting->slopes[i];
        double error = fitting->errors[i];
        for (int k = 0; k < CALIBRATION_COUNT; k++)
            error += slopes[k] * moves[k];
        double weight = fitting->steps[i / 2].weight / fmax(fabs(error), small);
        for (int k = 0; k < CALIBRATION_COUNT; k++) {
            out->vector[k] += weight * slopes[k] * fitting->errors[i];
            for (int l = 0; l < CALIBRATION_COUNT; l++)
                out->matrix[k][l] += weight * slopes[k] * slopes[l];
        }
    }
}

/* The least of the squares within the ranges and `reach`, number by number until they settle. */
static void solve(const struct fitting *fitting, const struct normal *normal, double reach, double *moves) {
    for (int sweep = 0; sweep < 200; sweep++)
        for (int k = 0; k < CALIBRATION_COUNT; k++) {
            const struct calibration_range *range = &calibration_ranges[k];
            double at = calibration_get(&fitting->best, k), pull = -normal->vector[k];
            double min = fmax(-reach, (range->min - at) / range_of(k));
            double max = fmin(reach, (range->max - at) / range_of(k));
            for (int l = 0; l < CALIBRATION_COUNT; l++)
                if (l != k) pull -= normal->matrix[k][l] * moves[l];
            if (normal->matrix[k][k] > 1e-9) moves[k] = fmin(max, fmax(min, pull / normal->matrix[k][k]));
        }
}

/* True where the moves make the error less: they are kept. */
static bool try_moves(struct fitting *fitting, const double *moves) {
    struct calibration other = fitting->best;
    for (int k = 0; k < CALIBRATION_COUNT; k++)
        calibration_set(&other, k, calibration_get(&other, k) + moves[k] * range_of(k));
    double error = find_errors(fitting, &other, fitting->tried);
    if (error >= fitting->error - 1e-6) return false;
    fitting->best = other;
    fitting->error = error;
    memcpy(fitting->errors, fitting->tried, 2 * fitting->count * sizeof *fitting->errors);
    return true;
}

/* Linear models of the errors, each near the best so far, within a reach that grows while they hold. */
static void descend(struct fitting *fitting, int rounds) {
    double reach = 0.25;
    for (int round = 0; round < rounds && reach > 1e-3; round++) {
        bool better = false;
        find_slopes(fitting);
        for (; !better && reach > 1e-3; reach *= better ? 1.5 : 0.4) {
            double moves[CALIBRATION_COUNT] = {0};
            struct normal normal;
            for (int i = 0; i < 15; i++) {
                find_normal(fitting, moves, &normal);
                solve(fitting, &normal, reach, moves);
            }
            better = try_moves(fitting, moves);
        }
    }
}

enum status calibration_fit(const struct known_step *steps, size_t count, int rounds, struct calibration *calibration,
                            double *error) {
    struct fitting fitting = {.steps = steps, .count = count, .best = *calibration};
    *error = 0;
    if (count == 0) return STATUS_OK;
    fitting.errors = mem_array(2 * count, sizeof *fitting.errors);
    fitting.tried = fitting.errors ? mem_array(2 * count, sizeof *fitting.tried) : NULL;
    fitting.slopes = fitting.tried ? mem_array(2 * count, sizeof *fitting.slopes) : NULL;
    enum status status = fitting.slopes ? STATUS_OK : STATUS_FAILED;
    if (status == STATUS_OK) {
        fitting.error = find_errors(&fitting, calibration, fitting.errors);
        descend(&fitting, rounds);
        *calibration = fitting.best;
        *error = fitting.error;
    }
    mem_free(fitting.errors);
    mem_free(fitting.tried);
    mem_free(fitting.slopes);
    return status;
}
