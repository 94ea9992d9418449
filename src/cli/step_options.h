/* Converts the options of the command line to those of session and generate. */
#pragma once

#include "cli/options.h"
#include "generate/writer.h"
#include "session/options.h"

/* Reads the plan options that were given; all others are "not given". `decided`: a run gives the remaining values,
 * so none comes from the machine. Returns BAD_INPUT if the requested device does not exist. */
enum status step_options_read(const struct options *options, bool decided, struct plan_options *out);
/* Reads the training options that were given, over the defaults of train_options_init. Does not set the data, which
 * are arguments. */
enum status step_options_read_training(const struct options *options, struct train_options *out);

/* Reads the options of text generation. `answers`: without --tokens, a text may fill the caches. */
void text_options_read(const struct options *options, bool answers, struct generate_options *out);

/* Logs the memory of the opened model, and the values taken from its generation_config.json. */
void text_options_report(const struct writer *writer);
