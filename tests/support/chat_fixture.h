/* Fixtures for conversations: templates of families, and a tokenizer with their special tokens. */
#pragma once

#include <jansson.h>

#include "text/tokenizer/tokenizer.h"

/* A setup and its teardown, with a temp_folder as state. */
int chat_fixture_open(void **state, json_t **families, struct tokenizer **tokenizer);
int chat_fixture_close(void **state, json_t *families, struct tokenizer *tokenizer);
