#include "plan/activations.h"

#include <ctype.h>

/* The state of reading, token by token, for the rules that steps must keep. */
struct reader {
    struct activation_steps *steps;
    int32_t blocks;
    int32_t forwards; /* blocks whose first forward has come */
    int32_t backwards_left;
    bool *moved; /* by block */
};

#define REFUSE(...) status_set(STATUS_BAD_INPUT, "policy.schedule: " __VA_ARGS__)

static enum status add_forward(struct reader *reader, int32_t block) {
    bool turned = reader->backwards_left < reader->blocks;
    if (block == reader->forwards && !turned)
        reader->forwards++;
    else if (block > reader->forwards)
        return status_hint(REFUSE("f%" PRId32 " comes before the forward of block %" PRId32, block, reader->forwards),
                           "the nearest legal one is f%" PRId32, reader->forwards);
    else if (block >= reader->backwards_left)
        return status_hint(REFUSE("f%" PRId32 " comes after the backward of its block, where nothing reads it", block),
                           "leave it out");
    return vec_push(&reader->steps->list, (struct activation_step){.action = ACTIVATION_FORWARD, .block = block});
}

static enum status add_backward(struct reader *reader, int32_t block) {
    if (reader->forwards < reader->blocks)
        return status_hint(REFUSE("b%" PRId32 " comes before the forward of block %" PRId32, block, reader->forwards),
                           "the nearest legal one is f%" PRId32, reader->forwards);
    if (reader->backwards_left == 0)
        return status_hint(REFUSE("b%" PRId32 " comes after the last backward, b0", block), "leave it out");
    if (block != reader->backwards_left - 1)
        return status_hint(REFUSE("b%" PRId32 " is out of turn: backwards come once each, descending", block),
                           "the nearest legal one is b%" PRId32, reader->backwards_left - 1);
    reader->backwards_left--;
    return vec_push(&reader->steps->list, (struct activation_step){.action = ACTIVATION_BACKWARD, .block = block});
}

static enum status add_move(struct reader *reader, int32_t block, enum tier tier) {
    if (block >= reader->forwards)
        return status_hint(REFUSE("block %" PRId32 " is moved before its forward", block),
                           "the nearest legal place is behind f%" PRId32, block);
    if (reader->backwards_left < reader->blocks)
        return status_hint(REFUSE("block %" PRId32 " is moved after the first backward", block),
                           "the nearest legal place is before b%" PRId32, reader->blocks - 1);
    if (reader->moved[block]) return status_hint(REFUSE("block %" PRId32 " is moved twice", block), "leave one out");
    reader->moved[block] = true;
    return vec_push(&reader->steps->list, (struct activation_step){ACTIVATION_MOVE, block, tier});
}

static enum status add_step(struct reader *reader, char letter, int32_t block) {
    if (block >= reader->blocks)
        return status_hint(
            REFUSE("%c%" PRId32 " is not legal: the model has %" PRId32 " blocks", letter, block, reader->blocks),
            "the nearest legal value is %c%" PRId32, letter, reader->blocks - 1);
    switch (letter) {
    case 'f': return add_forward(reader, block);
    case 'b': return add_backward(reader, block);
    case 'h': return add_move(reader, block, TIER_HOST);
    default: return add_move(reader, block, TIER_DISK);
    }
}

static bool read_number(const char **at, int32_t *out) {
    if (!isdigit((unsigned char)**at)) return false;
    int64_t value = 0;
    while (isdigit((unsigned char)**at) && value <= INT32_MAX)
        value = value * 10 + (*(*at)++ - '0');
    *out = (int32_t)value;
    return value <= INT32_MAX - 1;
}

static enum status read_token(struct reader *reader, const char **at) {
    const char *begin = *at;
    char letter = *(*at)++;
    int32_t first = 0, last = 0;
    bool good = letter && strchr("fbhd", letter) && read_number(at, &first);
    last = first;
    if (good && **at == '-') good = (++*at, read_number(at, &last));
    if (!good || (**at && **at != ' '))
        return status_hint(REFUSE("'%.12s' is no stage", begin),
                           "stages are f3, b3, h3, d3, or ranges of them as f0-11");
    int32_t step = last < first ? -1 : 1;
    if (reader->steps->list.count >= ACTIVATION_STEPS_MAX)
        return status_hint(REFUSE("has more than %d stages", ACTIVATION_STEPS_MAX), "recompute less often");
    for (int32_t block = first;; block += step) {
        TRY(add_step(reader, letter, block));
        if (block == last) return STATUS_OK;
    }
}

static enum status read_all(struct reader *reader, const char *text) {
    for (const char *at = text; *at;)
        if (*at == ' ')
            at++;
        else
            TRY(read_token(reader, &at));
    if (reader->backwards_left == 0) return STATUS_OK;
    return status_hint(REFUSE("the backward of block %" PRId32 " is missing", reader->backwards_left - 1),
                       "the nearest legal end is b%" PRId32 "-0", reader->backwards_left - 1);
}

enum status activations_parse(const char *text, int32_t blocks, struct activation_steps *out) {
    *out = (struct activation_steps){0};
    if (!text[strspn(text, " ")]) {
        for (int32_t i = 0; i < 2 * blocks; i++) {
            bool forward = i < blocks;
            struct activation_step step = {.action = forward ? ACTIVATION_FORWARD : ACTIVATION_BACKWARD,
                                           .block = forward ? i : 2 * blocks - 1 - i};
            TRY(vec_push(&out->list, step));
        }
        return STATUS_OK;
    }
    struct reader reader = {.steps = out, .blocks = blocks, .backwards_left = blocks};
    reader.moved = mem_array((size_t)blocks, sizeof *reader.moved);
    enum status status = reader.moved ? read_all(&reader, text) : STATUS_FAILED;
    mem_free(reader.moved);
    return status;
}

void activation_steps_free(struct activation_steps *steps) { vec_free(&steps->list); }

static char step_letter(const struct activation_step *step) {
    if (step->action == ACTIVATION_MOVE) return step->tier == TIER_HOST ? 'h' : 'd';
    return step->action == ACTIVATION_FORWARD ? 'f' : 'b';
}

/* Stages from `first` on that one token says: neighbours of one letter. */
static size_t run_length(const struct activation_steps *steps, size_t first) {
    const struct activation_step *items = steps->list.items;
    size_t length = 1, left = steps->list.count - first;
    if (left < 2) return 1;
    int32_t step = items[first + 1].block - items[first].block;
    if (step != 1 && step != -1) return 1;
    while (length < left && step_letter(&items[first + length]) == step_letter(&items[first]) &&
           items[first + length].block == items[first].block + step * (int32_t)length)
        length++;
    return length;
}

enum status activations_print(const struct activation_steps *steps, char *text, size_t bytes) {
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0, length; i < steps->list.count; i += length) {
        const struct activation_step *step = &steps->list.items[i];
        length = run_length(steps, i);
        int wrote = snprintf(text + used, bytes - used, "%s%c%" PRId32, i ? " " : "", step_letter(step), step->block);
        if (length > 1 && wrote > 0 && (size_t)wrote < bytes - used)
            wrote += snprintf(text + used + wrote, bytes - used - (size_t)wrote, "-%" PRId32,
                              steps->list.items[i + length - 1].block);
        if (wrote < 0 || (size_t)wrote >= bytes - used)
            return status_set(STATUS_FAILED, "an activation schedule is longer than %zu bytes", bytes - 1);
        used += (size_t)wrote;
    }
    return STATUS_OK;
}

enum status activations_from_recompute(const struct recompute_schedule *schedule, struct activation_steps *out) {
    *out = (struct activation_steps){0};
    for (size_t i = 0; i < schedule->count; i++) {
        const struct recompute_step *step = &schedule->items[i];
        enum activation_action action = step->operation == BACKWARD ? ACTIVATION_BACKWARD : ACTIVATION_FORWARD;
        TRY(vec_push(&out->list, (struct activation_step){.action = action, .block = step->block}));
    }
    return STATUS_OK;
}
