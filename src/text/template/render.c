/* Renderings: bounds, scopes, statements. */
#include "text/template/render.h"

#include <stdarg.h>

#include "text/template/parse.h"

static void execute(struct jinja_rendering *rendering, const struct jinja_node *node);

void jinja_require(struct jinja_rendering *rendering, enum status status) {
    if (status == STATUS_OK) return;
    rendering->status = status;
    longjmp(rendering->failed, 1);
}

void jinja_fail(struct jinja_rendering *rendering, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    rendering->status =
        status_set(STATUS_BAD_INPUT, "%s: line %d: %s", rendering->template->name, rendering->line, text);
    longjmp(rendering->failed, 1);
}

void jinja_fail_unsupported(struct jinja_rendering *rendering, const char *what, struct jinja_value name) {
    jinja_fail(rendering, "the %s '%.*s' is not supported", what,
               (int)(name.string.bytes < 60 ? name.string.bytes : 60), name.string.text);
}

void jinja_charge(struct jinja_rendering *rendering, size_t amount) {
    rendering->work += amount < JINJA_WORK_MAX ? (int64_t)amount : JINJA_WORK_MAX;
    if (rendering->work >= JINJA_WORK_MAX) jinja_fail(rendering, "the template takes too much work");
}

void jinja_charge_moved(struct jinja_rendering *rendering, size_t bytes) { jinja_charge(rendering, 1 + bytes / 16); }

void jinja_charge_searched(struct jinja_rendering *rendering, size_t bytes, size_t part_bytes) {
    jinja_charge(rendering, 1 + (part_bytes > 1 ? bytes + part_bytes : bytes / 4));
}

void jinja_enter(struct jinja_rendering *rendering) {
    if (++rendering->depth > JINJA_DEPTH_MAX) jinja_fail(rendering, "nested more than %d deep", JINJA_DEPTH_MAX);
}

void *jinja_alloc(struct jinja_rendering *rendering, size_t count, size_t size) {
    size_t bytes;
    bool fits = mem_multiply(count, size, &bytes) && mem_add(bytes, 16, &bytes); /* 16: for what rounding adds */
    if (!fits || bytes > JINJA_MEMORY_MAX - rendering->memory_bytes)
        jinja_fail(rendering, "the template takes more than %d bytes of memory", JINJA_MEMORY_MAX);
    jinja_charge(rendering, 1 + bytes / 64);
    void *block = scratch_alloc(&rendering->memory, count, size);
    jinja_require(rendering, block ? STATUS_OK : STATUS_FAILED);
    rendering->memory_bytes += bytes;
    return block;
}

void *jinja_grow(struct jinja_rendering *rendering, void *items, size_t count, size_t size) {
    bool full = count == 0 || (count >= 4 && (count & (count - 1)) == 0);
    if (!full) return items;
    void *grown = jinja_alloc(rendering, count > 0 ? 2 * count : 4, size);
    if (count > 0) memcpy(grown, items, count * size);
    return grown;
}

/* --- scopes --- */

void jinja_enter_scope(struct jinja_rendering *rendering, struct jinja_scope *parent) {
    struct jinja_scope *scope = jinja_alloc(rendering, 1, sizeof *scope);
    scope->parent = parent;
    rendering->scope = scope;
}

void jinja_bind(struct jinja_rendering *rendering, struct jinja_value name, struct jinja_value value) {
    jinja_dict_set(rendering, &rendering->scope->names, name, value);
}

/* Binds a for's or a set's target. */
static void assign(struct jinja_rendering *rendering, const struct jinja_node *target,
                   const struct jinja_value *value) {
    if (target->kind == JINJA_NODE_TUPLE) {
        const struct jinja_list *list = jinja_iterate(rendering, value);
        if (list->count != target->item_count)
            jinja_fail(rendering, "%zu values to unpack, expected %zu", list->count, target->item_count);
        for (size_t i = 0; i < list->count; i++)
            assign(rendering, target->items[i], &list->items[i]);
    } else if (target->kind == JINJA_NODE_ATTRIBUTE) {
        struct jinja_value object = jinja_evaluate(rendering, target->a);
        if (object.kind != JINJA_NAMESPACE) jinja_fail(rendering, "cannot assign attribute on non-namespace object");
        if (target->text.string.text[0] == '_')
            jinja_fail(rendering, "a namespace cannot have the attribute '%.*s'", JINJA_TEXT(target->text));
        jinja_dict_set(rendering, object.dict, target->text, *value);
    } else {
        jinja_bind(rendering, target->text, *value);
    }
}

/* --- output --- */

static bool has_space(const struct jinja_rendering *rendering, size_t bytes) {
    size_t count = rendering->text->count;
    return count <= JINJA_OUTPUT_MAX && bytes <= JINJA_OUTPUT_MAX - count;
}

void jinja_check_space(struct jinja_rendering *rendering, size_t bytes) {
    if (!has_space(rendering, bytes)) jinja_fail(rendering, "a string of more than %d bytes", JINJA_OUTPUT_MAX);
}

void jinja_append(struct jinja_rendering *rendering, const char *text, size_t bytes) {
    jinja_check_space(rendering, bytes);
    jinja_require(rendering, text_append(rendering->text, text, bytes));
}

void jinja_append_charged(struct jinja_rendering *rendering, const char *text, size_t bytes) {
    jinja_charge_moved(rendering, bytes);
    jinja_append(rendering, text, bytes);
}

struct jinja_value jinja_take_text(struct jinja_rendering *rendering, size_t from) {
    size_t bytes = rendering->text->count - from;
    char *copy = jinja_alloc(rendering, bytes + 1, 1);
    if (bytes > 0) memcpy(copy, rendering->text->items + from, bytes);
    rendering->text->count = from;
    return jinja_string(copy, bytes);
}

static void write_output(struct jinja_rendering *rendering, const char *text, size_t bytes) {
    jinja_charge_moved(rendering, bytes);
    if (!has_space(rendering, bytes)) jinja_fail(rendering, "more than %d bytes of output", JINJA_OUTPUT_MAX);
    jinja_append(rendering, text, bytes);
}

struct jinja_value jinja_capture(struct jinja_rendering *rendering, const struct jinja_node *body) {
    size_t from = rendering->text->count;
    rendering->captures++;
    execute(rendering, body);
    rendering->captures--;
    return jinja_take_text(rendering, from);
}

/* --- statements --- */

static void execute_block(struct jinja_rendering *rendering, const struct jinja_node *node) {
    for (size_t i = 0; i < node->item_count && rendering->flow == JINJA_FLOW_NEXT; i++)
        execute(rendering, node->items[i]);
}

static void execute_output(struct jinja_rendering *rendering, const struct jinja_node *node) {
    struct jinja_value value = jinja_evaluate(rendering, node->a), text = jinja_to_string(rendering, &value);
    write_output(rendering, text.string.text, text.string.bytes);
}

static void execute_if(struct jinja_rendering *rendering, const struct jinja_node *node) {
    while (node && node->kind == JINJA_NODE_IF) {
        struct jinja_value condition = jinja_evaluate(rendering, node->a);
        node = jinja_is_true(&condition) ? node->b : node->c;
    }
    if (node) execute(rendering, node);
}

/* The items that the for's condition lets pass. */
static struct jinja_list *filter_items(struct jinja_rendering *rendering, const struct jinja_node *node,
                                       const struct jinja_list *items) {
    struct jinja_scope *outer = rendering->scope;
    struct jinja_list *kept = jinja_make_list(rendering, JINJA_LIST, items->count).list;
    size_t count = 0;
    for (size_t i = 0; i < items->count; i++) {
        jinja_enter_scope(rendering, outer);
        assign(rendering, node->a, &items->items[i]);
        struct jinja_value truth = jinja_evaluate(rendering, node->c);
        if (jinja_is_true(&truth)) kept->items[count++] = items->items[i];
    }
    rendering->scope = outer;
    kept->count = count;
    return kept;
}

static void execute_for(struct jinja_rendering *rendering, const struct jinja_node *node) {
    struct jinja_scope *outer = rendering->scope;
    struct jinja_value over = jinja_evaluate(rendering, node->b);
    const struct jinja_list *items = jinja_iterate(rendering, &over);
    if (node->c) items = filter_items(rendering, node, items);
    if (items->count == 0) {
        if (node->e) execute(rendering, node->e);
        return;
    }
    struct jinja_loop *loop = jinja_alloc(rendering, 1, sizeof *loop);
    loop->items = items;
    for (; loop->index < items->count && rendering->flow == JINJA_FLOW_NEXT; loop->index++) {
        jinja_enter_scope(rendering, outer);
        jinja_bind(rendering, jinja_literal("loop"), (struct jinja_value){.kind = JINJA_LOOP, .loop = loop});
        assign(rendering, node->a, &items->items[loop->index]);
        execute(rendering, node->d);
        if (rendering->flow == JINJA_FLOW_CONTINUE) rendering->flow = JINJA_FLOW_NEXT;
    }
    rendering->flow = JINJA_FLOW_NEXT;
    rendering->scope = outer;
}

static void execute_set(struct jinja_rendering *rendering, const struct jinja_node *node) {
    struct jinja_value value = jinja_evaluate(rendering, node->b);
    assign(rendering, node->a, &value);
}

/* A filter applies to the results of the inner filters. */
static struct jinja_value apply_filters(struct jinja_rendering *rendering, const struct jinja_node *filter,
                                        struct jinja_value body) {
    if (!filter) return body;
    struct jinja_value value = apply_filters(rendering, filter->a, body);
    struct jinja_arguments arguments = jinja_evaluate_arguments(rendering, filter);
    return jinja_call(rendering, filter->callable, &value, &arguments);
}

static void execute_set_body(struct jinja_rendering *rendering, const struct jinja_node *node) {
    struct jinja_scope *outer = rendering->scope;
    jinja_enter_scope(rendering, outer);
    struct jinja_value body = jinja_capture(rendering, node->b);
    rendering->scope = outer;
    struct jinja_value value = apply_filters(rendering, node->c, body);
    assign(rendering, node->a, &value);
}

static void execute_macro(struct jinja_rendering *rendering, const struct jinja_node *node) {
    struct jinja_macro *macro = jinja_alloc(rendering, 1, sizeof *macro);
    *macro = (struct jinja_macro){node, rendering->scope};
    jinja_bind(rendering, node->text, (struct jinja_value){.kind = JINJA_MACRO, .macro = macro});
}

/* Only what goes to the result itself has a place there. */
static void execute_generation(struct jinja_rendering *rendering, const struct jinja_node *node) {
    struct jinja_scope *outer = rendering->scope;
    struct text_range range = {.from = rendering->text->count};
    jinja_enter_scope(rendering, outer);
    execute(rendering, node->a);
    rendering->scope = outer;
    range.to = rendering->text->count;
    if (rendering->captures == 0 && range.to > range.from)
        jinja_require(rendering, vec_push(&rendering->result->generations, range));
}

static void execute_kind(struct jinja_rendering *rendering, const struct jinja_node *node) {
    switch (node->kind) {
    case JINJA_NODE_BLOCK: execute_block(rendering, node); break;
    case JINJA_NODE_TEXT: write_output(rendering, node->text.string.text, node->text.string.bytes); break;
    case JINJA_NODE_OUTPUT: execute_output(rendering, node); break;
    case JINJA_NODE_IF: execute_if(rendering, node); break;
    case JINJA_NODE_FOR: execute_for(rendering, node); break;
    case JINJA_NODE_SET: execute_set(rendering, node); break;
    case JINJA_NODE_SET_BODY: execute_set_body(rendering, node); break;
    case JINJA_NODE_MACRO: execute_macro(rendering, node); break;
    case JINJA_NODE_GENERATION: execute_generation(rendering, node); break;
    case JINJA_NODE_BREAK: rendering->flow = JINJA_FLOW_BREAK; break;
    case JINJA_NODE_CONTINUE: rendering->flow = JINJA_FLOW_CONTINUE; break;
    default: BUG("statement of kind %d", (int)node->kind);
    }
}

static void execute(struct jinja_rendering *rendering, const struct jinja_node *node) {
    jinja_charge(rendering, 1);
    rendering->line = node->line;
    jinja_enter(rendering);
    execute_kind(rendering, node);
    rendering->depth--;
}

/* Rendering returns here when it fails. */
static enum status render(struct jinja_rendering *rendering, const struct jinja_variable *variables, size_t count) {
    if (setjmp(rendering->failed)) return rendering->status;
    jinja_enter_scope(rendering, NULL);
    for (size_t i = 0; i < count; i++) {
        struct jinja_value value = jinja_from_json(rendering, variables[i].value);
        jinja_bind(rendering, jinja_literal(variables[i].name), value);
    }
    jinja_enter_scope(rendering, rendering->scope);
    execute(rendering, rendering->template->body);
    return STATUS_OK;
}

enum status jinja_render(const struct jinja_template *template, const struct jinja_variable *variables, size_t count,
                         int64_t now_s, struct jinja_output *out) {
    struct jinja_rendering rendering = {
        .template = template, .result = out, .text = &out->text, .now_s = now_s, .line = 1};
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
