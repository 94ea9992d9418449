/* Sizes as people write them: `512M`, `8G`, `1.5T` (powers of 1024) or plain bytes. */
#pragma once

#include "base/base.h"

/* BAD_INPUT when the text is not a size, is negative, or does not fit 63 bits. */
enum status size_parse(const char *text, int64_t *bytes);
/* BAD_INPUT where `text`, a size as size_parse takes it, is a number without a unit and below 256 KiB: hardly meant
 * in bytes. The hint gives the size that was probably meant. */
enum status size_refuse_bare(const char *text);
enum { SIZE_TEXT = 24 };
/* "1.25 GiB", "310 B"; returns `text`. */
char *size_print(int64_t bytes, char text[SIZE_TEXT]);
/* The same rounded up, for sizes that are needed: the printed size is enough. */
char *size_print_up(int64_t bytes, char text[SIZE_TEXT]);
/* The same as it is typed, "1.25GiB", "310": size_parse reads it. */
char *size_print_option(int64_t bytes, char text[SIZE_TEXT]);

enum { COUNT_TEXT = 32 };
/* A count with its thousands apart, "124,439,808"; returns `text`. */
char *count_print(int64_t count, char text[COUNT_TEXT]);
