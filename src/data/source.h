/* Which files the DATA arguments mean. */
#pragma once

#include "base/base.h"
#include "data/jsonl.h"

enum source_kind {
    SOURCE_TEXT,        /* .txt: one document */
    SOURCE_JSONL,       /* .jsonl: a document a line, {"text": ...} */
    SOURCE_TOKENS,      /* .bin: see token_file.h */
    SOURCE_PROMPTS,     /* .jsonl: a supervised example a line, {"prompt": ..., "completion": ...} */
    SOURCE_CHAT,        /* .jsonl: a conversation a line, {"messages": [...]}, or as ShareGPT has it */
    SOURCE_ALPACA,      /* .jsonl: a supervised example a line, {"instruction": ..., "input": ..., "output": ...} */
    SOURCE_PREFERENCES, /* .jsonl: two examples a line, {"prompt": ..., "chosen": ..., "rejected": ...}, texts, */
    SOURCE_PREFERENCE_CHATS, /* or messages */
};
/* Whether it holds pairs of examples, of which the first is preferred. */
static inline bool source_is_of_pairs(enum source_kind kind) {
    return kind == SOURCE_PREFERENCES || kind == SOURCE_PREFERENCE_CHATS;
}
/* Whether it holds examples (marked ids, example.h) instead of documents. */
static inline bool source_is_supervised(enum source_kind kind) {
    return kind == SOURCE_PROMPTS || kind == SOURCE_CHAT || kind == SOURCE_ALPACA || source_is_of_pairs(kind);
}
/* Whether the model's chat template renders it: Alpaca's examples only where the model has one. */
static inline bool source_takes_template(enum source_kind kind) {
    return kind == SOURCE_CHAT || kind == SOURCE_PREFERENCE_CHATS || kind == SOURCE_ALPACA;
}

struct source {
    char *path;
    enum source_kind kind;
    size_t argument; /* training: number of the argument that named it, from 0 */
    int64_t weight;  /* training: of that argument, in millionths; 0: none was given */
};

/* A VEC, in the order in which the tokens follow each other. */
struct sources {
    struct source *items;
    size_t count, capacity;
};

/* An argument is a path, or `PATH:WEIGHT` where there is no file of that whole name. The weight is a decimal number
 * above 0 and at most 1000000, with at most 6 decimals; BAD_INPUT when it is another number. *path_bytes is the length
 * of the path, *weight in millionths, 0 without one. */
enum status source_split_argument(const char *argument, size_t *path_bytes, int64_t *weight);

/* Appends the files of a training argument: a file to `train`; of a directory, train.* and train-* to `train` (at least
 * one) and files named likewise after valid, validation, val or dev to `valid`, each sorted by name.
 * BAD_INPUT, naming the file, when it is missing or of another kind. On failure the lists keep what they had so far.
 * `columns`: of .jsonl files (jsonl.h). */
enum status sources_add_train(const char *argument, const struct jsonl_columns *columns, struct sources *train,
                              struct sources *valid);
/* The same for validation, where a weight is refused: a file, or of a directory its valid.* (there must be some). */
enum status sources_add_valid(const char *path, const struct jsonl_columns *columns, struct sources *valid);
void sources_free(struct sources *sources);
