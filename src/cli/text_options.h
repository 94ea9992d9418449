/* The options by which `generate` and `chat` write. */
#ifndef BALLAST_CLI_TEXT_OPTIONS_H
#define BALLAST_CLI_TEXT_OPTIONS_H

#include "cli/options.h"
#include "generate/generate.h"
#include "generate/writer.h"

/* `answers`: without --tokens, texts may be as long as the caches hold. */
void text_options_read(const struct options *options, bool answers, struct generate_options *out);

/* Notes what the opened model takes, and what of its generation_config.json is used. */
void text_options_tell(const struct writer *writer);

#endif
