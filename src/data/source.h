/* Which files the DATA arguments mean, and what the lines of .jsonl files say. */
#pragma once

#include <jansson.h>

#include "base/base.h"
#include "base/file.h"

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

/* --- JSON lines: documents and supervised examples, one object a line --- */

/* A place in a text of many lines. Zero-initialise but for `text` and `bytes`. */
struct line_reader {
    const char *text;
    size_t bytes, next; /* size of the text; where the next line begins */
    int64_t line;       /* number of the line that was read last; the first is 1 */
};

/* The next line without its "\n"; false at the end. Bytes after the last "\n" are a line if there are any. */
bool line_read(struct line_reader *reader, const char **line, size_t *bytes);

/* The fields that are read of a line, with their keys unless columns give other keys. */
#define JSONL_FIELD_LIST(X)                                                                                            \
    X(TEXT, "text")                                                                                                    \
    X(PROMPT, "prompt")                                                                                                \
    X(COMPLETION, "completion")                                                                                        \
    X(MESSAGES, "messages")                                                                                            \
    X(INSTRUCTION, "instruction")                                                                                      \
    X(INPUT, "input")                                                                                                  \
    X(OUTPUT, "output")                                                                                                \
    X(CHOSEN, "chosen")                                                                                                \
    X(REJECTED, "rejected")
enum jsonl_field {
#define JSONL_FIELD_ENUM(name, key) JSONL_##name,
    JSONL_FIELD_LIST(JSONL_FIELD_ENUM)
#undef JSONL_FIELD_ENUM
        JSONL_FIELDS
};

/* The keys by which fields are read; all NULL: their own. Zero-initialise; jsonl_columns_free. */
struct jsonl_columns {
    char *keys[JSONL_FIELDS];
};
/* Reads "prompt=question,completion=answer"; "" is valid. BAD_INPUT when it is malformed, or names neither text, nor
 * prompt and completion, nor messages, nor instruction and output, nor chosen and rejected. */
enum status jsonl_columns_parse(const char *text, struct jsonl_columns *out);
void jsonl_columns_free(struct jsonl_columns *columns);
/* The key of a field; NULL when the columns are given without it. */
const char *jsonl_key(const struct jsonl_columns *columns, enum jsonl_field field);

/* The kind of a file, of which only the beginning is read: the one that the columns name, else that of the first line
 * that is not blank; SOURCE_JSONL when it is of none, so that reading the line reports what is wrong. "chosen" and
 * "rejected" come before "messages", these before "prompt" and "completion", these before "text", and all of them
 * before "conversations" and "instruction" with "output". FAILED when the file cannot be read. */
enum status jsonl_find_file_kind(const struct file_input *file, const struct jsonl_columns *columns,
                                 enum source_kind *out);

/* Parses a line. Blank lines are valid: *out is NULL. Otherwise *out is an object, which the caller drops with
 * json_decref. Integers beyond 64 bits come as reals. BAD_INPUT with name and line when it is not valid JSON (which is
 * UTF-8) or no object. */
enum status jsonl_parse_object(const char *name, int64_t line, const char *json, size_t json_bytes, json_t **out);
/* A line that was parsed, and for messages where it is. */
struct jsonl_row {
    const struct jsonl_columns *columns; /* NULL: none given */
    const char *name;
    int64_t line;
    const json_t *object;
};
/* BAD_INPUT "NAME: line N: FIELD WRONG" with a hint of what lines may be. */
enum status jsonl_refuse(const struct jsonl_row *row, const char *field, const char *wrong);
/* The same of a field that is missing, with the keys that are there. */
enum status jsonl_refuse_missing(const struct jsonl_row *row, const char *field);
/* A string of a line's object, borrowed from it. BAD_INPUT with name and line when it is missing (then with the keys
 * that are there) or no string. */
enum status jsonl_read_string(const struct jsonl_row *row, const char *field, const json_t **out);

/* --- rows as conversations, prompts and pairs of answers, also from the forms of other tools (forms.c) --- */

struct chat_template;

/* Takes over `messages` (NULL: out of memory). *out is {"messages", "tools", "chat_template_kwargs"} and is dropped by
 * the caller. The row's "tools" are a list or JSON text of one; "system", a text, becomes the first message, and
 * *first, unless NULL, then grows by one. BAD_INPUT with name, line and key for a value of another type, a system
 * prompt that contradicts the first message, a number beyond 64 bits, and what cannot be applied (images, history) but
 * for the key `applied`, unless NULL, which the messages already hold. */
enum status jsonl_make_conversation(const struct jsonl_row *row, const char *applied, json_t *messages, json_t **out,
                                    size_t *first);
/* For a row of texts: BAD_INPUT with name, line and key when it has one of the keys that only a chat template reads,
 * but for `applied`, unless NULL, which the texts already hold. */
enum status jsonl_refuse_beside(const struct jsonl_row *row, const char *applied);

/* A line's conversation: messages of {"role", "content"}, or turns of ShareGPT, {"from",
 * "value"} and any other keys of a message; or prompt and completion as lists of messages. Messages from *first on are
 * trained on. The caller drops *out. BAD_INPUT with name and line for turns of another form. */
enum status jsonl_form_conversation(const struct jsonl_row *row, json_t **out, size_t *first);
/* Alpaca's {"instruction", "input", "output"}, with "system" and "history", as a conversation ("chat": the user's
 * message is the instruction, an empty line and the input where there is one) or else as {"prompt", "completion"} in
 * the words that Alpaca's models were trained with, of which a system prompt replaces the first paragraph. The caller
 * drops *out. BAD_INPUT with name and line for what is missing or no string, and without a chat template for what needs
 * one. */
enum status jsonl_form_alpaca(const struct jsonl_row *row, bool chat, json_t **out);

/* Lines of two answers, of which the first is preferred. */

/* A line's prompt with one of its answers, `field` (JSONL_CHOSEN or JSONL_REJECTED). Texts give {"prompt",
 * "completion"}. Messages give {"messages", "tools"}, of which those from *first on are the answer: the prompt's
 * messages and behind them the answer's, or where the prompt is no list, the answer's, which begin with those that both
 * answers begin with; a text is then what these say, and needs one of them. The caller drops *out. BAD_INPUT with name,
 * line and field for what is missing, of another type than the other answer, or has no answer. */
enum status jsonl_form_preference(const struct jsonl_row *row, enum jsonl_field field, json_t **out, size_t *first);

/* --- keys of a file's rows that nothing reads --- */

/* Adds the row's keys that files of this kind do not read to *names, an array of distinct strings. Also adds keys of
 * messages, tools and chat_template_kwargs that the chat template does not name (`chat` NULL: rows are texts). Skips
 * keys whose value is null. *names may be NULL, for none; the caller releases it. Beyond a maximum, "..." stands for
 * all further names. */
enum status jsonl_unread_add(const json_t *row, enum source_kind kind, const struct jsonl_columns *columns,
                             const struct chat_template *chat, json_t **names);
/* Adds the names of another list. */
enum status jsonl_unread_join(const json_t *more, json_t **names);
/* Logs them. */
void jsonl_unread_report(const char *file, const json_t *names);

/* --- the files that arguments name --- */

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
 * `columns`: of .jsonl files. */
enum status sources_add_train(const char *argument, const struct jsonl_columns *columns, struct sources *train,
                              struct sources *valid);
/* The same for validation, where a weight is refused: a file, or of a directory its valid.* (there must be some). */
enum status sources_add_valid(const char *path, const struct jsonl_columns *columns, struct sources *valid);
void sources_free(struct sources *sources);

/* --- what data are read with --- */

struct tokenizer;

struct dataset_options {
    const char *const *paths; /* .txt, .jsonl and .bin files, or directories with train.* and valid.*; all or none with
                                 `:WEIGHT` behind it */
    size_t path_count;
    const char *const *valid_paths; /* files for validation, added to the directories' valid.*; may be none */
    size_t valid_path_count;
    double valid_fraction; /* without any of those: the last part of each source's sequences, or of its examples; 0 to
                              below 1 */
    const struct tokenizer *tokenizer; /* for text files; NULL when there are none. It must outlive the dataset */
    const char *tokenizer_path;        /* the tokenizer.json that it was read from */
    int64_t eos_token;                 /* after each document of a text file; -1 for none */
    int64_t eos_token_of_0_1_0;        /* the one that Ballast 0.1.0 took */
    const char *chat_folder;           /* for conversations: where their template is (text/chat/template.h) */
    int64_t chat_time_s;               /* what the template is told of the time */
    const char *columns;               /* keys of .jsonl files, as jsonl_columns_parse reads them; NULL: none given */
    struct jsonl_columns keys;         /* that `columns` gives: dataset_open reads them */
    const char *cache_folder;          /* for the ids of text files (tokenize.h) */
    int64_t vocab_size;                /* of the model: every id must be below it */
    int64_t sequence_tokens;           /* T */
    int64_t context_tokens;            /* the most that the model takes, for advice; 0: not known */
    bool loss_on_all;                  /* examples: train on prompts too */
    bool documents_apart;              /* segments end at eos_token, which there must be */
    bool pack_examples;                /* several examples to a row; never pairs, whatever it says */
    bool hold_rows;                    /* of packed rows the last are held out, not of examples */
    bool pairs;                        /* all files hold preferences; else none may */
    uint64_t seed;                     /* of the order of training sequences */
};
/* Sequences of a row: the chosen example and the rejected one make one. */
static inline int64_t dataset_together(const struct dataset_options *options) { return options->pairs ? 2 : 1; }
