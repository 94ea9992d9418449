/* What a tokenizer is made of, and the readers of its file: for the files of the tokenizer only. */
#ifndef BALLAST_TEXT_TOKENIZER_TOKENIZER_PARTS_H
#define BALLAST_TEXT_TOKENIZER_TOKENIZER_PARTS_H

#include <jansson.h>

#include "base/mem.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/bpe_model.h"
#include "text/tokenizer/split_pattern.h"
#include "text/tokenizer/text_steps.h"
#include "text/tokenizer/tokenizer.h"

enum {
    TOKENIZER_IDS_MAX = 1 << 22,     /* ids in a file are below this */
    TOKENIZER_DEEPEST_SEQUENCE = 16, /* Sequences within Sequences */
    TOKENIZER_LARGEST_FILE_BYTES = 1 << 29,
};

struct tokenizer_token {
    const char *text; /* as decoders see it; NULL where no token has this id */
    uint32_t bytes;
    bool special; /* left out where special tokens are skipped */
};

struct tokenizer {
    struct scratch memory; /* of strings and settings */
    struct bpe_model model;
    VEC(struct tokenizer_token) tokens; /* by id */
    VEC(struct added_token) added;
    struct string_table added_ids; /* by content */
    struct added_set raw_added, normalized_added;
    VEC(struct split_pattern *) patterns; /* owned; splits borrow them */
    VEC(struct text_step_spec) normalizers;
    VEC(struct text_step_spec) pre_tokenizers;
    VEC(struct text_step_spec) steps;    /* the whole road from text to ids */
    VEC(struct text_step_spec) decoders; /* from tokens, each a segment, to text */
    struct token_ids before, after;      /* special tokens of the template */
    const char *end_token;               /* eos_token of the files next to; NULL: they name none */
    uint64_t changes;                    /* a hash of what they change; 0: nothing */
    bool byte_level;                     /* the pre-tokenizers end with ByteLevel */
    bool beginning_moves;                /* a normalizer may take or replace the beginning of the text */
    bool first_matters;                  /* a pre-tokenizer asks whether a segment is the text's first ... */
    bool first_of_split;                 /* ... after another one has split it */
    int depth;                           /* of the Sequence that is being read */
};

/* --- tokenizer_json.c --- */

/* BAD_INPUT "WHERE: FIELD: not supported" when the object has a field that is not in the list (NULL ends it). */
enum status json_only(const char *where, const json_t *object, const char *const *fields);
/* The field, which must be there and of this type. */
enum status json_require_array(const char *where, const json_t *object, const char *field, const json_t **out);
enum status json_require_object(const char *where, const json_t *object, const char *field, const json_t **out);
enum status json_require_string(const char *where, const json_t *object, const char *field, const char **out);
enum status json_require_bool(const char *where, const json_t *object, const char *field, bool *out);

/* A kind of component and what the file may name: the table ends with a NULL type. */
struct tokenizer_component {
    const char *type;
    const char *note; /* for docs/tokenizers.md: its settings, and what is refused of them */
    enum status (*read)(struct tokenizer *tokenizer, const char *where, const json_t *object);
};
/* Reads a component by its "type"; null is none. */
enum status component_read(struct tokenizer *tokenizer, const struct tokenizer_component *table, const char *where,
                           const json_t *value);
/* Reads the array in `field` as components of the table, in order. */
enum status component_read_sequence(struct tokenizer *tokenizer, const struct tokenizer_component *table,
                                    const char *where, const json_t *object, const char *field);

/* --- one file for each part of the file --- */

enum status tokenizer_read_model(struct tokenizer *tokenizer, const char *where, const json_t *model);
/* After the model and the normalizers, which decide ids and patterns. */
enum status tokenizer_read_added(struct tokenizer *tokenizer, const char *where, const json_t *list);
enum status tokenizer_read_template(struct tokenizer *tokenizer, const char *where, const json_t *object);
extern const char tokenizer_gpt2_pattern[];

/* --- settings that components have in common --- */

/* A setting that is one character. */
enum status json_require_character(const char *where, const json_t *object, const char *field, uint32_t *code);
/* The field "pattern": {"String": ...} (`literal`) or {"Regex": ...}. The text is borrowed from the object. */
enum status tokenizer_read_pattern(struct tokenizer *tokenizer, const char *where, const json_t *object,
                                   const char **text, bool *literal);
/* Compiles a pattern that stays as long as the tokenizer. */
enum status tokenizer_add_pattern(struct tokenizer *tokenizer, const char *where, const char *pattern, bool literal,
                                  const struct split_pattern **out);
/* Replace, as a normalizer and as a decoder: a step whose settings stay as long as the tokenizer. */
enum status tokenizer_read_replace(struct tokenizer *tokenizer, const char *where, const json_t *object,
                                   struct text_step_spec *out);

/* --- one reader for each component --- */

/* tokenizer_normalizer.c */
enum status tokenizer_read_nfc(struct tokenizer *tokenizer, const char *where, const json_t *object);
enum status tokenizer_read_nfd(struct tokenizer *tokenizer, const char *where, const json_t *object);
enum status tokenizer_read_nfkc(struct tokenizer *tokenizer, const char *where, const json_t *object);
enum status tokenizer_read_nfkd(struct tokenizer *tokenizer, const char *where, const json_t *object);
enum status tokenizer_read_prepend(struct tokenizer *tokenizer, const char *where, const json_t *object);
enum status tokenizer_read_replace_normalizer(struct tokenizer *tokenizer, const char *where, const json_t *object);
enum status tokenizer_read_lowercase(struct tokenizer *tokenizer, const char *where, const json_t *object);
enum status tokenizer_read_strip_normalizer(struct tokenizer *tokenizer, const char *where, const json_t *object);
enum status tokenizer_read_strip_accents(struct tokenizer *tokenizer, const char *where, const json_t *object);

/* tokenizer_pre.c */
enum status tokenizer_read_split(struct tokenizer *tokenizer, const char *where, const json_t *object);
enum status tokenizer_read_digits(struct tokenizer *tokenizer, const char *where, const json_t *object);
enum status tokenizer_read_byte_level(struct tokenizer *tokenizer, const char *where, const json_t *object);
enum status tokenizer_read_whitespace(struct tokenizer *tokenizer, const char *where, const json_t *object);
enum status tokenizer_read_whitespace_split(struct tokenizer *tokenizer, const char *where, const json_t *object);
enum status tokenizer_read_punctuation(struct tokenizer *tokenizer, const char *where, const json_t *object);
enum status tokenizer_read_delimiter_split(struct tokenizer *tokenizer, const char *where, const json_t *object);

/* tokenizer_metaspace.c */
enum status tokenizer_read_metaspace(struct tokenizer *tokenizer, const char *where, const json_t *object);
enum status tokenizer_read_metaspace_decoder(struct tokenizer *tokenizer, const char *where, const json_t *object);

/* tokenizer_decoder.c */
enum status tokenizer_read_byte_level_decoder(struct tokenizer *tokenizer, const char *where, const json_t *object);
enum status tokenizer_read_replace_decoder(struct tokenizer *tokenizer, const char *where, const json_t *object);
enum status tokenizer_read_byte_fallback(struct tokenizer *tokenizer, const char *where, const json_t *object);
enum status tokenizer_read_fuse(struct tokenizer *tokenizer, const char *where, const json_t *object);
enum status tokenizer_read_strip_decoder(struct tokenizer *tokenizer, const char *where, const json_t *object);

/* --- tokenizer_components.c: all that a file may name --- */

extern const struct tokenizer_component tokenizer_normalizers[], tokenizer_pre_tokenizers[],
    tokenizer_post_processors[], tokenizer_decoders[];

#endif
