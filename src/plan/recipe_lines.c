#include "plan/recipe_lines.h"

#include <pthread.h>

const struct recipe_lines recipe_products = {"products", "0123456789abcdef", "algorithm in hexadecimal"};
const struct recipe_lines recipe_strategies = {"strategies", "abcdefghijklmnopqrstuvwxyz.+*/0123456789", "strategy"};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static VEC(char *) kept;

/* Under the lock; NULL without memory. */
static const char *find_or_add(const char *lines) {
    for (size_t i = 0; i < kept.count; i++)
        if (strcmp(kept.items[i], lines) == 0) return kept.items[i];
    char *own = mem_string(lines);
    if (!own || vec_push(&kept, own) == STATUS_OK) return own;
    mem_free(own);
    return NULL;
}

enum status recipe_lines_keep(const char *lines, const char **out) {
    *out = NULL;
    if (!lines || !lines[0]) return STATUS_OK;
    pthread_mutex_lock(&lock);
    *out = find_or_add(lines);
    pthread_mutex_unlock(&lock);
    return *out ? STATUS_OK : STATUS_FAILED;
}

void recipe_lines_forget(void) {
    for (size_t i = 0; i < kept.count; i++)
        mem_free(kept.items[i]);
    vec_free(&kept);
}

/* Adds the line that begins there; returns where the next one does, NULL when out of memory. */
static const char *add_line(json_t *object, const char *line) {
    size_t name = strcspn(line, " \n"), value = line[name] == ' ' ? strcspn(line + name + 1, "\n") : 0;
    const char *from = line + name + (line[name] == ' ');
    json_t *text = json_stringn(from, value);
    if (!text || json_object_setn_new(object, line, name, text) != 0) return NULL;
    return from + value + (from[value] == '\n');
}

json_t *recipe_lines_to_json(const char *lines) {
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

static enum status check_line(const char *file, const struct recipe_lines *kind, const char *name,
                              const json_t *value) {
    const char *text = json_string_value(value);
    if (is_name(name) && text && *text && !text[strspn(text, kind->characters)]) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: %s: '%.80s' has no %s", file, kind->field, name, kind->trouble);
}

enum status recipe_lines_from_json(const char *file, const struct recipe_lines *kind, const json_t *object,
                                   const char **out) {
    const char *name;
    json_t *value, *values = (json_t *)(uintptr_t)object;
    size_t bytes = 1, used = 0;
    *out = NULL;
    if (!object) return STATUS_OK;
    if (!json_is_object(object)) return status_set(STATUS_BAD_INPUT, "%s: %s: must be an object", file, kind->field);
    json_object_foreach(values, name, value) {
        TRY(check_line(file, kind, name, value));
        bytes += strlen(name) + json_string_length(value) + 2;
    }
    char *lines = mem_array(bytes, 1);
    if (!lines) return STATUS_FAILED;
    json_object_foreach(values, name, value) used +=
        (size_t)snprintf(lines + used, bytes - used, "%s %s\n", name, json_string_value(value));
    enum status status = recipe_lines_keep(lines, out);
    mem_free(lines);
    return status;
}
