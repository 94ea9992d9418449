#include "plan/layout/strategy_lines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "plan/layout/shard_choice.h"

enum { STRATEGY_BYTES = 32, MESH_BYTES = 96 };
static const char mesh_name[] = "mesh";

static void print_strategy(const struct shard_program *program, const struct node *node,
                           const struct strategy *strategy, char text[STRATEGY_BYTES]) {
    struct op_loops loops;
    int used = 0;
    bool known = op_loops_of(node, strategy->way, &loops);
    for (int axis = 0; axis < program->conversions.mesh.axes; axis++) {
        int index = strategy->index[axis];
        char letter = known && index != OP_INDEX_NONE ? loops.indices[index].letter : '.';
        used += snprintf(text + used, (size_t)(STRATEGY_BYTES - used), "%s%c%s%s", axis > 0 ? "/" : "", letter,
                         strategy->positions[axis] ? "+" : "", strategy->passes[axis] ? "*" : "");
    }
    if (strategy->way > 0) snprintf(text + used, (size_t)(STRATEGY_BYTES - used), "%d", strategy->way);
}

static bool chooses(const struct shard_program *program, int node) {
    return program->program.nodes[node].same_as == node;
}

/* "" for one axis. */
static void print_mesh(const struct device_mesh *mesh, char text[MESH_BYTES]) {
    int used = 0;
    text[0] = '\0';
    for (int axis = 0; axis < mesh->axes && mesh->axes > 1; axis++)
        used += snprintf(text + used, (size_t)(MESH_BYTES - used), "%s%s%lld", axis > 0 ? "/" : mesh_name,
                         axis > 0 ? "" : " ", (long long)mesh->sizes[axis]);
    if (used > 0) snprintf(text + used, (size_t)(MESH_BYTES - used), "\n");
}

enum status strategy_lines_print(const struct shard_program *program, const int *choice, char **out) {
    size_t bytes = 1 + MESH_BYTES, used = 0;
    char text[STRATEGY_BYTES], mesh[MESH_BYTES];
    for (size_t n = 0; n < program->graph->nodes.count; n++)
        bytes += strlen(program->graph->nodes.items[n]->name) + STRATEGY_BYTES + 2;
    char *lines = *out = mem_array(bytes, 1);
    print_mesh(&program->conversions.mesh, mesh);
    if (lines) used = (size_t)snprintf(lines, bytes, "%s", mesh);
    for (size_t n = 0; lines && n < program->graph->nodes.count; n++) {
        const struct node *node = program->graph->nodes.items[n];
        if (!chooses(program, (int)n)) continue;
        print_strategy(program, node, shard_program_strategy(program, (int)n, choice[n]), text);
        used += (size_t)snprintf(lines + used, bytes - used, "%s %s\n", node->name, text);
    }
    return lines ? STATUS_OK : STATUS_FAILED;
}

/* The value of the line of that name; NULL: there is none. */
static const char *find_value(const char *lines, const char *name, size_t *length) {
    size_t bytes = strlen(name);
    for (const char *line = lines; line && *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (strncmp(line, name, bytes) == 0 && line[bytes] == ' ') {
            *length = strcspn(line + bytes + 1, "\n");
            return line + bytes + 1;
        }
    return NULL;
}

void strategy_lines_mesh(const char *lines, int64_t ranks, struct device_mesh *mesh) {
    size_t length;
    const char *value = find_value(lines, mesh_name, &length);
    int64_t devices = 1;
    mesh->axes = 0;
    while (value && mesh->axes < SHARD_AXES_MAX) {
        char *end;
        int64_t size = strtoll(value, &end, 10);
        if (end == value || size < 2 || size > ranks) break;
        devices *= size;
        mesh->sizes[mesh->axes++] = size;
        value = *end == '/' ? end + 1 : NULL;
    }
    if (value || devices != ranks || mesh->axes == 0) mesh->axes = 1, mesh->sizes[0] = ranks;
}

static enum status find_strategy(const struct shard_program *program, const char *lines, int n, int *out) {
    const struct node *node = program->graph->nodes.items[n];
    size_t length;
    const char *value = find_value(lines, node->name, &length);
    if (!value) return status_set(STATUS_BAD_INPUT, "recipe: strategies: %s has none", node->name);
    for (*out = 0; *out < program->program.nodes[n].choices; ++*out) {
        char text[STRATEGY_BYTES];
        print_strategy(program, node, shard_program_strategy(program, n, *out), text);
        if (strlen(text) == length && strncmp(text, value, length) == 0) return STATUS_OK;
    }
    return status_set(STATUS_BAD_INPUT, "recipe: strategies: %s: there is no '%.*s' of it on so many ranks", node->name,
                      (int)length, value);
}

/* Lines of another mesh have strategies of another. */
static enum status check_mesh(const struct shard_program *program, const char *lines) {
    char mesh[MESH_BYTES];
    size_t length, name = sizeof mesh_name; /* with the blank behind it */
    const char *value = find_value(lines, mesh_name, &length);
    print_mesh(&program->conversions.mesh, mesh);
    bool same = value && strlen(mesh) == name + length + 1 && strncmp(mesh + name, value, length) == 0;
    if (!value || same) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "recipe: strategies: %s: there is no '%.*s' of so many ranks", mesh_name,
                      (int)length, value);
}

enum status strategy_lines_find(const struct shard_program *program, const char *lines, int *choice) {
    const struct intra_op_program *all = &program->program;
    int64_t cost, peak;
    TRY(check_mesh(program, lines));
    for (int i = 0; i < all->node_count; i++) {
        choice[i] = 0;
        if (i < (int)program->graph->nodes.count && chooses(program, i))
            TRY(find_strategy(program, lines, i, &choice[i]));
    }
    for (int i = 0; i < all->node_count; i++) {
        int kept = i;
        while (all->nodes[kept].same_as != kept)
            kept = all->nodes[kept].same_as;
        choice[i] = choice[kept];
    }
    intra_op_evaluate(all, choice, &cost, &peak);
    if (cost != INTRA_OP_FORBIDDEN) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "recipe: strategies: they do not go together");
}
