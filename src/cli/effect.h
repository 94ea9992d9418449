/* Options that were given and have no effect: said once each, as a warning. */
#pragma once

#include "cli/options.h"
#include "train/train.h"

/* When it can be told that an option has no effect: by the options alone, or when the run's data are open. */
enum effect_phase { EFFECT_OF_OPTIONS, EFFECT_OF_DATA };

struct option_effect {
    enum option_id option;
    enum effect_phase phase;
    /* Whether it does nothing; asked only where it was given. `info` is NULL at the first phase. */
    bool (*is_idle)(const struct options *options, const struct train_info *info);
    const char *why; /* after "--NAME " */
};
extern const struct option_effect option_effects[];
extern const int option_effect_count;

/* Warns of those that do nothing by the options alone. */
void option_effects_warn(const struct options *options);
/* The same of those that do nothing with these data. `options` is a struct options: it is an event of train.h. */
void option_effects_warn_data(const void *options, const struct train_info *info);
