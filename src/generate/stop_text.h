/* Text on its way out, cut before the first of some strings. */
#ifndef BALLAST_GENERATE_STOP_TEXT_H
#define BALLAST_GENERATE_STOP_TEXT_H

#include "generate/generate.h"

struct stop_text {
    const char *const *stops; /* none empty; borrowed */
    size_t stop_count;
    generate_sink *sink;
    void *payload;
    VEC(char) held; /* what may be the beginning of a stop */
    bool stopped;   /* a stop was found, or the sink wants no more */
};

/* Puts out what can be no part of a stop. After a stop nothing more is taken. FAILED when out of memory. */
enum status stop_text_push(struct stop_text *text, const char *bytes, size_t count);
/* Puts out the rest. */
void stop_text_finish(struct stop_text *text);
void stop_text_free(struct stop_text *text);

#endif
