#include "data/token_cache.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/clock.h"
#include "base/folder.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/size.h"
#include "data/tokenize.h"

enum { CACHE_VERSION = 2, NARROW_IDS = 1 << 16 }; /* the version changes when the same text would give other ids */

/* What a cache was made from. No padding, so that keys compare and hash as bytes. */
struct cache_key {
    char magic[8];
    uint64_t version, kind, text_bytes;
    uint64_t text_hash[2], tokenizer_hash[2], chat_hash[2];
    int64_t eos_token;
    uint64_t token_bytes;
};

/* The last bytes of a cache. */
struct cache_footer {
    struct cache_key key;
    int64_t count, id_limit;
    uint64_t tokens_hash;
    uint64_t footer_hash; /* of all fields before it */
};

static void hash_content(const void *data, size_t bytes, uint64_t out[2]) {
    XXH128_hash_t hash = XXH3_128bits(data, bytes);
    out[0] = hash.low64;
    out[1] = hash.high64;
}

static uint64_t hash_footer(const struct cache_footer *footer) {
    return XXH3_64bits(footer, offsetof(struct cache_footer, footer_hash));
}

/* Ids are below it: what the tokenizer and the EOS token need. */
static int64_t limit_ids(const struct token_cache_options *options) {
    int64_t limit = tokenizer_vocab_size(options->tokenizer);
    return options->eos_token < limit ? limit : options->eos_token + 1;
}

static enum status make_key(const struct token_cache_options *options, enum source_kind kind,
                            const struct chat_template *chat, const struct file_map *text, struct cache_key *out) {
    struct file_map tokenizer;
    TRY(file_map_open(options->tokenizer_path, &tokenizer));
    bool narrow = limit_ids(options) <= NARROW_IDS && !source_is_supervised(kind);
    *out = (struct cache_key){.magic = "BALTOKEN",
                              .version = CACHE_VERSION,
                              .kind = (uint64_t)kind,
                              .text_bytes = text->bytes,
                              .eos_token = options->eos_token,
                              .token_bytes = narrow ? 2 : 4};
    if (chat) chat_template_hash(chat, options->chat_time_s, out->chat_hash);
    hash_content(text->data, text->bytes, out->text_hash);
    hash_content(tokenizer.data, tokenizer.bytes, out->tokenizer_hash);
    file_map_close(&tokenizer);
    return STATUS_OK;
}

/* FOLDER/<name of the text file>-<hash of its absolute path>.tokens, so that changed text takes its old cache's place.
 * NULL when out of memory. */
static char *cache_path(const char *folder, const char *text_path) {
    char absolute[PATH_MAX];
    if (!realpath(text_path, absolute)) {
        (void)status_set(STATUS_BAD_INPUT, "%s: cannot be found any more", text_path);
        return NULL;
    }
    const char *slash = strrchr(absolute, '/');
    char *name = mem_format("%s-%016" PRIx64 ".tokens", slash ? slash + 1 : absolute,
                            (uint64_t)XXH3_64bits(absolute, strlen(absolute)));
    char *path = name ? path_join(folder, name) : NULL;
    mem_free(name);
    return path;
}

/* The tokens of a mapped cache; false when it is damaged or has another key. */
static bool read_cache(const struct file_map *map, const struct cache_key *key, struct token_cache *out) {
    struct cache_footer footer;
    if (map->bytes < sizeof footer) return false;
    size_t body = map->bytes - sizeof footer;
    memcpy(&footer, map->data + body, sizeof footer);
    if (footer.footer_hash != hash_footer(&footer) || memcmp(&footer.key, key, sizeof *key) != 0) return false;
    size_t bytes;
    if (footer.count < 0 || !mem_multiply((size_t)footer.count, key->token_bytes, &bytes) || bytes != body)
        return false;
    if (XXH3_64bits(map->data, body) != footer.tokens_hash) return false;
    *out = (struct token_cache){.map = *map,
                                .view = {.tokens = map->data,
                                         .token_bytes = (int)key->token_bytes,
                                         .count = footer.count,
                                         .id_limit = footer.id_limit},
                                .hash = footer.tokens_hash};
    return true;
}

/* True when the cache is there and good. */
static bool load_cache(const char *path, const struct cache_key *key, struct token_cache *out) {
    struct file_map map;
    if (!file_exists(path) || file_map_open(path, &map) != STATUS_OK) return false;
    if (read_cache(&map, key, out)) return true;
    file_map_close(&map);
    return false;
}

struct cache_writer {
    struct file_writer file;
    XXH3_state_t *hash;
    uint64_t token_bytes;
    int64_t count;
};

static void write_bytes(struct cache_writer *writer, const void *data, size_t bytes) {
    XXH3_64bits_update(writer->hash, data, bytes);
    file_writer_write(&writer->file, data, bytes);
}

static enum status write_ids(void *payload, const uint32_t *ids, size_t count) {
    struct cache_writer *writer = payload;
    writer->count += (int64_t)count;
    if (writer->token_bytes == 4) write_bytes(writer, ids, count * sizeof *ids);
    uint16_t narrow[4096];
    enum { NARROW = sizeof narrow / sizeof narrow[0] };
    for (size_t done = 0; writer->token_bytes == 2 && done < count;) {
        size_t here = count - done < NARROW ? count - done : NARROW;
        for (size_t i = 0; i < here; i++)
            narrow[i] = (uint16_t)ids[done + i];
        write_bytes(writer, narrow, here * sizeof narrow[0]);
        done += here;
    }
    return writer->file.status;
}

static void write_footer(struct cache_writer *writer, const struct cache_key *key, int64_t id_limit) {
    struct cache_footer footer = {
        .key = *key, .count = writer->count, .id_limit = id_limit, .tokens_hash = XXH3_64bits_digest(writer->hash)};
    footer.footer_hash = hash_footer(&footer);
    file_writer_write(&writer->file, &footer, sizeof footer);
}

static void note_result(const struct cache_writer *writer, const char *name, size_t text_bytes, int64_t began_ns) {
    char size[SIZE_TEXT];
    log_note("tokenized %s: %lld tokens from %s of text in %.1f s", name, (long long)writer->count,
             size_print((int64_t)text_bytes, size), (double)(clock_now_ns() - began_ns) * 1e-9);
}

/* FOLDER/….tokens.PID.new */
static bool is_unfinished(const char *name, pid_t *writer) {
    static const char before[] = ".tokens.";
    const char *at = strstr(name, before);
    if (!at) return false;
    char *end;
    long number = strtol(at + strlen(before), &end, 10);
    if (number <= 0 || number > INT_MAX || strcmp(end, ".new") != 0) return false;
    *writer = (pid_t)number;
    return true;
}

/* What processes left that ended before their cache was whole. One that cannot be removed stays. */
static enum status remove_unfinished(const char *folder) {
    struct names names;
    if (folder_list(folder, &names) != STATUS_OK) return STATUS_FAILED;
    enum status status = STATUS_OK;
    for (size_t i = 0; i < names.count && status == STATUS_OK; i++) {
        pid_t writer;
        if (!is_unfinished(names.items[i], &writer) || kill(writer, 0) == 0 || errno != ESRCH) continue;
        char *path = path_join(folder, names.items[i]);
        if (path)
            unlink(path);
        else
            status = STATUS_FAILED;
        mem_free(path);
    }
    names_free(&names);
    return status;
}

/* Writes the whole cache to a path. */
static enum status write_cache(const struct token_cache_options *options, const struct source *source,
                               const struct chat_template *chat, const struct file_map *text,
                               const struct cache_key *key, const char *path) {
    int64_t began_ns = clock_now_ns();
    struct cache_writer writer = {.hash = XXH3_createState(), .token_bytes = key->token_bytes};
    if (!writer.hash) return status_set(STATUS_FAILED, "out of memory for a hash");
    XXH3_64bits_reset(writer.hash);
    enum status status = file_writer_open(path, &writer.file);
    if (status == STATUS_OK) {
        struct tokenize_options tokenize = {.tokenizer = options->tokenizer,
                                            .eos_token = options->eos_token,
                                            .kind = source->kind,
                                            .chat = chat,
                                            .chat_time_s = options->chat_time_s};
        status = tokenize_text(&tokenize, source->path, (const char *)text->data, text->bytes,
                               (struct token_sink){write_ids, &writer});
        if (status == STATUS_OK) {
            write_footer(&writer, key, limit_ids(options));
            status = file_writer_close(&writer.file);
        } else {
            file_writer_abandon(&writer.file);
        }
    }
    XXH3_freeState(writer.hash);
    if (status == STATUS_OK) note_result(&writer, source->path, text->bytes, began_ns);
    return status;
}

static enum status build_cache(const struct token_cache_options *options, const struct source *source,
                               const struct chat_template *chat, const struct file_map *text,
                               const struct cache_key *key, const char *path) {
    TRY(folder_create(options->folder));
    TRY(remove_unfinished(options->folder));
    char *beside = mem_format("%s.%ld.new", path, (long)getpid());
    if (!beside) return STATUS_FAILED;
    enum status status = write_cache(options, source, chat, text, key, beside);
    if (status == STATUS_OK) {
        status = file_rename(beside, path);
        if (status != STATUS_OK) unlink(beside);
    }
    mem_free(beside);
    return status;
}

static enum status open_cache(const struct token_cache_options *options, const struct source *source,
                              const struct chat_template *chat, const struct file_map *text, struct token_cache *out) {
    struct cache_key key;
    TRY(make_key(options, source->kind, chat, text, &key));
    char *path = cache_path(options->folder, source->path);
    if (!path) return STATUS_FAILED;
    enum status status = STATUS_OK;
    if (!load_cache(path, &key, out)) {
        if (file_exists(path)) log_note("%s: not the tokens of %s as it is now; made again", path, source->path);
        status = build_cache(options, source, chat, text, &key, path);
        if (status == STATUS_OK && !load_cache(path, &key, out))
            status = status_set(STATUS_FAILED, "%s: does not read back as it was written", path);
    }
    mem_free(path);
    return status;
}

/* The template, for conversations. */
static enum status open_chat(const struct token_cache_options *options, const struct source *source,
                             struct chat_template **out) {
    if (source->kind != SOURCE_CHAT) return STATUS_OK;
    BUG_IF(!options->chat_folder, "conversations without a folder of the chat template");
    return chat_template_open(options->chat_folder, out);
}

enum status token_cache_open(const struct token_cache_options *options, const struct source *source,
                             struct token_cache *out) {
    if (!options->tokenizer) {
        (void)status_set(STATUS_BAD_INPUT,
                         "%s: text data need a tokenizer, and the model's folder has no tokenizer.json", source->path);
        return status_hint(STATUS_BAD_INPUT, "add the model's tokenizer.json, or give token files (.bin)");
    }
    BUG_IF(!options->folder || !options->tokenizer_path, "token cache without folder or tokenizer path");
    struct file_map text;
    struct chat_template *chat = NULL;
    TRY(file_map_open(source->path, &text));
    enum status status = text.bytes == 0 ? status_set(STATUS_BAD_INPUT, "%s: is empty", source->path)
                                         : open_chat(options, source, &chat);
    if (status == STATUS_OK) status = open_cache(options, source, chat, &text, out);
    chat_template_free(chat);
    file_map_close(&text);
    return status;
}

void token_cache_close(struct token_cache *cache) { file_map_close(&cache->map); }
