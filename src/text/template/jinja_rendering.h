/* A rendering; private to the jinja_* files. */
#ifndef BALLAST_TEXT_TEMPLATE_JINJA_RENDERING_H
#define BALLAST_TEXT_TEMPLATE_JINJA_RENDERING_H

#include "text/template/jinja.h"
#include "text/template/jinja_ast.h"
#include "text/template/jinja_value.h"

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

/* obj.name and obj[key]. */
enum status jinja_get_attribute(struct jinja_rendering *rendering, const struct jinja_value *object, const char *name,
                                size_t bytes, struct jinja_value *out);
enum status jinja_get_item(struct jinja_rendering *rendering, const struct jinja_value *object,
                           const struct jinja_value *key, struct jinja_value *out);
enum status jinja_get_slice(struct jinja_rendering *rendering, const struct jinja_value *object,
                            const struct jinja_value bounds[3], struct jinja_value *out);
/* a OP b for + - * / // % **. */
enum status jinja_arithmetic(struct jinja_rendering *rendering, const char *operator, size_t bytes,
                             const struct jinja_value *a, const struct jinja_value *b, struct jinja_value *out);

struct jinja_filter {
    const char *name;
    enum status (*apply)(struct jinja_rendering *rendering, const struct jinja_value *value,
                         const struct jinja_arguments *arguments, struct jinja_value *out);
};
/* The tables end with a name that is NULL. */
extern const struct jinja_filter jinja_text_filters[], jinja_list_filters[];
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

/* Of each item the attribute `path`, a name or several with dots; where that is undefined, `fallback` unless NULL. */
enum status jinja_list_attributes(struct jinja_rendering *rendering, const struct jinja_list *items,
                                  const struct jinja_value *path, const struct jinja_value *fallback,
                                  struct jinja_value *out);

#endif
