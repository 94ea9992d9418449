/* The document of `inspect` as lines for people. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cli/inspect.h"

enum { KEY_WIDTH = 20, TEXT_BYTES = 512 };

/* A scalar, or a short list of them, in one line. */
static char *value_text(const json_t *value, char text[TEXT_BYTES]) {
    text[0] = '\0';
    if (json_is_string(value)) snprintf(text, TEXT_BYTES, "%s", json_string_value(value));
    if (json_is_integer(value)) snprintf(text, TEXT_BYTES, "%" PRId64, (int64_t)json_integer_value(value));
    if (json_is_real(value)) snprintf(text, TEXT_BYTES, "%.9g", json_real_value(value));
    if (json_is_boolean(value)) snprintf(text, TEXT_BYTES, "%s", json_is_true(value) ? "yes" : "no");
    if (json_is_null(value)) snprintf(text, TEXT_BYTES, "-");
    if (!json_is_array(value)) return text;
    size_t used = 0, i;
    const json_t *item;
    json_array_foreach((json_t *)(uintptr_t)value, i, item) {
        char one[TEXT_BYTES];
        int wrote = snprintf(text + used, TEXT_BYTES - used, "%s%s", i ? " x " : "", value_text(item, one));
        used += wrote < 0 ? 0 : (size_t)wrote;
        if (used >= TEXT_BYTES) break;
    }
    return text;
}

/* Rows with a name explain themselves. */
static void print_heads(const json_t *row) {
    const char *key;
    json_t *value;
    if (!row || json_object_get(row, "name")) return;
    printf(" ");
    json_object_foreach((json_t *)(uintptr_t)row, key, value) printf(" %18s", key);
    putchar('\n');
}

static void print_table(const json_t *rows) {
    size_t i;
    const json_t *row;
    bool named = json_object_get(json_array_get(rows, 0), "name");
    print_heads(json_array_get(rows, 0));
    json_array_foreach((json_t *)(uintptr_t)rows, i, row) {
        const char *key;
        json_t *value;
        char text[TEXT_BYTES];
        printf(" ");
        json_object_foreach((json_t *)(uintptr_t)row, key, value) {
            if (strcmp(key, "name") == 0)
                printf(" %-48s", value_text(value, text));
            else
                printf(" %*s", named ? 12 : 18, value_text(value, text));
        }
        putchar('\n');
    }
}

static void print_object(const json_t *object, int indent);

static bool is_flat(const json_t *object) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) if (json_is_object(value)) return false;
    return true;
}

static void print_objects(const char *key, const json_t *list, int indent) {
    size_t i;
    const json_t *item;
    printf("%*s%s (%zu)\n", indent, "", key, json_array_size(list));
    if (is_flat(json_array_get(list, 0))) {
        print_table(list);
        return;
    }
    json_array_foreach((json_t *)(uintptr_t)list, i, item) print_object(item, indent + 2);
}

static void print_object(const json_t *object, int indent) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        char text[TEXT_BYTES];
        if (json_is_object(value)) {
            printf("%*s%s\n", indent, "", key);
            print_object(value, indent + 2);
        } else if (json_is_array(value) && json_is_object(json_array_get(value, 0)))
            print_objects(key, value, indent);
        else
            printf("%*s%-*s %s\n", indent, "", KEY_WIDTH - indent, key, value_text(value, text));
    }
}

void inspect_print(const json_t *object) { print_object(object, 0); }
