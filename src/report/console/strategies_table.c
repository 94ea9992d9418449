#include "report/console/strategies_table.h"

#include "base/size.h"

static void print_mesh(FILE *out, const struct plan_strategies *strategies) {
    const struct device_mesh *mesh = &strategies->question.mesh;
    fprintf(out, "\nstrategies of operators: the cheapest sharding of each, which --layout solver chooses from\n"
                 "  mesh ");
    for (int axis = 0; axis < mesh->axes; axis++)
        fprintf(out, "%s%lld", axis > 0 ? " x " : "", (long long)mesh->sizes[axis]);
    fprintf(out, ", axes 0 to %d; S1: sharded along axis 1, R: replicated\n", mesh->axes - 1);
}

static void print_sum(FILE *out, const struct plan_strategies *strategies) {
    const struct joint_solution *solution = &strategies->solution;
    char size[SIZE_TEXT];
    int again = 0;
    if (!strategies->fits) {
        fprintf(out, "  none fits a rank, even with all blocks recomputed\n");
        return;
    }
    for (size_t block = 0; block < strategies->graph->blocks.count; block++)
        again += plan_strategies_repeats(strategies, (int)block);
    fprintf(out, "  in total: %.4g s per micro-batch of each rank, %s per rank, %d of %d blocks recomputed\n",
            solution->seconds, size_print(solution->peak_bytes, size), again, (int)strategies->graph->blocks.count);
}

static void print_node(FILE *out, const struct plan_strategies *strategies, const struct node *node) {
    const struct strategies *made = &strategies->program.strategies[node->id];
    char text[STRATEGY_TEXT], operand[LAYOUT_TEXT];
    fprintf(out, "  %-28s", node->name);
    if (strategies->fits) {
        const struct strategy *one =
            shard_program_strategy(&strategies->program, node->id, strategies->solution.strategies.choice[node->id]);
        for (int i = 0; i < OP_INPUTS_MAX; i++)
            if (node->in[i]) fprintf(out, " %s", layout_print(&one->operand[i], node->in[i]->shape.rank, operand));
        fprintf(out, " -> %s  compute %.3g ms, communication %.3g ms",
                layout_print(&one->operand[OP_INPUTS_MAX], node->out[0]->shape.rank, operand), 1e3 * one->compute_s,
                1e3 * (one->forward_s + one->backward_s));
    }
    fputc('\n', out);
    for (size_t i = 0; i < made->dropped.count; i++)
        fprintf(out, "      dropped: %s\n", strategy_print_dropped(node, &made->dropped.items[i], text));
}

void strategies_table_print(FILE *out, const struct plan_strategies *strategies) {
    print_mesh(out, strategies);
    print_sum(out, strategies);
    for (size_t i = 0; i < strategies->graph->nodes.count; i++)
        if (strategies->program.block_like[i] == (int)i) print_node(out, strategies, strategies->graph->nodes.items[i]);
}
