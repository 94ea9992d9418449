/* The fixtures of conversations: templates of families, and a tokenizer with their marks. */
#ifndef BALLAST_TESTS_CHAT_FIXTURE_H
#define BALLAST_TESTS_CHAT_FIXTURE_H

#include <jansson.h>

#include "text/tokenizer/tokenizer.h"

/* A setup and its teardown, with a temp_folder as state. */
int chat_fixture_open(void **state, json_t **families, struct tokenizer **tokenizer);
int chat_fixture_close(void **state, json_t *families, struct tokenizer *tokenizer);

#endif
