/* op_cost charges a node for the bytes that its kernel uses: input bytes that change a result, and result bytes that
 * a call writes. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "support/op_instance.h"
#include "support/unit.h"

enum { POISON = 0xff };
/* The rows of a table are counted by the mean number of different random tokens. */
static const double DRAWN = 1.02;
/* Larger cases take too long. Each operator has a smaller one. */
static const double WORK_MAX = 2e9;

/* Output 0 lies in this input's buffer, as it does in a step. */
static int in_place_input(const struct node *node) {
    int input = node->op->in_place_input - 1;
    return input >= 0 && node->in[input] && !node->in[input]->base && !node->out[0]->base ? input : -1;
}

static char *row_of(const struct op_instance *instance, const struct tensor *tensor, int64_t row) {
    int64_t bytes = dtype_bytes(tensor->shape.dtype);
    return (char *)instance->data[tensor->id] + row * tensor_row_stride(tensor) * bytes;
}

static size_t row_bytes(const struct tensor *tensor) {
    return (size_t)(shape_bytes(&tensor->shape) / shape_rows(&tensor->shape));
}

/* What the results hold after a call, one after the other. */
struct results {
    char *bytes[OP_OUTPUTS_MAX];
};

static void copy_tensor(const struct op_instance *instance, const struct tensor *tensor, char *copy, bool back) {
    size_t bytes = row_bytes(tensor);
    for (int64_t row = 0; row < shape_rows(&tensor->shape); row++) {
        char *at = row_of(instance, tensor, row), *kept = copy + (size_t)row * bytes;
        memcpy(back ? at : kept, back ? kept : at, bytes);
    }
}

static char *keep_tensor(const struct op_instance *instance, const struct tensor *tensor) {
    char *copy = mem_array((size_t)shape_bytes(&tensor->shape), 1);
    copy_tensor(instance, tensor, copy, false);
    return copy;
}

static struct results keep_results(const struct op_instance *instance) {
    struct results results = {0};
    for (int i = 0; i < OP_OUTPUTS_MAX; i++)
        if (instance->node->out[i]) results.bytes[i] = keep_tensor(instance, instance->node->out[i]);
    return results;
}

static void free_results(struct results *results) {
    for (int i = 0; i < OP_OUTPUTS_MAX; i++)
        mem_free(results->bytes[i]);
}

/* Runs the node alone; results that it updates begin as they were. */
static void run(struct op_instance *instance, const struct results *before, int in_place) {
    const struct node *node = instance->node;
    for (int i = 0; i < OP_OUTPUTS_MAX; i++)
        if (node->out[i] && op_updates(node) >> i & 1) copy_tensor(instance, node->out[i], before->bytes[i], true);
    if (in_place < 0) {
        op_instance_run(instance, instance->nodes - 1);
        return;
    }
    char *input = keep_tensor(instance, node->in[in_place]);
    op_instance_run_in_place(instance, instance->nodes - 1, in_place);
    copy_tensor(instance, node->in[in_place], input, true);
    mem_free(input);
}

static bool results_differ(const struct op_instance *instance, const struct results *expected) {
    struct results found = keep_results(instance);
    bool differ = false;
    for (int i = 0; i < OP_OUTPUTS_MAX; i++)
        if (found.bytes[i])
            differ |=
                memcmp(found.bytes[i], expected->bytes[i], (size_t)shape_bytes(&instance->node->out[i]->shape)) != 0;
    free_results(&found);
    return differ;
}

/* Rows of an input that any result depends on. Integers say where to read: they count as read. */
static double bytes_read(struct op_instance *instance, int input, const struct results *before,
                         const struct results *after, int in_place) {
    const struct tensor *tensor = instance->node->in[input];
    enum dtype dtype = tensor->shape.dtype;
    if (dtype == DTYPE_I32) return (double)shape_bytes(&tensor->shape);
    size_t bytes = row_bytes(tensor);
    char *kept = mem_array(bytes, 1);
    double read = 0;
    for (int64_t row = 0; row < shape_rows(&tensor->shape); row++) {
        char *at = row_of(instance, tensor, row);
        memcpy(kept, at, bytes);
        memset(at, POISON, bytes);
        run(instance, before, in_place);
        if (results_differ(instance, after)) read += (double)bytes;
        memcpy(at, kept, bytes);
    }
    mem_free(kept);
    return read;
}

/* Whether a row that an update leaves as it was is read: then other rows depend on it. */
static bool is_row_read(struct op_instance *instance, int output, int64_t row, const struct results *before,
                        struct results *after, int in_place) {
    size_t bytes = row_bytes(instance->node->out[output]);
    char *was = before->bytes[output] + (size_t)row * bytes, *is = after->bytes[output] + (size_t)row * bytes;
    char *kept = mem_array(bytes, 1);
    memcpy(kept, was, bytes);
    memset(was, POISON, bytes);
    memset(is, POISON, bytes);
    run(instance, before, in_place);
    bool read = results_differ(instance, after);
    memcpy(was, kept, bytes);
    memcpy(is, kept, bytes);
    mem_free(kept);
    return read;
}

/* Rows of a result that a call changes; those of one that is updated, or lies where an input did, are read too. */
static double bytes_of_result(struct op_instance *instance, int output, const struct results *before,
                              struct results *after, int in_place) {
    const struct tensor *tensor = instance->node->out[output];
    size_t bytes = row_bytes(tensor);
    bool updated = op_updates(instance->node) >> output & 1, replaces = output == 0 && in_place >= 0;
    char *input = replaces ? keep_tensor(instance, instance->node->in[in_place]) : NULL;
    double touched = 0;
    for (int64_t row = 0; row < shape_rows(&tensor->shape); row++) {
        const char *was = (input ? input : before->bytes[output]) + (size_t)row * bytes;
        if (memcmp(was, after->bytes[output] + (size_t)row * bytes, bytes) != 0)
            touched += (double)bytes * (updated || replaces ? 2 : 1);
        else if (updated && is_row_read(instance, output, row, before, after, in_place))
            touched += (double)bytes;
    }
    mem_free(input);
    return touched;
}

/* Values that measuring has, by which op_cost counts. */
static void take_example_integers(struct op_instance *instance) {
    const struct node *node = instance->node;
    for (int i = 0; i < OP_INPUTS_MAX; i++) {
        const struct tensor *tensor = node->in[i];
        if (!tensor || tensor->shape.dtype != DTYPE_I32) continue;
        double *values = mem_array((size_t)shape_elements(&tensor->shape), sizeof *values);
        for (int64_t e = 0; e < shape_elements(&tensor->shape); e++)
            values[e] = op_example(node, tensor, e);
        op_instance_write(instance, tensor, values);
        mem_free(values);
    }
}

static double touched_bytes(struct op_instance *instance, int in_place) {
    const struct node *node = instance->node;
    op_instance_fill(instance, 7);
    op_instance_run_all(instance);
    bool adds_them = node->op == &op_count_slots; /* the examples, 0, would leave the sums as they are */
    if (!adds_them) take_example_integers(instance);
    for (int i = 0; i < OP_OUTPUTS_MAX; i++)
        if (node->out[i] && !(op_updates(node) >> i & 1))
            for (int64_t row = 0; row < shape_rows(&node->out[i]->shape); row++)
                memset(row_of(instance, node->out[i], row), POISON, row_bytes(node->out[i]));
    struct results before = keep_results(instance);
    run(instance, &before, in_place);
    struct results after = keep_results(instance);
    double touched = 0;
    for (int i = 0; i < OP_OUTPUTS_MAX; i++)
        if (node->out[i]) touched += bytes_of_result(instance, i, &before, &after, in_place);
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        if (node->in[i] && i != in_place) touched += bytes_read(instance, i, &before, &after, in_place);
    free_results(&before);
    free_results(&after);
    return touched;
}

/* Its weight ends with padding, and logits of tokens whose targets other ranks have change no loss. */
static bool is_part_of_head(const struct op_case *op_case) {
    return op_case->flags & CASE_PART && strncmp(op_case->name, "head", 4) == 0;
}

/* What its rows take, one call each. */
static double work_of(const struct node *node, const struct op_cost *cost) {
    double rows = 0;
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        if (node->in[i]) rows += (double)shape_rows(&node->in[i]->shape);
    return rows * (cost->flops + cost->bytes);
}

static void check_case(const struct op_case *op_case, bool *judged) {
    struct op_instance instance;
    struct op_cost cost;
    assert_int_equal(op_instance_create(op_case_build(op_case, DTYPE_F32, &op_case->sizes), &instance), STATUS_OK);
    op_cost(instance.node, &cost);
    *judged = work_of(instance.node, &cost) < WORK_MAX;
    double touched = *judged ? touched_bytes(&instance, in_place_input(instance.node)) : INFINITY;
    bool copies = touched == 0; /* in place nothing shows that it does */
    if (copies) touched = touched_bytes(&instance, -1);
    if (cost.bytes > DRAWN * touched)
        fail_msg("%s: %.0f bytes charged, %.0f touched", op_case->name, cost.bytes, touched);
    op_instance_free(&instance);
}

static void no_operator_is_charged_bytes_that_it_leaves_alone(void **state) {
    (void)state;
    bool *judged = mem_array((size_t)op_case_count, sizeof *judged);
    for (int c = 0; c < op_case_count; c++)
        if (op_instance_has_kernel(op_cases[c].op) && !is_part_of_head(&op_cases[c]))
            check_case(&op_cases[c], &judged[c]);
    for (int c = 0; c < op_case_count; c++) {
        bool any = !op_instance_has_kernel(op_cases[c].op) || op_cases[c].op == &op_head_statistics;
        for (int i = 0; i < op_case_count; i++)
            any |= judged[i] && op_cases[i].op == op_cases[c].op;
        if (!any) fail_msg("no case of %s is small enough", op_cases[c].op->name);
    }
    mem_free(judged);
}

static double flops_of_case(const char *name) {
    const struct op_case *op_case = op_cases;
    while (strcmp(op_case->name, name) != 0)
        op_case++;
    struct graph *graph = op_case_build(op_case, DTYPE_F32, &op_case->sizes);
    struct op_cost cost;
    assert_non_null(graph);
    op_cost(graph->nodes.items[graph->nodes.count - 1], &cost);
    graph_free(graph);
    return cost.flops;
}

/* GEMMs of an expert in forward: 3. In backward gate, up and the inner gradient: 3; the rows' gradient: 2; each trained
 * weight's: 1. */
static void frozen_experts_have_five_products_in_backward(void **state) {
    (void)state;
    const double each[] = {flops_of_case("expert_mlp") / 3, flops_of_case("expert_glu") / 3};
    static const char *const names[] = {"expert_mlp_grad", "expert_glu_grad"};
    for (int i = 0; i < 2; i++) {
        char frozen[64], no_dx[64];
        snprintf(frozen, sizeof frozen, "%s.frozen", names[i]);
        snprintf(no_dx, sizeof no_dx, "%s.no_dx", names[i]);
        assert_true(flops_of_case(names[i]) == 8 * each[i]);
        assert_true(flops_of_case(frozen) == 5 * each[i]);
        assert_true(flops_of_case(no_dx) == 6 * each[i]);
    }
}

int main(void) {
    const char *why;
    if (!op_instance_can_run(&why)) {
        print_message("skipped: %s\n", why);
        return TEST_SKIPPED;
    }
    backend_cpu.set_threads(1); /* calls are many and small */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_operator_is_charged_bytes_that_it_leaves_alone),
        cmocka_unit_test(frozen_experts_have_five_products_in_backward),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
