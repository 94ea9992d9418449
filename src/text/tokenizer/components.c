/* The components of a tokenizer.json, and docs/tokenizers.md, which lists them. A component or setting that is not in
 * the tables at the end is refused by name. */

#include "base/json.h"
#include "text/tokenizer/parts.h"
#include "text/tokenizer/pattern.h"

/* --- fields --- */

/* Whether the list, with blanks between its words, has a word. */
static bool has_word(const char *list, const char *word) {
    for (size_t bytes; *list; list += bytes + (list[bytes] == ' ')) {
        bytes = strcspn(list, " ");
        if (strlen(word) == bytes && memcmp(list, word, bytes) == 0) return true;
    }
    return false;
}

enum status json_only(const char *where, const json_t *object, const char *fields) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        if (!has_word(fields, key))
            return status_set(STATUS_BAD_INPUT, "%s: %.60s: not a setting that is supported", where, key);
    }
    return STATUS_OK;
}

static enum status require(const char *where, const json_t *object, const char *field, bool is_type, const char *type) {
    TRY(json_require(where, object, field));
    return is_type ? STATUS_OK : status_set(STATUS_BAD_INPUT, "%s: %s: must be %s", where, field, type);
}

enum status json_require_array(const char *where, const json_t *object, const char *field, const json_t **out) {
    *out = json_object_get(object, field);
    return require(where, object, field, json_is_array(*out), "an array");
}

enum status json_require_object(const char *where, const json_t *object, const char *field, const json_t **out) {
    *out = json_object_get(object, field);
    return require(where, object, field, json_is_object(*out), "an object");
}

enum status json_require_string(const char *where, const json_t *object, const char *field, const char **out) {
    TRY(json_require(where, object, field));
    return json_read_string(where, object, field, out);
}

enum status json_require_bool(const char *where, const json_t *object, const char *field, bool *out) {
    TRY(json_require(where, object, field));
    return json_read_bool(where, object, field, out);
}

/* --- readers --- */

/* A component that is being read; its steps go to the end of `out`. */
struct reader {
    struct tokenizer *tokenizer;
    const char *where;
    const json_t *object;
    struct text_step_specs *out;
};

/* Fails where the component has other fields than its type and these. */
#define ONLY(reader, fields) json_only((reader)->where, (reader)->object, "type " fields)

/* Appends a step. Its settings are copied, to stay as long as the tokenizer. */
static enum status step_add(struct reader *reader, const struct text_step_type *type, const void *settings,
                            size_t bytes) {
    void *kept = scratch_alloc(&reader->tokenizer->memory, 1, bytes);
    if (!kept) return STATUS_FAILED;
    memcpy(kept, settings, bytes);
    return vec_push(reader->out, (struct text_step_spec){type, kept});
}

static enum status string_keep(struct reader *reader, const char *text, const char **kept, size_t *bytes) {
    *bytes = strlen(text);
    *kept = scratch_format(&reader->tokenizer->memory, "%s", text);
    return *kept ? STATUS_OK : STATUS_FAILED;
}

/* A setting that is one character. */
static enum status require_character(struct reader *reader, const char *field, uint32_t *code) {
    const char *text = NULL;
    size_t length = 0;
    TRY(json_require_string(reader->where, reader->object, field, &text));
    if (text[0]) *code = utf8_decode_valid(text, &length);
    if (length > 0 && text[length] == '\0') return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: %s: must be one character", reader->where, field);
}

/* The field "pattern": {"String": ...} (`literal`) or {"Regex": ...}. The text is borrowed from the object. */
static enum status pattern_read(struct reader *reader, const char **text, bool *literal) {
    const json_t *pattern;
    TRY(json_require_object(reader->where, reader->object, "pattern", &pattern));
    const char *place = scratch_format(&reader->tokenizer->memory, "%s.pattern", reader->where);
    if (!place) return STATUS_FAILED;
    *literal = json_object_get(pattern, "String") != NULL;
    const char *kind = *literal ? "String" : "Regex";
    TRY(json_only(place, pattern, kind));
    TRY(json_require_string(place, pattern, kind, text));
    return **text ? STATUS_OK : status_set(STATUS_BAD_INPUT, "%s: the pattern is empty", place);
}

/* Compiles a pattern that stays as long as the tokenizer. */
static enum status pattern_add(struct reader *reader, const char *pattern, bool literal,
                               const struct split_pattern **out) {
    struct tokenizer *tokenizer = reader->tokenizer;
    const char *place = scratch_format(&tokenizer->memory, "%s.pattern", reader->where);
    if (!place) return STATUS_FAILED;
    TRY(vec_reserve(&tokenizer->patterns, tokenizer->patterns.count + 1));
    struct split_pattern *compiled;
    TRY(split_pattern_compile(place, pattern, strlen(pattern), literal, &compiled));
    tokenizer->patterns.items[tokenizer->patterns.count++] = compiled;
    *out = compiled;
    return STATUS_OK;
}

/* Appends a split by a pattern. */
static enum status split_add(struct reader *reader, const char *pattern, bool literal, enum split_behavior behavior,
                             bool invert) {
    struct text_split split = {.behavior = behavior, .invert = invert};
    TRY(pattern_add(reader, pattern, literal, &split.pattern));
    return step_add(reader, &text_split_step, &split, sizeof split);
}

/* --- normalizers --- */

static enum status read_strip_accents(struct reader *reader) {
    reader->tokenizer->beginning_moves = true;
    TRY(ONLY(reader, ""));
    return vec_push(reader->out, (struct text_step_spec){&text_map_step, &text_strip_accents});
}

static enum status read_prepend(struct reader *reader) {
    struct text_prefix prefix = {.place = PREFIX_EACH};
    const char *text = NULL;
    TRY(ONLY(reader, "prepend"));
    TRY(json_require_string(reader->where, reader->object, "prepend", &text));
    TRY(string_keep(reader, text, &prefix.text, &prefix.bytes));
    return step_add(reader, &text_prefix_step, &prefix, sizeof prefix);
}

static enum status read_replace(struct reader *reader) {
    const char *text = NULL, *content = NULL;
    bool literal = false;
    struct text_replace made = {0};
    TRY(ONLY(reader, "pattern content"));
    TRY(pattern_read(reader, &text, &literal));
    TRY(json_require_string(reader->where, reader->object, "content", &content));
    TRY(string_keep(reader, content, &made.content, &made.content_bytes));
    TRY(pattern_add(reader, text, literal, &made.pattern));
    return step_add(reader, &text_replace_step, &made, sizeof made);
}

static enum status read_replace_normalizer(struct reader *reader) {
    reader->tokenizer->beginning_moves = true;
    return read_replace(reader);
}

static enum status read_strip_normalizer(struct reader *reader) {
    bool left = false, right = false;
    TRY(ONLY(reader, "strip_left strip_right"));
    TRY(json_require_bool(reader->where, reader->object, "strip_left", &left));
    TRY(json_require_bool(reader->where, reader->object, "strip_right", &right));
    reader->tokenizer->beginning_moves |= left;
    struct text_strip strip = {STRIP_SPACE, left ? SIZE_MAX : 0, right ? SIZE_MAX : 0};
    return step_add(reader, &text_strip_step, &strip, sizeof strip);
}

/* --- pre-tokenizers that split by a pattern; ByteLevel may put a space first --- */

/* The split of GPT-2 (Radford et al., "Language models are unsupervised multitask learners", 2019), which ByteLevel
 * has built in. */
const char tokenizer_gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static enum status read_byte_level(struct reader *reader) {
    static const struct text_prefix space = {.text = " ", .bytes = 1, .place = PREFIX_EACH, .unless_there = true};
    bool prefix_space = false, trim_offsets = false, use_regex = true;
    TRY(ONLY(reader, "add_prefix_space trim_offsets use_regex"));
    TRY(json_require_bool(reader->where, reader->object, "add_prefix_space", &prefix_space));
    TRY(json_read_bool(reader->where, reader->object, "trim_offsets", &trim_offsets)); /* offsets are not kept */
    TRY(json_read_bool(reader->where, reader->object, "use_regex", &use_regex));
    if (prefix_space) TRY(vec_push(reader->out, (struct text_step_spec){&text_prefix_step, &space}));
    reader->tokenizer->byte_level = true;
    return use_regex ? split_add(reader, tokenizer_gpt2_pattern, false, SPLIT_ISOLATED, false) : STATUS_OK;
}

static enum status behavior_read(struct reader *reader, enum split_behavior *out) {
    static const char *const names[] = {"Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext"};
    const char *name = NULL;
    TRY(json_require_string(reader->where, reader->object, "behavior", &name));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0) return *out = (enum split_behavior)i, STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: behavior: %.60s is not supported", reader->where, name);
}

static enum status read_split(struct reader *reader) {
    enum split_behavior behavior;
    bool invert = false, literal;
    const char *text;
    TRY(ONLY(reader, "pattern behavior invert"));
    TRY(behavior_read(reader, &behavior));
    TRY(json_require_bool(reader->where, reader->object, "invert", &invert));
    TRY(pattern_read(reader, &text, &literal));
    return split_add(reader, text, literal, behavior, invert);
}

static enum status read_digits(struct reader *reader) {
    /* Digits goes by Rust's char::is_numeric, which knows Unicode 17. */
    static const char digits[] = "[\\p{N}\\x{11DE0}-\\x{11DE9}\\x{16FF4}-\\x{16FF6}]";
    bool individual = false;
    TRY(ONLY(reader, "individual_digits"));
    TRY(json_read_bool(reader->where, reader->object, "individual_digits", &individual));
    return split_add(reader, digits, false, individual ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS, false);
}

/* A pattern with the class in place of each @. */
static enum status class_pattern(struct text_buffer *out, const char *form, bool (*is)(uint32_t)) {
    for (; *form; form++)
        TRY(*form == '@' ? pattern_write_class(out, is, PATTERN_CODES, false) : text_append(out, form, 1));
    return text_append(out, "", 1);
}

static enum status class_split_add(struct reader *reader, const char *form, bool (*is)(uint32_t),
                                   enum split_behavior behavior, bool invert) {
    AUTO_VEC struct text_buffer pattern = {0};
    TRY(class_pattern(&pattern, form, is));
    return split_add(reader, pattern.items, false, behavior, invert);
}

static enum status read_whitespace(struct reader *reader) {
    TRY(ONLY(reader, ""));
    return class_split_add(reader, "[@]+|[^@\\s]+", unicode_is_word, SPLIT_REMOVED, true);
}

static enum status read_whitespace_split(struct reader *reader) {
    TRY(ONLY(reader, ""));
    return split_add(reader, "\\s+", false, SPLIT_REMOVED, false);
}

static enum status read_punctuation(struct reader *reader) {
    enum split_behavior behavior = SPLIT_ISOLATED;
    TRY(ONLY(reader, "behavior"));
    if (json_object_get(reader->object, "behavior")) TRY(behavior_read(reader, &behavior));
    return class_split_add(reader, "[@]", unicode_is_punctuation, behavior, false);
}

static enum status read_delimiter_split(struct reader *reader) {
    uint32_t code;
    TRY(ONLY(reader, "delimiter"));
    TRY(require_character(reader, "delimiter", &code));
    return split_add(reader, json_string_value(json_object_get(reader->object, "delimiter")), true, SPLIT_REMOVED,
                     false);
}

/* --- Metaspace, which writes spaces as a character of their own (U+2581) --- */

enum scheme { SCHEME_ALWAYS, SCHEME_FIRST, SCHEME_NEVER };

struct metaspace {
    const char *text; /* the character that stands for a space */
    size_t bytes;
    enum scheme scheme;
    bool split;
};

static enum status scheme_read(const char *where, const json_t *object, enum scheme *out) {
    static const char *const names[] = {"always", "first", "never"};
    const char *name = names[SCHEME_ALWAYS];
    bool prefix_space = true;
    TRY(json_read_string(where, object, "prepend_scheme", &name));
    TRY(json_read_bool(where, object, "add_prefix_space", &prefix_space)); /* of older files */
    size_t i = 0;
    while (i < 3 && strcmp(names[i], name) != 0)
        i++;
    if (i == 3) return status_set(STATUS_BAD_INPUT, "%s: prepend_scheme: %.60s is not supported", where, name);
    *out = (enum scheme)i;
    if (prefix_space || *out == SCHEME_NEVER) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: add_prefix_space: is false, but prepend_scheme is not never", where);
}

static enum status metaspace_read(struct reader *reader, struct metaspace *out) {
    uint32_t code;
    TRY(ONLY(reader, "replacement add_prefix_space prepend_scheme split str_rep"));
    TRY(require_character(reader, "replacement", &code));
    TRY(scheme_read(reader->where, reader->object, &out->scheme));
    out->split = true;
    TRY(json_read_bool(reader->where, reader->object, "split", &out->split));
    return string_keep(reader, json_string_value(json_object_get(reader->object, "replacement")), &out->text,
                       &out->bytes);
}

static enum status read_metaspace(struct reader *reader) {
    struct tokenizer *tokenizer = reader->tokenizer;
    struct metaspace space = {0};
    TRY(metaspace_read(reader, &space));
    tokenizer->first_matters |= space.scheme == SCHEME_FIRST;
    tokenizer->first_of_split |= space.scheme == SCHEME_FIRST && tokenizer->pre_tokenizers.count > 0;
    struct text_replace replace = {.content = space.text, .content_bytes = space.bytes};
    TRY(pattern_add(reader, " ", true, &replace.pattern));
    TRY(step_add(reader, &text_replace_step, &replace, sizeof replace));
    struct text_prefix prefix = {.text = space.text,
                                 .bytes = space.bytes,
                                 .place = space.scheme == SCHEME_FIRST ? PREFIX_FIRST : PREFIX_EACH,
                                 .unless_there = true};
    if (space.scheme != SCHEME_NEVER) TRY(step_add(reader, &text_prefix_step, &prefix, sizeof prefix));
    return space.split ? split_add(reader, space.text, true, SPLIT_MERGED_WITH_NEXT, false) : STATUS_OK;
}

static enum status read_metaspace_decoder(struct reader *reader) {
    struct metaspace space = {0};
    TRY(metaspace_read(reader, &space));
    struct text_replace replace = {.content = " ", .content_bytes = 1, .drop_in_first = space.scheme != SCHEME_NEVER};
    TRY(pattern_add(reader, space.text, true, &replace.pattern));
    return step_add(reader, &text_replace_step, &replace, sizeof replace);
}

/* --- post-processors --- */

/* ByteLevel after the model: its settings change only offsets, which Ballast does not use. */
static enum status read_byte_level_post(struct reader *reader) {
    static const char *const settings[] = {"add_prefix_space", "trim_offsets", "use_regex"};
    bool unused = false;
    TRY(ONLY(reader, "add_prefix_space trim_offsets use_regex"));
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        TRY(json_read_bool(reader->where, reader->object, settings[i], &unused));
    return STATUS_OK;
}

/* TemplateProcessing: the special tokens before and after a text. */
struct template {
    const struct reader *reader;
    const json_t *specials;
    struct token_ids before, after;
    size_t sequences;
};

/* Appends the ids of one special token of the template. */
static enum status special_append(const struct template *template, const char *name, struct token_ids *out) {
    const struct tokenizer *tokenizer = template->reader->tokenizer;
    const char *where = template->reader->where;
    const json_t *special = json_object_get(template->specials, name), *ids;
    if (!json_is_object(special)) return status_set(STATUS_BAD_INPUT, "%s: special_tokens: has no %.60s", where, name);
    TRY(json_require_array(where, special, "ids", &ids));
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *value = json_array_get(ids, i);
        json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (id < 0 || (size_t)id >= tokenizer->tokens.count || !tokenizer->tokens.items[id].text)
            return status_set(STATUS_BAD_INPUT, "%s: special_tokens: %.60s: an id that no token has", where, name);
        TRY(vec_push(out, (uint32_t)id));
    }
    return STATUS_OK;
}

static enum status piece_read(struct template *template, const json_t *piece) {
    const json_t *sequence = json_object_get(piece, "Sequence"), *special = json_object_get(piece, "SpecialToken");
    const char *where = template->reader->where, *id = NULL;
    if (json_object_size(piece) != 1 || !json_is_object(sequence ? sequence : special))
        return status_set(STATUS_BAD_INPUT, "%s: single: must hold Sequence and SpecialToken objects", where);
    TRY(json_only(where, sequence ? sequence : special, "id type_id"));
    TRY(json_require_string(where, sequence ? sequence : special, "id", &id));
    if (special) return special_append(template, id, template->sequences ? &template->after : &template->before);
    template->sequences++;
    return strcmp(id, "A") == 0 ? STATUS_OK : status_set(STATUS_BAD_INPUT, "%s: single: Sequence %.60s", where, id);
}

/* A later template goes around an earlier one. */
static enum status template_add(struct tokenizer *tokenizer, const struct template *template) {
    struct token_ids *before = &tokenizer->before, *after = &tokenizer->after;
    size_t added = template->before.count;
    TRY(vec_reserve(before, before->count + added));
    TRY(vec_reserve(after, after->count + template->after.count));
    if (before->count > 0) memmove(before->items + added, before->items, before->count * sizeof *before->items);
    if (added > 0) memcpy(before->items, template->before.items, added * sizeof *before->items);
    before->count += added;
    for (size_t i = 0; i < template->after.count; i++)
        after->items[after->count++] = template->after.items[i];
    return STATUS_OK;
}

static enum status read_template(struct reader *reader) {
    struct template template = {.reader = reader};
    const json_t *single, *pair;
    TRY(ONLY(reader, "single pair special_tokens"));
    TRY(json_require_array(reader->where, reader->object, "single", &single));
    TRY(json_require_array(reader->where, reader->object, "pair", &pair)); /* Ballast has no pairs of texts */
    TRY(json_require_object(reader->where, reader->object, "special_tokens", &template.specials));
    enum status status = STATUS_OK;
    for (size_t i = 0; i < json_array_size(single); i++)
        TRY_GOTO(status, piece_read(&template, json_array_get(single, i)), done);
    if (template.sequences == 1)
        status = template_add(reader->tokenizer, &template);
    else
        status = status_set(STATUS_BAD_INPUT, "%s: single: must hold the sequence A once", reader->where);
done:
    vec_free(&template.before);
    vec_free(&template.after);
    return status;
}

/* --- decoders, as steps whose segments are tokens --- */

static enum status read_byte_level_decoder(struct reader *reader) {
    TRY(read_byte_level_post(reader));
    TRY(vec_push(reader->out, (struct text_step_spec){&text_byte_level_step, NULL}));
    return vec_push(reader->out, (struct text_step_spec){&text_fix_step, NULL});
}

static enum status read_strip_decoder(struct reader *reader) {
    enum { MAX = 1 << 20 };
    struct text_strip strip = {0};
    int64_t start = 0, stop = 0;
    TRY(ONLY(reader, "content start stop"));
    TRY(require_character(reader, "content", &strip.code));
    TRY(json_require(reader->where, reader->object, "start"));
    TRY(json_require(reader->where, reader->object, "stop"));
    TRY(json_read_int(reader->where, reader->object, "start", 0, MAX, &start));
    TRY(json_read_int(reader->where, reader->object, "stop", 0, MAX, &stop));
    strip.start = (size_t)start;
    strip.stop = (size_t)stop;
    return step_add(reader, &text_strip_step, &strip, sizeof strip);
}

/* --- the tables: all that a file may name --- */

struct component {
    const char *type;
    const char *note;                     /* for docs/tokenizers.md: its settings, and what is refused of them */
    enum status (*read)(struct reader *); /* NULL: it has no settings, and is the step */
    struct text_step_spec step;
};

static const struct component normalizers[] = {
    {"NFC", "Unicode 9's data, as the library has it", .step = {&text_normalize_step, &text_nfc}},
    {"NFD", "as NFC", .step = {&text_normalize_step, &text_nfd}},
    {"NFKC", "as NFC", .step = {&text_normalize_step, &text_nfkc}},
    {"NFKD", "as NFC", .step = {&text_normalize_step, &text_nfkd}},
    {"Lowercase", "", .step = {&text_map_step, &text_lowercase}},
    {"Prepend", "`prepend`; nothing before an empty piece", .read = read_prepend},
    {"Replace", "`pattern` (`String` or `Regex`), `content`", .read = read_replace_normalizer},
    {"Strip", "`strip_left`, `strip_right`", .read = read_strip_normalizer},
    {"StripAccents", "", .read = read_strip_accents},
    {0},
};

static const struct component pre_tokenizers[] = {
    {"ByteLevel", "`add_prefix_space`, `use_regex`; last of the pre-tokenizers", .read = read_byte_level},
    {"CharDelimiterSplit", "`delimiter`", .read = read_delimiter_split},
    {"Digits", "`individual_digits`", .read = read_digits},
    {"Metaspace",
     "`replacement`, `prepend_scheme` or the older `add_prefix_space`, `split`; `first` not together with every "
     "normalizer",
     .read = read_metaspace},
    {"Punctuation", "`behavior`", .read = read_punctuation},
    {"Split", "`pattern` (`String` or `Regex`), `behavior`, `invert`", .read = read_split},
    {"Whitespace", "", .read = read_whitespace},
    {"WhitespaceSplit", "", .read = read_whitespace_split},
    {0},
};

static const struct component post_processors[] = {
    {"ByteLevel", "changes only offsets, which are not kept", .read = read_byte_level_post},
    {"TemplateProcessing", "`single`, `special_tokens`; there are no pairs of texts", .read = read_template},
    {0},
};

static const struct component decoders[] = {
    {"ByteFallback", "", .step = {&text_byte_fallback_step, NULL}},
    {"ByteLevel", "", .read = read_byte_level_decoder},
    {"Fuse", "", .step = {&text_fuse_step, NULL}},
    {"Metaspace", "`replacement`, `prepend_scheme` or `add_prefix_space`", .read = read_metaspace_decoder},
    {"Replace", "`pattern` (`String` or `Regex`), `content`", .read = read_replace},
    {"Strip", "`content`, `start`, `stop`", .read = read_strip_decoder},
    {0},
};

static const struct kind {
    const char *field, *sequence; /* of the file; of a Sequence of such components */
    const struct component *table;
} kinds[] = {
    [TOKENIZER_NORMALIZER] = {"normalizer", "normalizers", normalizers},
    [TOKENIZER_PRE_TOKENIZER] = {"pre_tokenizer", "pretokenizers", pre_tokenizers},
    [TOKENIZER_POST_PROCESSOR] = {"post_processor", "processors", post_processors},
    [TOKENIZER_DECODER] = {"decoder", "decoders", decoders},
};

/* "A, B, C" of a table. */
static enum status types_write(const struct component *table, struct text_buffer *out) {
    for (; table->type; table++) {
        TRY(text_append(out, table->type, strlen(table->type)));
        TRY(text_append(out, ", ", 2));
    }
    return text_append(out, "Sequence", sizeof "Sequence");
}

static enum status component_refuse(const struct component *table, const char *where, const char *type) {
    AUTO_VEC struct text_buffer known = {0};
    TRY(types_write(table, &known));
    return status_set(STATUS_BAD_INPUT, "%s: %.60s is not supported" HINT "supported: %s", where, type, known.items);
}

static enum status component_read(const struct kind *kind, struct reader reader, int depth);

static enum status sequence_read(const struct kind *kind, struct reader reader, int depth) {
    enum { DEEPEST_SEQUENCE = 16 };
    const json_t *list;
    char fields[32];
    snprintf(fields, sizeof fields, "type %s", kind->sequence);
    TRY(json_only(reader.where, reader.object, fields));
    TRY(json_require_array(reader.where, reader.object, kind->sequence, &list));
    if (depth == DEEPEST_SEQUENCE)
        return status_set(STATUS_BAD_INPUT, "%s: too many Sequences within Sequences", reader.where);
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct reader item = reader;
        item.object = json_array_get(list, i);
        item.where = scratch_format(&reader.tokenizer->memory, "%s.%s[%zu]", reader.where, kind->sequence, i);
        if (!item.where) return STATUS_FAILED;
        if (json_is_null(item.object)) return status_set(STATUS_BAD_INPUT, "%s: is null", item.where);
        TRY(component_read(kind, item, depth + 1));
    }
    return STATUS_OK;
}

static enum status component_read(const struct kind *kind, struct reader reader, int depth) {
    if (!json_is_object(reader.object))
        return status_set(STATUS_BAD_INPUT, "%s: must be an object or null", reader.where);
    const char *type = NULL;
    TRY(json_require_string(reader.where, reader.object, "type", &type));
    if (strcmp(type, "Sequence") == 0) return sequence_read(kind, reader, depth);
    const struct component *found = kind->table;
    while (found->type && strcmp(found->type, type) != 0)
        found++;
    if (!found->type) return component_refuse(kind->table, reader.where, type);
    /* Bytes are the last thing that text becomes: no pre-tokenizer works on the characters that stand for them. */
    if (kind->table == pre_tokenizers && reader.tokenizer->byte_level)
        return status_set(STATUS_BAD_INPUT, "%s: a pre-tokenizer after ByteLevel is not supported", reader.where);
    if (found->read) return found->read(&reader);
    TRY(ONLY(&reader, ""));
    return vec_push(reader.out, found->step);
}

enum status tokenizer_read_component(struct tokenizer *tokenizer, const char *name, const json_t *file,
                                     enum tokenizer_kind kind) {
    struct text_step_specs *const lists[] = {
        [TOKENIZER_NORMALIZER] = &tokenizer->normalizers,
        [TOKENIZER_PRE_TOKENIZER] = &tokenizer->pre_tokenizers,
        [TOKENIZER_POST_PROCESSOR] = NULL, /* they make no steps */
        [TOKENIZER_DECODER] = &tokenizer->decoders,
    };
    struct reader reader = {.tokenizer = tokenizer, .out = lists[kind]};
    reader.object = json_object_get(file, kinds[kind].field);
    if (!reader.object || json_is_null(reader.object)) return STATUS_OK;
    reader.where = scratch_format(&tokenizer->memory, "%s: %s", name, kinds[kind].field);
    return reader.where ? component_read(&kinds[kind], reader, 0) : STATUS_FAILED;
}

extern const unsigned char tokenizer_prose[]; /* document.md: before the tables, and behind them */

void tokenizer_print_document(FILE *out) {
    const char *prose = (const char *)tokenizer_prose;
    fputs(prose, out);
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        fprintf(out, "\n## %s\n\n| `type` | settings |\n|---|---|\n", kinds[kind].field);
        for (const struct component *row = kinds[kind].table; row->type; row++)
            fprintf(out, "| `%s` | %s |\n", row->type, row->note[0] ? row->note : "none");
        fputs("| `Sequence` | of those here |\n", out);
    }
    fputs(prose + strlen(prose) + 1, out);
}
