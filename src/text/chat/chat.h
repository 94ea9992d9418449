/* Conversations as supervised examples: {"messages": [{"role", "content", …}, …], "tools": […],
 * "chat_template_kwargs": {…}}.
 *
 * The top of src/text: a conversation is rendered by the model's template (text/template/jinja.h) and encoded by its
 * tokenizer (text/tokenizer/tokenizer.h).
 *
 * Files, in the order to read them:
 *   chat: this file; in chat.c, how the part of a rendering that an assistant says is found;
 *   template: the template of a model, conversations rendered by it, marks of words in these, and docs/chat.md;
 *   example: ids with marks, which tokens are trained on. */
#pragma once

#include <jansson.h>

#include "base/base.h"
#include "base/text.h"
#include "text/chat/example.h"
#include "text/chat/template.h"

/* Changes when the same conversation would give other marked ids. */
enum { CHAT_VERSION = 2, CHAT_VERSION_OF_0_1_0 = 1 };

/* Belongs to one thread. */
struct chat_encoder;
/* Template and example encoder must outlive it. `now_s` is the time that the template sees. */
enum status chat_encoder_create(const struct chat_template *chat, struct example_encoder *examples, int64_t now_s,
                                struct chat_encoder **out);
void chat_encoder_free(struct chat_encoder *encoder);

/* Appends the marked ids of a line's conversation; the assistant's turns are trained on, each of them once.
 *
 * Where the template has generation blocks, a conversation is one example and the blocks mark the trained text.
 * Otherwise a turn is the text that follows the model's prompt, which is the rendering of the messages before it with
 * add_generation_prompt. The turn includes the marks at its end. All of the assistant's words are trained on, also
 * those that are part of the prompt. Turns that the whole conversation renders in the same way (with most
 * templates: all) share one example. Where a template renders earlier turns differently (without their thoughts, say),
 * each such turn gets an example of its own, with the conversation up to it. The ids are those of the whole rendered
 * text; example.h says how borders are found in them. A turn whose "weight" (or "train", "training", "loss") is 0 or
 * false is masked. Turns before message `first` are not trained on.
 *
 * BAD_INPUT, naming `file` and line, when the messages are malformed, the template fails, there are too many turns, or
 * it cannot be told where a turn begins or ends. */
enum status chat_encode(struct chat_encoder *encoder, const char *file, int64_t line, const json_t *object,
                        size_t first, struct token_ids *out);
