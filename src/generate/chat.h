/* Conversations with a model, by the chat template of its directory.
 *
 * Keys and values stay in the caches from turn to turn: of the conversation, rendered anew each time, only what differs
 * from what is there is computed. An answer has the same bits as if the whole rendering had been its prompt. */
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

/* A conversation with a model. Keys and values stay in the caches from turn to turn: of the conversation, rendered anew
 * each time, only what differs from what is there is computed. An answer has the same bits as if the whole rendering
 * had been its prompt. */

struct chat_session {
    struct writer_model model;
    struct chat_prompt prompt;
    struct writer writer;
    json_t *messages;     /* the turns, without the system's */
    char *system;         /* NULL: none */
    struct token_ids ids; /* the last prompt and its answer: what the caches are of */
    int64_t max;          /* new tokens of an answer; 0: what the caches hold */
};

/* Options as for a text; with `tokens` 0 answers may be as long as the caches hold. Statuses as train_begin. The caller
 * calls chat_session_close in any case, on a struct that was zeroed; it must not be moved. */
enum status chat_session_open(const char *model_folder, const struct plan_options *plan,
                              const struct generate_options *options, int64_t time_s, struct chat_session *out);
void chat_session_close(struct chat_session *session);

/* Forgets the turns. */
enum status chat_session_reset(struct chat_session *session);
/* What the system says from now on; NULL: nothing. The turns stay. */
enum status chat_session_set_system(struct chat_session *session, const char *system);

struct chat_answer {
    struct generate_result result; /* prompt_tokens: those of the whole conversation */
    int64_t read_tokens;           /* of these, what was computed: the rest was in the caches */
    int64_t dropped;               /* messages that were forgotten, the oldest first, to free space */
};
/* The answer to what a user says. While it does not leave a quarter of the caches for the answer, the conversation
 * loses its oldest turns; BAD_INPUT when a text alone does not fit, or the template refuses it: the conversation is
 * then as it was. */
enum status chat_session_send(struct chat_session *session, const char *text, generate_sink *sink, void *payload,
                              struct chat_answer *answer);
