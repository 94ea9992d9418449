#include "report/page/page.h"

#include "base/json.h"

enum { NUMBER_DIGITS = 9 }; /* a drawing needs no more, and the file is half as long */

/* JSON allows these only in strings, where \u does as well; in HTML they would begin or end something. */
static const char *escape_of(char c) {
    switch (c) {
    case '<': return "\\u003c";
    case '>': return "\\u003e";
    case '&': return "\\u0026";
    default: return NULL;
    }
}

static char *escape(const char *text) {
    size_t bytes = 0;
    for (const char *c = text; *c; c++)
        bytes += escape_of(*c) ? strlen(escape_of(*c)) : 1;
    char *out = mem_array(bytes + 1, 1), *end = out;
    for (const char *c = text; out && *c; c++) {
        const char *escaped = escape_of(*c);
        if (escaped)
            end = stpcpy(end, escaped);
        else
            *end++ = *c;
    }
    return out;
}

char *page_text_of(const json_t *document) {
    char *text = json_text(document, JSON_COMPACT | JSON_REAL_PRECISION(NUMBER_DIGITS));
    char *escaped = text ? escape(text) : NULL;
    mem_free(text);
    if (!escaped) (void)status_no_memory(0, "the page");
    return escaped;
}

char *page_make(const json_t *document, size_t *bytes) {
    char *data = page_text_of(document);
    if (!data) return NULL;
    size_t length = strlen(data), total = page_source_before_bytes + length + page_source_after_bytes;
    char *page = mem_array(total + 1, 1);
    if (page) {
        memcpy(page, page_source_before, page_source_before_bytes);
        memcpy(page + page_source_before_bytes, data, length);
        memcpy(page + page_source_before_bytes + length, page_source_after, page_source_after_bytes);
    }
    mem_free(data);
    if (bytes) *bytes = total;
    return page;
}
