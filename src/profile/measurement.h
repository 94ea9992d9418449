/* A time that was measured several times over, and how far it may be trusted. */
#ifndef BALLAST_PROFILE_MEASUREMENT_H
#define BALLAST_PROFILE_MEASUREMENT_H

#include <stdbool.h>
#include <stdint.h>

struct measurement {
    double seconds; /* the median of the lowest third of the samples */
    double spread;  /* relative: how far the lowest third is apart, or the part of its time that it waited for a
                       processor which another program had, if that is more */
};

/* One run of what is measured. */
struct sample {
    double seconds;
    double waited_s; /* of which threads of this process were ready to run and had no processor; all threads together */
};

/* Timing a sample: begin, the work, end. Where the system does not tell of waiting (schedstat), there is none. */
struct stopwatch {
    int64_t begin_ns, waited_ns;
};
struct stopwatch stopwatch_begin(void);
struct sample stopwatch_end(const struct stopwatch *stopwatch);

/* Puts the samples, at least one, into ascending order. */
struct measurement measurement_of(struct sample *samples, int count);
/* Beyond it a time is noisy, wherever that is asked: measured again, and told as such. Calls on an idle machine are
 * some percent apart, those beside another program half of their time and more; a fifth lies between, and is what a
 * step may be off its prediction before that is said. */
#define MEASUREMENT_NOISY_SPREAD 0.2
/* Spread beyond that, and by more than the 50 us that a thread takes to wake up. */
bool measurement_noisy(const struct measurement *measurement);
/* Of two measurements of one thing the lower time, since what else ran can only have made it longer; it is to be
 * trusted as the better of the two. */
struct measurement measurement_lower(const struct measurement *a, const struct measurement *b);

/* Time for several measurements, one after the other. */
struct allowance {
    int64_t end_ns;
    int left; /* measurements to come */
};
/* An equal part of what is left, in seconds; 0 when nothing is. Counts one off. */
double allowance_next(struct allowance *allowance);

#endif
