/* Finds an assistant's turn in a rendered conversation. Private to the chat_* files. */
#ifndef BALLAST_TEXT_CHAT_CHAT_TURN_H
#define BALLAST_TEXT_CHAT_CHAT_TURN_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "text/chat/chat_marks.h"
#include "text/chat/chat_template.h"

/* A conversation and the work of rendering it so far, which is bounded: each turn is rendered with all turns before it.
 * Zero-initialise but for `chat` and `whole`; chat_rendering_free. */
struct chat_rendering {
    const struct chat_template *chat;
    struct chat_input whole; /* messages: normalized */
    struct jinja_output output;
    struct chat_marks marks;
    size_t bytes; /* rendered so far */
    int64_t work; /* as jinja_output counts it */
};
void chat_rendering_free(struct chat_rendering *rendering);

/* Renders the first `count` messages into rendering->output. BAD_INPUT as chat_template_render, and for a conversation
 * that takes too much. */
enum status chat_render(struct chat_rendering *rendering, size_t count, bool add_generation_prompt);

/* Renders the conversation up to and with the assistant's message `turn` into *text, which is empty, and finds where
 * the turn begins in it: at the end of the model's prompt (the rendering of the messages before it with
 * add_generation_prompt), and never after the first of the message's own words. The turn ends with the text.
 *
 * The words of all messages are found by marks (chat_marks.h), so that nothing depends on what they are. They matter
 * where the model's prompt differs from the text before the turn (Mistral's system prompt, which is only in the last of
 * the user's turns; a generation prompt that opens thoughts): the turn then begins where the two first differ after the
 * words of the message before it.
 *
 * BAD_INPUT, naming the message, when that cannot be told, and when the template puts the mark of the next answer
 * behind the turn. */
enum status chat_turn_render(struct chat_rendering *rendering, size_t turn, struct text_buffer *text, size_t *start);

#endif
