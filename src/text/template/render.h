/* A rendering: its bounds, values and scopes, and what templates may call. Private to this directory. */
#pragma once

#include <setjmp.h>

#include "text/template/jinja.h"

enum {
    JINJA_WORK_MAX = 1 << 26,   /* see jinja_charge */
    JINJA_MEMORY_MAX = 1 << 27, /* bytes of values */
    JINJA_OUTPUT_MAX = 1 << 26, /* bytes of the output and of strings that are being made */
    JINJA_DEPTH_MAX = 200,      /* of nodes within nodes, macros included */
    JINJA_RANGE_MAX = 100000,   /* items of range(), as in Jinja's sandbox */
};

/* --- values: Python's, as far as chat templates use them. They do not change once made, namespaces apart, and live as
 * long as the rendering --- */

enum jinja_kind {
    JINJA_UNDEFINED, /* `string` is the name that has no value; zeroes are undefined and have no name */
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
        struct jinja_list *list; /* and tuple, range, generator */
        struct jinja_dict *dict; /* and namespace */
        const struct jinja_loop *loop;
        const struct jinja_macro *macro;
        const struct jinja_callable *function;
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
    size_t count;
    struct jinja_pair *pairs;
};
struct jinja_loop {
    const struct jinja_list *items;
    size_t index;
};
struct jinja_macro {
    const struct jinja_node *node;
    struct jinja_scope *scope; /* where it was defined */
};
struct jinja_method {
    struct jinja_value self;
    const struct jinja_callable *callable;
};

/* Sets of kinds: JINJA_BIT(LIST) | JINJA_BIT(TUPLE). */
#define JINJA_BIT(kind) (1 << JINJA_##kind)
enum {
    JINJA_WHOLE = JINJA_BIT(BOOL) | JINJA_BIT(INTEGER), /* as in Python, a bool is a number */
    JINJA_NUMBER = JINJA_WHOLE | JINJA_BIT(FLOAT),
    JINJA_ITEMS = JINJA_BIT(LIST) | JINJA_BIT(TUPLE) | JINJA_BIT(RANGE),
    JINJA_ABSENT = JINJA_BIT(UNDEFINED) | JINJA_BIT(NONE),
};
static inline bool jinja_is(const struct jinja_value *value, int kinds) { return kinds >> value->kind & 1; }
static inline bool jinja_is_given(const struct jinja_value *value) { return value->kind != JINJA_UNDEFINED; }

/* A string as the two arguments of "%.*s". */
#define JINJA_TEXT(value) (int)(value).string.bytes, (value).string.text

/* --- a rendering --- */

struct jinja_scope {
    struct jinja_scope *parent;
    struct jinja_dict names;
};

enum jinja_flow { JINJA_FLOW_NEXT, JINJA_FLOW_BREAK, JINJA_FLOW_CONTINUE };

struct jinja_rendering {
    const struct jinja_template *template;
    struct jinja_output *result;
    struct text_buffer *text; /* the result's; behind it, while they are made, bodies of macros and sets, and strings */
    struct scratch memory;
    size_t memory_bytes;
    int64_t work, now_s;
    int line; /* of the node that is evaluated */
    int depth, captures;
    enum jinja_flow flow;
    struct jinja_scope *scope;
    jmp_buf failed;
    enum status status; /* why it ended there */
};

/* Ends the rendering with BAD_INPUT "NAME: line N: …". */
_Noreturn void jinja_fail(struct jinja_rendering *rendering, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* "the WHAT 'NAME' is not supported". */
_Noreturn void jinja_fail_unsupported(struct jinja_rendering *rendering, const char *what, struct jinja_value name);
/* Ends the rendering where the status is not OK. */
void jinja_require(struct jinja_rendering *rendering, enum status status);
/* Counts work, before it is done; fails when it is too much. A unit is some 20 ns on a core: a node or a step of a
 * loop, 16 bytes that are moved or compared, a byte that is searched for several others, a character that is decoded.
 * All work that a rendering does more often than it evaluates nodes must be charged, so that the bound limits time. */
void jinja_charge(struct jinja_rendering *rendering, size_t amount);
void jinja_charge_moved(struct jinja_rendering *rendering, size_t bytes);
void jinja_charge_searched(struct jinja_rendering *rendering, size_t bytes, size_t part_bytes);
/* Counts a level of nodes or values within others; the caller subtracts it from rendering->depth. */
void jinja_enter(struct jinja_rendering *rendering);
/* Zeroed memory until the end of the rendering; fails when it is too much. */
void *jinja_alloc(struct jinja_rendering *rendering, size_t count, size_t size);
/* The array of `count` items in such memory with space for one more; it has space for 4, 8, 16, … */
void *jinja_grow(struct jinja_rendering *rendering, void *items, size_t count, size_t size);

void jinja_bind(struct jinja_rendering *rendering, struct jinja_value name, struct jinja_value value);
void jinja_enter_scope(struct jinja_rendering *rendering, struct jinja_scope *parent);

struct jinja_value jinja_evaluate(struct jinja_rendering *rendering, const struct jinja_node *node);
/* A body's output, as a string. */
struct jinja_value jinja_capture(struct jinja_rendering *rendering, const struct jinja_node *body);

/* --- strings that are made: each begins where rendering->text ends and is taken from there --- */

/* Appends to the string; the second charges what it moves. Both fail when that is too much, and so does this without
 * appending. */
void jinja_check_space(struct jinja_rendering *rendering, size_t bytes);
void jinja_append(struct jinja_rendering *rendering, const char *text, size_t bytes);
void jinja_append_charged(struct jinja_rendering *rendering, const char *text, size_t bytes);
/* Takes what stands behind byte `from`. */
struct jinja_value jinja_take_text(struct jinja_rendering *rendering, size_t from);

/* --- making values and asking about them --- */

/* The name that has no value, or what stands for it. */
static inline struct jinja_value jinja_undefined(struct jinja_value name) {
    name.kind = JINJA_UNDEFINED;
    return name;
}
static inline struct jinja_value jinja_none(void) { return (struct jinja_value){.kind = JINJA_NONE}; }
static inline struct jinja_value jinja_bool(bool truth) {
    return (struct jinja_value){.kind = JINJA_BOOL, .truth = truth};
}
static inline struct jinja_value jinja_integer(int64_t integer) {
    return (struct jinja_value){.kind = JINJA_INTEGER, .integer = integer};
}
static inline struct jinja_value jinja_float(double number) {
    return (struct jinja_value){.kind = JINJA_FLOAT, .number = number};
}
/* Borrows the text. */
static inline struct jinja_value jinja_string(const char *text, size_t bytes) {
    return (struct jinja_value){.kind = JINJA_STRING, .string = {text, bytes}};
}
static inline struct jinja_value jinja_literal(const char *text) { return jinja_string(text, strlen(text)); }
/* Concatenates two texts into a copy. */
struct jinja_value jinja_concatenate(struct jinja_rendering *rendering, struct jinja_value a, struct jinja_value b);
/* A list (or tuple, …) with space for `count` items, which the caller fills. */
struct jinja_value jinja_make_list(struct jinja_rendering *rendering, enum jinja_kind kind, size_t count);
struct jinja_value jinja_make_range(struct jinja_rendering *rendering, int64_t first, int64_t past, int64_t step,
                                    size_t count);
struct jinja_value jinja_make_dict(struct jinja_rendering *rendering);
/* Sets a key of a dict or namespace that is being made or changed. */
void jinja_dict_set(struct jinja_rendering *rendering, struct jinja_dict *dict, struct jinja_value key,
                    struct jinja_value value);
/* NULL when there is none. */
const struct jinja_value *jinja_dict_get(struct jinja_rendering *rendering, const struct jinja_dict *dict,
                                         const struct jinja_value *key);
/* A JSON value; strings are borrowed from it. */
struct jinja_value jinja_from_json(struct jinja_rendering *rendering, const json_t *json);

/* "str", "list", … as Python names the type. */
const char *jinja_type_name(const struct jinja_value *value);
/* The number of a JINJA_NUMBER or a JINJA_WHOLE. */
double jinja_number(const struct jinja_value *value);
int64_t jinja_whole(const struct jinja_value *value);
bool jinja_is_true(const struct jinja_value *value);
bool jinja_is_text(const struct jinja_value *value, const char *text);
bool jinja_equal(struct jinja_rendering *rendering, const struct jinja_value *a, const struct jinja_value *b);
/* Below, at or above 0, for numbers and strings; fails for what has no order. */
int jinja_compare(struct jinja_rendering *rendering, const struct jinja_value *a, const struct jinja_value *b);
/* Sorts pairs of one array by their keys, which fails for keys that have no order; equal ones stay in order. */
void jinja_sort_pairs(struct jinja_rendering *rendering, const struct jinja_pair **pairs, size_t count, bool reverse);
/* `item in container`. */
bool jinja_contains(struct jinja_rendering *rendering, const struct jinja_value *container,
                    const struct jinja_value *item);
/* len(value). */
size_t jinja_length(struct jinja_rendering *rendering, const struct jinja_value *value);
/* The items of a for loop: a list's items, a dict's keys, a string's characters; none for an undefined value. */
struct jinja_list *jinja_iterate(struct jinja_rendering *rendering, const struct jinja_value *value);
/* obj[key]. */
struct jinja_value jinja_get_item(struct jinja_rendering *rendering, const struct jinja_value *object,
                                  const struct jinja_value *key);
/* a OP b for + - * / // % **. */
struct jinja_value jinja_arithmetic(struct jinja_rendering *rendering, const char *operator, size_t bytes,
                                    const struct jinja_value *a, const struct jinja_value *b);

/* --- what templates may call --- */

/* Arguments of a call, evaluated. */
struct jinja_arguments {
    struct jinja_value *items;
    size_t count;
    struct jinja_dict named;
};
struct jinja_arguments jinja_evaluate_arguments(struct jinja_rendering *rendering, const struct jinja_node *node);

enum { JINJA_ARGUMENTS_MAX = 4 };

/* A filter, a test (which gives a bool), a function or a method. */
struct jinja_callable {
    const char *name;
    enum jinja_kind kind; /* of the values whose method it is; others: UNDEFINED */
    size_t min, max;      /* arguments */
    /* `self` is the value before | or the dot. `a` are the arguments, undefined if they are not given; `how` is below.
     * NULL: the name is known, and refused when it is called. */
    struct jinja_value (*call)(struct jinja_rendering *rendering, const struct jinja_value *self,
                               const struct jinja_value *a, int how);
    int how;                                /* which of several that are made by one function */
    const char *names[JINJA_ARGUMENTS_MAX]; /* of the arguments that may be given by name */
    /* In place of `call` where it takes any arguments. */
    struct jinja_value (*call_with)(struct jinja_rendering *rendering, const struct jinja_value *self,
                                    const struct jinja_arguments *arguments, int how);
};
#define JINJA_CALL(name)                                                                                               \
    static struct jinja_value name(__attribute__((unused)) struct jinja_rendering *rendering,                          \
                                   __attribute__((unused)) const struct jinja_value *self,                             \
                                   __attribute__((unused)) const struct jinja_value *a,                                \
                                   __attribute__((unused)) int how)
#define JINJA_CALL_WITH(name)                                                                                          \
    static struct jinja_value name(__attribute__((unused)) struct jinja_rendering *rendering,                          \
                                   __attribute__((unused)) const struct jinja_value *self,                             \
                                   const struct jinja_arguments *arguments, __attribute__((unused)) int how)

/* The tables end with a name that is NULL. */
extern const struct jinja_callable jinja_filters[], jinja_tests[], jinja_functions[], jinja_methods[];
/* NULL when there is none, and where the name is no string. */
const struct jinja_callable *jinja_find(const struct jinja_callable *table, enum jinja_kind kind,
                                        const struct jinja_value *name);
struct jinja_value jinja_call(struct jinja_rendering *rendering, const struct jinja_callable *callable,
                              const struct jinja_value *self, const struct jinja_arguments *arguments);
/* Whether a test of at most one argument holds. */
bool jinja_holds(struct jinja_rendering *rendering, const struct jinja_callable *test, const struct jinja_value *value,
                 const struct jinja_value *argument);

/* Pairs of a dict as tuples, or its keys or values alone: dict.items() and the like. */
enum jinja_parts { JINJA_PAIRS, JINJA_KEYS, JINJA_VALUES };
struct jinja_value jinja_list_dict(struct jinja_rendering *rendering, const struct jinja_dict *dict,
                                   enum jinja_parts parts);

/* json.dumps(value, ensure_ascii=False, indent=, sort_keys=); separators undefined: Python's. */
struct jinja_json_options {
    struct jinja_value indent; /* undefined: on one line */
    struct jinja_value item_separator, key_separator;
    bool ascii, sort_keys;
};
/* The value in JSON; `json` NULL: repr(value). */
struct jinja_value jinja_print(struct jinja_rendering *rendering, const struct jinja_value *value,
                               const struct jinja_json_options *json);

/* --- strings --- */

/* str(value). */
struct jinja_value jinja_to_string(struct jinja_rendering *rendering, const struct jinja_value *value);

enum jinja_case { JINJA_CASE_LOWER, JINJA_CASE_UPPER, JINJA_CASE_CAPITALIZE, JINJA_CASE_TITLE };
struct jinja_value jinja_change_case(struct jinja_rendering *rendering, const struct jinja_value *text,
                                     enum jinja_case change);
/* str.strip and its halves: of white space when `set` is none or undefined, else of the set's characters. */
enum jinja_sides { JINJA_LEFT = 1, JINJA_RIGHT = 2, JINJA_BOTH = 3 };
struct jinja_value jinja_strip(struct jinja_rendering *rendering, const struct jinja_value *text,
                               const struct jinja_value *set, enum jinja_sides sides);
/* str.replace; `max` below 0: all. */
struct jinja_value jinja_replace(struct jinja_rendering *rendering, const struct jinja_value *text,
                                 const struct jinja_value *from, const struct jinja_value *to, int64_t max);
/* separator.join(items), each by str() where `any`, else all must be strings. */
struct jinja_value jinja_join(struct jinja_rendering *rendering, const struct jinja_value *separator,
                              const struct jinja_list *items, bool any);

/* str.isspace of one character. */
bool jinja_is_space(uint32_t code);
/* Characters of valid UTF-8. */
size_t jinja_count_characters(const char *text, size_t bytes);
/* The beginning of character `index`; `bytes` if there are fewer characters. */
size_t jinja_find_character(const char *text, size_t bytes, size_t index);
/* The first place from byte `from` of a text on where a part is; the text's bytes + 1 when there is none. Charges the
 * search. */
size_t jinja_find_text(struct jinja_rendering *rendering, const struct jinja_value *text, size_t from,
                       const struct jinja_value *part);
