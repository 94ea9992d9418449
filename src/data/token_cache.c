#include "data/tokenize.h"

#include <pthread.h>
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/terminal.h"
#include "base/text.h"
#include "data/source.h"
#include "data/token_file.h"
#include "text/chat/chat.h"

enum { NARROW_IDS = 1 << 16 };

/* State for making ids; freed once they are complete. */
struct making {
    struct file_input text;
    struct chat_template *chat; /* of conversations */
    struct tokenizing *tokenizing;
    XXH3_state_t *hash; /* of the text as it is read */
    size_t hashed;      /* bytes */
};

/* Tracks the maker of the ids: this cache, once `settled`; another process, as long as its lock is open. */
struct following {
    struct token_lock lock;
    struct file_input file; /* ids of the other process; their readers need it until the cache is closed */
    bool settled;
    size_t text_bytes;  /* length of the text for these ids */
    int64_t changed_ns; /* time of its last progress */
};

struct token_cache {
    char *name, *folder, *path; /* name: of the text */
    bool whole, reported;
    struct token_cache_key key;          /* the text's hash: valid if `text_hashed` */
    struct token_cache_key key_of_0_1_0; /* without the text's hash */
    struct text_of_0_1_0 text_of_0_1_0;
    uint64_t sample; /* hash of parts of the text */
    int64_t id_limit, vocab_size;
    struct text_notes notes;
    const char *form; /* form of Alpaca's examples; NULL: it has none */
    bool reported_text, reported_other;
    bool begins_with_mark; /* a byte-order mark, which is a character of a .txt file */
    struct token_view view;
    struct file_input found;          /* the cache of an earlier run */
    struct token_cache_writer writer; /* otherwise */
    struct making making;
    struct following following;
    pthread_mutex_t hash_lock; /* of the text and its hash: one thread may need it while another makes ids */
    bool text_hashed;
    int64_t began_ns, took_ns; /* began_ns 0: no ids were made */
};

static void store_hash(XXH128_hash_t hash, uint64_t out[2]) {
    out[0] = hash.low64;
    out[1] = hash.high64;
}

/* Mixes given columns into the hash, each by its field and key. */
static void mix_columns(const struct jsonl_columns *columns, uint64_t hash[2]) {
    for (size_t i = 0; i < JSONL_FIELDS; i++)
        if (columns->keys[i]) hash[1] ^= XXH3_64bits_withSeed(columns->keys[i], strlen(columns->keys[i]), i + 1);
}

/* From a key without the changes of the tokenizer, which 0.1.0 did not read. */
static void make_key_of_0_1_0(const struct dataset_options *options, enum source_kind kind, struct token_cache *cache) {
    bool chat = cache->making.chat != NULL;
    cache->key_of_0_1_0 = cache->key;
    cache->key_of_0_1_0.version = TOKEN_CACHE_VERSION_OF_0_1_0;
    cache->key_of_0_1_0.eos_token = options->eos_token_of_0_1_0;
    if (chat) cache->key_of_0_1_0.chat_hash[0] -= CHAT_VERSION - CHAT_VERSION_OF_0_1_0;
    cache->text_of_0_1_0 = (struct text_of_0_1_0){options, options->tokenizer, cache->name, kind, chat};
}

/* Everything except the text's hash. */
static enum status make_key(const struct dataset_options *options, enum source_kind kind, struct token_cache *cache) {
    char *tokenizer;
    size_t tokenizer_bytes;
    TRY(file_read(options->tokenizer_path, SIZE_MAX - 1, &tokenizer, &tokenizer_bytes));
    bool narrow = cache->id_limit <= NARROW_IDS && !source_is_supervised(kind);
    cache->key = (struct token_cache_key){.magic = "BALTOKEN",
                                          .version = TOKEN_CACHE_VERSION,
                                          .kind = (uint64_t)kind,
                                          .text_bytes = cache->making.text.bytes,
                                          .eos_token = options->eos_token,
                                          .token_bytes = narrow ? 2 : 4};
    if (cache->making.chat) {
        chat_template_hash(cache->making.chat, options->chat_time_s, cache->key.chat_hash);
        cache->key.chat_hash[0] += CHAT_VERSION;
    }
    if (kind != SOURCE_TEXT) mix_columns(&options->keys, cache->key.chat_hash);
    store_hash(XXH3_128bits(tokenizer, tokenizer_bytes), cache->key.tokenizer_hash);
    make_key_of_0_1_0(options, kind, cache);
    cache->key.tokenizer_hash[1] ^= tokenizer_changes(options->tokenizer);
    mem_free(tokenizer);
    return STATUS_OK;
}

static enum status add_to_hash(void *state, const void *data, size_t bytes) {
    XXH3_128bits_update(state, data, bytes);
    return STATUS_OK;
}

/* Hashes some pages spread over the text, including the first and the last. */
static enum status hash_sample(const struct file_input *text, uint64_t *out) {
    enum { SAMPLES = 16, SAMPLE_BYTES = 4096 };
    unsigned char piece[SAMPLE_BYTES];
    size_t bytes = text->bytes < SAMPLE_BYTES ? text->bytes : SAMPLE_BYTES, range = text->bytes - bytes;
    uint64_t hash = 0;
    for (size_t i = 0; i < SAMPLES; i++) {
        TRY(file_input_read(text, range / (SAMPLES - 1) * i + range % (SAMPLES - 1) * i / (SAMPLES - 1), bytes, piece));
        hash = XXH3_64bits_withSeed(piece, bytes, hash);
    }
    *out = hash;
    return STATUS_OK;
}

static enum status hash_text(struct token_cache *cache) {
    if (cache->text_hashed) return STATUS_OK;
    XXH3_state_t *state = XXH3_createState();
    if (!state) return status_set(STATUS_FAILED, "out of memory for a hash");
    XXH3_128bits_reset(state);
    enum status status;
    TRY_GOTO(status, file_input_pass(&cache->making.text, 0, cache->making.text.bytes, add_to_hash, state), done);
    store_hash(XXH3_128bits_digest(state), cache->key.text_hash);
    cache->text_hashed = true;
done:
    XXH3_freeState(state);
    return status;
}

static void end_making(struct token_cache *cache) {
    struct making *making = &cache->making;
    tokenizing_free(making->tokenizing);
    chat_template_free(making->chat);
    XXH3_freeState(making->hash);
    pthread_mutex_lock(&cache->hash_lock);
    file_input_close(&making->text);
    pthread_mutex_unlock(&cache->hash_lock);
    *making = (struct making){0};
}

static struct token_cache_key key_of_0_1_0(const struct token_cache *cache) {
    struct token_cache_key key = cache->key_of_0_1_0;
    memcpy(key.text_hash, cache->key.text_hash, sizeof key.text_hash);
    return key;
}

/* Opens the file of this version or, for plain text, a file of 0.1.0 with the same ids. Rows need a file of this
 * version, because older ones lack the unread keys. */
static bool open_file(struct token_cache *cache, struct token_view *view, struct text_notes *notes) {
    if (token_cache_file_open(cache->path, &cache->key, &cache->found, view, notes)) return true;
    if (cache->key.kind != SOURCE_TEXT) return false;
    struct token_cache_key key = key_of_0_1_0(cache);
    if (!token_cache_file_open(cache->path, &key, &cache->found, view, notes)) return false;
    if (tokens_of_0_1_0_check(&cache->text_of_0_1_0) == STATUS_OK) return true;
    status_clear();
    file_input_close(&cache->found);
    return false;
}

/* Opens the cache if it exists and is valid. */
static enum status load(struct token_cache *cache) {
    if (!file_exists(cache->path)) return STATUS_OK;
    pthread_mutex_lock(&cache->hash_lock);
    enum status hashed = hash_text(cache);
    pthread_mutex_unlock(&cache->hash_lock);
    TRY(hashed);
    struct token_view view;
    struct text_notes notes = {0};
    if (!open_file(cache, &view, &notes)) {
        if (!cache->reported_other)
            log_note("%s: %s; tokenizing again", cache->name, token_cache_file_refusal(cache->path, &cache->key));
        cache->reported_other = true;
        return STATUS_OK;
    }
    json_decref(cache->notes.unread); /* of the ids made here so far */
    cache->notes = notes;
    cache->view = view;
    cache->whole = true;
    end_making(cache);
    uint64_t hash;
    return cache->view.id_limit > cache->vocab_size
               ? token_view_examine(cache->name, &cache->view, cache->vocab_size, &hash)
               : STATUS_OK;
}

static enum status prepare_making(const struct dataset_options *options, enum source_kind kind,
                                  struct token_cache *cache) {
    struct making *making = &cache->making;
    struct tokenizing_source source = {kind, making->chat, cache->name, &making->text, &cache->notes};
    cache->view = (struct token_view){.token_bytes = (int)cache->key.token_bytes, .id_limit = cache->id_limit};
    making->hash = XXH3_createState();
    if (!making->hash) return status_set(STATUS_FAILED, "out of memory for a hash");
    XXH3_128bits_reset(making->hash);
    return tokenizing_create(options, &source, &making->tokenizing);
}

static enum status find_mark(struct token_cache *cache) {
    char first[3] = "";
    size_t bytes = cache->making.text.bytes < sizeof first ? cache->making.text.bytes : sizeof first;
    TRY(file_input_read(&cache->making.text, 0, bytes, first));
    cache->begins_with_mark = memcmp(first, "\xEF\xBB\xBF", sizeof first) == 0;
    return STATUS_OK;
}

static enum status open_cache(const struct dataset_options *options, const struct source *source,
                              struct token_cache *cache) {
    struct making *making = &cache->making;
    cache->name = mem_string(source->path);
    cache->folder = mem_string(options->cache_folder);
    if (!cache->name || !cache->folder) return STATUS_FAILED;
    TRY(file_input_open(source->path, &making->text));
    if (making->text.bytes == 0)
        return status_set(STATUS_BAD_INPUT, "%s: is empty" HINT "leave it out, or put text into it", source->path);
    if (source->kind == SOURCE_CHAT || source->kind == SOURCE_PREFERENCE_CHATS) {
        BUG_IF(!options->chat_folder, "conversations without a directory of the chat template");
        TRY(chat_template_open(options->chat_folder, &making->chat));
    }
    if (source->kind == SOURCE_ALPACA && options->chat_folder)
        TRY(chat_template_find(options->chat_folder, &making->chat));
    if (source->kind == SOURCE_ALPACA)
        cache->form =
            making->chat ? "by the model's chat template" : "in Alpaca's words, as the model has no chat template";
    if (source->kind == SOURCE_TEXT) TRY(find_mark(cache));
    cache->id_limit = tokenizer_vocab_size(options->tokenizer);
    if (options->eos_token >= cache->id_limit) cache->id_limit = options->eos_token + 1;
    cache->vocab_size = source_is_supervised(source->kind) ? INT64_MAX : options->vocab_size;
    TRY(make_key(options, source->kind, cache));
    TRY(hash_sample(&making->text, &cache->sample));
    cache->path = token_cache_path(options->cache_folder, source->path);
    if (!cache->path) return STATUS_FAILED;
    TRY(load(cache));
    return cache->whole ? STATUS_OK : prepare_making(options, source->kind, cache);
}

enum status token_cache_open(const struct dataset_options *options, const struct source *source,
                             struct token_cache **out) {
    if (!options->tokenizer)
        return status_set(STATUS_BAD_INPUT,
                          "%s: text data need a tokenizer, and the model's directory has no tokenizer.json" HINT
                          "add the model's tokenizer.json, or give token files (.bin)",
                          source->path);
    BUG_IF(!options->cache_folder || !options->tokenizer_path, "token cache without directory or tokenizer path");
    struct token_cache *cache = mem_array(1, sizeof *cache);
    if (!cache) return STATUS_FAILED;
    pthread_mutex_init(&cache->hash_lock, NULL);
    enum status status = open_cache(options, source, cache);
    if (status == STATUS_OK)
        *out = cache;
    else
        token_cache_close(cache);
    return status;
}

void token_cache_close(struct token_cache *cache) {
    if (!cache) return;
    end_making(cache);
    token_lock_close(&cache->following.lock);
    file_input_close(&cache->following.file);
    file_input_close(&cache->found);
    token_cache_writer_close(&cache->writer);
    pthread_mutex_destroy(&cache->hash_lock);
    mem_free(cache->path);
    json_decref(cache->notes.unread);
    mem_free(cache->folder);
    mem_free(cache->name);
    mem_free(cache);
}

bool token_cache_whole(const struct token_cache *cache) { return cache->whole; }

struct token_view token_cache_view(const struct token_cache *cache) {
    return cache->view;
}

static enum status write_ids(void *payload, const uint32_t *ids, size_t count) {
    struct token_cache *cache = payload;
    struct token_cache_writer *writer = &cache->writer;
    for (size_t i = 0; i < count && cache->id_limit > cache->vocab_size; i++)
        if (ids[i] >= cache->vocab_size)
            return token_refuse_id(cache->name, writer->count + (int64_t)i, ids[i], cache->vocab_size);
    return token_cache_writer_write(writer, ids, count);
}

/* The key has the hash of the text as read, which must equal the text at the start of the run. */
static enum status keep_hash(struct token_cache *cache) {
    uint64_t read[2], *known = cache->key.text_hash;
    store_hash(XXH3_128bits_digest(cache->making.hash), read);
    pthread_mutex_lock(&cache->hash_lock);
    bool same = !cache->text_hashed || memcmp(read, known, sizeof read) == 0;
    if (same) memcpy(known, read, sizeof read);
    cache->text_hashed = true;
    pthread_mutex_unlock(&cache->hash_lock);
    return same ? STATUS_OK : status_set(STATUS_BAD_INPUT, "%s: changed while it was tokenized", cache->name);
}

static enum status finish(struct token_cache *cache) {
    TRY(keep_hash(cache));
    token_cache_writer_publish(&cache->writer, &cache->key, cache->id_limit, &cache->notes);
    token_lock_close(&cache->following.lock);
    cache->whole = true;
    cache->took_ns = clock_now_ns() - cache->began_ns;
    end_making(cache);
    return STATUS_OK;
}

/* ---- ids from another process ---- */

/* Stops waiting for a maker that makes no progress for this long. */
enum { PATIENCE_S = 5, LOOK_NS = 10000000 };

static void follow_no_more(struct token_cache *cache) {
    cache->following.settled = true;
    token_lock_close(&cache->following.lock);
}

/* This process has the lock: the ids are complete, or must be made here. */
static enum status take_over(struct token_cache *cache) {
    cache->following.settled = true;
    TRY(load(cache));
    if (cache->whole) token_lock_close(&cache->following.lock);
    return STATUS_OK;
}

/* Identity from a sample of the text, taken when the cache was opened, and from its length. It reads nothing, and it
 * does not change while the ids are made. */
static uint64_t token_cache_glance(const struct token_cache *cache) {
    struct token_cache_key key = cache->key;
    memset(key.text_hash, 0, sizeof key.text_hash);
    return XXH3_64bits_withSeed(&key, sizeof key, cache->sample);
}

/* Shows the other process's ids so far. False if they differ from the ids made here, or cannot be read. */
static bool take_ids(struct token_cache *cache, const struct token_making *making) {
    struct following *following = &cache->following;
    bool same = making->key == token_cache_glance(cache) && token_making_is_near(making);
    if (!same || cache->id_limit > cache->vocab_size) return false; /* ids must be compared with the model's */
    if (making->count <= cache->view.count) return true;
    if (!following->file.path && file_input_open(making->file, &following->file) != STATUS_OK) return false;
    if (strcmp(following->file.path, making->file) != 0) return false; /* another maker than before */
    following->file.bytes = (size_t)making->count * cache->key.token_bytes;
    following->text_bytes = making->text_bytes;
    following->changed_ns = clock_now_ns();
    cache->view.input = following->file;
    cache->view.count = making->count;
    return true;
}

static enum status follow(struct token_cache *cache) {
    struct following *following = &cache->following;
    struct token_making making;
    int64_t before = cache->view.count;
    if (token_lock_read(&following->lock, &making) && !take_ids(cache, &making)) {
        follow_no_more(cache);
        return STATUS_OK;
    }
    if (cache->view.count > before) return STATUS_OK;
    switch (token_lock_retry(&following->lock)) {
    case TOKEN_LOCK_MINE: return take_over(cache);
    case TOKEN_LOCK_OTHERS:
        if (clock_now_ns() - following->changed_ns > PATIENCE_S * 1000000000ll)
            follow_no_more(cache);
        else
            nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
        break;
    case TOKEN_LOCK_NONE: follow_no_more(cache); break;
    }
    return STATUS_OK;
}

/* Finds the maker of the ids; the lock's directory may not exist yet. */
static enum status begin_following(struct token_cache *cache) {
    (void)folder_create(cache->folder);
    status_clear();
    cache->following.changed_ns = clock_now_ns();
    switch (token_lock_open(cache->path, &cache->following.lock)) {
    case TOKEN_LOCK_MINE: return take_over(cache);
    case TOKEN_LOCK_OTHERS: break;
    case TOKEN_LOCK_NONE: follow_no_more(cache); break;
    }
    return STATUS_OK;
}

/* ---- ids made here ---- */

/* Shows the ids made here after another process's ids, which are the same, and records progress for others. */
static void show_made(struct token_cache *cache) {
    struct token_view made = token_cache_writer_view(&cache->writer, cache->id_limit);
    if (made.count >= cache->view.count) cache->view = made;
    if (cache->writer.beside)
        token_lock_write(&cache->following.lock, token_cache_glance(cache), made.count,
                         tokenizing_done(cache->making.tokenizing), cache->writer.beside);
    else
        token_lock_close(&cache->following.lock); /* other processes cannot read them */
}

static enum status make_ids(struct token_cache *cache, struct tokenize_effort effort) {
    struct making *making = &cache->making;
    if (!cache->writer.path) {
        cache->began_ns = clock_now_ns();
        TRY(token_cache_writer_open(cache->folder, cache->path, (int)cache->key.token_bytes, &cache->writer));
    }
    enum status status = tokenizing_advance(making->tokenizing, effort, (struct token_sink){write_ids, cache});
    size_t done = tokenizing_done(making->tokenizing);
    show_made(cache);
    if (status == STATUS_OK) status = file_input_pass(&making->text, making->hashed, done, add_to_hash, making->hash);
    making->hashed = done;
    return status == STATUS_OK && done == making->text.bytes ? finish(cache) : status;
}

enum status token_cache_advance(struct token_cache *cache, struct tokenize_effort effort) {
    BUG_IF(cache->whole, "%s: is whole", cache->name);
    if (!cache->following.settled && !cache->following.lock.open) TRY(begin_following(cache));
    if (!cache->following.settled) TRY(follow(cache));
    return cache->following.settled && !cache->whole ? make_ids(cache, effort) : STATUS_OK;
}

void token_cache_rest(struct token_cache *cache) {
    if (cache->making.tokenizing) tokenizing_rest(cache->making.tokenizing);
}

uint64_t token_cache_identity(struct token_cache *cache) {
    pthread_mutex_lock(&cache->hash_lock);
    bool known = hash_text(cache) == STATUS_OK;
    struct token_cache_key key = cache->key;
    key.version = TOKEN_IDS_VERSION;
    uint64_t identity = known ? XXH3_64bits(&key, sizeof key) : 0;
    pthread_mutex_unlock(&cache->hash_lock);
    return identity;
}

uint64_t token_cache_identity_of_0_1_0(struct token_cache *cache) {
    if (token_cache_identity(cache) == 0) return 0;
    struct token_cache_key key = key_of_0_1_0(cache);
    return XXH3_64bits(&key, sizeof key);
}

enum status token_cache_check_0_1_0(const struct token_cache *cache, const struct tokenizer *tokenizer) {
    struct text_of_0_1_0 text = cache->text_of_0_1_0;
    text.tokenizer = tokenizer;
    return tokens_of_0_1_0_check(&text);
}

struct token_cache_progress token_cache_progress(const struct token_cache *cache) {
    const struct following *following = &cache->following;
    size_t bytes = cache->key.text_bytes, done = bytes;
    if (!cache->whole) done = following->settled ? tokenizing_done(cache->making.tokenizing) : following->text_bytes;
    return (struct token_cache_progress){cache->name, done, bytes};
}

void token_cache_report(struct token_cache *cache) {
    if (cache->reported || cache->began_ns == 0) return;
    cache->reported = true;
    struct token_cache_progress at = token_cache_progress(cache);
    char size[SIZE_TEXT];
    size_print((int64_t)at.bytes, size);
    if (cache->whole)
        log_note("tokenized %s: %lld tokens from %s of text in %.1f s", at.name, (long long)cache->view.count, size,
                 (double)cache->took_ns * 1e-9);
    else
        log_note("tokenized %.0f%% of %s (%s), which was enough; none of it is kept",
                 100 * (double)at.done / (double)at.bytes, at.name, size);
}

void token_cache_report_text(struct token_cache *cache, bool ended) {
    const struct utf8_damage *damage = &cache->notes.damage;
    if (cache->reported_text || (!cache->whole && !ended)) return;
    cache->reported_text = true;
    jsonl_unread_report(cache->name, cache->notes.unread);
    if (cache->form) log_note("%s: Alpaca's examples, %s", cache->name, cache->form);
    if (cache->begins_with_mark)
        log_warning("%s: begins with a byte-order mark, which Ballast reads as text; remove these 3 bytes",
                    cache->name);
    if (damage->parts == 0) return;
    log_warning("%s: bytes that are not UTF-8: %lld, in %lld places, the first at byte %lld; they are read as U+FFFD",
                cache->name, (long long)damage->bytes, (long long)damage->parts, (long long)damage->first);
}
