#include "support/config_change.h"

#include "support/unit.h"
#include "support/weight_files.h"

static const struct model_family *family_of(const json_t *object) {
    const struct model_family *family = NULL;
    assert_int_equal(model_family_of("config.json", object, &family), STATUS_OK);
    return family;
}

enum status config_read(const json_t *object, struct model_config *out) {
    return model_config_read("config.json", object, family_of(object), out);
}

enum status config_read_changed(const struct config_change *change, struct model_config *out) {
    json_t *object = fixture_json(change->model_case, "config.json");
    json_t *value = json_loads(change->value, JSON_DECODE_ANY, NULL);
    if (value)
        json_object_set_new(object, change->key, value);
    else
        json_object_del(object, change->key);
    status_clear();
    enum status status = config_read(object, out);
    json_decref(object);
    return status;
}
