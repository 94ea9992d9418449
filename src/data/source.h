/* The files of DATA arguments, and the contents of .jsonl lines. */
#pragma once

#include <jansson.h>

#include "base/base.h"
#include "base/file.h"

enum source_kind {
    SOURCE_TEXT,        /* .txt: one document */
    SOURCE_JSONL,       /* .jsonl: a document a line, {"text": ...} */
    SOURCE_TOKENS,      /* .bin: see token_file.h */
    SOURCE_PROMPTS,     /* .jsonl: a supervised example a line, {"prompt": ..., "completion": ...} */
    SOURCE_CHAT,        /* .jsonl: a conversation a line, {"messages": [...]}, or in ShareGPT's form */
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

/* Whether the model's chat template renders it: for Alpaca's examples only if the model has one. */
static inline bool source_takes_template(enum source_kind kind) {
    return kind == SOURCE_CHAT || kind == SOURCE_PREFERENCE_CHATS || kind == SOURCE_ALPACA;
}

/* --- JSON lines: documents and supervised examples, one object a line --- */

/* A place in a text of many lines. Zero-initialize except `text` and `bytes`. */
struct line_reader {
    const char *text;
    size_t bytes, next; /* size of the text; begin of the next line */
    int64_t line;       /* number of the last line read; the first is 1 */
};

/* The next line without its "\n"; false at the end. Bytes after the last "\n" are a line. */
bool line_read(struct line_reader *reader, const char **line, size_t *bytes);

/* The fields read from a line. The names are their keys, unless columns give other keys. */
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

/* The keys of fields; all NULL: their own. Zero-initialize; jsonl_columns_free. */
struct jsonl_columns {
    char *keys[JSONL_FIELDS];
};
/* Parses "prompt=question,completion=answer"; "" is valid. BAD_INPUT if it is malformed, or if it names none of: text;
 * prompt and completion; messages; instruction and output; chosen and rejected. */
enum status jsonl_columns_parse(const char *text, struct jsonl_columns *out);
void jsonl_columns_free(struct jsonl_columns *columns);
/* The key of a field; NULL if the given columns lack it. */
const char *jsonl_key(const struct jsonl_columns *columns, enum jsonl_field field);

/* The kind of a file, from its beginning: the one that the columns name, else that of the first line that is not blank.
 * SOURCE_JSONL if there is none, so that reading the line reports the error. Order of preference: "chosen" and
 * "rejected"; "messages"; "prompt" and "completion"; "text"; "conversations" or "instruction" with "output". FAILED if
 * the file cannot be read. */
enum status jsonl_find_file_kind(const struct file_input *file, const struct jsonl_columns *columns,
                                 enum source_kind *out);

/* Parses a line. Blank lines are valid: *out is NULL. Otherwise *out is an object, which the caller drops with
 * json_decref. Integers beyond 64 bits become reals. BAD_INPUT with name and line if it is not valid JSON (in UTF-8) or
 * not an object. */
enum status jsonl_parse_object(const char *name, int64_t line, const char *json, size_t json_bytes, json_t **out);
/* A parsed line, with its place for messages. */
struct jsonl_row {
    const struct jsonl_columns *columns; /* NULL: none given */
    const char *name;
    int64_t line;
    const json_t *object;
};
/* BAD_INPUT "NAME: line N: FIELD WRONG" with a hint at the valid forms of lines. */
enum status jsonl_refuse(const struct jsonl_row *row, const char *field, const char *wrong);
/* The same for a missing field, with the keys present. */
enum status jsonl_refuse_missing(const struct jsonl_row *row, const char *field);
/* Reads a string of a line's object, borrowed from it. BAD_INPUT with name and line if it is missing (then with the
 * keys present) or not a string. */
enum status jsonl_read_string(const struct jsonl_row *row, const char *field, const json_t **out);

/* --- rows as conversations, prompts and pairs of answers, including other tools' forms (forms.c) --- */

struct chat_template;

/* Makes a conversation from `messages`, which it takes over (NULL: out of memory). *out is {"messages", "tools",
 * "chat_template_kwargs"}; the caller drops it. The row's "tools" are a list, or JSON text of one. "system", a text,
 * becomes the first message; *first, unless NULL, then grows by one.
 *
 * BAD_INPUT with name, line and key for a value of another type, a system prompt that contradicts the first message, a
 * number beyond 64 bits, or a key that cannot be applied (images, history). The key `applied`, unless NULL, is
 * accepted, since the messages already include it. */
enum status jsonl_make_conversation(const struct jsonl_row *row, const char *applied, json_t *messages, json_t **out,
                                    size_t *first);
/* For a row of texts: BAD_INPUT with name, line and key if it has a key that only a chat template reads. The key
 * `applied`, unless NULL, is accepted, since the texts already include it. */
enum status jsonl_refuse_beside(const struct jsonl_row *row, const char *applied);

/* Makes a line's conversation in one of three forms: messages of {"role", "content"}; turns of ShareGPT ({"from",
 * "value"} and any other keys of a message); prompt and completion as lists of messages. Messages from *first on are
 * trained on. The caller drops *out. BAD_INPUT with name and line for turns of another form. */
enum status jsonl_form_conversation(const struct jsonl_row *row, json_t **out, size_t *first);
/* Converts Alpaca's {"instruction", "input", "output"}, with "system" and "history". With `chat`, makes a conversation:
 * the user's message is the instruction and, if there is an input, an empty line and the input. Otherwise makes
 * {"prompt", "completion"} with the prompt of Alpaca's models, whose first paragraph a system prompt replaces. The
 * caller drops *out. BAD_INPUT with name and line for a field that is missing or not a string, or that needs a chat
 * template if there is none. */
enum status jsonl_form_alpaca(const struct jsonl_row *row, bool chat, json_t **out);

/* Lines of two answers, of which the first is preferred. */

/* Makes an example from a line's prompt and one of its answers, `field` (JSONL_CHOSEN or JSONL_REJECTED). Texts give
 * {"prompt", "completion"}. Messages give {"messages", "tools"}, of which those from *first on are the answer.
 * - If the prompt is a list, the messages are the prompt's and the answer's.
 * - Otherwise they are the answer's, which begin with the messages common to both answers. A text prompt repeats the
 *   content of these and requires at least one.
 *
 * The caller drops *out. BAD_INPUT with name, line and field if an answer is missing, empty or of another type than the
 * other answer. */
enum status jsonl_form_preference(const struct jsonl_row *row, enum jsonl_field field, json_t **out, size_t *first);

/* --- unread keys of a file's rows --- */

/* Adds the row's keys that files of this kind do not read to *names, an array of distinct strings. Also adds keys of
 * messages, tools and chat_template_kwargs that the chat template does not name (`chat` NULL: rows are texts). Skips
 * keys whose value is null. *names may be NULL, for none; the caller releases it. Beyond a maximum, "..." replaces all
 * further names. */
enum status jsonl_unread_add(const json_t *row, enum source_kind kind, const struct jsonl_columns *columns,
                             const struct chat_template *chat, json_t **names);
/* Adds the names of another list. */
enum status jsonl_unread_join(const json_t *more, json_t **names);
/* Logs them. */
void jsonl_unread_report(const char *file, const json_t *names);

/* --- the files of arguments --- */

struct source {
    char *path;
    enum source_kind kind;
    size_t argument; /* training: index of its argument, from 0 */
    int64_t weight;  /* training: of its argument, in millionths; 0: none was given */
};

/* A VEC, in the order of their tokens. */
struct sources {
    struct source *items;
    size_t count, capacity;
};

/* An argument is a path, or `PATH:WEIGHT` if there is no file of that full name. The weight is a decimal number above 0
 * and at most 1000000, with at most 6 decimals; BAD_INPUT for another number. *path_bytes is the length of the path,
 * *weight in millionths, 0 without one. */
enum status source_split_argument(const char *argument, size_t *path_bytes, int64_t *weight);

/* Appends the files of a training argument. A file goes to `train`. For a directory, train.* and train-* go to `train`
 * (at least one), and files named likewise after valid, validation, val or dev go to `valid`, each sorted by name.
 * BAD_INPUT, naming the file, if it is missing or of another kind. On failure the lists keep the files added so far.
 * `columns`: of .jsonl files. */
enum status sources_add_train(const char *argument, const struct jsonl_columns *columns, struct sources *train,
                              struct sources *valid);
/* Appends the files of a validation argument, which has no weight: a file, or a directory's valid.* (at least one). */
enum status sources_add_valid(const char *path, const struct jsonl_columns *columns, struct sources *valid);
void sources_free(struct sources *sources);

/* --- options of a dataset --- */

struct tokenizer;

struct dataset_options {
    const char *const *paths; /* .txt, .jsonl and .bin files, or directories with train.* and valid.*; all or none with
                               * a suffix `:WEIGHT` */
    size_t path_count;
    const char *const *valid_paths; /* files for validation, added to the directories' valid.*; optional */
    size_t valid_path_count;
    double valid_fraction; /* if there are neither: the last part of each source's sequences, or of its examples; 0 to
                            * below 1 */
    const struct tokenizer *tokenizer; /* for text files; NULL if there are none. It must outlive the dataset */
    const char *tokenizer_path;        /* the tokenizer.json that it was read from */
    int64_t eos_token;                 /* after each document of a text file; -1 for none */
    int64_t eos_token_of_0_1_0;        /* the one that Ballast 0.1.0 used */
    const char *chat_folder;           /* for conversations: directory of their template (text/chat/template.h) */
    int64_t chat_time_s;               /* the time passed to the template */
    const char *columns;               /* keys of .jsonl files, as jsonl_columns_parse reads them; NULL: none given */
    struct jsonl_columns keys;         /* parsed from `columns` by dataset_open */
    const char *cache_folder;          /* for the ids of text files (tokenize.h) */
    int64_t vocab_size;                /* of the model: every id must be below it */
    int64_t sequence_tokens;           /* T */
    int64_t context_tokens;            /* the model's maximum, for hints; 0: unknown */
    bool loss_on_all;                  /* examples: train on prompts, too */
    bool documents_apart;              /* segments end at eos_token, which must be given */
    bool pack_examples;                /* several examples per row; ignored for pairs */
    bool hold_rows;                    /* hold out the last packed rows, not examples */
    bool pairs;                        /* all files hold preferences; otherwise none may */
    uint64_t seed;                     /* of the order of training sequences */
};
/* Sequences per row: a pair's chosen and rejected examples share one. */
static inline int64_t dataset_together(const struct dataset_options *options) { return options->pairs ? 2 : 1; }
