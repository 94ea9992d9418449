#include "support/kept_profile.h"

#include <stdio.h>

#include "base/file.h"
#include "base/folder.h"
#include "base/json.h"
#include "ir/ops/ops.h"
#include "support/unit.h"

struct graph *kept_profile_graph(void) {
    struct graph *graph = graph_create(DTYPE_F32, 1, 4);
    assert_non_null(graph);
    graph_begin_block(graph, "one");
    struct tensor *x = graph_tensor(graph, TENSOR_INPUT, "x", shape_make(DTYPE_F32, 3, 1, 4, 8));
    struct tensor *y = ops_linear(graph, "y", x, graph_parameter(graph, "w", 2, 8, 8), NULL, NULL,
                                  (struct linear_attributes){.weight_is_kn = false});
    ops_add(graph, "sum", x, y);
    assert_int_equal(graph_status(graph), STATUS_OK);
    return graph;
}

struct cluster kept_profile_machine(void) {
    return (struct cluster){.device = {.fp32_flops_per_s = 1e11, .bf16_flops_per_s = 1e11},
                            .rates = {.measured = true, .zero = {0, 1e10}}};
}

void kept_profile_set(const char *path, double seconds, double spread) {
    json_t *file, *value;
    const char *key;
    assert_int_equal(json_read_object(path, 1 << 24, &file), STATUS_OK);
    json_object_foreach(json_object_get(file, "operators"), key, value) {
        if (seconds > 0) json_array_set_new(value, 0, json_real(seconds));
        json_array_set_new(value, 1, json_real(spread));
    }
    assert_int_equal(json_write(path, file), STATUS_OK);
    json_decref(file);
}

static void quieten_file(const char *path) {
    static const struct {
        const char *section;
        bool pairs; /* of seconds and spread */
    } sections[] = {{"operators", true}, {"products", true}, {"rates", false}, {"links", false}};
    json_t *file, *value;
    const char *key;
    assert_int_equal(json_read_object(path, 1 << 24, &file), STATUS_OK);
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        json_object_foreach(json_object_get(file, sections[i].section), key, value) {
            if (sections[i].pairs) json_array_set_new(value, 1, json_real(0));
            if (!sections[i].pairs) json_object_set_new(value, "noise", json_real(0));
        }
    assert_int_equal(json_write(path, file), STATUS_OK);
    json_decref(file);
}

void kept_profile_quieten(const char *cache) {
    char folder[4096], path[4400];
    struct names names;
    snprintf(folder, sizeof folder, "%s/ballast", cache);
    if (!file_is_folder(folder)) return;
    assert_int_equal(folder_list(folder, &names), STATUS_OK);
    for (size_t i = 0; i < names.count; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names.items[i]);
        if (strncmp(names.items[i], "profile-", 8) == 0) quieten_file(path);
    }
    names_free(&names);
}
