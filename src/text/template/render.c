/* Renderings: bounds, scopes, statements. */
#include "text/template/render.h"

#include <stdarg.h>

static enum status jinja_execute(struct jinja_rendering *rendering, const struct jinja_node *node);
static enum status jinja_assign(struct jinja_rendering *rendering, const struct jinja_node *target,
                                const struct jinja_value *value);

enum status jinja_fail(struct jinja_rendering *rendering, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return status_set(STATUS_BAD_INPUT, "%s: line %d: %s", rendering->template->name, rendering->line, text);
}

enum status jinja_fail_unsupported(struct jinja_rendering *rendering, const char *what, const char *name,
                                   size_t bytes) {
    return jinja_fail(rendering, "the %s '%.*s' is not supported", what, (int)(bytes < 60 ? bytes : 60), name);
}

enum status jinja_charge(struct jinja_rendering *rendering, size_t amount) {
    rendering->work += amount < JINJA_WORK_MAX ? (int64_t)amount : JINJA_WORK_MAX;
    if (rendering->work < JINJA_WORK_MAX) return STATUS_OK;
    return jinja_fail(rendering, "the template takes too much work");
}

enum status jinja_charge_moved(struct jinja_rendering *rendering, size_t bytes) {
    return jinja_charge(rendering, 1 + bytes / 16);
}

enum status jinja_charge_searched(struct jinja_rendering *rendering, size_t bytes, size_t part_bytes) {
    return jinja_charge(rendering, 1 + (part_bytes > 1 ? bytes + part_bytes : bytes / 4));
}

enum status jinja_alloc(struct jinja_rendering *rendering, size_t count, size_t size, void *out) {
    size_t bytes;
    bool fits = mem_multiply(count, size, &bytes) && mem_add(bytes, 16, &bytes); /* 16: for what rounding adds */
    if (!fits || bytes > JINJA_MEMORY_MAX - rendering->memory_bytes)
        return jinja_fail(rendering, "the template takes more than %d bytes of memory", JINJA_MEMORY_MAX);
    TRY(jinja_charge(rendering, 1 + bytes / 64));
    void *block = scratch_alloc(&rendering->memory, count, size);
    if (!block) return STATUS_FAILED;
    rendering->memory_bytes += bytes;
    memcpy(out, &block, sizeof block);
    return STATUS_OK;
}

enum status jinja_enter_scope(struct jinja_rendering *rendering, struct jinja_scope *parent) {
    struct jinja_scope *scope;
    TRY(jinja_alloc(rendering, 1, sizeof *scope, &scope));
    scope->parent = parent;
    rendering->scope = scope;
    return STATUS_OK;
}

enum status jinja_bind(struct jinja_rendering *rendering, const char *name, size_t bytes, struct jinja_value value) {
    struct jinja_scope *scope = rendering->scope;
    TRY(jinja_charge(rendering, 1 + scope->count / 4));
    TRY(jinja_charge_moved(rendering, bytes));
    for (size_t i = 0; i < scope->count; i++)
        if (scope->bindings[i].bytes == bytes && memcmp(scope->bindings[i].name, name, bytes) == 0) {
            scope->bindings[i].value = value;
            return STATUS_OK;
        }
    if (scope->count == scope->capacity) {
        size_t capacity = scope->capacity > 0 ? 2 * scope->capacity : 4;
        struct jinja_binding *bindings;
        TRY(jinja_alloc(rendering, capacity, sizeof *bindings, &bindings));
        if (scope->count > 0) memcpy(bindings, scope->bindings, scope->count * sizeof *bindings);
        scope->bindings = bindings;
        scope->capacity = capacity;
    }
    scope->bindings[scope->count++] = (struct jinja_binding){name, bytes, value};
    return STATUS_OK;
}

/* Appends text to the present output. */
static enum status jinja_write(struct jinja_rendering *rendering, const char *text, size_t bytes) {
    TRY(jinja_charge_moved(rendering, bytes));
    if (bytes > JINJA_OUTPUT_MAX - rendering->written)
        return jinja_fail(rendering, "more than %d bytes of output", JINJA_OUTPUT_MAX);
    rendering->written += bytes;
    return text_append(rendering->out, text, bytes);
}

enum status jinja_capture(struct jinja_rendering *rendering, const struct jinja_node *body, struct jinja_value *out) {
    struct text_buffer text = {0}, *before = rendering->out;
    rendering->out = &text;
    enum status status = jinja_execute(rendering, body);
    rendering->out = before;
    rendering->written -= text.count;
    return jinja_take_string(rendering, status, &text, out);
}

static enum status assign_tuple(struct jinja_rendering *rendering, const struct jinja_node *target,
                                const struct jinja_value *value) {
    const struct jinja_list *list;
    TRY(jinja_iterate(rendering, value, &list));
    if (list->count != target->item_count)
        return jinja_fail(rendering, "%zu values to unpack, expected %zu", list->count, target->item_count);
    for (size_t i = 0; i < list->count; i++)
        TRY(jinja_assign(rendering, target->items[i], &list->items[i]));
    return STATUS_OK;
}

static enum status assign_field(struct jinja_rendering *rendering, const struct jinja_node *target,
                                const struct jinja_value *value) {
    struct jinja_value object;
    TRY(jinja_evaluate(rendering, target->a, &object));
    if (object.kind != JINJA_NAMESPACE) return jinja_fail(rendering, "cannot assign attribute on non-namespace object");
    if (target->text[0] == '_')
        return jinja_fail(rendering, "a namespace cannot have the attribute '%.*s'", (int)target->bytes, target->text);
    return jinja_dict_set(rendering, object.dict, jinja_string(target->text, target->bytes), *value);
}

/* Binds a for's or a set's target. */
static enum status jinja_assign(struct jinja_rendering *rendering, const struct jinja_node *target,
                                const struct jinja_value *value) {
    if (target->kind == JINJA_NODE_TUPLE) return assign_tuple(rendering, target, value);
    if (target->kind == JINJA_NODE_ATTRIBUTE) return assign_field(rendering, target, value);
    return jinja_bind(rendering, target->text, target->bytes, *value);
}

static enum status execute_block(struct jinja_rendering *rendering, const struct jinja_node *node) {
    for (size_t i = 0; i < node->item_count && rendering->flow == JINJA_FLOW_NEXT; i++)
        TRY(jinja_execute(rendering, node->items[i]));
    return STATUS_OK;
}

static enum status execute_output(struct jinja_rendering *rendering, const struct jinja_node *node) {
    struct jinja_value value, text;
    TRY(jinja_evaluate(rendering, node->a, &value));
    TRY(jinja_to_string(rendering, &value, &text));
    return jinja_write(rendering, text.string.text, text.string.bytes);
}

static enum status execute_if(struct jinja_rendering *rendering, const struct jinja_node *node) {
    while (node && node->kind == JINJA_NODE_IF) {
        struct jinja_value condition;
        TRY(jinja_evaluate(rendering, node->a, &condition));
        if (jinja_is_true(&condition)) return jinja_execute(rendering, node->b);
        node = node->c;
    }
    return node ? jinja_execute(rendering, node) : STATUS_OK;
}

/* The items that the for's condition lets pass. */
static enum status filter_items(struct jinja_rendering *rendering, const struct jinja_node *node,
                                const struct jinja_list **items) {
    struct jinja_scope *outer = rendering->scope;
    struct jinja_value kept, *to, truth;
    size_t count = 0;
    TRY(jinja_make_list(rendering, JINJA_LIST, (*items)->count, &kept, &to));
    for (size_t i = 0; i < (*items)->count; i++) {
        TRY(jinja_enter_scope(rendering, outer));
        TRY(jinja_assign(rendering, node->a, &(*items)->items[i]));
        TRY(jinja_evaluate(rendering, node->c, &truth));
        if (jinja_is_true(&truth)) to[count++] = (*items)->items[i];
    }
    rendering->scope = outer;
    struct jinja_list *list = (struct jinja_list *)(uintptr_t)kept.list;
    list->count = count;
    *items = list;
    return STATUS_OK;
}

static enum status execute_round(struct jinja_rendering *rendering, const struct jinja_node *node,
                                 struct jinja_loop *loop) {
    TRY(jinja_bind(rendering, "loop", 4, (struct jinja_value){.kind = JINJA_LOOP, .loop = loop}));
    TRY(jinja_assign(rendering, node->a, &loop->items->items[loop->index]));
    TRY(jinja_execute(rendering, node->d));
    if (rendering->flow == JINJA_FLOW_CONTINUE) rendering->flow = JINJA_FLOW_NEXT;
    return STATUS_OK;
}

static enum status execute_for(struct jinja_rendering *rendering, const struct jinja_node *node) {
    struct jinja_value over;
    struct jinja_loop *loop;
    struct jinja_scope *outer = rendering->scope;
    const struct jinja_list *items;
    TRY(jinja_evaluate(rendering, node->b, &over));
    TRY(jinja_iterate(rendering, &over, &items));
    if (node->c) TRY(filter_items(rendering, node, &items));
    if (items->count == 0) return node->e ? jinja_execute(rendering, node->e) : STATUS_OK;
    TRY(jinja_alloc(rendering, 1, sizeof *loop, &loop));
    *loop = (struct jinja_loop){.items = items};
    for (; loop->index < items->count && rendering->flow == JINJA_FLOW_NEXT; loop->index++) {
        TRY(jinja_enter_scope(rendering, outer));
        TRY(execute_round(rendering, node, loop));
    }
    rendering->flow = JINJA_FLOW_NEXT;
    rendering->scope = outer;
    return STATUS_OK;
}

static enum status execute_set(struct jinja_rendering *rendering, const struct jinja_node *node) {
    struct jinja_value value;
    TRY(jinja_evaluate(rendering, node->b, &value));
    return jinja_assign(rendering, node->a, &value);
}

/* A filter's value is what the inner ones made of the body. */
static enum status apply_filters(struct jinja_rendering *rendering, const struct jinja_node *filter,
                                 struct jinja_value *value) {
    struct jinja_arguments arguments;
    if (!filter) return STATUS_OK;
    TRY(apply_filters(rendering, filter->a, value));
    TRY(jinja_evaluate_arguments(rendering, filter, &arguments));
    struct jinja_value input = *value;
    return filter->filter->apply(rendering, &input, &arguments, value);
}

static enum status execute_set_body(struct jinja_rendering *rendering, const struct jinja_node *node) {
    struct jinja_value value;
    struct jinja_scope *outer = rendering->scope;
    TRY(jinja_enter_scope(rendering, outer));
    TRY(jinja_capture(rendering, node->b, &value));
    rendering->scope = outer;
    TRY(apply_filters(rendering, node->c, &value));
    return jinja_assign(rendering, node->a, &value);
}

static enum status execute_macro(struct jinja_rendering *rendering, const struct jinja_node *node) {
    struct jinja_macro *macro;
    TRY(jinja_alloc(rendering, 1, sizeof *macro, &macro));
    *macro = (struct jinja_macro){node, rendering->scope};
    return jinja_bind(rendering, node->text, node->bytes, (struct jinja_value){.kind = JINJA_MACRO, .macro = macro});
}

/* Only what goes to the result itself has a place there. */
static enum status execute_generation(struct jinja_rendering *rendering, const struct jinja_node *node) {
    struct jinja_scope *outer = rendering->scope;
    struct text_range range = {.from = rendering->out->count};
    TRY(jinja_enter_scope(rendering, outer));
    TRY(jinja_execute(rendering, node->a));
    rendering->scope = outer;
    range.to = rendering->out->count;
    bool direct = rendering->out == &rendering->result->text;
    return direct && range.to > range.from ? vec_push(&rendering->result->generations, range) : STATUS_OK;
}

static enum status execute(struct jinja_rendering *rendering, const struct jinja_node *node) {
    switch (node->kind) {
    case JINJA_NODE_BLOCK: return execute_block(rendering, node);
    case JINJA_NODE_TEXT: return jinja_write(rendering, node->text, node->bytes);
    case JINJA_NODE_OUTPUT: return execute_output(rendering, node);
    case JINJA_NODE_IF: return execute_if(rendering, node);
    case JINJA_NODE_FOR: return execute_for(rendering, node);
    case JINJA_NODE_SET: return execute_set(rendering, node);
    case JINJA_NODE_SET_BODY: return execute_set_body(rendering, node);
    case JINJA_NODE_MACRO: return execute_macro(rendering, node);
    case JINJA_NODE_GENERATION: return execute_generation(rendering, node);
    case JINJA_NODE_BREAK: rendering->flow = JINJA_FLOW_BREAK; return STATUS_OK;
    case JINJA_NODE_CONTINUE: rendering->flow = JINJA_FLOW_CONTINUE; return STATUS_OK;
    default: BUG("statement of kind %d", (int)node->kind);
    }
}

static enum status jinja_execute(struct jinja_rendering *rendering, const struct jinja_node *node) {
    TRY(jinja_charge(rendering, 1));
    rendering->line = node->line;
    if (++rendering->depth > JINJA_DEPTH_MAX) return jinja_fail(rendering, "nested more than %d deep", JINJA_DEPTH_MAX);
    TRY(execute(rendering, node));
    rendering->depth--;
    return STATUS_OK;
}

static enum status render(struct jinja_rendering *rendering, const struct jinja_variable *variables, size_t count) {
    TRY(jinja_enter_scope(rendering, NULL));
    for (size_t i = 0; i < count; i++) {
        struct jinja_value value;
        TRY(jinja_from_json(rendering, variables[i].value, &value));
        TRY(jinja_bind(rendering, variables[i].name, strlen(variables[i].name), value));
    }
    TRY(jinja_enter_scope(rendering, rendering->scope));
    return jinja_execute(rendering, rendering->template->body);
}

enum status jinja_render(const struct jinja_template *template, const struct jinja_variable *variables, size_t count,
                         int64_t now_s, struct jinja_output *out) {
    struct jinja_rendering rendering = {
        .template = template, .result = out, .out = &out->text, .now_s = now_s, .line = 1};
    out->text.count = out->generations.count = 0;
    enum status status = render(&rendering, variables, count);
    scratch_free(&rendering.memory);
    out->work = rendering.work;
    return status;
}

void jinja_output_free(struct jinja_output *output) {
    vec_free(&output->text);
    vec_free(&output->generations);
}

/* Read off the tables by which names are found. */
const char *jinja_name(enum jinja_names names, size_t index) {
    if (names == JINJA_STRING_METHODS) return jinja_method_name(index, JINJA_STRING);
    if (names == JINJA_DICT_METHODS) return jinja_method_name(index, JINJA_DICT);
    if (names == JINJA_TESTS) return jinja_predicates[index].name;
    if (names == JINJA_FUNCTIONS) return jinja_functions[index].name;
    return jinja_filters[index].name;
}
