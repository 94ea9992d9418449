/* A text from a model, as `generate` writes it, for tests. */
#pragma once

#include "generate/writer.h"

enum { TEXT_WRITER_BYTES = 4096 };

/* With the given caches, 2 threads and fp32. */
struct plan_options text_writer_plan(int64_t positions);
/* The continuation of the prompt, without it, as a string into `text`. */
enum status text_writer_run(const char *model, const struct plan_options *plan, const struct generate_options *options,
                            const char *prompt, char text[TEXT_WRITER_BYTES], struct generate_result *result);
