/* From the command line's options to those of session and generate. */
#pragma once

#include "cli/options.h"
#include "generate/writer.h"
#include "session/options.h"

/* The plan options that were given, all others "not given". `decided`: a run says what is left open, so no default is
 * taken from the machine. BAD_INPUT when the device that is asked for is not there. */
enum status step_options_read(const struct options *options, bool decided, struct plan_options *out);
/* The training options that were given, over train_options_init's. Without the data, which are arguments. */
enum status step_options_read_training(const struct options *options, struct train_options *out);

/* The options by which `generate` and `chat` write. `answers`: without --tokens, texts may be as long as the caches
 * hold. */
void text_options_read(const struct options *options, bool answers, struct generate_options *out);

/* Notes what the opened model takes, and what of its generation_config.json is used. */
void text_options_report(const struct writer *writer);
