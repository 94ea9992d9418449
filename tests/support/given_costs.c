#include "support/given_costs.h"

#include "compiler/program.h"
#include "profile/described_device.h"
#include "support/synthetic_costs.h"
#include "support/unit.h"

/* The linker's names of a function that is called in another's place, and of that other one. */
#define GIVEN(type, name, ...)                                                                                         \
    type __real_##name(__VA_ARGS__);                                                                                   \
    type __wrap_##name(__VA_ARGS__);                                                                                   \
    type __wrap_##name(__VA_ARGS__)

static void give_links(const struct mesh *mesh, struct cluster_rates *out) {
    out->links = (struct cluster_links){.mesh = *mesh, .shared = true, .read = {1e-6, 4e9}};
    out->links.message[MESH_IN_NODE] = (struct transfer_rate){2e-6, 2e9};
    if (mesh->nodes > 1) out->links.message[MESH_ACROSS] = (struct transfer_rate){2e-5, 5e8};
    for (int a = 0; a < ACTIVITY_COUNT; a++)
        out->slowdown[a][ACTIVITY_MESSAGE] = out->slowdown[ACTIVITY_MESSAGE][a] = 1.2;
}

struct costs given_costs(const struct graph *graph, const struct mesh *mesh) {
    struct costs costs = synthetic_costs(graph, 0, 1);
    for (size_t n = 0; n < graph->nodes.count; n++) {
        struct op_cost cost;
        op_cost(graph->nodes.items[n], &cost);
        costs.kernels[n].seconds = (cost.flops + cost.bytes) / 1e10 + 2e-7;
    }
    if (mesh_ranks(mesh) > 1) give_links(mesh, &costs.rates);
    return costs;
}

/* A device's kernels take twice as long in the host tier. */
static void add_host(struct costs *costs) {
    costs->host_kernels = mem_array((size_t)costs->count, sizeof *costs->host_kernels);
    assert_non_null(costs->host_kernels);
    for (int32_t n = 0; n < costs->count; n++)
        costs->host_kernels[n] = (struct kernel_cost){2 * costs->kernels[n].seconds, ACTIVITY_COPY};
}

GIVEN(enum status, machine_costs_measure, const struct machine *machine, const struct programs *programs,
      const struct measuring *measuring, struct machine_costs *out) {
    const struct executable *main = programs_main(programs);
    const struct mesh one = {1, 1}, *mesh = &main->program->place.mesh;
    if (machine->backend == &backend_described) return __real_machine_costs_measure(machine, programs, measuring, out);
    *out = (struct machine_costs){.costs = given_costs(main->graph, mesh->nodes > 0 ? mesh : &one)};
    if (machine->backend->host) add_host(&out->costs);
    costs_set_collectives(&out->costs, main->program);
    return STATUS_OK;
}

GIVEN(enum status, machine_costs_find, const struct machine *machine, const struct programs *programs,
      struct costs *out) {
    if (machine->backend == &backend_described) return __real_machine_costs_find(machine, programs, out);
    *out = (struct costs){.count = 0};
    return STATUS_OK;
}

GIVEN(enum status, machine_costs_bound, const struct machine *machine, const struct graph *graph,
      const struct plan *plan, struct costs *out) {
    struct program priced = {.place = plan->place, .lanes = plan->recipe.lanes, .flat = plan->policy.flat};
    if (machine->backend == &backend_described) return __real_machine_costs_bound(machine, graph, plan, out);
    *out = given_costs(graph, &plan->place.mesh);
    enum status status = collectives_of_graph(&priced, graph);
    if (status == STATUS_OK) costs_set_collectives(out, &priced);
    vec_free(&priced.collectives);
    return status;
}

GIVEN(enum status, machine_matrix_rate, const struct machine *machine, const struct programs *programs,
      const struct recipe *recipe, double *flops_per_s) {
    (void)machine, (void)programs, (void)recipe;
    *flops_per_s = 1e11;
    return STATUS_OK;
}

GIVEN(enum status, machine_find_links, struct comm *comm, const struct link_options *link, struct machine *machine) {
    (void)link;
    give_links(&comm->mesh, &machine->between);
    return STATUS_OK;
}
