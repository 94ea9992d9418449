#include "plan/products.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Adds the line that begins there; returns where the next one does, NULL when out of memory. */
static const char *add_line(json_t *object, const char *line) {
    size_t name = strcspn(line, " \n"), value = line[name] == ' ' ? strcspn(line + name + 1, "\n") : 0;
    const char *algorithm = line + name + (line[name] == ' ');
    json_t *text = json_stringn(algorithm, value);
    if (!text || json_object_setn_new(object, line, name, text) != 0) return NULL;
    return algorithm + value + (algorithm[value] == '\n');
}

json_t *products_to_json(const char *lines) {
    json_t *object = json_object();
    for (const char *line = lines; object && *line;) {
        line = add_line(object, line);
        if (line) continue;
        json_decref(object);
        return NULL;
    }
    return object;
}

static bool is_name(const char *text) { return *text && !text[strcspn(text, " \n")]; }

static bool is_hexadecimal(const char *text) { return *text && !text[strspn(text, "0123456789abcdef")]; }

enum status products_from_json(const char *file, const json_t *object, char *lines, size_t bytes) {
    const char *product;
    json_t *value;
    size_t used = 0;
    lines[0] = '\0';
    if (!object) return STATUS_OK;
    if (!json_is_object(object)) return status_set(STATUS_BAD_INPUT, "%s: products: must be an object", file);
    json_object_foreach((json_t *)(uintptr_t)object, product, value) {
        const char *algorithm = json_is_string(value) ? json_string_value(value) : "";
        if (!is_name(product) || !is_hexadecimal(algorithm))
            return status_set(STATUS_BAD_INPUT, "%s: products: '%.80s' has no algorithm in hexadecimal", file, product);
        size_t more = strlen(product) + strlen(algorithm) + 2;
        if (used + more >= bytes)
            return status_set(STATUS_BAD_INPUT, "%s: products: are longer than %zu bytes", file, bytes - 1);
        used += (size_t)snprintf(lines + used, bytes - used, "%s %s\n", product, algorithm);
    }
    return STATUS_OK;
}
