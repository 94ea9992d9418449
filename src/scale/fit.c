#include "scale/fit.h"

#include <math.h>

#include "base/mem.h"

static double error_of(const struct known_step *known, const struct forecast *forecast) {
    double error = 0;
    if (known->step_s > 0) error += fabs(log(forecast->step_s / known->step_s));
    if (known->peak_bytes > 0) error += fabs(log((double)forecast->peak_bytes / known->peak_bytes));
    return error;
}

/* Terms are added up in order, so the sum does not depend on threads. */
static double mean_error(const struct known_step *steps, size_t count, const struct calibration *calibration,
                         double *terms) {
    double sum = 0, weights = 0;
#pragma omp parallel for schedule(dynamic, 8)
    for (size_t i = 0; i < count; i++) {
        struct forecast forecast;
        bool known = forecast_step(steps[i].job, calibration, &forecast) == STATUS_OK;
        terms[i] = known ? error_of(&steps[i], &forecast) : 10;
    }
    for (size_t i = 0; i < count; i++) {
        sum += steps[i].weight * terms[i];
        weights += steps[i].weight;
    }
    return sum / weights;
}

struct search {
    const struct known_step *steps;
    size_t count;
    double *terms;
    struct calibration best;
    double error;
};

/* Takes the number's other value where it is better; false: it is not. */
static bool try_value(struct search *search, int index, double value) {
    const struct calibration_number *number = &calibration_numbers[index];
    struct calibration other = search->best;
    value = fmin(number->most, fmax(number->least, value));
    if (value == calibration_get(&search->best, index)) return false;
    calibration_set(&other, index, value);
    double error = mean_error(search->steps, search->count, &other, search->terms);
    if (error >= search->error - 1e-9) return false;
    search->best = other;
    search->error = error;
    return true;
}

enum status calibration_fit(const struct known_step *steps, size_t count, int rounds, struct calibration *calibration) {
    struct search search = {.steps = steps, .count = count, .best = *calibration};
    double reach[CALIBRATION_COUNT];
    if (count == 0) return STATUS_OK;
    search.terms = mem_array(count, sizeof *search.terms);
    if (!search.terms) return STATUS_FAILED;
    search.error = mean_error(steps, count, calibration, search.terms);
    for (int i = 0; i < CALIBRATION_COUNT; i++)
        reach[i] = (calibration_numbers[i].most - calibration_numbers[i].least) / 8;
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < CALIBRATION_COUNT; i++) {
            double value = calibration_get(&search.best, i);
            bool better = try_value(&search, i, value + reach[i]) || try_value(&search, i, value - reach[i]);
            reach[i] *= better ? 1.2 : 0.5;
        }
    *calibration = search.best;
    mem_free(search.terms);
    return STATUS_OK;
}
