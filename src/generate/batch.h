/* Many texts from one model, several at a time: a text that ends frees space for the next prompt. Prompts come from a
 * file, one a line: of .txt each line as it is, of .jsonl {"prompt": "…"}, or {"messages": […]} with "tools" where
 * there are any. */
#pragma once

#include "generate/chat.h"
#include "generate/writer.h"

struct prompt {
    json_t *source; /* {"prompt": …} or {"messages": …} */
    struct token_ids ids;
};
struct prompts {
    struct prompt *items;
    size_t count, capacity;
};

/* How prompts become ids. Zeroed but for the model; the template is opened when it is first needed. */
struct prompt_encoder {
    struct writer_model *model; /* borrowed */
    bool chat;                  /* texts are what a user says */
    const char *system;         /* with `chat`: before it; NULL: nothing */
    int64_t time_s;             /* for the template */
    struct chat_prompt prompt;  /* chat NULL: not open */
};
void prompt_encoder_close(struct prompt_encoder *encoder);

/* A text that is given. */
enum status prompts_add_text(struct prompt_encoder *encoder, const char *text, struct prompts *prompts);
/* All of a file. BAD_INPUT, naming file and line, for a line that is no prompt, and when there is none. On failure
 * `prompts` may hold a part. Empty lines of a .jsonl are passed over. */
enum status prompts_read(struct prompt_encoder *encoder, const char *path, struct prompts *prompts);
void prompts_free(struct prompts *prompts);

/* Many texts from one model, several at a time: a text that ends frees space for the next prompt. */

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
