/* The two halves of the filters; private to the jinja_* files. */
#ifndef BALLAST_TEMPLATE_JINJA_FILTER_H
#define BALLAST_TEMPLATE_JINJA_FILTER_H

#include "template/jinja_run.h"

/* Of each item the attribute `path`, a name or several with dots; where that is undefined, `fallback` unless NULL. */
enum status jinja_list_attributes(struct jinja_run *run, const struct jinja_list *items, const struct jinja_value *path,
                                  const struct jinja_value *fallback, struct jinja_value *out);

#endif
