/* A conversation with a model. Keys and values stay in the caches from turn to turn: of the conversation, rendered anew
 * each time, only what differs from what is there is computed. An answer has the same bits as if the whole rendering
 * had been its prompt. */
#ifndef BALLAST_GENERATE_CHAT_SESSION_H
#define BALLAST_GENERATE_CHAT_SESSION_H

#include "generate/chat_prompt.h"
#include "generate/writer.h"

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

#endif
