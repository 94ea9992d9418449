/* The page's sources (src/report/page: page.html with style and scripts put in), made into C by cmake/Page.cmake: what
 * comes before the data and what comes after. */
#ifndef BALLAST_PAGE_PAGE_SOURCE_H
#define BALLAST_PAGE_PAGE_SOURCE_H

#include <stddef.h>

extern const unsigned char page_source_before[], page_source_after[];
extern const size_t page_source_before_bytes, page_source_after_bytes;

#endif
