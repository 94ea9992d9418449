/* The parts of a tokenizer, and the readers of its file: private to the tokenizer's files. */
#pragma once

#include <jansson.h>

#include "base/base.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/pattern.h"
#include "text/tokenizer/steps.h"
#include "text/tokenizer/tokenizer.h"

enum {
    TOKENIZER_IDS_MAX = 1 << 22, /* ids in a file are below this */
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
    struct text_step_specs normalizers, pre_tokenizers;
    struct text_step_specs steps;    /* the whole road from text to ids */
    struct text_step_specs decoders; /* from tokens, each a segment, to text */
    struct token_ids before, after;  /* special tokens of the template */
    const char *end_token;           /* eos_token of the files next to; NULL: they name none */
    uint64_t changes;                /* a hash of their changes; 0: none */
    bool byte_level;                 /* the pre-tokenizers end with ByteLevel */
    bool beginning_moves;            /* a normalizer may take or replace the beginning of the text */
    bool first_matters;              /* a pre-tokenizer asks whether a segment is the text's first ... */
    bool first_of_split;             /* ... after another one has split it */
};

/* --- components.c --- */

/* The fields of a tokenizer.json that hold components. */
enum tokenizer_kind { TOKENIZER_NORMALIZER, TOKENIZER_PRE_TOKENIZER, TOKENIZER_POST_PROCESSOR, TOKENIZER_DECODER };
/* Reads the field of this kind, where there is one. Pre-tokenizers come before the model, which asks for `byte_level`;
 * post-processors after the added tokens. */
enum status tokenizer_read_component(struct tokenizer *tokenizer, const char *name, const json_t *file,
                                     enum tokenizer_kind kind);
extern const char tokenizer_gpt2_pattern[];

/* BAD_INPUT "WHERE: FIELD: not supported" when the object has a field that is none of these, with blanks between them.
 */
enum status json_only(const char *where, const json_t *object, const char *fields);
/* The field, which must be there and of this type. */
enum status json_require_array(const char *where, const json_t *object, const char *field, const json_t **out);
enum status json_require_object(const char *where, const json_t *object, const char *field, const json_t **out);
enum status json_require_string(const char *where, const json_t *object, const char *field, const char **out);
enum status json_require_bool(const char *where, const json_t *object, const char *field, bool *out);
