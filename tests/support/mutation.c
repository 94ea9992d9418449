#include "support/mutation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "support/unit.h"

enum { FLAGS = JSON_ALLOW_NUL | JSON_DECODE_ANY, NEST = 3000, LONG = 70000, HEADER_PREFIX = 8 };
/* jansson has no such integer, so a string stands for it until the text is written. */
#define HUGE_INTEGER "1000000000000000019884624838656"
#define HUGE_MARK "<huge integer>"

struct dice {
    uint64_t seed, count;
};
static size_t roll(struct dice *dice, size_t sides) {
    return (size_t)(random_u64(dice->seed, RANDOM_TEST, 0, dice->count++) % sides);
}

static struct bytes bytes_make(const char *data, size_t count) {
    struct bytes out = {malloc(count + 1), count};
    assert_non_null(out.data);
    if (count > 0) memcpy(out.data, data, count);
    out.data[count] = '\0';
    return out;
}

struct bytes bytes_read(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0) fail_msg("%s: cannot read", path);
    struct bytes out = {NULL, (size_t)ftell(file)};
    rewind(file);
    out.data = malloc(out.count + 1);
    assert_non_null(out.data);
    if (fread(out.data, 1, out.count, file) != out.count) fail_msg("%s: cannot read", path);
    out.data[out.count] = '\0';
    fclose(file);
    return out;
}

/* ---- Changes to bytes. */

/* Puts `count` bytes in place of those from `begin` to `end`. */
static struct bytes splice(struct bytes from, size_t begin, size_t end, const char *bytes, size_t count) {
    struct bytes out = {malloc(from.count + count + 1), begin};
    assert_non_null(out.data);
    memcpy(out.data, from.data, begin);
    if (count > 0) memcpy(out.data + begin, bytes, count);
    memcpy(out.data + begin + count, from.data + end, from.count - end);
    out.count = from.count - (end - begin) + count;
    out.data[out.count] = '\0';
    return out;
}

static struct bytes change_bytes(struct bytes from, struct dice *dice, char *text, size_t capacity) {
    static const char *const texts[] = {"\xef\xbb\xbf",
                                        "\0",
                                        "\xff",
                                        "\xc3",
                                        "\r",
                                        "\n",
                                        "\"",
                                        "\\",
                                        "{",
                                        "}",
                                        "[",
                                        "]",
                                        ",",
                                        ":",
                                        "-",
                                        "9",
                                        "1e999",
                                        "\\u0000",
                                        "\\ud800",
                                        "\x1b[2J",
                                        HUGE_INTEGER,
                                        "{{",
                                        "%}",
                                        " "};
    size_t at = from.count > 0 ? roll(dice, from.count) : 0, left = from.count - at;
    size_t length = left > 0 ? 1 + roll(dice, left < 64 ? left : 64) : 0, end = at + length;
    struct bytes out;
    switch (roll(dice, 7)) {
    case 0:
        snprintf(text, capacity, "cut at byte %zu of %zu", at, from.count);
        return splice(from, at, from.count, NULL, 0);
    case 1: snprintf(text, capacity, "%zu bytes removed at %zu", length, at); return splice(from, at, end, NULL, 0);
    case 2:
        snprintf(text, capacity, "%zu bytes twice at %zu", length, at);
        return splice(from, at, at, from.data + at, length);
    case 3:
        out = bytes_make(from.data, from.count);
        if (out.count > 0) out.data[at] = (char)(out.data[at] ^ (1 << roll(dice, 8)));
        snprintf(text, capacity, "a bit of byte %zu turned over", at);
        return out;
    case 4:
        out = bytes_make(from.data, from.count);
        memset(out.data + at, roll(dice, 2) ? 0 : 0xff, length);
        snprintf(text, capacity, "%zu bytes at %zu set to one value", length, at);
        return out;
    default: {
        const char *added = texts[roll(dice, sizeof texts / sizeof *texts)];
        size_t count = added[0] ? strlen(added) : 1;
        snprintf(text, capacity, "'%s' put in at byte %zu", added, at);
        return splice(from, at, at, added, count);
    }
    }
}

/* ---- Changes to a tree of JSON. */

struct node {
    json_t *parent, *value;
    const char *key; /* of an object; else `index` of a list */
    size_t index;
};

static size_t children(const json_t *value) {
    return json_is_object(value) ? json_object_size(value) : json_is_array(value) ? json_array_size(value) : 0;
}

static struct node child(json_t *parent, size_t index) {
    struct node node = {.parent = parent, .index = index};
    if (json_is_array(parent)) {
        node.value = json_array_get(parent, index);
        return node;
    }
    void *at = json_object_iter(parent);
    while (index-- > 0)
        at = json_object_iter_next(parent, at);
    node.key = json_object_iter_key(at);
    node.value = json_object_iter_value(at);
    return node;
}

/* Each level is as likely as the next, so that a vocabulary of many entries does not take all changes. */
static struct node pick(json_t *root, struct dice *dice) {
    struct node node = child(root, roll(dice, children(root)));
    while (children(node.value) > 0 && roll(dice, 3) > 0)
        node = child(node.value, roll(dice, children(node.value)));
    return node;
}

static void put(struct node node, json_t *value) {
    if (node.key) json_object_set_new_nocheck(node.parent, node.key, value);
    if (!node.key) json_array_set_new(node.parent, node.index, value);
}

static json_t *nested(void) {
    json_t *value = json_array();
    for (int i = 1; i < NEST; i++)
        value = json_pack("[o]", value);
    return value;
}

static json_t *long_text(void) {
    char *text = malloc(LONG + 1);
    assert_non_null(text);
    memset(text, 'a', LONG);
    json_t *value = json_stringn_nocheck(text, LONG);
    free(text);
    return value;
}

static json_t *awkward_value(struct dice *dice) {
    switch (roll(dice, 24)) {
    case 0: return json_null();
    case 1: return json_true();
    case 2: return json_false();
    case 3: return json_integer(0);
    case 4: return json_integer(-1);
    case 5: return json_integer(1);
    case 6: return json_integer(INT64_MAX);
    case 7: return json_integer(INT64_MIN);
    case 8: return json_integer((json_int_t)1 << 31);
    case 9: return json_integer(7);
    case 10: return json_real(0.5);
    case 11: return json_real(-1e-9);
    case 12: return json_real(1e308);
    case 13: return json_real(5e-324);
    case 14: return json_string("");
    case 15: return json_string("x");
    case 16: return json_stringn("a\0b", 3);
    case 17: return json_string("../../../etc/passwd");
    case 18: return json_string("\x1b[31m\n%s%n\xf0\x9f\x90\x88");
    case 19: return json_array();
    case 20: return json_object();
    case 21: return nested();
    case 22: return long_text();
    default: return json_string(HUGE_MARK);
    }
}

static json_t *near_number(const json_t *value, struct dice *dice) {
    static const double factors[] = {-1, 2, 0.5, 1e6, 1e-6, 3};
    double number = json_number_value(value);
    if (json_is_integer(value) && roll(dice, 2))
        return json_integer(json_integer_value(value) + (roll(dice, 2) ? 1 : -1));
    number *= factors[roll(dice, sizeof factors / sizeof *factors)];
    return json_is_integer(value) && number > -1e15 && number < 1e15 ? json_integer((json_int_t)number)
                                                                     : json_real(number);
}

static void rename_key(struct node node, struct dice *dice) {
    static const char *const endings[] = {"x", " ", "_", "\xc3\xa4"};
    char key[256];
    snprintf(key, sizeof key, "%.200s%s", node.key, endings[roll(dice, sizeof endings / sizeof *endings)]);
    json_object_set_nocheck(node.parent, key, node.value);
    json_object_del(node.parent, node.key);
}

static void change_tree(json_t *root, struct dice *dice, char *text, size_t capacity) {
    struct node node = pick(root, dice);
    const char *what = "replaced";
    snprintf(text, capacity, "%.100s", node.key ? node.key : "an element");
    switch (roll(dice, 8)) {
    case 0:
        what = "removed";
        if (node.key) json_object_del(node.parent, node.key);
        if (!node.key) json_array_remove(node.parent, node.index);
        break;
    case 1:
        what = "renamed, or there twice";
        if (node.key) rename_key(node, dice);
        if (!node.key) json_array_append(node.parent, node.value);
        break;
    case 2:
        what = "replaced by another value of the file";
        put(node, json_deep_copy(pick(root, dice).value));
        break;
    case 3:
        what = "in a list";
        put(node, json_pack("[o]", json_deep_copy(node.value)));
        break;
    case 4:
        what = "next to a new key";
        if (json_is_object(node.value))
            json_object_set_new(node.value, "new_key", awkward_value(dice));
        else
            json_object_set_new(json_is_object(root) ? root : node.parent, "new_key", awkward_value(dice));
        break;
    case 5:
        if (json_is_number(node.value)) {
            put(node, near_number(node.value, dice));
            break;
        }
        /* fall through */
    default: put(node, awkward_value(dice));
    }
    size_t used = strlen(text);
    snprintf(text + used, capacity - used, " %s", what);
}

static struct bytes replace_marks(char *text) {
    struct bytes out = bytes_make(text, strlen(text));
    for (char *at; (at = strstr(out.data, "\"" HUGE_MARK "\""));) {
        size_t begin = (size_t)(at - out.data);
        struct bytes next = splice(out, begin, begin + strlen(HUGE_MARK) + 2, HUGE_INTEGER, strlen(HUGE_INTEGER));
        free(out.data);
        out = next;
    }
    free(text);
    return out;
}

static bool change_json(struct bytes from, struct dice *dice, char *text, size_t capacity, struct bytes *out) {
    json_t *root = json_loadb(from.data, from.count, FLAGS, NULL);
    bool has_nodes = children(root) > 0;
    if (has_nodes) {
        change_tree(root, dice, text, capacity);
        *out = replace_marks(json_dumps(root, JSON_ENCODE_ANY | JSON_COMPACT));
    }
    json_decref(root);
    return has_nodes;
}

/* ---- Forms of files. */

static size_t header_length(struct bytes file) {
    uint64_t length = 0;
    if (file.count < HEADER_PREFIX) return 0;
    memcpy(&length, file.data, sizeof length);
    return length <= file.count - HEADER_PREFIX ? (size_t)length : 0;
}

/* The part of the file that a change of its JSON is to. */
static void choose_json(enum file_form form, struct bytes file, struct dice *dice, size_t *begin, size_t *end) {
    *begin = 0;
    *end = file.count;
    if (form == FORM_WEIGHTS) {
        *begin = HEADER_PREFIX;
        *end = HEADER_PREFIX + header_length(file);
    }
    if (form != FORM_LINES || file.count == 0) return;
    size_t at = roll(dice, file.count);
    for (*begin = at; *begin > 0 && file.data[*begin - 1] != '\n';)
        (*begin)--;
    for (*end = at; *end < file.count && file.data[*end] != '\n';)
        (*end)++;
}

struct mutation mutation_make(enum file_form form, struct bytes original, uint64_t seed) {
    struct mutation out = {.text = ""};
    struct dice dice = {.seed = seed};
    size_t begin, end;
    struct bytes json;
    choose_json(form, original, &dice, &begin, &end);
    bool wants_json = form != FORM_BYTES && roll(&dice, 2);
    struct bytes part = {original.data + begin, end - begin};
    if (!wants_json || !change_json(part, &dice, out.text, sizeof out.text, &json)) {
        out.bytes = change_bytes(original, &dice, out.text, sizeof out.text);
        return out;
    }
    out.bytes = splice(original, begin, end, json.data, json.count);
    if (form == FORM_WEIGHTS) memcpy(out.bytes.data, &(uint64_t){json.count}, HEADER_PREFIX);
    free(json.data);
    return out;
}

/* ---- Differences. */

static void add_path(json_t *paths, const char *path) { json_array_append_new(paths, json_string_nocheck(path)); }

static void compare(json_t *paths, const char *path, const json_t *a, const json_t *b);

static void compare_key(json_t *paths, const char *path, const char *key, const json_t *a, const json_t *b) {
    char *longer = malloc(strlen(path) + strlen(key) + 2);
    assert_non_null(longer);
    sprintf(longer, "%s%s%s", path, path[0] ? "." : "", key);
    if (!a || !b)
        add_path(paths, longer);
    else
        compare(paths, longer, a, b);
    free(longer);
}

static void compare(json_t *paths, const char *path, const json_t *a, const json_t *b) {
    const char *key;
    json_t *value;
    if (json_is_object(a) && json_is_object(b)) {
        json_object_foreach((json_t *)(uintptr_t)a, key, value)
            compare_key(paths, path, key, value, json_object_get(b, key));
        json_object_foreach((json_t *)(uintptr_t)b, key, value) {
            if (!json_object_get(a, key)) compare_key(paths, path, key, NULL, value);
        }
        return;
    }
    if (json_is_array(a) && json_is_array(b) && json_array_size(a) == json_array_size(b)) {
        for (size_t i = 0; i < json_array_size(a); i++)
            compare_key(paths, path, "[]", json_array_get(a, i), json_array_get(b, i));
        return;
    }
    if (!json_equal(a, b)) add_path(paths, path);
}

static void compare_json(json_t *paths, struct bytes a, struct bytes b) {
    json_t *left = json_loadb(a.data, a.count, FLAGS, NULL), *right = json_loadb(b.data, b.count, FLAGS, NULL);
    if (!left || !right)
        add_path(paths, "<text>");
    else
        compare(paths, "", left, right);
    json_decref(left);
    json_decref(right);
}

static size_t count_lines(struct bytes file) {
    size_t lines = 0;
    for (size_t i = 0; i < file.count; i++)
        lines += file.data[i] == '\n';
    return lines;
}

static struct bytes take_line(struct bytes *file) {
    const char *end = memchr(file->data, '\n', file->count);
    struct bytes line = {file->data, end ? (size_t)(end - file->data) : file->count};
    size_t taken = line.count + (end != NULL);
    file->data += taken;
    file->count -= taken;
    return line;
}

static void compare_lines(json_t *paths, struct bytes a, struct bytes b) {
    if (count_lines(a) != count_lines(b)) add_path(paths, "<lines>");
    while (a.count > 0 && b.count > 0) {
        struct bytes left = take_line(&a), right = take_line(&b);
        if (left.count != right.count || memcmp(left.data, right.data, left.count) != 0)
            compare_json(paths, left, right);
    }
}

static void compare_weights(json_t *paths, struct bytes a, struct bytes b) {
    size_t left = header_length(a), right = header_length(b);
    compare_json(paths, (struct bytes){a.data + HEADER_PREFIX, left}, (struct bytes){b.data + HEADER_PREFIX, right});
    a = (struct bytes){a.data + HEADER_PREFIX + left, a.count - HEADER_PREFIX - left};
    if (right == 0) return; /* "<text>" */
    b = (struct bytes){b.data + HEADER_PREFIX + right, b.count - HEADER_PREFIX - right};
    if (a.count != b.count || memcmp(a.data, b.data, a.count) != 0) add_path(paths, "<data>");
}

json_t *mutation_paths(enum file_form form, struct bytes original, struct bytes changed) {
    json_t *paths = json_array();
    bool same = original.count == changed.count && memcmp(original.data, changed.data, original.count) == 0;
    if (form == FORM_BYTES && !same) add_path(paths, "<data>");
    if (form == FORM_JSON) compare_json(paths, original, changed);
    if (form == FORM_LINES) compare_lines(paths, original, changed);
    if (form == FORM_WEIGHTS) compare_weights(paths, original, changed);
    if (json_array_size(paths) == 0 && !same) add_path(paths, "<order>");
    return paths;
}
