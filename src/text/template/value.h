/* Values of templates: Python's, as far as chat templates use them, and what Python says of strings. Values do not
 * change once made, namespaces apart, and live as long as the rendering. Private to the modules of src/text. */
#pragma once

#include <jansson.h>

#include "base/base.h"
#include "base/utf8.h"

enum jinja_kind {
    JINJA_UNDEFINED, /* `string` is the name that has no value */
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INTEGER,
    JINJA_FLOAT,
    JINJA_STRING,
    JINJA_LIST,
    JINJA_TUPLE,
    JINJA_RANGE,     /* of whole numbers; its items are there as a list's */
    JINJA_GENERATOR, /* what map, select, … give: true even when empty, without length, gone over once */
    JINJA_DICT,
    JINJA_NAMESPACE,
    JINJA_SELF,     /* the name `self`: the template; only its existence can be tested */
    JINJA_LOOP,     /* `loop` within a for */
    JINJA_MACRO,    /* defined in the template */
    JINJA_FUNCTION, /* range, namespace, … */
    JINJA_METHOD,   /* a string's or a dict's method with its object */
};

struct jinja_value {
    enum jinja_kind kind;
    union {
        bool truth;
        int64_t integer;
        double number;
        struct {
            const char *text; /* valid UTF-8, not NUL-terminated */
            size_t bytes;
        } string;
        const struct jinja_list *list; /* and tuple, range, generator */
        struct jinja_dict *dict;       /* and namespace */
        const struct jinja_loop *loop;
        const struct jinja_macro *macro;
        const struct jinja_function *function;
        const struct jinja_method *method;
    };
};

struct jinja_list {
    bool taken;                /* a generator's: it was gone over */
    int64_t first, past, step; /* a range's */
    size_t count;
    struct jinja_value *items;
};
struct jinja_pair {
    struct jinja_value key, value;
};
/* In the order in which keys came. */
struct jinja_dict {
    size_t count, capacity;
    struct jinja_pair *pairs;
};
struct jinja_loop {
    const struct jinja_list *items;
    size_t index;
};
struct jinja_method {
    struct jinja_value self;
    const char *name;
    size_t name_bytes;
};

struct jinja_rendering;

/* Makers. Those that take memory fail like jinja_alloc. */
struct jinja_value jinja_undefined(const char *name, size_t bytes);
struct jinja_value jinja_none(void);
struct jinja_value jinja_bool(bool truth);
struct jinja_value jinja_integer(int64_t integer);
struct jinja_value jinja_float(double number);
/* Borrows the text. */
struct jinja_value jinja_string(const char *text, size_t bytes);
struct jinja_value jinja_literal(const char *text);
enum status jinja_copy_string(struct jinja_rendering *rendering, const char *text, size_t bytes,
                              struct jinja_value *out);
/* The same of a buffer, which is freed, if `status`, that of filling it, is STATUS_OK; else returns `status`. */
enum status jinja_take_string(struct jinja_rendering *rendering, enum status status, struct text_buffer *text,
                              struct jinja_value *out);
/* A list (or tuple) with space for `count` items, which the caller fills through *items. */
enum status jinja_make_list(struct jinja_rendering *rendering, enum jinja_kind kind, size_t count,
                            struct jinja_value *out, struct jinja_value **items);
enum status jinja_make_range(struct jinja_rendering *rendering, int64_t first, int64_t past, int64_t step, size_t count,
                             struct jinja_value *out);
enum status jinja_make_dict(struct jinja_rendering *rendering, struct jinja_value *out);
/* Sets a key of a dict or namespace that is being made or changed. */
enum status jinja_dict_set(struct jinja_rendering *rendering, struct jinja_dict *dict, struct jinja_value key,
                           struct jinja_value value);
/* *out is NULL when there is none. */
enum status jinja_dict_get(struct jinja_rendering *rendering, const struct jinja_dict *dict,
                           const struct jinja_value *key, const struct jinja_value **out);
/* A JSON value; strings are borrowed from it. */
enum status jinja_from_json(struct jinja_rendering *rendering, const json_t *json, struct jinja_value *out);

/* "str", "list", … as Python names the type. */
const char *jinja_type_name(const struct jinja_value *value);
bool jinja_is_number(const struct jinja_value *value); /* bool included, as in Python */
double jinja_number(const struct jinja_value *value);
bool jinja_is_true(const struct jinja_value *value);
bool jinja_is_text(const struct jinja_value *value, const char *text);
enum status jinja_equal(struct jinja_rendering *rendering, const struct jinja_value *a, const struct jinja_value *b,
                        bool *out);
/* Numbers, strings; *out is below, at or above 0. BAD_INPUT for what has no order. */
enum status jinja_compare(struct jinja_rendering *rendering, const struct jinja_value *a, const struct jinja_value *b,
                          int *out);
/* `item in container`. */
enum status jinja_contains(struct jinja_rendering *rendering, const struct jinja_value *container,
                           const struct jinja_value *item, bool *out);
/* len(value). */
enum status jinja_length(struct jinja_rendering *rendering, const struct jinja_value *value, size_t *out);
/* The items of a for loop: a list's items, a dict's keys, a string's characters; none for an undefined value. */
enum status jinja_iterate(struct jinja_rendering *rendering, const struct jinja_value *value,
                          const struct jinja_list **out);

/* str(value), as a value and appended to a text. */
enum status jinja_to_string(struct jinja_rendering *rendering, const struct jinja_value *value,
                            struct jinja_value *out);

/* --- characters and strings --- */

/* str.isspace of one character. */
bool jinja_is_space(uint32_t code);
/* Bytes of white space that valid UTF-8 begins or ends with. */
size_t jinja_leading_space(const char *text, size_t bytes);
size_t jinja_trailing_space(const char *text, size_t bytes);
/* Characters of valid UTF-8. */
size_t jinja_count_characters(const char *text, size_t bytes);
/* Where character `index` begins; `bytes` when there are fewer. */
size_t jinja_find_character(const char *text, size_t bytes, size_t index);
/* The first place >= `from` of a part; `bytes` + 1 when there is none. */
size_t jinja_find_text(const char *text, size_t bytes, size_t from, const char *part, size_t part_bytes);
