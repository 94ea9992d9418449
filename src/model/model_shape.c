/* The shape of a model, by which a file tells its own model from another. */
#include <string.h>

#include "model/model.h"

static const struct shape_field {
    const char *name;
    size_t offset;
} fields[] = {
#define FIELD(name)                                                                                                    \
    { #name, offsetof(struct model_config, name) }
    FIELD(vocab_size), FIELD(hidden), FIELD(layers),  FIELD(heads),      FIELD(kv_heads),
    FIELD(head_dim),   FIELD(ffn),    FIELD(experts), FIELD(expert_ffn), FIELD(shared_ffn),
#undef FIELD
};
enum { FIELDS = sizeof fields / sizeof *fields };

static int64_t value_of(const struct model_config *config, const struct shape_field *field) {
    int64_t value;
    memcpy(&value, (const char *)config + field->offset, sizeof value);
    return value;
}

json_t *model_shape_to_json(const struct model_config *config) {
    json_t *object = json_pack("{s:s}", "family", config->family->name);
    int failed = !object;
    for (int i = 0; i < FIELDS; i++)
        failed |= json_object_set_new(object, fields[i].name, json_integer(value_of(config, &fields[i])));
    if (!failed) return object;
    json_decref(object);
    return NULL;
}

/* Words such as "layers 4 (here 6)", after those that are there. */
static void add_difference(const char *name, const json_t *theirs, const json_t *ours, char *text, size_t bytes) {
    char *there = json_dumps(theirs, JSON_ENCODE_ANY), *here = json_dumps(ours, JSON_ENCODE_ANY);
    size_t used = strlen(text);
    if (there && here)
        snprintf(text + used, bytes - used, "%s%s %s (here %s)", used > 0 ? ", " : "", name, there, here);
    free(there);
    free(here);
}

enum status model_shape_check(const char *file, const json_t *shape, const struct model_config *config) {
    char differences[512] = "";
    const char *name;
    json_t *ours, *here = model_shape_to_json(config);
    if (!here) return status_no_memory(0, "a model's shape");
    json_object_foreach(here, name, ours) {
        const json_t *theirs = json_object_get(shape, name);
        if (theirs && !json_equal(theirs, ours)) add_difference(name, theirs, ours, differences, sizeof differences);
    }
    json_decref(here);
    if (!differences[0]) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: is for another model: %s", file, differences);
}
