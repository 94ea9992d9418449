#include "data/tokens_of_0_1_0.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_input.h"

/* `line` 0: the file as a whole. */
static enum status refuse(const char *name, int64_t line, const char *rule, const char *key) {
    char place[32] = "";
    if (line > 0) snprintf(place, sizeof place, " line %" PRId64 ":", line);
    (void)status_set(STATUS_BAD_INPUT, "%s:%s Ballast 0.1.0 made other tokens of it: it %s%.40s", name, place, rule,
                     key);
    return status_hint(STATUS_BAD_INPUT, "resume a run of 0.1.0 with commit b4892385, or train anew");
}

enum status tokens_of_0_1_0_check_end(const char *name, int64_t eos_token, int64_t eos_token_then) {
    char then[24];
    snprintf(then, sizeof then, "%" PRId64, eos_token_then);
    if (eos_token == eos_token_then) return STATUS_OK;
    if (eos_token_then < 0) return refuse(name, 0, "ended no document with a token", "");
    return refuse(name, 0, "ended documents with token ", then);
}

/* Whether the tokenizer's last id for the text is the end token; 0.1.0 added another one. The last bytes decide. */
static enum status check_tail(const struct text_of_0_1_0 *text, int64_t line, const char *content, size_t bytes) {
    enum { TAIL_BYTES = 1024 };
    size_t tail = bytes < TAIL_BYTES ? bytes : TAIL_BYTES;
    struct token_ids ids = {0};
    enum status status = tokenizer_encode(text->tokenizer, content + bytes - tail, tail, false, &ids);
    bool ended = text->eos_token >= 0 && ids.count > 0 && ids.items[ids.count - 1] == text->eos_token;
    vec_free(&ids);
    TRY(status);
    return ended ? refuse(text->path, line, "added a second end token", "") : STATUS_OK;
}

static enum status check_text_file(const struct text_of_0_1_0 *text) {
    char content[2048];
    struct file_input file;
    TRY(file_input_open(text->path, &file));
    size_t bytes = file.bytes < sizeof content ? file.bytes : sizeof content;
    enum status status = file_input_read(&file, file.bytes - bytes, bytes, content);
    file_input_close(&file);
    TRY(status);
    return check_tail(text, 0, content, bytes);
}

static enum status check_document(const struct text_of_0_1_0 *text, int64_t line, const json_t *object) {
    const char *key = jsonl_key(text->columns, JSONL_TEXT);
    const json_t *value = key ? json_object_get(object, key) : NULL;
    return check_tail(text, line, json_is_string(value) ? json_string_value(value) : "", json_string_length(value));
}

static const char *role_of(const json_t *turn) {
    const char *from = json_string_value(json_object_get(turn, "from"));
    const char *role = from ? from : json_string_value(json_object_get(turn, "role"));
    return role ? role : "";
}

/* 0.1.0 read "from" and "value" of a turn in ShareGPT's form, and no weight of any turn. */
static bool is_ignored_key(const json_t *turn, const char *key, const json_t *value) {
    static const char *const weights[] = {"weight", "train", "training", "loss"};
    if (json_is_null(value)) return false;
    if (json_object_get(turn, "from")) return strcmp(key, "from") != 0 && strcmp(key, "value") != 0;
    bool is_weight = false;
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
        is_weight |= strcmp(key, weights[i]) == 0;
    return is_weight && (json_is_false(value) || (json_is_number(value) && json_number_value(value) == 0));
}

static enum status check_turns(const struct text_of_0_1_0 *text, int64_t line, const json_t *turns) {
    const char *key;
    json_t *turn, *value;
    size_t i;
    json_array_foreach(turns, i, turn) {
        json_object_foreach(turn, key, value) {
            if (is_ignored_key(turn, key, value)) return refuse(text->path, line, "ignored this key of a turn: ", key);
        }
    }
    return STATUS_OK;
}

/* A conversation, whose end counts, or a prompt. */
static enum status check_conversation(const struct text_of_0_1_0 *text, int64_t line, const json_t *turns) {
    const char *last = role_of(json_array_get(turns, json_array_size(turns) - 1));
    bool answered = strcmp(last, "assistant") == 0 || strcmp(last, "gpt") == 0;
    if (json_array_size(turns) > 0 && !answered)
        return refuse(text->path, line, "left out what follows the assistant's last turn", "");
    return check_turns(text, line, turns);
}

static bool is_filled(const json_t *value) { return json_string_length(value) > 0 || json_object_size(value) > 0; }

/* Whether 0.1.0 put the "system" of a row before its messages. */
static bool applied_system(const struct text_of_0_1_0 *text, const json_t *turns) {
    const json_t *first = json_array_get(turns, 0);
    if (text->kind == SOURCE_ALPACA) return text->chat;
    return json_object_get(first, "from") && strcmp(role_of(first), "system") != 0;
}

static enum status check_row(const struct text_of_0_1_0 *text, int64_t line, const json_t *object) {
    static const char ignored[] = "ignored this key of a row: ";
    const char *keys[] = {jsonl_key(text->columns, JSONL_MESSAGES), jsonl_key(text->columns, JSONL_CHOSEN),
                          jsonl_key(text->columns, JSONL_REJECTED), "conversations"};
    const char *prompt = jsonl_key(text->columns, JSONL_PROMPT);
    const json_t *turns = NULL;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *list = keys[i] ? json_object_get(object, keys[i]) : NULL;
        if (!turns) turns = list;
        TRY(check_conversation(text, line, list));
    }
    if (prompt) TRY(check_turns(text, line, json_object_get(object, prompt)));
    if (is_filled(json_object_get(object, "system")) && !applied_system(text, turns))
        return refuse(text->path, line, ignored, "system");
    if (!text->chat) return STATUS_OK;
    if (json_is_string(json_object_get(object, "tools")) && is_filled(json_object_get(object, "tools")))
        return refuse(text->path, line, ignored, "tools");
    return is_filled(json_object_get(object, "chat_template_kwargs"))
               ? refuse(text->path, line, ignored, "chat_template_kwargs")
               : STATUS_OK;
}

/* A line that is not JSON is reported where it is tokenized. */
static enum status check_line(const struct text_of_0_1_0 *text, int64_t line, const char *content, size_t bytes) {
    json_t *object = NULL;
    if (jsonl_parse_object(text->path, line, content, bytes, &object) != STATUS_OK || !object)
        return status_clear(), STATUS_OK;
    enum status status =
        text->kind == SOURCE_JSONL ? check_document(text, line, object) : check_row(text, line, object);
    json_decref(object);
    return status;
}

static enum status check_lines(const struct text_of_0_1_0 *text) {
    FILE *file = fopen(text->path, "re");
    char *content = NULL;
    size_t capacity = 0;
    ssize_t bytes;
    enum status status = file ? STATUS_OK : status_set(STATUS_FAILED, "%s: cannot open", text->path);
    for (int64_t line = 1; status == STATUS_OK && (bytes = getline(&content, &capacity, file)) > 0; line++)
        status = check_line(text, line, content, (size_t)bytes);
    if (status == STATUS_OK && ferror(file)) status = status_set(STATUS_FAILED, "%s: cannot read", text->path);
    if (file) (void)fclose(file);
    free(content);
    return status;
}

enum status tokens_of_0_1_0_check(const struct text_of_0_1_0 *text) {
    bool document = text->kind == SOURCE_TEXT || text->kind == SOURCE_JSONL;
    if (tokenizer_changes(text->tokenizer) != 0)
        return refuse(text->path, 0, "did not read the special tokens that the files next to tokenizer.json name", "");
    if (!text->chat) TRY(tokens_of_0_1_0_check_end(text->path, text->eos_token, text->eos_token_then));
    if (document && tokenizer_before(text->tokenizer)->count + tokenizer_after(text->tokenizer)->count > 0)
        return refuse(text->path, 0, "left out the tokens that the tokenizer's template adds to a document", "");
    if (text->kind == SOURCE_TEXT) return check_text_file(text);
    return document || text->chat || text->kind == SOURCE_ALPACA ? check_lines(text) : STATUS_OK;
}
