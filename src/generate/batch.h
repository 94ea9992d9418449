/* Generates many texts from one model, several at a time. When a text ends, the next prompt takes its place. Prompts
 * come from a file, one per line: in .txt each line as it is, in .jsonl {"prompt": "…"} or {"messages": […]},
 * optionally with "tools". */
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

/* Converts prompts to token ids. The caller sets `model` and options, and zeroes the rest. The template is opened
 * when it is first needed. */
struct prompt_encoder {
    struct writer_model *model; /* borrowed */
    bool chat;                  /* texts are user messages */
    const char *system;         /* system message, with `chat`; NULL: none */
    int64_t time_s;             /* date for the template; 0: today */
    struct chat_prompt prompt;  /* chat NULL: not open */
};
void prompt_encoder_close(struct prompt_encoder *encoder);

/* Adds a text as a prompt. */
enum status prompts_add_text(struct prompt_encoder *encoder, const char *text, struct prompts *prompts);
/* Adds all prompts of a file, and skips empty lines of a .jsonl file. BAD_INPUT names file and line of an invalid
 * prompt, and is returned if there are none. After a failure `prompts` may hold some of them. */
enum status prompts_read(struct prompt_encoder *encoder, const char *path, struct prompts *prompts);
void prompts_free(struct prompts *prompts);

struct batch_text {
    const struct prompt *prompt;
    const char *text; /* the new text, UTF-8 */
    size_t bytes;
    const struct generate_result *result; /* times are not set */
};
/* Receives texts in the order of their prompts, each as soon as it and all earlier ones are complete. A result other
 * than STATUS_OK ends the batch. */
typedef enum status batch_sink(void *payload, const struct batch_text *text);

/* Continues each prompt, as many at a time as the writer has caches for. A text depends on its prompt and its index
 * among the prompts, never on the others. Appends the new ids to the prompts. `total` receives sums over all texts;
 * its `seconds` is the time of the whole batch. */
enum status generate_batch(struct writer *writer, struct prompts *prompts, batch_sink *sink, void *payload,
                           struct generate_result *total);
