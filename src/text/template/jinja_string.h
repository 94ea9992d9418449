/* Operations on strings that filters and methods share; private to the jinja_* files. */
#ifndef BALLAST_TEXT_TEMPLATE_JINJA_STRING_H
#define BALLAST_TEXT_TEMPLATE_JINJA_STRING_H

#include "text/template/jinja_rendering.h"

enum jinja_case { JINJA_CASE_LOWER, JINJA_CASE_UPPER, JINJA_CASE_CAPITALIZE, JINJA_CASE_TITLE };
enum status jinja_change_case(struct jinja_rendering *rendering, const struct jinja_value *text, enum jinja_case change,
                              struct jinja_value *out);

/* str.strip and its halves: of white space when `set` is none or undefined, else of the set's characters. */
enum status jinja_strip(struct jinja_rendering *rendering, const struct jinja_value *text,
                        const struct jinja_value *set, bool left, bool right, struct jinja_value *out);
/* str.replace; `max` below 0: all. */
enum status jinja_replace(struct jinja_rendering *rendering, const struct jinja_value *text,
                          const struct jinja_value *from, const struct jinja_value *to, int64_t max,
                          struct jinja_value *out);
/* separator.join(items), each by str() where `any`, else all must be strings. */
enum status jinja_join(struct jinja_rendering *rendering, const struct jinja_value *separator,
                       const struct jinja_list *items, bool any, struct jinja_value *out);

#endif
