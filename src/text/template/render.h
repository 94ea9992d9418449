/* A rendering: its bounds and scopes, and what templates may call. Private to this directory. */
#pragma once

#include "text/template/jinja.h"
#include "text/template/parse.h"
#include "text/template/value.h"

enum {
    JINJA_WORK_MAX = 1 << 26,   /* see jinja_charge */
    JINJA_MEMORY_MAX = 1 << 27, /* bytes of values */
    JINJA_OUTPUT_MAX = 1 << 26, /* bytes */
    JINJA_DEPTH_MAX = 200,      /* of nodes within nodes, macros included */
    JINJA_RANGE_MAX = 100000,   /* items of range(), as in Jinja's sandbox */
};

/* Names in the order in which they came. */
struct jinja_scope {
    struct jinja_scope *parent;
    size_t count, capacity;
    struct jinja_binding {
        const char *name;
        size_t bytes;
        struct jinja_value value;
    } * bindings;
};

struct jinja_macro {
    const struct jinja_node *node;
    struct jinja_scope *scope; /* where it was defined */
};

enum jinja_flow { JINJA_FLOW_NEXT, JINJA_FLOW_BREAK, JINJA_FLOW_CONTINUE };

struct jinja_rendering {
    const struct jinja_template *template;
    struct jinja_output *result;
    struct text_buffer *out; /* the result's, or that of a macro or set body */
    struct scratch memory;
    size_t memory_bytes;
    size_t written; /* to outputs that are there: the result's and those within */
    int64_t work, now_s;
    int line; /* of the node that is evaluated */
    int depth;
    enum jinja_flow flow;
    struct jinja_scope *scope;
};

/* BAD_INPUT "NAME: line N: …". */
enum status jinja_fail(struct jinja_rendering *rendering, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* "`what` is not supported". */
enum status jinja_fail_unsupported(struct jinja_rendering *rendering, const char *what, const char *name, size_t bytes);
/* Counts work, before it is done; BAD_INPUT when it is too much. A unit is some 20 ns on a core: a node or a step of a
 * loop, 16 bytes that are moved or compared, a byte that is searched for several others, a character that is decoded.
 * All work that a rendering does more often than it evaluates nodes must be charged, so that the bound limits time. */
enum status jinja_charge(struct jinja_rendering *rendering, size_t amount);
enum status jinja_charge_moved(struct jinja_rendering *rendering, size_t bytes);
enum status jinja_charge_searched(struct jinja_rendering *rendering, size_t bytes, size_t part_bytes);
/* Zeroed memory until the end of the rendering; fails when it is too much. */
enum status jinja_alloc(struct jinja_rendering *rendering, size_t count, size_t size, void *out);

enum status jinja_bind(struct jinja_rendering *rendering, const char *name, size_t bytes, struct jinja_value value);
enum status jinja_enter_scope(struct jinja_rendering *rendering, struct jinja_scope *parent);

enum status jinja_evaluate(struct jinja_rendering *rendering, const struct jinja_node *node, struct jinja_value *out);
/* Renders a body with its output in *out. */
enum status jinja_capture(struct jinja_rendering *rendering, const struct jinja_node *body, struct jinja_value *out);

/* Arguments of a call, evaluated. */
struct jinja_arguments {
    struct jinja_value *items;
    size_t count;
    struct jinja_argument {
        const char *name;
        size_t bytes;
        struct jinja_value value;
    } * keywords;
    size_t keyword_count;
};
enum status jinja_evaluate_arguments(struct jinja_rendering *rendering, const struct jinja_node *node,
                                     struct jinja_arguments *out);
/* The values of `count` named parameters (names NULL-terminated strings; NULL: by position only), those not given
 * undefined. BAD_INPUT for too many or unknown ones; `what` is for the message. */
enum status jinja_bind_arguments(struct jinja_rendering *rendering, const char *what,
                                 const struct jinja_arguments *arguments, const char *const *names, size_t count,
                                 struct jinja_value *out);

/* obj[key]. */
enum status jinja_get_item(struct jinja_rendering *rendering, const struct jinja_value *object,
                           const struct jinja_value *key, struct jinja_value *out);
/* a OP b for + - * / // % **. */
enum status jinja_arithmetic(struct jinja_rendering *rendering, const char *operator, size_t bytes,
                             const struct jinja_value *a, const struct jinja_value *b, struct jinja_value *out);

struct jinja_filter {
    const char *name;
    enum status (*apply)(struct jinja_rendering *rendering, const struct jinja_value *value,
                         const struct jinja_arguments *arguments, struct jinja_value *out);
};
/* The tables end with a name that is NULL. */
extern const struct jinja_filter jinja_filters[];
/* NULL when there is none. */
const struct jinja_filter *jinja_find_filter(const char *name, size_t bytes);

struct jinja_predicate {
    const char *name;
    int arguments;
    enum status (*apply)(struct jinja_rendering *rendering, const struct jinja_value *value,
                         const struct jinja_value *argument, bool *out);
};
extern const struct jinja_predicate jinja_predicates[];
const struct jinja_predicate *jinja_find_predicate(const char *name, size_t bytes);

struct jinja_function {
    const char *name;
    enum status (*call)(struct jinja_rendering *rendering, const struct jinja_arguments *arguments,
                        struct jinja_value *out);
};
extern const struct jinja_function jinja_functions[];
const struct jinja_function *jinja_find_function(const char *name, size_t bytes);

/* The names of a type's methods that are supported, one after the other; NULL after the last. */
const char *jinja_method_name(size_t index, enum jinja_kind kind);
/* Whether a value's type has a method of that name. */
bool jinja_has_method(const struct jinja_value *value, const char *name, size_t bytes);
enum status jinja_call_method(struct jinja_rendering *rendering, const struct jinja_method *method,
                              const struct jinja_arguments *arguments, struct jinja_value *out);

/* json.dumps(value, ensure_ascii=False, indent=, sort_keys=); separators NULL: Python's. */
struct jinja_json_options {
    const char *indent; /* NULL: on one line */
    const char *item_separator, *key_separator;
    bool ascii, sort_keys;
};
enum status jinja_to_json(struct jinja_rendering *rendering, const struct jinja_value *value,
                          const struct jinja_json_options *options, struct jinja_value *out);

/* --- operations on strings that filters and methods share --- */

enum jinja_case { JINJA_CASE_LOWER, JINJA_CASE_UPPER, JINJA_CASE_CAPITALIZE, JINJA_CASE_TITLE };
enum status jinja_change_case(struct jinja_rendering *rendering, const struct jinja_value *text, enum jinja_case change,
                              struct jinja_value *out);

/* str.strip and its halves: of white space when `set` is none or undefined, else of the set's characters. */
enum status jinja_strip(struct jinja_rendering *rendering, const struct jinja_value *text,
                        const struct jinja_value *set, bool left, bool right, struct jinja_value *out);
/* str.replace; `max` below 0: all. */
enum status jinja_replace(struct jinja_rendering *rendering, const struct jinja_value *text,
                          const struct jinja_value *from, const struct jinja_value *to, int64_t max,
                          struct jinja_value *out);
/* separator.join(items), each by str() where `any`, else all must be strings. */
enum status jinja_join(struct jinja_rendering *rendering, const struct jinja_value *separator,
                       const struct jinja_list *items, bool any, struct jinja_value *out);
