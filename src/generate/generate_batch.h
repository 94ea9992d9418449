/* Many texts from one model, several at a time: a text that ends frees space for the next prompt. */
#ifndef BALLAST_GENERATE_GENERATE_BATCH_H
#define BALLAST_GENERATE_GENERATE_BATCH_H

#include "generate/prompts.h"
#include "generate/writer.h"

struct batch_text {
    const struct prompt *prompt;
    const char *text; /* what was written, UTF-8 */
    size_t bytes;
    const struct generate_result *result; /* without times */
};
/* Texts in the order of their prompts, each as soon as those before it are done. A result other than STATUS_OK ends
 * all. */
typedef enum status batch_sink(void *payload, const struct batch_text *text);

/* Writes on from each prompt, as many at a time as the writer has caches for. A text depends on its prompt and its
 * number among the prompts, never on the others. Prompts get the new tokens' ids too. `total` has the sums over all
 * texts: `seconds` is of all. */
enum status generate_batch(struct writer *writer, struct prompts *prompts, batch_sink *sink, void *payload,
                           struct generate_result *total);

#endif
