#include "train/learning_rate.h"

#include <math.h>

struct lr_shape lr_shape_of(const struct train_options *options) {
    enum { WARMUP_MAX = 100 };
    int64_t steps = SETTINGS_HAVE(options, schedule_steps) ? options->schedule_steps : options->steps;
    int64_t warmup = options->warmup_steps;
    if (!SETTINGS_HAVE(options, warmup_steps)) warmup = steps / 10 < WARMUP_MAX ? steps / 10 : WARMUP_MAX;
    return (struct lr_shape){
        .schedule = options->schedule,
        .peak = options->learning_rate,
        .steps = steps,
        .warmup_steps = warmup,
        .min_fraction = options->min_lr_fraction,
        .wsd_decay_fraction = options->wsd_decay_fraction,
    };
}

static double wsd_fraction(const struct lr_shape *shape, double step) {
    double decay = round((double)shape->steps * shape->wsd_decay_fraction);
    double into = step - ((double)shape->steps - decay);
    return into <= 0 ? 1 : 1 - (1 - shape->min_fraction) * into / decay;
}

double lr_at_step(const struct lr_shape *shape, int64_t step) {
    const double pi = 3.14159265358979323846;
    if (step < shape->warmup_steps) return shape->peak * ((double)(step + 1) / (double)shape->warmup_steps);
    if (step > shape->steps) step = shape->steps;
    double decay_steps = (double)(shape->steps - shape->warmup_steps), m = shape->min_fraction, fraction = 1;
    double progress = decay_steps > 0 ? (double)(step - shape->warmup_steps) / decay_steps : 1;
    switch (shape->schedule) {
    case LR_SCHEDULE_COSINE: fraction = m + (1 - m) * 0.5 * (1 + cos(pi * progress)); break;
    case LR_SCHEDULE_LINEAR: fraction = 1 - (1 - m) * progress; break;
    case LR_SCHEDULE_WSD: fraction = wsd_fraction(shape, (double)step); break;
    case LR_SCHEDULE_CONSTANT:
    case LR_SCHEDULE_COUNT: break;
    }
    return shape->peak * fraction;
}
