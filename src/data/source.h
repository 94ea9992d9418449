/* Which files the DATA arguments mean. */
#ifndef BALLAST_DATA_SOURCE_H
#define BALLAST_DATA_SOURCE_H

#include <stddef.h>

#include "base/status.h"

enum source_kind {
    SOURCE_TEXT,   /* .txt: one document */
    SOURCE_JSONL,  /* .jsonl: a document a line, {"text": ...} */
    SOURCE_TOKENS, /* .bin: see token_file.h */
};

struct source {
    char *path;
    enum source_kind kind;
};

/* A VEC, in the order in which the tokens follow each other. */
struct sources {
    struct source *items;
    size_t count, capacity;
};

/* Appends what `path` means for training: a file to `train`; of a folder its train.* to `train` (there must be some)
 * and its valid.* to `valid`, each sorted by name. BAD_INPUT, naming the file, when it is missing or of another kind.
 * On failure the lists keep what they had so far. */
enum status sources_add_train(const char *path, struct sources *train, struct sources *valid);
/* The same for validation: a file, or of a folder its valid.* (there must be some). */
enum status sources_add_valid(const char *path, struct sources *valid);
void sources_free(struct sources *sources);

#endif
