/* Calibration on known steps. */
#ifndef BALLAST_SCALE_FIT_H
#define BALLAST_SCALE_FIT_H

#include <stddef.h>

#include "scale/forecast.h"

struct known_step {
    const struct training *job;
    double step_s;     /* 0: not known */
    double peak_bytes; /* 0: not known */
    double weight;     /* of its error in the mean */
};

/* Lowers the weighted mean over the steps of |log(forecast / known)| of time and peak memory within the numbers'
 * ranges, from the calibration given: by linear models of all errors, at most `rounds` of them. Numbers that change
 * nothing stay as they are. *error is that mean after it, 0 without steps. FAILED without memory. Deterministic. */
enum status calibration_fit(const struct known_step *steps, size_t count, int rounds, struct calibration *calibration,
                            double *error);

#endif
