#include "data/tokenize.h"

#include <omp.h>

#include "data/source.h"
#include "text/chat/chat.h"
#include "text/chat/example.h"

enum {
    CHUNK_BYTES = 256 << 10,
    CONTEXT_BYTES = 64, /* on each side of a cut */
    CUT_TRIES = 256,
    LINE_BYTES = 16 << 10, /* beyond a chunk, for its last line: most are shorter */
};

struct chunk {
    VEC(char) buffer; /* bytes read: a context before the chunk, the chunk, and some more */
    size_t before;    /* bytes of it before the chunk */
    size_t first;     /* begin of the chunk in the text */
    size_t bytes;
    int64_t lines_before; /* in the file */
    struct token_ids ids;
    struct text_notes notes; /* places refer to the file */
    struct status_copy status;
};

/* Encoders of one thread. */
struct encoders {
    struct tokenizer_encoder *plain;
    struct example_encoder *examples; /* of supervised files */
    struct chat_encoder *chats;       /* of conversations */
};

struct tokenizing {
    const struct dataset_options *options;
    struct tokenizing_source source;
    size_t next;   /* begin of the next chunk */
    int64_t lines; /* before next */
    size_t done;   /* bytes whose ids were sent */
    VEC(struct encoders) encoders;
    struct token_ids whole, halves; /* of the context around a cut */
    VEC(struct chunk) chunks;       /* up to the maximum number encoded together */
};

static const char *text_of(const struct chunk *chunk) { return chunk->buffer.items + chunk->before; }

/* Whether encoding a context around a place gives the same ids whole and cut there. Words of pre-tokenizers and added
 * tokens are far shorter than the context, so the same then holds for the whole text. */
static enum status examine_cut(struct tokenizing *t, const struct chunk *chunk, size_t at, bool *good) {
    struct tokenizer_encoder *encoder = t->encoders.items[0].plain;
    size_t left = t->source.text->bytes - chunk->first - at, after = left < CONTEXT_BYTES ? left : CONTEXT_BYTES;
    size_t before = chunk->before + at < CONTEXT_BYTES ? chunk->before + at : CONTEXT_BYTES;
    bool first = chunk->first + at == before; /* the context begins with the text */
    const char *from = text_of(chunk) + at - before;
    t->whole.count = t->halves.count = 0;
    TRY(tokenizer_encoder_append(encoder, from, before + after, !first, false, &t->whole));
    TRY(tokenizer_encoder_append(encoder, from, before, !first, false, &t->halves));
    TRY(tokenizer_encoder_append(encoder, from + before, after, true, false, &t->halves));
    *good = t->whole.count == t->halves.count &&
            memcmp(t->whole.items, t->halves.items, t->whole.count * sizeof *t->whole.items) == 0;
    return STATUS_OK;
}

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

/* Before the spaces after a word, or after a line. */
static bool may_cut(const char *text, size_t at) {
    return is_space(text[at]) ? !is_space(text[at - 1]) : text[at - 1] == '\n';
}

/* Reads into the space from a context before the chunk to `bytes` after its begin, or to the end of the text. */
static enum status fill_buffer(const struct tokenizing *t, struct chunk *chunk, size_t bytes) {
    size_t from = chunk->first - chunk->before, left = t->source.text->bytes - chunk->first;
    size_t wanted = chunk->before + (bytes < left ? bytes : left), there = chunk->buffer.count;
    if (wanted <= there) return STATUS_OK;
    TRY(vec_reserve(&chunk->buffer, wanted));
    TRY(file_input_read(t->source.text, from + there, wanted - there, chunk->buffer.items + there));
    chunk->buffer.count = wanted;
    return STATUS_OK;
}

/* Finds the end of a chunk of a .txt file. */
static enum status cut_text(struct tokenizing *t, struct chunk *chunk) {
    size_t at = CHUNK_BYTES, left = t->source.text->bytes - chunk->first;
    TRY(fill_buffer(t, chunk, CHUNK_BYTES + CONTEXT_BYTES));
    const char *text = text_of(chunk);
    chunk->bytes = left;
    if (left <= CHUNK_BYTES) return STATUS_OK;
    for (int tries = 0; at > CHUNK_BYTES / 2 && tries < CUT_TRIES; at--) {
        if (!may_cut(text, at)) continue;
        bool good;
        TRY(examine_cut(t, chunk, at, &good));
        chunk->bytes = at;
        if (good) return STATUS_OK;
        tries++;
    }
    at = CHUNK_BYTES;
    for (int back = 0; back < 3 && ((unsigned char)text[at] & 0xC0) == 0x80; back++)
        at--;
    chunk->bytes = at;
    return STATUS_OK;
}

/* Finds the end of a chunk of complete lines. */
static enum status cut_lines(struct tokenizing *t, struct chunk *chunk) {
    size_t left = t->source.text->bytes - chunk->first, end = 0;
    for (size_t bytes = CHUNK_BYTES + LINE_BYTES; end == 0; bytes *= 2) {
        size_t there = bytes < left ? bytes : left;
        TRY(fill_buffer(t, chunk, there));
        const char *text = text_of(chunk), *last = text + CHUNK_BYTES - 1;
        const char *newline = there < CHUNK_BYTES ? NULL : memchr(last, '\n', there - (CHUNK_BYTES - 1));
        if (newline) end = (size_t)(newline - text) + 1;
        if (!newline && there == left) end = left;
    }
    struct line_reader reader = {.text = text_of(chunk), .bytes = end};
    const char *line;
    size_t bytes;
    while (line_read(&reader, &line, &bytes))
        continue;
    t->lines += reader.line;
    chunk->bytes = end;
    return STATUS_OK;
}

static enum status cut_chunk(struct tokenizing *t, struct chunk *chunk) {
    bool text = t->source.kind == SOURCE_TEXT;
    chunk->lines_before = t->lines;
    chunk->first = t->next;
    chunk->before = !text ? 0 : t->next < CONTEXT_BYTES ? t->next : CONTEXT_BYTES;
    chunk->buffer.count = chunk->ids.count = 0;
    json_decref(chunk->notes.unread);
    chunk->notes = (struct text_notes){0};
    TRY(text ? cut_text(t, chunk) : cut_lines(t, chunk));
    t->next += chunk->bytes;
    return STATUS_OK;
}

/* Adds no second end token to a text that ends with it, as written in the text or by the tokenizer's template. */
static enum status end_document(const struct tokenizing *t, struct token_ids *out) {
    uint32_t eos = (uint32_t)t->options->eos_token;
    bool ended = out->count > 0 && out->items[out->count - 1] == eos;
    return t->options->eos_token < 0 || ended ? STATUS_OK : token_ids_append(out, &eos, 1);
}

static enum status encode_document(const struct tokenizing *t, int thread, const struct jsonl_row *row,
                                   struct token_ids *out) {
    const json_t *text;
    TRY(jsonl_read_string(row, jsonl_key(row->columns, JSONL_TEXT), &text));
    if (json_string_length(text) == 0) return STATUS_OK;
    TRY(tokenizer_encoder_append(t->encoders.items[thread].plain, json_string_value(text), json_string_length(text),
                                 false, true, out));
    return end_document(t, out);
}

static enum status encode_prompt(const struct tokenizing *t, int thread, const struct jsonl_row *row,
                                 struct token_ids *out) {
    const json_t *prompt, *completion;
    TRY(jsonl_refuse_beside(row, NULL));
    TRY(jsonl_read_string(row, jsonl_key(row->columns, JSONL_PROMPT), &prompt));
    TRY(jsonl_read_string(row, jsonl_key(row->columns, JSONL_COMPLETION), &completion));
    struct text_buffer text = {0};
    enum status status;
    TRY_GOTO(status, text_append(&text, json_string_value(prompt), json_string_length(prompt)), done);
    TRY_GOTO(status, text_append(&text, json_string_value(completion), json_string_length(completion)), done);
    struct example_range trained = {json_string_length(prompt), text.count, false};
    status = example_encode(t->encoders.items[thread].examples, text.items, text.count, &trained, 1, true,
                            t->options->eos_token, out);
done:
    vec_free(&text);
    return status == STATUS_BAD_INPUT ? status_prefix(status, "%s: line %lld", t->source.name, (long long)row->line)
                                      : status;
}

/* Converts lines in other tools' forms first. */
static enum status encode_formed(const struct tokenizing *t, int thread, const struct jsonl_row *row,
                                 struct token_ids *out) {
    struct chat_encoder *chats = t->encoders.items[thread].chats;
    json_auto_t *formed = NULL;
    size_t first = 0;
    if (t->source.kind == SOURCE_ALPACA)
        TRY(jsonl_form_alpaca(row, chats != NULL, &formed));
    else
        TRY(jsonl_form_conversation(row, &formed, &first));
    return chats ? chat_encode(chats, t->source.name, row->line, formed, first, out)
                 : encode_prompt(t, thread, &(struct jsonl_row){NULL, t->source.name, row->line, formed}, out);
}

/* Requires exactly one example, with at least one target. */
static enum status require_one_example(const struct jsonl_row *row, enum jsonl_field field, size_t first,
                                       const struct token_ids *out) {
    const char *key = jsonl_key(row->columns, field);
    size_t examples = 0, trained = 0;
    for (size_t i = first; i < out->count; i++) {
        examples += (out->items[i] & EXAMPLE_FIRST) != 0;
        trained += (out->items[i] & EXAMPLE_TRAINED) != 0;
    }
    if (examples > 1)
        return jsonl_refuse(row, key,
                            ": has turns that the chat template renders otherwise once others "
                            "follow; give an answer of one turn");
    return trained > 0 ? STATUS_OK : jsonl_refuse(row, key, ": has nothing to train on");
}

static enum status encode_answer(const struct tokenizing *t, int thread, const struct jsonl_row *row,
                                 enum jsonl_field field, struct token_ids *out) {
    struct chat_encoder *chats = t->encoders.items[thread].chats;
    size_t first = 0, before = out->count;
    json_t *formed = NULL;
    TRY(jsonl_form_preference(row, field, &formed, &first));
    bool messages = json_object_get(formed, "messages") != NULL;
    enum status status = STATUS_OK;
    if (messages != (chats != NULL))
        status = jsonl_refuse(row, jsonl_key(row->columns, field),
                              messages ? ": is a list of messages, and those of the first line are texts"
                                       : ": is a text, and those of the first line are lists of messages");
    else if (messages)
        status = chat_encode(chats, t->source.name, row->line, formed, first, out);
    else
        status = encode_prompt(t, thread, &(struct jsonl_row){NULL, t->source.name, row->line, formed}, out);
    json_decref(formed);
    return status == STATUS_OK ? require_one_example(row, field, before, out) : status;
}

static enum status encode_line(const struct tokenizing *t, int thread, const struct jsonl_row *row,
                               struct token_ids *out) {
    if (t->source.kind == SOURCE_JSONL) return encode_document(t, thread, row, out);
    if (t->source.kind == SOURCE_PROMPTS) return encode_prompt(t, thread, row, out);
    if (source_is_of_pairs(t->source.kind)) {
        TRY(encode_answer(t, thread, row, JSONL_CHOSEN, out));
        return encode_answer(t, thread, row, JSONL_REJECTED, out);
    }
    return encode_formed(t, thread, row, out);
}

static enum status encode_lines(const struct tokenizing *t, int thread, struct chunk *chunk) {
    struct line_reader reader = {.text = text_of(chunk), .bytes = chunk->bytes, .line = chunk->lines_before};
    const char *line;
    size_t bytes;
    while (line_read(&reader, &line, &bytes)) {
        json_t *object;
        TRY(jsonl_parse_object(t->source.name, reader.line, line, bytes, &object));
        const struct jsonl_row row = {&t->options->keys, t->source.name, reader.line, object};
        enum status status = object ? encode_line(t, thread, &row, &chunk->ids) : STATUS_OK;
        if (object && status == STATUS_OK)
            status = jsonl_unread_add(object, t->source.kind, &t->options->keys, t->source.chat, &chunk->notes.unread);
        json_decref(object);
        TRY(status);
    }
    return STATUS_OK;
}

static enum status encode_chunk(const struct tokenizing *t, int thread, struct chunk *chunk) {
    if (t->source.kind != SOURCE_TEXT) return encode_lines(t, thread, chunk);
    utf8_add_damage(&chunk->notes.damage, text_of(chunk), chunk->bytes, (int64_t)chunk->first);
    bool first = chunk->first == 0, last = chunk->first + chunk->bytes == t->source.text->bytes;
    const struct token_ids *before = tokenizer_before(t->options->tokenizer);
    const struct token_ids *after = tokenizer_after(t->options->tokenizer);
    if (first) TRY(token_ids_append(&chunk->ids, before->items, before->count));
    TRY(tokenizer_encoder_append(t->encoders.items[thread].plain, text_of(chunk), chunk->bytes, !first, false,
                                 &chunk->ids));
    if (!last) return STATUS_OK;
    TRY(token_ids_append(&chunk->ids, after->items, after->count));
    return end_document(t, &chunk->ids);
}

/* Encodes chunks in parallel, then sends them in order. Returns the failure that is first in the file. */
static enum status encode_wave(struct tokenizing *t, int count, int threads, struct token_sink sink) {
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (int i = 0; i < count; i++) {
        struct chunk *chunk = &t->chunks.items[i];
        status_save(encode_chunk(t, omp_get_thread_num(), chunk), &chunk->status);
    }
    for (int i = 0; i < count; i++) {
        const struct chunk *chunk = &t->chunks.items[i];
        TRY(status_restore(&chunk->status));
        TRY(sink.write(sink.payload, chunk->ids.items, chunk->ids.count));
        t->done += chunk->bytes;
        struct utf8_damage *damage = &t->source.notes->damage;
        if (damage->parts == 0) damage->first = chunk->notes.damage.first;
        damage->bytes += chunk->notes.damage.bytes;
        damage->parts += chunk->notes.damage.parts;
        TRY(jsonl_unread_join(chunk->notes.unread, &t->source.notes->unread));
    }
    return STATUS_OK;
}

static enum status add_encoders(struct tokenizing *t) {
    TRY(vec_push(&t->encoders, (struct encoders){0}));
    struct encoders *made = &t->encoders.items[t->encoders.count - 1];
    TRY(tokenizer_encoder_create(t->options->tokenizer, &made->plain));
    if (!source_is_supervised(t->source.kind)) return STATUS_OK;
    TRY(example_encoder_create(t->options->tokenizer, &made->examples));
    if (!t->source.chat) return STATUS_OK;
    return chat_encoder_create(t->source.chat, made->examples, t->options->chat_time_s, &made->chats);
}

/* Cuts the next chunks, up to `max`. */
static enum status cut_wave(struct tokenizing *t, int max, int *count) {
    for (*count = 0; *count < max && t->next < t->source.text->bytes; ++*count) {
        if (t->chunks.count == (size_t)*count) TRY(vec_push(&t->chunks, (struct chunk){0}));
        TRY(cut_chunk(t, &t->chunks.items[*count]));
    }
    return STATUS_OK;
}

enum status tokenizing_advance(struct tokenizing *t, struct tokenize_effort effort, struct token_sink sink) {
    BUG_IF(effort.threads < 1 || effort.chunks < 1 || effort.chunks > TOKENIZE_CHUNKS_MAX, "%d chunks on %d threads",
           effort.chunks, effort.threads);
    if (t->encoders.count == 0) TRY(add_encoders(t));
    int count;
    TRY(cut_wave(t, effort.chunks, &count));
    int threads = count < effort.threads ? count : effort.threads;
    while (t->encoders.count < (size_t)threads)
        TRY(add_encoders(t));
    return count > 0 ? encode_wave(t, count, threads, sink) : STATUS_OK;
}

size_t tokenizing_done(const struct tokenizing *t) { return t->done; }

void tokenizing_rest(struct tokenizing *t) {
    for (size_t i = 0; i < t->chunks.count; i++) {
        vec_free(&t->chunks.items[i].ids);
        vec_free(&t->chunks.items[i].buffer);
        json_decref(t->chunks.items[i].notes.unread);
    }
    for (size_t i = 0; i < t->encoders.count; i++) {
        tokenizer_encoder_free(t->encoders.items[i].plain);
        example_encoder_free(t->encoders.items[i].examples);
        chat_encoder_free(t->encoders.items[i].chats);
    }
    vec_free(&t->chunks);
    vec_free(&t->encoders);
    vec_free(&t->whole);
    vec_free(&t->halves);
}

enum status tokenizing_create(const struct dataset_options *options, const struct tokenizing_source *source,
                              struct tokenizing **out) {
    BUG_IF(source->kind == SOURCE_TOKENS, "%s: token files are not text", source->name);
    struct tokenizing *t = mem_array(1, sizeof *t);
    if (!t) return STATUS_FAILED;
    t->options = options;
    t->source = *source;
    *out = t;
    return STATUS_OK;
}

void tokenizing_free(struct tokenizing *t) {
    if (!t) return;
    tokenizing_rest(t);
    mem_free(t);
}

/* `line` 0: the whole file. */
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

/* Whether the tokenizer's last id for the text is the end token; 0.1.0 added another one. Only the last bytes
 * matter. */
static enum status check_tail(const struct text_of_0_1_0 *text, int64_t line, const char *content, size_t bytes) {
    enum { TAIL_BYTES = 1024 };
    size_t tail = bytes < TAIL_BYTES ? bytes : TAIL_BYTES;
    struct token_ids ids = {0};
    enum status status = tokenizer_encode(text->tokenizer, content + bytes - tail, tail, false, &ids);
    bool ended = text->options->eos_token >= 0 && ids.count > 0 && ids.items[ids.count - 1] == text->options->eos_token;
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
    const char *key = jsonl_key(&text->options->keys, JSONL_TEXT);
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

/* Checks a conversation, whose end counts, or a prompt. */
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
    const char *keys[] = {jsonl_key(&text->options->keys, JSONL_MESSAGES),
                          jsonl_key(&text->options->keys, JSONL_CHOSEN),
                          jsonl_key(&text->options->keys, JSONL_REJECTED), "conversations"};
    const char *prompt = jsonl_key(&text->options->keys, JSONL_PROMPT);
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

/* Tokenizing reports lines that are not JSON. */
static enum status check_line(const struct text_of_0_1_0 *text, int64_t line, const char *content, size_t bytes) {
    json_auto_t *object = NULL;
    if (jsonl_parse_object(text->path, line, content, bytes, &object) != STATUS_OK || !object)
        return status_clear(), STATUS_OK;
    return text->kind == SOURCE_JSONL ? check_document(text, line, object) : check_row(text, line, object);
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
    if (!text->chat)
        TRY(tokens_of_0_1_0_check_end(text->path, text->options->eos_token, text->options->eos_token_of_0_1_0));
    if (document && tokenizer_before(text->tokenizer)->count + tokenizer_after(text->tokenizer)->count > 0)
        return refuse(text->path, 0, "left out the tokens that the tokenizer's template adds to a document", "");
    if (text->kind == SOURCE_TEXT) return check_text_file(text);
    return document || text->chat || text->kind == SOURCE_ALPACA ? check_lines(text) : STATUS_OK;
}
