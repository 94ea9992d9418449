/* The page: one HTML file that needs nothing else, made of the sources in src/page/sources and one JSON document
 * (page_data.h). */
#ifndef BALLAST_PAGE_PAGE_H
#define BALLAST_PAGE_PAGE_H

#include <jansson.h>
#include <stddef.h>

#include "base/status.h"

/* The document as text that may stand in a <script>: no "<", ">" or "&" is left in it, whatever the texts hold.
 * mem_free. NULL when out of memory. */
char *page_text_of(const json_t *document);
/* The whole page, with a NUL after it; mem_free. NULL when out of memory. `bytes` may be NULL. */
char *page_make(const json_t *document, size_t *bytes);

#endif
