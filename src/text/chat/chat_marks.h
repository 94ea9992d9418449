/* Marks in conversations: strings that occur in no text, put where words begin and end, so that the words can be found
 * in the rendered text. Private to the chat_* files. */
#ifndef BALLAST_TEXT_CHAT_CHAT_MARKS_H
#define BALLAST_TEXT_CHAT_CHAT_MARKS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/mem.h"
#include "base/status.h"
#include "base/utf8.h"

/* Where a mark was found: a place in the text without marks. */
struct chat_place {
    size_t at;
    bool own; /* it is of the message whose turn is looked for */
};
/* Zero-initialise; chat_marks_free. */
struct chat_marks {
    VEC(struct chat_place) places; /* in order */
};
void chat_marks_free(struct chat_marks *marks);

/* A copy of the messages with marks. Other messages than `own` (SIZE_MAX: there is none) have one at the end of their
 * content's words. Message `own` has marks in content and thoughts: where the words begin and end, and behind tags of
 * thoughts (<think>), at which templates cut. White space at the ends stays outside of them, for templates that trim.
 * `sparse`: of the others only the last has a mark, and there is none in strings without words nor before words that
 * begin with a tag, for templates that look at what contents are. The caller drops the copy; NULL when out of memory,
 * with a message. */
json_t *chat_marks_put(const json_t *messages, size_t own, bool sparse);

/* Takes the marks out of a text in place and notes their places. */
enum status chat_marks_take(struct chat_marks *marks, struct text_buffer *text);

#endif
