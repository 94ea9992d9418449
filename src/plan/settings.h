/* Settings: what a user chooses of training and of writing text. Each is one row of plan/setting_list.h, from which the
 * command line, --config files, help, docs/options.md, plan files, run.json, docs/schemas, include/ballast.h's structs
 * and all checks of values follow.
 *
 * A struct that has settings says where by a struct settings_holder; the functions below then read and write its fields
 * by their settings. */
#pragma once

#include <jansson.h>

#include "base/base.h"
#include "collective/lane_tree.h"
#include "plan/setting_list.h"

/* Subcommands, as bits: which of them take an option. */
#define COMMAND_LIST(X)                                                                                                \
    X(INIT, init)                                                                                                      \
    X(PLAN, plan)                                                                                                      \
    X(TRAIN, train)                                                                                                    \
    X(RESUME, resume)                                                                                                  \
    X(REPORT, report)                                                                                                  \
    X(MERGE, merge)                                                                                                    \
    X(EVAL, eval)                                                                                                      \
    X(GENERATE, generate)                                                                                              \
    X(CHAT, chat)                                                                                                      \
    X(PROFILE, profile)                                                                                                \
    X(SIMULATE, simulate)                                                                                              \
    X(INSPECT, inspect)
enum command_index {
#define COMMAND_INDEX(id, name) COMMAND_INDEX_##id,
    COMMAND_LIST(COMMAND_INDEX) COMMAND_COUNT
#undef COMMAND_INDEX
};
enum command_bit {
#define COMMAND_BIT(id, name) COMMAND_##id = 1 << COMMAND_INDEX_##id,
    COMMAND_LIST(COMMAND_BIT)
#undef COMMAND_BIT
        COMMANDS_ALL = (1 << COMMAND_COUNT) - 1,
    COMMANDS_TEXT = COMMAND_GENERATE | COMMAND_CHAT,
    COMMANDS_STEP = COMMAND_PLAN | COMMAND_TRAIN | COMMAND_RESUME | COMMAND_EVAL | COMMAND_GENERATE | COMMAND_PROFILE,
    COMMANDS_MODEL = COMMANDS_STEP | COMMAND_CHAT, /* commands that compute with a model */
    COMMANDS_RANKS =
        COMMAND_TRAIN | COMMAND_RESUME | COMMAND_EVAL | COMMAND_PROFILE, /* commands that all ranks execute together */
};

/* The headings under which help lists options, in this order. */
#define OPTION_GROUP_LIST(X)                                                                                           \
    X(MODEL, "model")                                                                                                  \
    X(DATA, "data")                                                                                                    \
    X(TRAINING, "training")                                                                                            \
    X(PREFERENCES, "preference training")                                                                              \
    X(ADAPTERS, "adapters")                                                                                            \
    X(MEMORY, "memory and device")                                                                                     \
    X(RANKS, "ranks")                                                                                                  \
    X(CLUSTER, "what to plan")                                                                                         \
    X(GENERATION, "generation")                                                                                        \
    X(OUTPUT, "output")
enum option_group {
#define OPTION_GROUP(id, title) GROUP_##id,
    OPTION_GROUP_LIST(OPTION_GROUP) GROUP_COUNT
#undef OPTION_GROUP
};

enum setting_type {
    SETTING_FLAG,  /* true or false */
    SETTING_INT,   /* a whole number within min..max */
    SETTING_FLOAT, /* a finite number within float_min..float_max; not float_min itself where `above` */
    SETTING_SIZE,  /* base/text.h; at least 1 byte */
    SETTING_TEXT,  /* text and paths, not empty unless `may_be_empty` */
    SETTING_TEXTS, /* several of them */
    SETTING_DATE,  /* YYYY-MM-DD on the command line; elsewhere seconds since 1970 within min..max */
    SETTING_LANES, /* lanes by nodes: "8", "2x4" (collective/lane_tree.h) */
    SETTING_CHOICE /* one of `choices` */
};

struct setting {
    const char *field; /* of structs */
    const char *key;   /* in plan files and run.json: "sequence_length" */
    const char *name;  /* on the command line, without the dashes: "seq" */

    enum setting_type type;
    int64_t min, max;
    double float_min, float_max;
    bool above, may_be_empty;
    /* The word for a value that is chosen later: 0 of a whole number; of a choice, in files alone. NULL: none. */
    const char *automatic;
    const char *choices; /* "bf16|fp32" */
    const char *hint;  /* what to do instead of a value that is none of the choices; NULL: they speak for themselves */
    const char *names; /* of the field's values from 0 on; NULL: `choices` */
    const char *fallback; /* the default, as text; NULL: none, or one that depends on other things */
    int64_t int_value;    /* the same as a number, */
    double float_value;   /* of its type */

    /* Files. */
    bool later;          /* files of earlier versions lack it and mean the default */
    bool same_bits;      /* resume may change it without changing a bit of the weights or losses */
    bool names_in_files; /* all of `names` are legal there, not `choices` alone */
    bool flag_in_files;  /* true or false there, for values 1 and 0 */
    int only_with;      /* the setting with which alone it says anything, + 1, where that has `only_value`; 0: always */
    int64_t only_value; /* SETTING_ONLY_WITH sets both */
    const char *rule;   /* of a number in a recipe: what a refusal says */

    /* The command line. */
    char letter;            /* of the short form; 0: none */
    const char *config_key; /* of config files; NULL: the name, with _ for - */
    const char *argument;   /* the value's name in help; NULL: the choices, or N, X or SIZE, by its type */
    const char *bare;       /* of a choice: its value where none follows; NULL: one must */
    unsigned commands;      /* bits of enum command_bit; 0: no option of its own */
    unsigned common;        /* those whose --help shows it; --help-all and the documents show it for all */
    enum option_group group;
    bool saved; /* a run holds it, so that resume takes its default from there */
    /* The default in words, or what happens without the option; where the setting has a default, what follows it in
     * the sentence: ", at most the model's context". */
    const char *computed;
    const char *excludes; /* the name of one that says the same in another way; NULL: none */
    unsigned required;    /* commands that need it, unless that one is given */
    /* A phrase of at most two lines in --help. Parts, separated by "; ", may be for one command: "plan: ...". */
    const char *help;
    const char *details; /* sentences for the manual page and docs/options.md; NULL: none */
};

/* SETTING_batch …, after the fields of structs that hold them. */
enum setting_id {
#define SETTING_ID(field, ...) SETTING_##field,
    SETTING_LIST(SETTING_ID) SETTING_COUNT
#undef SETTING_ID
};
extern const struct setting setting_table[SETTING_COUNT];
/* SETTING_COUNT for one that is not in the table: an option of the program alone. */
enum setting_id setting_id_of(const struct setting *setting);

/* ---- Which settings were given ---- */

/* The type of a struct's member `given`. A number, path or enumeration that was not given is 0 (a default that depends
 * on nothing else may stand in its place). */
struct settings_given {
    bool of[SETTING_COUNT];
};
#define SETTINGS_HAVE(options, field) ((options)->given.of[SETTING_##field])
/* Says so of a field that is set elsewhere. */
#define SETTINGS_MARK(options, field) ((void)((options)->given.of[SETTING_##field] = true))
/* Sets a field and then says so: the value may be computed from the options as they were. */
#define SETTINGS_GIVE(options, field, ...) ((void)((options)->field = (__VA_ARGS__)), SETTINGS_MARK(options, field))
/* Takes it back. */
#define SETTINGS_DROP(options, field)                                                                                  \
    ((void)((options)->given.of[SETTING_##field] = false), (void)((options)->field = 0))
/* Adds the settings that were given there to `given`. */
void settings_given_join(struct settings_given *given, const struct settings_given *there);

/* ---- Values ---- */

/* A value of any type: only the member of the setting's type counts. Texts are borrowed. */
struct setting_value {
    int64_t int_value; /* numbers, sizes, flags; of a choice the field's value */
    double float_value;
    const char *text; /* texts; of a choice that was parsed also its name */
    struct lane_shape lanes;
};
enum { SETTING_PRINT_BYTES = 64 };

/* The value from text as the command line has it, by the setting's type and range; of SETTING_TEXTS one of them, as
 * text. BAD_INPUT "WHERE: …". */
enum status setting_parse(const struct setting *setting, const char *where, const char *text,
                          struct setting_value *out);
/* BAD_INPUT "WHERE: VALUE is not legal: must be …" for a number that the setting may not have. */
enum status setting_check_int(const struct setting *setting, const char *where, int64_t value);
enum status setting_check_float(const struct setting *setting, const char *where, double value);
/* The same for a choice. */
bool setting_has_choice(const struct setting *setting, const char *text);
enum status setting_check_choice(const struct setting *setting, const char *where, const char *text);
/* The name of a choice's value in `text`, which is returned; of another value "". */
const char *setting_choice_name(const struct setting *setting, int64_t value, char text[SETTING_PRINT_BYTES]);
/* The value that has the name; -1 where it has none. */
int64_t setting_choice_value(const struct setting *setting, const char *name);

/* ---- Fields of structs ---- */

/* As which C type a struct has a setting. STORED_NOT: it has it not, or in a form that it reads and writes itself. */
enum setting_storage {
    STORED_NOT,
    STORED_INT64,
    STORED_UINT64,
    STORED_INT,
    STORED_ENUM,
    STORED_BOOL,
    STORED_DOUBLE,
    STORED_TEXT,  /* const char *: borrowed; NULL is none */
    STORED_CHARS, /* char[]: a copy; "" is none */
    STORED_LANES
};
struct setting_place {
    enum setting_storage storage;
    size_t offset, bytes;
};
#define SETTING_PLACE(type, field)                                                                                       \
    {                                                                                                                    \
        _Generic(((type *)0)->field,                                                                                   \
            int64_t: STORED_INT64,                                                                                     \
            uint64_t: STORED_UINT64,                                                                                   \
            int: STORED_INT,                                                                                           \
            unsigned: STORED_ENUM,                                                                                     \
            bool: STORED_BOOL,                                                                                         \
            double: STORED_DOUBLE,                                                                                     \
            const char *: STORED_TEXT,                                                                                 \
            char *: STORED_CHARS,                                                                                      \
            struct lane_shape: STORED_LANES),                                                                          \
            offsetof(type, field), sizeof(((type *)0)->field) \
    }

/* Offsets of a struct's settings. Initialise `places` by lists of rows:
 *
 *     #define PLACE(field, ...) [SETTING_##field] = SETTING_PLACE(struct recipe, field),
 *     const struct settings_holder recipe_settings = {.places = {SETTING_LIST_RECIPE(PLACE)}}; */
struct settings_holder {
    struct setting_place places[SETTING_COUNT];
    bool has_given; /* the struct has a member `given`, */
    size_t given;   /* there */
};
#define SETTINGS_GIVEN_AT(type) .has_given = true, .given = offsetof(type, given)

static inline bool settings_have(const struct settings_holder *holder, enum setting_id id) {
    return holder->places[id].storage != STORED_NOT;
}
void settings_load(const struct settings_holder *holder, const void *from, enum setting_id id,
                   struct setting_value *out);
/* Sets the field, and the bit in `given` where there is one. BAD_INPUT "WHERE: …" for lanes that are none; a text that
 * is too long for an array is cut. */
enum status settings_store(const struct settings_holder *holder, void *to, enum setting_id id, const char *where,
                           const struct setting_value *value);
/* Sets each field whose setting has a default to it, without saying that it was given. */
void settings_init(const struct settings_holder *holder, void *to);
/* The default of a setting that has one; all 0 of others. */
void setting_default(const struct setting *setting, struct setting_value *out);
/* Whether the struct has the setting of SETTING_ONLY_WITH, if any, as it needs to be. */
bool settings_apply(const struct settings_holder *holder, const void *from, enum setting_id id);

bool setting_values_equal(const struct setting *setting, const struct setting_value *a, const struct setting_value *b);
/* As people have it: `text`, or the value's own text. */
const char *setting_print(const struct setting *setting, const struct setting_value *value,
                          char text[SETTING_PRINT_BYTES]);
/* As files have it; NULL without memory. */
json_t *setting_to_json(const struct setting *setting, const struct setting_value *value);
/* Reads the value from a file's object, which has the key. Accepts numbers outside the range only if `in_range` is
 * false. Texts are copied into `memory`, or borrowed from the object if that is NULL. BAD_INPUT "FILE: KEY: …". */
enum status setting_from_json(const char *file, const json_t *object, const struct setting *setting, bool in_range,
                              struct scratch *memory, struct setting_value *out);

/* ---- Of a recipe (plan/plan.h) ---- */

struct recipe;
extern const struct settings_holder recipe_settings;
/* settings_load of a recipe, in which 0 may stand for the default of a setting that cannot be 0. */
void recipe_load_setting(const struct recipe *recipe, enum setting_id id, struct setting_value *out);
