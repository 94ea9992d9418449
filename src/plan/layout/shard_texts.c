#include "plan/layout/shard_texts.h"

#include <string.h>

static bool is_head(const struct node *node) {
    return node->op->work == OP_WORK_LOSS || node->op->work == OP_WORK_LOGITS;
}

/* Nodes have the same names; the head may have another. NULL: only texts need it. */
static const struct node *find_node(const struct graph *batch, const struct node *of) {
    for (size_t n = 0; n < batch->nodes.count; n++) {
        const struct node *node = batch->nodes.items[n];
        if (is_head(of) ? is_head(node) : strcmp(node->name, of->name) == 0) return node;
    }
    return NULL;
}

/* The letter that an axis takes of a node's work, '\0' for none and for tokens, of which texts have few. */
static char letter_of(const struct node *node, const struct shard_choice *choice, int axis) {
    struct op_loops loops;
    if (choice->index[axis] == OP_INDEX_NONE || !op_loops_of(node, choice->way, &loops)) return '\0';
    char letter = loops.indices[choice->index[axis]].letter;
    return strchr("stz", letter) ? '\0' : letter;
}

static int index_of_letter(const struct op_loops *loops, char letter) {
    for (int i = 0; i < loops->count && letter; i++)
        if (loops->indices[i].letter == letter) return i;
    return OP_INDEX_NONE;
}

/* The first way whose loops have all of these letters. */
static struct shard_choice choose_letters(const struct node *node, const char letters[SHARD_AXES_MAX]) {
    struct op_loops loops;
    for (int way = 0; op_loops_of(node, way, &loops); way++) {
        struct shard_choice choice = shard_choice_none(way);
        bool has_all = true;
        for (int axis = 0; axis < SHARD_AXES_MAX; axis++) {
            choice.index[axis] = index_of_letter(&loops, letters[axis]);
            has_all &= letters[axis] == '\0' || choice.index[axis] != OP_INDEX_NONE;
        }
        if (has_all) return choice;
    }
    return shard_choice_none(0);
}

static struct shard_choice choose(const struct node *from, const struct shard_choice *choice, const struct node *node) {
    char letters[SHARD_AXES_MAX];
    for (int axis = 0; axis < SHARD_AXES_MAX; axis++)
        letters[axis] = letter_of(from, choice, axis);
    return choose_letters(node, letters);
}

static void take_segments(const struct graph *batch, size_t id, const struct tensor_segments *segments,
                          const struct graph *texts, struct shard_choices *out) {
    for (size_t i = 0; i < texts->tensors.count && segments->count > 0; i++) {
        const struct tensor *tensor = texts->tensors.items[i];
        if (tensor->kind == TENSOR_ACTIVATION && strcmp(tensor->name, batch->tensors.items[id]->name) == 0)
            out->segments[i] = *segments;
    }
}

enum status shard_choices_of_texts(const struct graph *batch, const struct shard_choices *choices,
                                   const struct graph *texts, struct shard_choices *out) {
    *out = (struct shard_choices){.mesh = choices->mesh,
                                  .parts = choices->parts,
                                  .nodes = mem_array(texts->nodes.count, sizeof *out->nodes),
                                  .segments = mem_array(texts->tensors.count, sizeof *out->segments)};
    if (!out->nodes || !out->segments) return STATUS_FAILED;
    for (size_t n = 0; n < texts->nodes.count; n++) {
        const struct node *node = texts->nodes.items[n], *from = find_node(batch, node);
        out->nodes[n] = from ? choose(from, &choices->nodes[from->id], node) : shard_choice_none(0);
    }
    for (size_t i = 0; i < batch->tensors.count; i++)
        take_segments(batch, i, &choices->segments[i], texts, out);
    return STATUS_OK;
}
