/* A directory for tests of data, with a small tokenizer, and options for datasets of the files that a test writes. */
#pragma once

#include <stdbool.h>

#include "data/dataset.h"

struct data_place {
    char *folder;
    char tokenizer_path[4096], cache_folder[4096]; /* tokenizer.json, and cache, which does not exist yet */
    struct tokenizer *tokenizer;
    const char *paths[2];           /* the test's, and how many there are in the options */
    struct dataset_options options; /* of one path; sequence_tokens are the test's */
};

/* A zeroed place of `bytes` that begins with a struct data_place, for a setup, with data_place_train's tokenizer. */
void *data_place_make(size_t bytes, int64_t vocab_size, bool ends);
/* The teardown of a test whose state it is. */
int data_place_drop(void **state);
/* Puts another tokenizer there, trained on random_text(1, 2000). `ends`: its id 0 is "<|end|>", with which documents
 * end; else nothing is put between them. */
void data_place_train(struct data_place *place, int64_t vocab_size, bool ends);
