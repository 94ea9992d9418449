#include "train/learning_rate.h"

#include <math.h>

#include "base/log.h"

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

static enum status count_steps(const struct recipe *recipe, int64_t rows, struct train_options *options) {
    /* 0.7 of 10 rows are 7, though the product is a little more. */
    const double slack = 1e-12;
    const struct setting *limits = &setting_table[SETTING_steps];
    double steps = ceil(options->epochs * (double)rows / (double)recipe->batch * (1 - slack));
    if (steps > (double)limits->max)
        return status_set(STATUS_BAD_INPUT, "epochs: %g of %" PRId64 " sequences take more than %" PRId64 " steps",
                          options->epochs, rows, limits->max);
    options->steps = steps < 1 ? 1 : (int64_t)steps;
    return STATUS_OK;
}

static enum status settle_steps(struct dataset *dataset, const struct recipe *recipe, int64_t done,
                                struct train_options *options) {
    if (dataset_is_mixed(dataset)) {
        enum status status = status_set(STATUS_BAD_INPUT, "epochs: the data have weights, so that each source has "
                                                          "epochs of its own");
        return status_hint(status, "give --steps, or leave the weights out");
    }
    TRY(dataset_settle(dataset, DATASET_TRAIN));
    TRY(count_steps(recipe, dataset_train_sequences(dataset), options));
    if (options->steps < done)
        return status_set(STATUS_BAD_INPUT,
                          "epochs: %g are %" PRId64 " steps, fewer than the %" PRId64 " that are done", options->epochs,
                          options->steps, done);
    log_note("%g epoch%s of %" PRId64 " sequences: %" PRId64 " step%s", options->epochs,
             options->epochs > 1 || options->epochs < 1 ? "s" : "", dataset_train_sequences(dataset), options->steps,
             options->steps > 1 ? "s" : "");
    return STATUS_OK;
}

/* Packed examples may be fewer rows than a batch. */
static void report_repeats(const struct dataset *dataset, const struct recipe *recipe) {
    int64_t rows = dataset_train_sequences(dataset);
    if (dataset_is_mixed(dataset) || rows < 0 || rows >= recipe->batch) return;
    log_note("each step of %" PRId64 " sequences repeats the %" PRId64
             " training sequence%s %.1f times; --batch %" PRId64 " repeats none",
             recipe->batch, rows, rows > 1 ? "s" : "", (double)recipe->batch / (double)rows, rows);
}

enum status run_length_settle(struct dataset *dataset, const struct recipe *recipe, int64_t done,
                              struct train_options *options) {
    if (SETTINGS_HAVE(options, epochs)) TRY(settle_steps(dataset, recipe, done, options));
    report_repeats(dataset, recipe);
    SETTINGS_GIVE(options, warmup_steps, lr_shape_of(options).warmup_steps);
    return STATUS_OK;
}

double run_length_epoch(const struct dataset *dataset, const struct recipe *recipe, const struct train_options *options,
                        int64_t steps) {
    if (!SETTINGS_HAVE(options, epochs)) return 0;
    return (double)steps * (double)recipe->batch / (double)dataset_train_sequences(dataset);
}
