/* Conversations with a model, through its chat template.
 *
 * Key-value caches are kept from turn to turn. Each turn renders the whole conversation again, and computes only the
 * part that differs from the caches. An answer has the same bits as if the whole rendering had been its prompt. */
#pragma once

#include <jansson.h>

#include "generate/generate.h"
#include "generate/writer.h"
#include "model/model.h"
#include "text/chat/template.h"
#include "text/tokenizer/tokenizer.h"

struct chat_prompt {
    const struct tokenizer *tokenizer; /* borrowed */
    struct chat_template *chat;
    int64_t now_s;
    struct jinja_output output;
};

/* Opens the model's chat template. `time_s` is the date for the template; 0: today. If the token with which the
 * template ends an assistant's turn is an added one, adds it to `config`, so that it ends answers too. BAD_INPUT as
 * chat_template_open. The caller calls chat_prompt_close. */
enum status chat_prompt_open(const struct model *model, const struct tokenizer *tokenizer, int64_t time_s,
                             struct generation_config *config, struct chat_prompt *out);
void chat_prompt_close(struct chat_prompt *prompt);

/* Appends the ids of a conversation, up to the beginning of the assistant's answer. `beside` is NULL, or an object
 * whose "tools" and "chat_template_kwargs" the template receives. Returns BAD_INPUT if the messages are malformed or
 * the template fails. */
enum status chat_prompt_encode(struct chat_prompt *prompt, const json_t *messages, const json_t *beside,
                               struct token_ids *ids);
/* Appends the ids of a user message, preceded by a system message (NULL: none). */
enum status chat_prompt_encode_text(struct chat_prompt *prompt, const char *system, const char *user,
                                    struct token_ids *ids);

/* A conversation with a model. */

struct chat_session {
    struct writer_model model;
    struct chat_prompt prompt;
    struct writer writer;
    json_t *messages;     /* the turns, without the system message */
    char *system;         /* system message; NULL: none */
    struct token_ids ids; /* the tokens in the caches: the last prompt and its answer */
    int64_t max;          /* maximum new tokens of an answer; 0: as many as the caches hold */
};

/* Opens a conversation. With `tokens` 0, an answer may fill the caches. Returns the statuses of train_begin. The
 * struct must be zeroed, and stay at its address. The caller calls chat_session_close, also after a failure. */
enum status chat_session_open(const char *model_folder, const struct plan_options *plan,
                              const struct generate_options *options, int64_t time_s, struct chat_session *out);
void chat_session_close(struct chat_session *session);

/* Removes all turns. */
enum status chat_session_reset(struct chat_session *session);
/* Sets the system message for later turns; NULL: none. Keeps the turns. */
enum status chat_session_set_system(struct chat_session *session, const char *system);

struct chat_answer {
    struct generate_result result; /* prompt_tokens counts the whole conversation */
    int64_t read_tokens;           /* prompt tokens that were computed; the rest was in the caches */
    int64_t dropped;               /* oldest messages that were dropped to free space */
};
/* Generates the answer to a user message. Drops the oldest turns until a quarter of the caches is free for the
 * answer. Returns BAD_INPUT if the message alone does not fit, or the template refuses it; the conversation is then
 * unchanged. */
enum status chat_session_send(struct chat_session *session, const char *text, generate_sink *sink, void *payload,
                              struct chat_answer *answer);
