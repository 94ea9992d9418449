#include "generate/stop_text.h"

#include <string.h>

static void put_out(struct stop_text *text, size_t count) {
    if (count > 0 && !text->sink(text->payload, text->held.items, count)) text->stopped = true;
    memmove(text->held.items, text->held.items + count, text->held.count - count);
    text->held.count -= count;
}

/* Where the first stop begins; -1: nowhere. */
static int64_t find_stop(const struct stop_text *text) {
    for (size_t at = 0; at < text->held.count; at++)
        for (size_t i = 0; i < text->stop_count; i++) {
            size_t length = strlen(text->stops[i]);
            bool fits = length <= text->held.count - at;
            if (fits && memcmp(text->held.items + at, text->stops[i], length) == 0) return (int64_t)at;
        }
    return -1;
}

/* The length of the longest end that a stop may begin with. */
static size_t open_end(const struct stop_text *text) {
    size_t max = 0;
    for (size_t i = 0; i < text->stop_count; i++) {
        size_t length = strlen(text->stops[i]) - 1;
        if (length > text->held.count) length = text->held.count;
        for (; length > max; length--)
            if (memcmp(text->held.items + text->held.count - length, text->stops[i], length) == 0) max = length;
    }
    return max;
}

enum status stop_text_push(struct stop_text *text, const char *bytes, size_t count) {
    for (size_t i = 0; i < count; i++)
        TRY(vec_push(&text->held, bytes[i]));
    if (text->held.count == 0 || text->stopped) return STATUS_OK;
    int64_t stop = find_stop(text);
    put_out(text, stop >= 0 ? (size_t)stop : text->held.count - open_end(text));
    if (stop >= 0) text->stopped = true;
    return STATUS_OK;
}

void stop_text_finish(struct stop_text *text) {
    if (!text->stopped && text->held.count > 0) put_out(text, text->held.count);
}

void stop_text_free(struct stop_text *text) { vec_free(&text->held); }
