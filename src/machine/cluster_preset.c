#include "machine/cluster_preset.h"

#include "base/file.h"
#include "base/json.h"
#include "base/nearest.h"

const struct cluster_preset *cluster_preset_find(const char *name) {
    for (int i = 0; i < cluster_preset_count; i++)
        if (strcmp(cluster_presets[i].name, name) == 0) return &cluster_presets[i];
    return NULL;
}

enum status cluster_preset_document(const struct cluster_preset *preset, json_t **out) {
    return json_parse_object(preset->name, (const char *)preset->text, preset->bytes, out);
}

static enum status open_preset(const struct cluster_preset *preset, struct cluster *out) {
    json_t *object;
    TRY(cluster_preset_document(preset, &object));
    enum status status = cluster_from_json(preset->name, object, out);
    json_decref(object);
    return status;
}

enum status cluster_open(const char *name, struct cluster *out) {
    const struct cluster_preset *preset = file_exists(name) ? NULL : cluster_preset_find(name);
    if (preset) return open_preset(preset, out);
    enum status status = cluster_read(name, out);
    if (status == STATUS_OK || file_exists(name)) return status;
    struct nearest nearest = {.wanted = name};
    for (int i = 0; i < cluster_preset_count; i++)
        nearest_consider(&nearest, cluster_presets[i].name);
    return nearest.best ? status_hint(status, "did you mean the preset %s?", nearest.best) : status;
}
