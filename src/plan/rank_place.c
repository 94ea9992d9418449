#include "plan/rank_place.h"

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
