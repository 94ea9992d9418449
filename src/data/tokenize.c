#include "data/tokenize.h"

#include <omp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/size.h"
#include "data/chat.h"
#include "data/example.h"
#include "data/jsonl.h"
#include "data/utf8.h"

enum {
    CHUNK_BYTES = 256 << 10,
    WAVE_CHUNKS = 64,  /* encoded together, then written in order */
    WINDOW_BYTES = 64, /* on each side of a cut */
    CUT_TRIES = 256,
    MESSAGE_BYTES = 1024,
};
static const int64_t progress_ns = 3000000000;

struct chunk {
    const char *text;
    size_t bytes;
    int64_t lines_before; /* in the file */
    struct token_ids ids;
    enum status status;
    char message[MESSAGE_BYTES]; /* of status: messages stay with the thread that sets them */
};

struct tokenizing {
    const struct tokenize_options *options;
    const char *name, *text;
    size_t bytes, next; /* next: where the next chunk begins */
    int64_t lines;      /* before next */
    int encoder_count;
    struct tokenizer_encoder **encoders; /* one a thread */
    struct example_encoder **examples;   /* the same */
    struct chat_encoder **chats;         /* the same, for conversations */
    struct token_ids whole, halves;      /* of the window about a cut */
    struct chunk *chunks;                /* WAVE_CHUNKS */
};

static enum status keep_ids(void *payload, const uint32_t *ids, size_t count) {
    struct token_ids *out = payload;
    size_t total;
    if (!mem_add(out->count, count, &total)) return status_no_memory(SIZE_MAX, "token ids");
    TRY(vec_reserve(out, total));
    if (count > 0) memcpy(out->items + out->count, ids, count * sizeof *ids);
    out->count = total;
    return STATUS_OK;
}

static enum status encode(struct tokenizer_encoder *encoder, const char *text, size_t bytes, struct token_ids *out) {
    return tokenizer_encoder_run(encoder, text, bytes, false, (struct token_sink){.write = keep_ids, .payload = out});
}

/* Text of a .txt file, from anywhere in it. */
static enum status encode_part(const struct tokenizing *t, struct tokenizer_encoder *encoder, const char *text,
                               size_t bytes, struct token_ids *out) {
    if (text == t->text) return encode(encoder, text, bytes, out);
    TRY(tokenizer_encoder_continue(encoder, (struct token_sink){.write = keep_ids, .payload = out}));
    TRY(tokenizer_encoder_push(encoder, text, bytes));
    return tokenizer_encoder_finish(encoder);
}

/* Whether encoding a window about a place gives the same ids whole and cut there. Words that pre-tokenizers make and
 * added tokens are far shorter than the window, so the whole text then does too. */
static enum status examine_cut(struct tokenizing *t, size_t at, bool *good) {
    size_t before = at < WINDOW_BYTES ? at : WINDOW_BYTES, left = t->bytes - at;
    size_t after = left < WINDOW_BYTES ? left : WINDOW_BYTES;
    const char *from = t->text + at - before;
    t->whole.count = t->halves.count = 0;
    TRY(encode_part(t, t->encoders[0], from, before + after, &t->whole));
    TRY(encode_part(t, t->encoders[0], from, before, &t->halves));
    TRY(encode_part(t, t->encoders[0], from + before, after, &t->halves));
    *good = t->whole.count == t->halves.count &&
            memcmp(t->whole.items, t->halves.items, t->whole.count * sizeof *t->whole.items) == 0;
    return STATUS_OK;
}

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

/* Before the blanks after a word, or after a line. */
static bool may_cut(const char *text, size_t at) {
    return is_space(text[at]) ? !is_space(text[at - 1]) : text[at - 1] == '\n';
}

/* The end of a chunk of a .txt file, which begins at t->next. */
static enum status cut_text(struct tokenizing *t, size_t *end) {
    size_t at = t->next + CHUNK_BYTES;
    if (t->bytes - t->next <= CHUNK_BYTES) {
        *end = t->bytes;
        return STATUS_OK;
    }
    for (int tries = 0; at > t->next + CHUNK_BYTES / 2 && tries < CUT_TRIES; at--) {
        if (!may_cut(t->text, at)) continue;
        bool good;
        TRY(examine_cut(t, at, &good));
        if (good) {
            *end = at;
            return STATUS_OK;
        }
        tries++;
    }
    at = t->next + CHUNK_BYTES;
    for (int back = 0; back < 3 && ((unsigned char)t->text[at] & 0xC0) == 0x80; back++)
        at--;
    *end = at;
    return STATUS_OK;
}

/* The end of a chunk of whole lines. */
static size_t cut_lines(struct tokenizing *t) {
    struct line_reader reader = {.text = t->text + t->next, .bytes = t->bytes - t->next};
    const char *line;
    size_t bytes;
    while (reader.next < CHUNK_BYTES && line_read(&reader, &line, &bytes))
        continue;
    t->lines += reader.line;
    return t->next + reader.next;
}

static enum status cut_chunk(struct tokenizing *t, struct chunk *chunk) {
    chunk->lines_before = t->lines;
    size_t end = 0;
    if (t->options->kind == SOURCE_TEXT)
        TRY(cut_text(t, &end));
    else
        end = cut_lines(t);
    chunk->text = t->text + t->next;
    chunk->bytes = end - t->next;
    chunk->ids.count = 0;
    t->next = end;
    return STATUS_OK;
}

static enum status end_document(const struct tokenizing *t, struct token_ids *out) {
    uint32_t eos = (uint32_t)t->options->eos_token;
    return t->options->eos_token < 0 ? STATUS_OK : keep_ids(out, &eos, 1);
}

static enum status encode_document(const struct tokenizing *t, int thread, int64_t line, const json_t *object,
                                   struct token_ids *out) {
    const char *text;
    size_t bytes;
    TRY(jsonl_read_string(t->name, line, object, "text", &text, &bytes));
    if (bytes == 0) return STATUS_OK;
    TRY(encode(t->encoders[thread], text, bytes, out));
    return end_document(t, out);
}

static enum status encode_prompt(const struct tokenizing *t, int thread, int64_t line, const json_t *object,
                                 struct token_ids *out) {
    const char *prompt, *completion;
    size_t prompt_bytes, completion_bytes;
    TRY(jsonl_read_string(t->name, line, object, "prompt", &prompt, &prompt_bytes));
    TRY(jsonl_read_string(t->name, line, object, "completion", &completion, &completion_bytes));
    struct text_buffer text = {0};
    enum status status = text_append(&text, prompt, prompt_bytes);
    if (status == STATUS_OK) status = text_append(&text, completion, completion_bytes);
    struct text_span trained = {prompt_bytes, text.count};
    if (status == STATUS_OK)
        status =
            example_encode(t->examples[thread], text.items, text.count, &trained, 1, true, t->options->eos_token, out);
    vec_free(&text);
    return status == STATUS_BAD_INPUT ? status_prefix(status, "%s: line %lld", t->name, (long long)line) : status;
}

static enum status encode_line(const struct tokenizing *t, int thread, int64_t line, const json_t *object,
                               struct token_ids *out) {
    if (t->options->kind == SOURCE_JSONL) return encode_document(t, thread, line, object, out);
    if (t->options->kind == SOURCE_CHAT) return chat_encode(t->chats[thread], t->name, line, object, out);
    return encode_prompt(t, thread, line, object, out);
}

static enum status encode_lines(const struct tokenizing *t, int thread, struct chunk *chunk) {
    struct line_reader reader = {.text = chunk->text, .bytes = chunk->bytes, .line = chunk->lines_before};
    const char *line;
    size_t bytes;
    while (line_read(&reader, &line, &bytes)) {
        json_t *object;
        TRY(jsonl_parse_object(t->name, reader.line, line, bytes, t->options->kind == SOURCE_CHAT, &object));
        enum status status = object ? encode_line(t, thread, reader.line, object, &chunk->ids) : STATUS_OK;
        json_decref(object);
        TRY(status);
    }
    return STATUS_OK;
}

static enum status encode_chunk(const struct tokenizing *t, int thread, struct chunk *chunk) {
    if (t->options->kind != SOURCE_TEXT) return encode_lines(t, thread, chunk);
    TRY(encode_part(t, t->encoders[thread], chunk->text, chunk->bytes, &chunk->ids));
    return chunk->text + chunk->bytes == t->text + t->bytes ? end_document(t, &chunk->ids) : STATUS_OK;
}

/* Encodes chunks in parallel, then hands them over in order; the first that failed in the file's order decides. */
static enum status encode_wave(struct tokenizing *t, int count, struct token_sink sink) {
#pragma omp parallel for schedule(dynamic, 1) num_threads(t->encoder_count)
    for (int i = 0; i < count; i++) {
        struct chunk *chunk = &t->chunks[i];
        chunk->status = encode_chunk(t, omp_get_thread_num(), chunk);
        if (chunk->status != STATUS_OK) snprintf(chunk->message, sizeof chunk->message, "%s", status_message());
    }
    for (int i = 0; i < count; i++) {
        const struct chunk *chunk = &t->chunks[i];
        if (chunk->status != STATUS_OK) return status_set(chunk->status, "%s", chunk->message);
        TRY(sink.write(sink.payload, chunk->ids.items, chunk->ids.count));
    }
    return STATUS_OK;
}

static enum status encode_all(struct tokenizing *t, struct token_sink sink) {
    int64_t noted_ns = clock_now_ns();
    while (t->next < t->bytes) {
        int count = 0;
        while (count < WAVE_CHUNKS && t->next < t->bytes)
            TRY(cut_chunk(t, &t->chunks[count++]));
        TRY(encode_wave(t, count, sink));
        if (t->next == t->bytes || clock_now_ns() - noted_ns < progress_ns) continue;
        char size[SIZE_TEXT];
        noted_ns = clock_now_ns();
        log_note("tokenizing %s: %.0f%% of %s", t->name, 100.0 * (double)t->next / (double)t->bytes,
                 size_print((int64_t)t->bytes, size));
    }
    return STATUS_OK;
}

static enum status create_encoders(struct tokenizing *t) {
    t->chunks = mem_array(WAVE_CHUNKS, sizeof *t->chunks);
    t->encoders = mem_array((size_t)t->encoder_count, sizeof *t->encoders);
    t->examples = mem_array((size_t)t->encoder_count, sizeof *t->examples);
    t->chats = mem_array((size_t)t->encoder_count, sizeof *t->chats);
    if (!t->chunks || !t->encoders || !t->examples || !t->chats) return STATUS_FAILED;
    for (int i = 0; i < t->encoder_count; i++) {
        TRY(tokenizer_encoder_create(t->options->tokenizer, &t->encoders[i]));
        TRY(example_encoder_create(t->options->tokenizer, &t->examples[i]));
        if (t->options->kind != SOURCE_CHAT) continue;
        TRY(chat_encoder_create(t->options->chat, t->examples[i], t->options->chat_time_s, &t->chats[i]));
    }
    return STATUS_OK;
}

static void release(struct tokenizing *t) {
    for (int i = 0; t->chunks && i < WAVE_CHUNKS; i++)
        vec_free(&t->chunks[i].ids);
    for (int i = 0; t->encoders && i < t->encoder_count; i++)
        tokenizer_encoder_free(t->encoders[i]);
    for (int i = 0; t->examples && i < t->encoder_count; i++)
        example_encoder_free(t->examples[i]);
    for (int i = 0; t->chats && i < t->encoder_count; i++)
        chat_encoder_free(t->chats[i]);
    mem_free(t->examples);
    mem_free(t->chats);
    mem_free(t->chunks);
    mem_free(t->encoders);
    vec_free(&t->whole);
    vec_free(&t->halves);
}

enum status tokenize_text(const struct tokenize_options *options, const char *name, const char *text, size_t bytes,
                          struct token_sink sink) {
    BUG_IF(options->kind == SOURCE_TOKENS, "%s: token files are not text", name);
    size_t chunks = bytes / CHUNK_BYTES + 1;
    int threads = omp_get_max_threads();
    struct tokenizing t = {.options = options,
                           .name = name,
                           .text = text,
                           .bytes = bytes,
                           .encoder_count = chunks < (size_t)threads ? (int)chunks : threads};
    enum status status = create_encoders(&t);
    if (status == STATUS_OK) status = encode_all(&t, sink);
    release(&t);
    return status;
}
