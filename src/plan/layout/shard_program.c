#include "plan/layout/shard_program.h"

#include <math.h>

#include "plan/layout/shard_choice.h"

/* Costs in all are at most so many units. */
#define UNITS_MAX ((double)((int64_t)1 << 44))

/* Costs in seconds from which those of the program's nodes and edges are computed. */
struct edge_table {
    int from, to;               /* nodes with strategies of their own */
    const struct tensor *shape; /* whose layouts are converted */
    int operand;                /* of `to` */
    double *seconds;            /* [choices of from][choices of to] */
    int64_t *units;
    const struct conversions *conversions;
};
struct edge_use {
    int from, to; /* nodes */
    int from_operand, to_operand;
    size_t table;
};
/* Costs of a node and of the same nodes of other blocks. Bytes and costs are by choice. */
struct node_costs {
    int choices, same_as;
    double *seconds;
    int64_t *units;                /* the same */
    int64_t *states;               /* of parameters */
    int64_t *gathered;             /* while it works */
    int64_t *made[OP_OUTPUTS_MAX]; /* outputs; NULL until they are asked for */
};
struct making {
    const struct shard_question *question;
    struct shard_program *out;
    VEC(struct edge_table) tables;
    VEC(struct edge_use) uses;
    struct node_costs *nodes; /* [nodes] */
};

static int node_count(const struct making *making) { return (int)making->question->graph->nodes.count; }
static struct node *node_at(const struct making *making, int i) { return making->question->graph->nodes.items[i]; }

#define take_items(making, pointer, count) scratch_items(&(making)->out->scratch, pointer, count)

/* --- blocks that are the same --- */

struct node_range {
    int begin, end;
};

/* The node that makes an operand, or -1. */
static int producer_of(const struct tensor *tensor) {
    const struct node *producer = tensor->base ? tensor->base->producer : tensor->producer;
    return producer ? producer->id : -1;
}

/* Both are made at one place of their blocks, or both outside. */
static bool same_source(const struct tensor *a, int a_begin, const struct tensor *b, int b_begin) {
    if (!a || !b) return a == b;
    int a_place = producer_of(a) - a_begin, b_place = producer_of(b) - b_begin;
    return a->kind == b->kind && a->base_column == b->base_column && shape_equal(&a->shape, &b->shape) &&
           (a_place == b_place || (a_place < 0 && b_place < 0));
}

static bool same_node(const struct node *a, int a_begin, const struct node *b, int b_begin) {
    size_t bytes = a->op->attribute_bytes;
    if (a->op != b->op || (bytes > 0 && memcmp(a->attributes, b->attributes, bytes) != 0)) return false;
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        if (!same_source(a->in[i], a_begin, b->in[i], b_begin)) return false;
    return true;
}

static bool same_block(const struct making *making, struct node_range a, struct node_range b) {
    if (a.end - a.begin != b.end - b.begin) return false;
    for (int i = 0; i < a.end - a.begin; i++)
        if (!same_node(node_at(making, a.begin + i), a.begin, node_at(making, b.begin + i), b.begin)) return false;
    return true;
}

static struct node_range block_from(const struct making *making, int begin) {
    struct node_range node_range = {begin, begin};
    while (node_range.end < node_count(making) &&
           node_at(making, node_range.end)->block == node_at(making, begin)->block)
        node_range.end++;
    return node_range;
}

/* Compares each block with the first block of each kind. */
static enum status find_blocks(struct making *making) {
    AUTO_VEC VEC(struct node_range) kinds = {0};
    int *like = making->out->block_like;
    for (int begin = 0; begin < node_count(making);) {
        struct node_range node_range = block_from(making, begin);
        size_t kind = 0;
        while (kind < kinds.count && !same_block(making, kinds.items[kind], node_range))
            kind++;
        if (kind == kinds.count) TRY(vec_push(&kinds, node_range));
        for (int i = 0; i < node_range.end - node_range.begin; i++)
            like[node_range.begin + i] = kinds.items[kind].begin + i;
        begin = node_range.end;
    }
    return STATUS_OK;
}

/* --- nodes --- */

static const struct strategy *strategy_at(const struct making *making, int node, int choice) {
    return shard_program_strategy(making->out, node, choice);
}

/* The only activation that a node reads, where it reads no parameter; else NULL. */
static const struct tensor *only_activation(const struct node *node) {
    const struct tensor *only = NULL;
    for (int i = 0; i < OP_INPUTS_MAX; i++) {
        if (!node->in[i]) continue;
        if (only || node->in[i]->kind != TENSOR_ACTIVATION) return NULL;
        only = node->in[i];
    }
    return only;
}

/* The strategy that takes operand 0 so and moves nothing; -1 where there is none. */
static int strategy_taking(const struct strategies *strategies, const struct layout *layout) {
    for (size_t i = 0; i < strategies->kept.count; i++) {
        const struct strategy *one = &strategies->kept.items[i];
        if (one->forward_s == 0 && one->backward_s == 0 && layout_equal(&one->operand[0], layout)) return (int)i;
    }
    return -1;
}

/* A node of one activation that can take it as its producer leaves it, whatever that is, does. */
static enum status follow_producer(struct making *making, int index) {
    const struct tensor *only = only_activation(node_at(making, index));
    int producer = only ? producer_of(only) : -1;
    if (producer < 0 || node_at(making, producer)->block != node_at(making, index)->block) return STATUS_OK;
    int choices = making->nodes[producer].choices;
    int *own;
    TRY(take_items(making, &own, (size_t)choices));
    for (int k = 0; k < choices; k++) {
        const struct strategy *left = strategy_at(making, producer, k);
        own[k] = strategy_taking(&making->out->strategies[index], &left->operand[OP_INPUTS_MAX]);
        if (own[k] < 0) return STATUS_OK;
    }
    making->out->strategy_of[index] = own;
    making->nodes[index].choices = choices;
    making->nodes[index].same_as = producer;
    return STATUS_OK;
}

/* The first node before `index` that reads the parameter, and as which operand. */
static int earlier_reader(const struct making *making, const struct tensor *parameter, int index, int *operand) {
    for (int i = parameter->kind == TENSOR_PARAMETER ? 0 : index; i < index; i++)
        for (*operand = 0; *operand < OP_INPUTS_MAX; ++*operand)
            if (node_at(making, i)->in[*operand] == parameter) return i;
    return -1;
}

/* State bytes of the parameters that no earlier node reads. Frozen parameters have no states. */
static double own_state_bytes(const struct making *making, int index, const struct strategy *strategy) {
    const struct node *node = node_at(making, index);
    double bytes = 0;
    for (int i = 0; i < OP_INPUTS_MAX; i++) {
        int operand;
        if (!node->in[i] || node->in[i]->kind != TENSOR_PARAMETER) continue;
        if (earlier_reader(making, node->in[i], index, &operand) >= 0) continue;
        struct layout_shape shape = strategy_shape(node->in[i]);
        double states = node->in[i]->trainable ? making->question->state_bytes_per_byte : 1;
        bytes += states * (double)layout_local_elements(&strategy->operand[i], &making->question->mesh, &shape) *
                 (double)dtype_bytes(node->in[i]->shape.dtype);
    }
    return bytes;
}

static enum status add_node_costs(struct making *making, int index) {
    struct node_costs *costs = &making->nodes[index];
    size_t choices = (size_t)costs->choices;
    TRY(take_items(making, &costs->seconds, choices));
    TRY(take_items(making, &costs->states, choices));
    TRY(take_items(making, &costs->gathered, choices));
    for (size_t k = 0; k < choices; k++) {
        const struct strategy *one = strategy_at(making, index, (int)k);
        costs->gathered[k] = one->gathered_bytes;
        costs->seconds[k] = one->compute_s + one->forward_s + one->backward_s;
        costs->states[k] = (int64_t)ceil(own_state_bytes(making, index, one));
    }
    return STATUS_OK;
}

static enum status add_node(struct making *making, int index) {
    int like = making->out->block_like[index];
    if (like != index) {
        making->nodes[index] = making->nodes[like];
        making->nodes[index].same_as = like;
        return STATUS_OK;
    }
    making->nodes[index].same_as = index;
    struct strategies *strategies = &making->out->strategies[index];
    TRY(strategies_make(node_at(making, index), &making->out->profile.nodes[index], &making->question->mesh,
                        &making->question->rates, strategies));
    if (making->question->executable)
        strategies_keep_executable(node_at(making, index), &making->question->mesh, strategies);
    making->nodes[index].choices = (int)strategies->kept.count;
    TRY(follow_producer(making, index));
    return add_node_costs(making, index);
}

/* --- edges --- */

/* Ranks do not convert parameters: each has one layout. */
static bool uses_fit(const struct making *making, const struct edge_table *table, const struct strategy *left,
                     int from_operand, const struct strategy *taken) {
    if (!making->question->executable || table->shape->kind != TENSOR_PARAMETER) return true;
    struct parameter_use a = strategy_parameter_use(node_at(making, table->from), left, from_operand);
    struct parameter_use b = strategy_parameter_use(node_at(making, table->to), taken, table->operand);
    return parameter_use_equal(&a, &b);
}

/* The cost of an edge between the choice of the producer, or an earlier reader, and the consumer's. Padded parts of a
 * parameter fit no conversion, and need none if both sides are padded alike. */
static double meeting_s(const struct making *making, const struct edge_table *table, const struct strategy *left,
                        int from_operand, const struct strategy *taken) {
    const struct layout *from = &left->operand[from_operand], *to = &taken->operand[table->operand];
    if (table->shape->kind == TENSOR_ACTIVATION &&
        strategy_apart_axes(node_at(making, table->from), left, from_operand) !=
            strategy_apart_axes(node_at(making, table->to), taken, table->operand))
        return INFINITY;
    if (!uses_fit(making, table, left, from_operand, taken)) return INFINITY;
    if (layout_equal(from, to)) return 0;
    if (making->question->executable &&
        strategy_takes_segments(making->question->graph, node_at(making, table->to), taken, table->operand))
        return INFINITY;
    return conversions_price(table->conversions, from, to);
}

static enum status fill_table(struct making *making, struct edge_table *table, int from_operand) {
    struct layout_shape shape = strategy_shape(table->shape);
    TRY(conversion_cache_find(&making->out->conversions, &shape, dtype_bytes(table->shape->shape.dtype),
                              &table->conversions));
    int rows = making->nodes[table->from].choices, columns = making->nodes[table->to].choices;
    TRY(take_items(making, &table->seconds, (size_t)rows * (size_t)columns));
    for (int a = 0; a < rows; a++) {
        const struct strategy *left = strategy_at(making, table->from, a);
        for (int b = 0; b < columns; b++) {
            const struct strategy *taken = strategy_at(making, table->to, b);
            table->seconds[a * columns + b] = meeting_s(making, table, left, from_operand, taken);
        }
    }
    return STATUS_OK;
}

static bool same_table(const struct edge_table *a, const struct edge_table *b) {
    return a->from == b->from && a->to == b->to && a->operand == b->operand &&
           shape_equal(&a->shape->shape, &b->shape->shape);
}

/* An edge from operand `from_operand` of one node to operand `to_operand` of another; edges of blocks that are the same
 * share their table. */
static enum status add_edge(struct making *making, int from, int from_operand, int to, int to_operand) {
    const struct node *node = node_at(making, to);
    struct edge_table wanted = {.from = making->out->block_like[from],
                                .to = making->out->block_like[to],
                                .shape = node->in[to_operand],
                                .operand = to_operand};
    size_t table = 0;
    while (table < making->tables.count && !same_table(&making->tables.items[table], &wanted))
        table++;
    if (table == making->tables.count) {
        TRY(fill_table(making, &wanted, from_operand));
        TRY(vec_push(&making->tables, wanted));
    }
    return vec_push(&making->uses, (struct edge_use){from, to, from_operand, to_operand, table});
}

static int output_of(const struct tensor *tensor) {
    const struct tensor *storage = tensor->base ? tensor->base : tensor;
    for (int i = 0; i < OP_OUTPUTS_MAX; i++)
        if (storage->producer->out[i] == storage) return OP_INPUTS_MAX + i;
    BUG("a tensor that its producer does not make");
}

/* Parameters that several blocks read are few, and not of blocks that repeat. */
static enum status add_edges_to(struct making *making, int index) {
    const struct node *node = node_at(making, index);
    for (int i = 0; i < OP_INPUTS_MAX; i++) {
        if (!node->in[i]) continue;
        int producer = producer_of(node->in[i]), operand = 0;
        bool shared = producer < 0 && making->out->block_like[index] == index;
        if (producer >= 0) TRY(add_edge(making, producer, output_of(node->in[i]), index, i));
        int reader = shared ? earlier_reader(making, node->in[i], index, &operand) : -1;
        if (reader >= 0) TRY(add_edge(making, reader, operand, index, i));
    }
    return STATUS_OK;
}

/* --- live tensors --- */

/* Bytes of a node's output or its gradient, by choice, as the node's strategy leaves it. Other tensors are not cut. */
static enum status find_bytes(struct making *making, const struct value_profile *value, const int64_t **out) {
    int owner = making->out->block_like[value->owner->id], choices = making->nodes[owner].choices;
    int64_t *bytes, **made = &making->nodes[owner].made[value->output];
    const struct tensor *tensor = node_at(making, owner)->out[value->output];
    struct layout_shape shape = strategy_shape(tensor);
    bool whole = shape_bytes(&tensor->shape) != value->bytes;
    *out = *made;
    if (*made && !whole) return STATUS_OK;
    TRY(take_items(making, &bytes, (size_t)choices));
    for (int k = 0; k < choices; k++) {
        const struct layout *layout = &strategy_at(making, owner, k)->operand[OP_INPUTS_MAX + value->output];
        bytes[k] =
            whole ? value->bytes
                  : layout_local_elements(layout, &making->question->mesh, &shape) * dtype_bytes(tensor->shape.dtype);
    }
    if (!whole) *made = bytes;
    *out = bytes;
    return STATUS_OK;
}

/* Whether it is live at a node although all of its block is computed again. */
static bool stays(const struct value_profile *value, const struct node *at) {
    return value->gradient || value->leaves_block || value->tensor->block == at->block;
}

/* At a node of the step. */
static enum status add_moment(struct making *making, const struct node *node, bool checkpointed,
                              struct intra_op_moment *out) {
    int at = node->id, owner = (node->of ? node->of : node)->id;
    const struct symbolic_profile *profile = &making->out->profile;
    int count = node_count(making), live = 0, values = (int)profile->values.count;
    int *nodes;
    TRY(take_items(making, &nodes, (size_t)(count + values) + 1));
    nodes[live++] = 2 * count + owner;
    for (int i = 0; i < values; i++)
        if (profile->values.items[i].first <= at && at <= profile->values.items[i].last &&
            (!checkpointed || stays(&profile->values.items[i], node)))
            nodes[live++] = 3 * count + i;
    for (int i = 0; i < count; i++)
        nodes[live++] = count + i;
    *out = (struct intra_op_moment){live, nodes};
    return STATUS_OK;
}

/* At every node of the step, forward and backward; where blocks repeat, at the last one's alone: as much is live there,
 * and more of it. */
static enum status add_moments(struct making *making) {
    const struct graph *step = making->out->profile.graph;
    struct intra_op_program *program = &making->out->program;
    program->memory_limit = making->question->memory_limit;
    struct intra_op_moment *moments, *checkpointed;
    int *last, count = node_count(making);
    TRY(take_items(making, &moments, step->nodes.count));
    TRY(take_items(making, &checkpointed, step->nodes.count));
    TRY(take_items(making, &last, (size_t)count));
    for (int i = 0; i < count; i++)
        last[making->out->block_like[i]] = i;
    for (size_t n = 0; n < step->nodes.count; n++) {
        const struct node *node = step->nodes.items[n], *owner = node->of ? node->of : node;
        if (last[making->out->block_like[owner->id]] != owner->id) continue;
        TRY(add_moment(making, node, false, &moments[program->moment_count]));
        TRY(add_moment(making, node, true, &checkpointed[program->moment_count++]));
    }
    program->moments = moments;
    making->out->checkpointed = checkpointed;
    return STATUS_OK;
}

/* --- in whole numbers --- */

static double largest_of(const double *seconds, int64_t count) {
    double largest = 0;
    for (int64_t k = 0; k < count; k++)
        if (isfinite(seconds[k])) largest = fmax(largest, seconds[k]);
    return largest;
}

static int64_t table_entries(const struct making *making, const struct edge_table *table) {
    return (int64_t)making->nodes[table->from].choices * making->nodes[table->to].choices;
}

static double find_unit(const struct making *making) {
    double sum = 0;
    for (int i = 0; i < node_count(making); i++)
        sum += largest_of(making->nodes[i].seconds, making->nodes[i].choices);
    for (size_t i = 0; i < making->uses.count; i++) {
        const struct edge_table *table = &making->tables.items[making->uses.items[i].table];
        sum += largest_of(table->seconds, table_entries(making, table));
    }
    return sum > 0 ? sum / UNITS_MAX : 1;
}

static enum status count_units(struct making *making, const double *seconds, int64_t count, int64_t **out) {
    TRY(take_items(making, out, (size_t)count));
    for (int64_t k = 0; k < count; k++)
        (*out)[k] = isfinite(seconds[k]) ? llround(seconds[k] / making->out->unit_s) : INTRA_OP_FORBIDDEN;
    return STATUS_OK;
}

static enum status write_values(struct making *making, const int64_t *nothing, struct intra_op_node *nodes) {
    const struct symbolic_profile *profile = &making->out->profile;
    for (size_t i = 0; i < profile->values.count; i++) {
        const struct value_profile *value = &profile->values.items[i];
        const int64_t *memory;
        TRY(find_bytes(making, value, &memory));
        nodes[i] = (struct intra_op_node){making->nodes[value->owner->id].choices, value->owner->id, nothing, memory};
    }
    return STATUS_OK;
}

/* Nodes of the graph, and extra nodes with memory but without costs. */
static enum status write_nodes(struct making *making) {
    size_t count = (size_t)node_count(making), all = 3 * count + making->out->profile.values.count, max = 1;
    struct intra_op_node *nodes;
    int64_t *nothing;
    TRY(take_items(making, &nodes, all));
    for (size_t i = 0; i < count; i++)
        max = (size_t)making->nodes[i].choices > max ? (size_t)making->nodes[i].choices : max;
    TRY(take_items(making, &nothing, max));
    for (size_t i = 0; i < count; i++) {
        struct node_costs *costs = &making->nodes[i];
        int like = making->out->block_like[i], choices = costs->choices;
        costs->units = making->nodes[like].units;
        if (like == (int)i) TRY(count_units(making, costs->seconds, choices, &costs->units));
        nodes[i] = (struct intra_op_node){choices, costs->same_as, costs->units, nothing};
        nodes[count + i] = (struct intra_op_node){choices, (int)i, nothing, costs->states};
        nodes[2 * count + i] = (struct intra_op_node){choices, (int)i, nothing, costs->gathered};
    }
    making->out->program.node_count = (int)all;
    making->out->program.nodes = nodes;
    return write_values(making, nothing, nodes + 3 * count);
}

static enum status write_edges(struct making *making) {
    struct intra_op_edge *edges;
    TRY(take_items(making, &edges, making->uses.count));
    TRY(take_items(making, &making->out->edges, making->uses.count));
    for (size_t i = 0; i < making->tables.count; i++) {
        struct edge_table *table = &making->tables.items[i];
        TRY(count_units(making, table->seconds, table_entries(making, table), &table->units));
    }
    for (size_t i = 0; i < making->uses.count; i++) {
        const struct edge_use *use = &making->uses.items[i];
        const struct edge_table *table = &making->tables.items[use->table];
        edges[i] = (struct intra_op_edge){use->from, use->to, table->units};
        making->out->edges[i] = (struct shard_edge){table->conversions, use->from_operand, use->to_operand};
    }
    making->out->program.edge_count = (int)making->uses.count;
    making->out->program.edges = edges;
    return STATUS_OK;
}

static enum status create(struct making *making) {
    struct shard_program *out = making->out;
    size_t count = (size_t)node_count(making);
    TRY(take_items(making, &out->strategies, count));
    TRY(take_items(making, &out->block_like, count));
    TRY(take_items(making, &out->strategy_of, count));
    return take_items(making, &making->nodes, count);
}

static enum status make(struct making *making) {
    TRY(symbolic_profile_forward(making->question->graph, &making->out->profile));
    TRY(create(making));
    TRY(find_blocks(making));
    for (int i = 0; i < node_count(making); i++)
        TRY(add_node(making, i));
    for (int i = 0; i < node_count(making); i++)
        TRY(add_edges_to(making, i));
    making->out->unit_s = find_unit(making);
    TRY(write_nodes(making));
    TRY(write_edges(making));
    return add_moments(making);
}

static enum status check(const struct shard_question *question) {
    TRY(device_mesh_check(&question->mesh));
    if (question->graph->nodes.count < 1 || question->graph->nodes.count > SHARD_PROGRAM_NODES_MAX)
        return status_set(STATUS_BAD_INPUT, "a graph of %zu nodes: must have 1 to %d", question->graph->nodes.count,
                          SHARD_PROGRAM_NODES_MAX);
    if (question->state_bytes_per_byte >= 1 && isfinite(question->state_bytes_per_byte)) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%g bytes of state for each of a parameter: must be at least 1",
                      question->state_bytes_per_byte);
}

enum status shard_program_make(const struct shard_question *question, struct shard_program *out) {
    struct making making = {.question = question, .out = out};
    *out = (struct shard_program){.graph = question->graph,
                                  .conversions = {.mesh = question->mesh, .pricer = conversion_price_s}};
    enum status status = check(question);
    if (status == STATUS_OK) status = make(&making);
    vec_free(&making.tables);
    vec_free(&making.uses);
    return status;
}

void shard_program_free(struct shard_program *program) {
    for (size_t i = 0; program->strategies && i < program->graph->nodes.count; i++)
        strategies_free(&program->strategies[i]);
    conversion_cache_free(&program->conversions);
    symbolic_profile_free(&program->profile);
    scratch_free(&program->scratch);
    *program = (struct shard_program){0};
}

const struct strategy *shard_program_strategy(const struct shard_program *program, int node, int choice) {
    int like = program->block_like[node];
    const int *own = program->strategy_of[like];
    return &program->strategies[like].kept.items[own ? own[choice] : choice];
}

struct step_price shard_program_edge_price(const struct shard_program *program, int edge, const int *choice) {
    const struct shard_edge *lies = &program->edges[edge];
    int from = program->program.edges[edge].from, to = program->program.edges[edge].to;
    const struct strategy *left = shard_program_strategy(program, from, choice[from]);
    const struct strategy *taken = shard_program_strategy(program, to, choice[to]);
    struct conversion_step steps[CONVERSION_STEPS_MAX];
    int count = conversions_path(lies->conversions, &left->operand[lies->from_operand],
                                 &taken->operand[lies->to_operand], steps);
    struct step_price sum = {0, 0};
    for (int i = 0; i < count; i++)
        sum.forward += steps[i].price.forward, sum.backward += steps[i].price.backward;
    return sum;
}

enum status shard_program_choices(const struct shard_program *program, const int *choice, struct shard_choices *out) {
    size_t count = program->graph->nodes.count;
    AUTO_FREE const struct strategy **strategies = mem_array(count, sizeof *strategies);
    *out = (struct shard_choices){0};
    if (!strategies) return STATUS_FAILED;
    for (size_t n = 0; n < count; n++)
        strategies[n] = shard_program_strategy(program, (int)n, choice[n]);
    return shard_choices_of_strategies(program->graph, &program->conversions.mesh, strategies, out);
}

/* `of_one_axis`: the choice is of all ranks together. */
static bool is_chosen(const struct shard_program *program, const struct strategy *strategy,
                      const struct shard_choice *choice, bool of_one_axis) {
    bool any = false, same = true;
    for (int axis = 0; axis < program->conversions.mesh.axes; axis++) {
        int index = strategy->index[axis], from = of_one_axis ? 0 : axis;
        any |= index != OP_INDEX_NONE;
        same &= index == choice->index[from] && strategy->positions[axis] == choice->positions[from];
    }
    return same && (!any || strategy->way == choice->way);
}

bool shard_program_find_choice(const struct shard_program *program, const struct shard_choices *choices, int *choice) {
    bool of_one_axis = choices->mesh.axes == 1;
    for (int i = 0; i < program->program.node_count; i++) {
        const struct intra_op_node *node = &program->program.nodes[i];
        choice[i] = choice[node->same_as];
        if (node->same_as != i) continue;
        int k = 0;
        while (k < node->choices &&
               !is_chosen(program, shard_program_strategy(program, i, k), &choices->nodes[i], of_one_axis))
            k++;
        if (k == node->choices) return false;
        choice[i] = k;
    }
    return true;
}
