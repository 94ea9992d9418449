/* Conversations as prompts, by the chat template of a model's directory. */
#ifndef BALLAST_GENERATE_CHAT_PROMPT_H
#define BALLAST_GENERATE_CHAT_PROMPT_H

#include <jansson.h>

#include "generate/generation_config.h"
#include "model/model.h"
#include "text/chat/chat_template.h"
#include "text/tokenizer/tokenizer.h"

struct chat_prompt {
    const struct tokenizer *tokenizer; /* borrowed */
    struct chat_template *chat;
    int64_t now_s;
    struct jinja_output output;
};

/* `time_s` is what the template is told of the time, 0: today. Adds to `config` the token by which the template ends an
 * assistant's turn, where it is an added one: it ends answers too. BAD_INPUT as chat_template_open. The caller frees
 * with chat_prompt_close. */
enum status chat_prompt_open(const struct model *model, const struct tokenizer *tokenizer, int64_t time_s,
                             struct generation_config *config, struct chat_prompt *out);
void chat_prompt_close(struct chat_prompt *prompt);

/* Appends the ids of a conversation, up to where the assistant's answer begins. `beside`, which may be NULL, is an
 * object whose "tools" and "chat_template_kwargs" the template sees. BAD_INPUT when the messages are malformed, or the
 * template fails. */
enum status chat_prompt_encode(struct chat_prompt *prompt, const json_t *messages, const json_t *beside,
                               struct token_ids *ids);
/* The same of a user's text with a system's before it (NULL: none). */
enum status chat_prompt_encode_text(struct chat_prompt *prompt, const char *system, const char *user,
                                    struct token_ids *ids);

/* Appends {"role", "content"}; the text must be UTF-8. */
enum status chat_prompt_add_message(json_t *messages, const char *role, const char *content);

#endif
