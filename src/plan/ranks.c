#include "plan/ranks.h"

struct comm_group rank_place_tensor_group(const struct rank_place *place) {
    int tensor = rank_place_tensor_parallel(place);
    return (struct comm_group){place->rank - rank_place_tensor_rank(place), 1, tensor};
}

struct comm_group rank_place_tensor_axis(const struct rank_place *place, int parts, int stride) {
    const struct comm_group group = rank_place_tensor_group(place);
    int own = rank_place_tensor_rank(place), position = own / stride % parts;
    return mesh_group_within(&group, &(struct comm_group){own - position * stride, stride, parts});
}

struct comm_group rank_place_data_group(const struct rank_place *place) {
    int tensor = rank_place_tensor_parallel(place), data = rank_place_data(place);
    int first = rank_place_stage(place) * data * tensor + rank_place_tensor_rank(place);
    return (struct comm_group){first, tensor, data};
}

struct comm_group rank_place_stage_group(const struct rank_place *place) {
    int between = rank_place_tensor_parallel(place) * rank_place_data(place);
    return (struct comm_group){place->rank % between, between, rank_place_pipeline_parallel(place)};
}

struct mesh rank_place_data_mesh(const struct rank_place *place) {
    int data = rank_place_data(place);
    struct comm_group group = rank_place_data_group(place);
    int per_node = place->mesh.nodes > 0 ? mesh_group_per_node(&place->mesh, &group) : 1;
    return per_node > 0 ? (struct mesh){data / per_node, per_node} : (struct mesh){1, data};
}

/* Whether groups of `width` neighbours fill nodes first. */
static bool is_width(int width, const struct mesh *mesh) {
    if (mesh_ranks(mesh) % width != 0) return false;
    return width <= mesh->per_node ? mesh->per_node % width == 0 : width % mesh->per_node == 0;
}

static const char *broken_rule(int parameters, int gradients, int optimizer, const struct mesh *mesh) {
    if (!is_width(parameters, mesh) || !is_width(gradients, mesh) || !is_width(optimizer, mesh))
        return "each number of shards must divide the number of ranks, and divide the ranks of a node or be a multiple "
               "of them";
    if (gradients % parameters != 0 || optimizer % gradients != 0)
        return "the shards of parameters must divide the shards of gradients, and those the shards of optimizer states";
    if (gradients != parameters && gradients != optimizer)
        return "gradients must have as many shards as parameters or as optimizer states";
    return NULL;
}

static enum status check(const char *field, const struct partition *partition, const struct mesh *mesh) {
    char text[PARTITION_BYTES];
    const char *rule = broken_rule(partition_width(partition->parameters), partition_width(partition->gradients),
                                   partition_width(partition->optimizer), mesh);
    if (!rule) return STATUS_OK;
    return status_hint(status_set(STATUS_BAD_INPUT, "%s: %s is not legal for %d x %d ranks: %s", field,
                                  partition_print(partition, mesh, text), mesh->nodes, mesh->per_node, rule),
                       "zero1, zero2 and zero3 are always legal");
}

enum status partition_check(const struct partition *partition, const struct mesh *mesh) {
    return check("plan: policy.partition", partition, mesh);
}

static void print_width(int width, const struct mesh *mesh, char *text, size_t bytes) {
    bool across = width > mesh->per_node && width % mesh->per_node == 0;
    if (across)
        snprintf(text, bytes, "%dx%d", mesh->per_node, width / mesh->per_node);
    else
        snprintf(text, bytes, "%dx1", width);
}

const char *partition_print(const struct partition *partition, const struct mesh *mesh, char text[PARTITION_BYTES]) {
    char width[3][PARTITION_BYTES / 4];
    print_width(partition_width(partition->parameters), mesh, width[0], sizeof width[0]);
    print_width(partition_width(partition->gradients), mesh, width[1], sizeof width[1]);
    print_width(partition_width(partition->optimizer), mesh, width[2], sizeof width[2]);
    snprintf(text, PARTITION_BYTES, "%s|%s|%s", width[0], width[1], width[2]);
    return text;
}

/* A number up to the mesh's ranks; 0: there is none. */
static int read_number(const char **text, int max) {
    char *end;
    if (**text < '1' || **text > '9') return 0;
    long value = strtol(*text, &end, 10);
    *text = end;
    return value <= max ? (int)value : 0;
}

/* "N", or "in-node x across", where across above 1 needs whole nodes. */
static int read_width(const char **text, const struct mesh *mesh) {
    int ranks = mesh_ranks(mesh), in_node = read_number(text, ranks);
    if (in_node == 0 || **text != 'x') return in_node;
    ++*text;
    int across = read_number(text, ranks);
    bool fits = in_node <= mesh->per_node && (across == 1 || in_node == mesh->per_node) && across <= mesh->nodes;
    return fits ? in_node * across : 0;
}

static bool read_triple(const char *text, const struct mesh *mesh, struct partition *out) {
    int *widths[] = {&out->parameters, &out->gradients, &out->optimizer};
    for (int i = 0; i < 3; i++) {
        if (i > 0 && *text++ != '|') return false;
        *widths[i] = read_width(&text, mesh);
        if (*widths[i] == 0) return false;
    }
    return *text == '\0';
}

static bool read_name(const char *text, const struct mesh *mesh, struct partition *out) {
    int all = mesh_ranks(mesh), node = mesh->per_node;
    const struct {
        const char *name;
        struct partition partition;
    } names[] = {{"ddp", {1, 1, 1}},
                 {"zero1", {1, 1, all}},
                 {"zero2", {1, all, all}},
                 {"zero3", {all, all, all}},
                 {"hpz", {node, all, all}}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(text, names[i].name) == 0) {
            *out = names[i].partition;
            return true;
        }
    bool mics = strncmp(text, "mics:", 5) == 0, hybrid = strncmp(text, "hybrid:", 7) == 0;
    const char *number = text + (mics ? 5 : 7);
    int width = mics || hybrid ? read_width(&number, mesh) : 0;
    *out = (struct partition){width, width, mics ? width : all};
    return width > 0 && *number == '\0';
}

enum status partition_parse(const char *text, const struct mesh *mesh, struct partition *out) {
    struct partition partition;
    if (!read_name(text, mesh, &partition) && !read_triple(text, mesh, &partition))
        return status_hint(
            status_set(STATUS_BAD_INPUT, "partition: unknown partition '%s' for %d x %d ranks", text, mesh->nodes,
                       mesh->per_node),
            "use ddp, zero1, zero2, zero3, mics:N, hpz, hybrid:N, or shards of parameters, gradients and "
            "optimizer states as in %dx1|%dx1|%dx%d",
            mesh->per_node, mesh->per_node, mesh->per_node, mesh->nodes);
    TRY(check("partition", &partition, mesh));
    *out = partition;
    return STATUS_OK;
}

enum status partition_list(const struct mesh *mesh, struct partition **out, int *count) {
    int ranks = mesh_ranks(mesh);
    VEC(struct partition) list = {0};
    enum status status = STATUS_OK;
    for (int optimizer = 1; optimizer <= ranks; optimizer++)
        for (int parameters = 1; parameters <= optimizer && is_width(optimizer, mesh); parameters++)
            for (int which = 0; which < (parameters < optimizer ? 2 : 1) && is_width(parameters, mesh); which++) {
                int gradients = which ? optimizer : parameters;
                if (broken_rule(parameters, gradients, optimizer, mesh)) continue;
                TRY_GOTO(status, vec_push(&list, (struct partition){parameters, gradients, optimizer}), failed);
            }
    *out = list.items;
    *count = (int)list.count;
    return STATUS_OK;
failed:
    vec_free(&list);
    return status;
}
