/* Calibrates the cost model on known steps. */
#pragma once

#include <stddef.h>

#include "search/scale/forecast.h"

/* One of the calibration's constants: where a fit starts, which is a guess without a known step, and its range. The
 * ranges of flash attention are measured (arXiv 2307.08691, figures 4 to 7: causal, 2048 to 16384 positions, heads of
 * 64 and 128), since few published steps have long sequences. */
struct calibration_range {
    const char *name;
    double start, min, max;
};
enum { CALIBRATION_COUNT = (int)(sizeof(struct calibration) / sizeof(double)) };
extern const struct calibration_range calibration_ranges[CALIBRATION_COUNT];

/* Where a fit starts. */
struct calibration calibration_start(void);
/* By index, below CALIBRATION_COUNT. */
double calibration_get(const struct calibration *calibration, int index);

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
