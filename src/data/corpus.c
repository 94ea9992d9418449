#include "data/corpus.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <xxhash.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/terminal.h"
#include "base/text.h"
#include "data/token_file.h"
#include "data/tokenize.h"

static const int64_t progress_ns = 3000000000;

struct part {
    struct token_cache *cache; /* of a text; NULL for a token file */
    struct file_input file;    /* a token file */
    uint64_t hash;             /* of its tokens */
    struct token_view view;    /* of the available tokens */
    int64_t first;             /* its begin in the corpus */
};

struct corpus {
    struct part *parts; /* in order, none empty */
    size_t part_count;
    pthread_mutex_t lock; /* of the fields below, and of views and places of the parts */
    pthread_cond_t changed;
    bool busy;                  /* a thread makes tokens of part `whole_parts` */
    int waiting;                /* threads that wait for tokens */
    size_t whole_parts;         /* parts whose tokens are all made */
    int64_t tokens;             /* available ones */
    struct status_copy failure; /* of tokenizing; OK: none */
};

static enum status open_token_file(const struct source *source, int64_t vocab_size, struct part *out) {
    TRY(file_input_open(source->path, &out->file));
    TRY(token_file_parse(source->path, &out->file, &out->view));
    return token_view_examine(source->path, &out->view, vocab_size, &out->hash);
}

static enum status refuse_empty(const char *name) { return status_set(STATUS_BAD_INPUT, "%s: holds no tokens", name); }

static bool is_whole(const struct part *part) { return !part->cache || token_cache_whole(part->cache); }

static enum status open_part(const struct source *source, const struct dataset_options *options, struct part *out) {
    if (source->kind == SOURCE_TOKENS) {
        TRY(open_token_file(source, options->vocab_size, out));
    } else {
        TRY(token_cache_open(options, source, &out->cache));
        out->view = token_cache_view(out->cache);
    }
    return is_whole(out) && out->view.count == 0 ? refuse_empty(source->path) : STATUS_OK;
}

/* Makes new tokens visible to all threads. Under the lock. */
static void show_tokens(struct corpus *corpus) {
    for (; corpus->whole_parts < corpus->part_count; corpus->whole_parts++) {
        struct part *part = &corpus->parts[corpus->whole_parts];
        const struct part *before = part - 1;
        part->first = corpus->whole_parts > 0 ? before->first + before->view.count : 0;
        if (part->cache) part->view = token_cache_view(part->cache);
        corpus->tokens = part->first + part->view.count;
        if (!is_whole(part) || corpus->failure.status != STATUS_OK) break;
    }
}

enum status corpus_open(const struct sources *sources, const struct dataset_options *options, struct corpus **out) {
    struct corpus *corpus = mem_array(1, sizeof *corpus);
    if (!corpus) return STATUS_FAILED;
    pthread_mutex_init(&corpus->lock, NULL);
    pthread_cond_init(&corpus->changed, NULL);
    corpus->parts = mem_array(sources->count, sizeof *corpus->parts);
    enum status status = corpus->parts ? STATUS_OK : STATUS_FAILED;
    for (size_t i = 0; i < sources->count && status == STATUS_OK; i++)
        status = open_part(&sources->items[i], options, &corpus->parts[corpus->part_count++]);
    if (status != STATUS_OK) {
        corpus_close(corpus);
        return status;
    }
    show_tokens(corpus);
    *out = corpus;
    return STATUS_OK;
}

void corpus_close(struct corpus *corpus) {
    if (!corpus) return;
    for (size_t i = 0; i < corpus->part_count; i++) {
        token_cache_close(corpus->parts[i].cache);
        file_input_close(&corpus->parts[i].file);
    }
    mem_free(corpus->parts);
    pthread_cond_destroy(&corpus->changed);
    pthread_mutex_destroy(&corpus->lock);
    mem_free(corpus);
}

/* Under the lock. */
static struct corpus_extent extent_of(const struct corpus *corpus) {
    return (struct corpus_extent){corpus->tokens, corpus->whole_parts == corpus->part_count};
}

struct corpus_extent corpus_extent(struct corpus *corpus) {
    pthread_mutex_lock(&corpus->lock);
    struct corpus_extent extent = extent_of(corpus);
    pthread_mutex_unlock(&corpus->lock);
    return extent;
}

/* Tokenizes more of the current part. Called under the lock, which is released meanwhile; the corpus is busy. */
static void make_tokens(struct corpus *corpus, struct tokenize_effort effort) {
    struct part *part = &corpus->parts[corpus->whole_parts];
    corpus->busy = true;
    pthread_mutex_unlock(&corpus->lock);
    enum status status = token_cache_advance(part->cache, effort);
    if (status == STATUS_OK && token_cache_whole(part->cache) && token_cache_view(part->cache).count == 0)
        status = refuse_empty(token_cache_progress(part->cache).name);
    pthread_mutex_lock(&corpus->lock);
    status_save(status, &corpus->failure);
    show_tokens(corpus);
    corpus->busy = false;
    pthread_cond_broadcast(&corpus->changed);
}

static bool is_missing(const struct corpus *corpus, int64_t tokens) {
    struct corpus_extent extent = extent_of(corpus);
    return extent.tokens < tokens && !extent.whole;
}

/* Reports progress to a reader that waits longer than some seconds. Under the lock, when the corpus is not busy. */
static void report_progress(const struct corpus *corpus, int64_t *reported_ns) {
    int64_t now_ns = clock_now_ns();
    if (corpus->whole_parts == corpus->part_count || now_ns - *reported_ns < progress_ns) return;
    struct token_cache_progress at = token_cache_progress(corpus->parts[corpus->whole_parts].cache);
    char size[SIZE_TEXT];
    *reported_ns = now_ns;
    log_note("tokenizing %s: %.0f%% of %s", at.name, 100.0 * (double)at.done / (double)at.bytes,
             size_print((int64_t)at.bytes, size));
}

/* Under the lock. */
static void rest(const struct corpus *corpus) {
    if (!corpus->busy && is_missing(corpus, INT64_MAX)) token_cache_rest(corpus->parts[corpus->whole_parts].cache);
}

/* Each wave is larger than the one before, so readers of few tokens wait for few. Under the lock. */
static void make_missing(struct corpus *corpus, int64_t tokens, struct tokenize_effort effort) {
    int64_t reported_ns = clock_now_ns();
    struct tokenize_effort wave = {effort.threads, effort.threads};
    while (is_missing(corpus, tokens) && corpus->failure.status == STATUS_OK) {
        struct token_cache *cache = corpus->parts[corpus->whole_parts].cache;
        if (corpus->busy) {
            pthread_cond_wait(&corpus->changed, &corpus->lock);
            continue;
        }
        if (wave.chunks > effort.chunks) wave.chunks = effort.chunks;
        make_tokens(corpus, wave);
        wave.chunks *= 2;
        if (token_cache_whole(cache)) token_cache_report(cache);
        report_progress(corpus, &reported_ns);
    }
    rest(corpus);
}

enum status corpus_require(struct corpus *corpus, int64_t tokens, struct tokenize_effort effort,
                           struct corpus_extent *out) {
    pthread_mutex_lock(&corpus->lock);
    enum status status = STATUS_OK;
    if (is_missing(corpus, tokens)) {
        corpus->waiting++;
        make_missing(corpus, tokens, effort);
        corpus->waiting--;
        pthread_cond_broadcast(&corpus->changed);
        if (is_missing(corpus, tokens)) status = status_restore(&corpus->failure);
    }
    *out = extent_of(corpus);
    pthread_mutex_unlock(&corpus->lock);
    return status;
}

bool corpus_advance(struct corpus *corpus) {
    pthread_mutex_lock(&corpus->lock);
    while (corpus->busy || corpus->waiting > 0)
        pthread_cond_wait(&corpus->changed, &corpus->lock);
    if (is_missing(corpus, INT64_MAX) && corpus->failure.status == STATUS_OK)
        make_tokens(corpus, (struct tokenize_effort){.threads = 1, .chunks = 1});
    bool more = is_missing(corpus, INT64_MAX) && corpus->failure.status == STATUS_OK;
    pthread_mutex_unlock(&corpus->lock);
    return more;
}

void corpus_rest(struct corpus *corpus) {
    pthread_mutex_lock(&corpus->lock);
    rest(corpus);
    pthread_mutex_unlock(&corpus->lock);
}

/* Finds the part of an available token, by bisection. Under the lock. */
static size_t find_part(const struct corpus *corpus, int64_t token) {
    size_t low = 0, high = corpus->whole_parts < corpus->part_count ? corpus->whole_parts + 1 : corpus->part_count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (corpus->parts[middle].first <= token)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Reads as many of the tokens as are in one part; sets *count to their number. */
static enum status read_part(struct corpus *corpus, int64_t first, int64_t *count, int32_t *out) {
    pthread_mutex_lock(&corpus->lock);
    BUG_IF(first < 0 || *count < 0 || first > corpus->tokens - *count, "tokens %lld..+%lld of %lld", (long long)first,
           (long long)*count, (long long)corpus->tokens);
    const struct part *part = &corpus->parts[find_part(corpus, first)];
    struct token_view view = part->view;
    int64_t from = first - part->first;
    pthread_mutex_unlock(&corpus->lock);
    if (*count > view.count - from) *count = view.count - from;
    return token_view_read(&view, from, *count, out);
}

enum status corpus_read(struct corpus *corpus, int64_t first, int64_t count, int32_t *out) {
    for (int64_t done = 0; done < count;) {
        int64_t here = count - done;
        TRY(read_part(corpus, first + done, &here, out + done));
        done += here;
    }
    return STATUS_OK;
}

/* 0: unreadable. */
static uint64_t mix_part(const struct part *part, bool of_0_1_0, uint64_t hash) {
    uint64_t fields[3] = {part->hash};
    if (part->cache) {
        fields[0] = of_0_1_0 ? token_cache_identity_of_0_1_0(part->cache) : token_cache_identity(part->cache);
        if (fields[0] == 0) return 0;
    } else {
        fields[1] = (uint64_t)part->view.count;
        fields[2] = (uint64_t)part->view.token_bytes;
    }
    return XXH3_64bits_withSeed(fields, sizeof fields, hash);
}

uint64_t corpus_identity(struct corpus *corpus, bool of_0_1_0) {
    uint64_t hash = 0;
    for (size_t i = 0; i < corpus->part_count && (i == 0 || hash != 0); i++)
        hash = mix_part(&corpus->parts[i], of_0_1_0, hash);
    return hash;
}

enum status corpus_check_0_1_0(const struct corpus *corpus, const struct tokenizer *tokenizer) {
    for (size_t i = 0; i < corpus->part_count; i++)
        if (corpus->parts[i].cache) TRY(token_cache_check_0_1_0(corpus->parts[i].cache, tokenizer));
    return STATUS_OK;
}

static enum status check_part(const struct part *part, struct comm *comm) {
    const char *path = part->cache ? token_cache_progress(part->cache).name : part->file.path;
    AUTO_FREE char *what = mem_format("the data file %s", path);
    uint64_t hash = what ? mix_part(part, false, 0) : 0;
    TRY(comm_agree(comm, hash ? STATUS_OK : STATUS_FAILED));
    return comm_check_same(comm, what, &hash, sizeof hash);
}

enum status corpus_check_same(const struct corpus *corpus, struct comm *comm) {
    TRY(comm_check_same(comm, "how many data files they have", &corpus->part_count, sizeof corpus->part_count));
    for (size_t i = 0; i < corpus->part_count; i++)
        TRY(check_part(&corpus->parts[i], comm));
    return STATUS_OK;
}

void corpus_report(struct corpus *corpus) {
    for (size_t i = 0; i < corpus->part_count; i++)
        if (corpus->parts[i].cache) token_cache_report(corpus->parts[i].cache);
}

void corpus_report_text(struct corpus *corpus, bool ended) {
    for (size_t i = 0; i < corpus->part_count; i++)
        if (corpus->parts[i].cache) token_cache_report_text(corpus->parts[i].cache, ended);
}

/* Chunks of a corpus before the next corpus gets its turn: each change starts with an empty word cache. */
enum { TURN_CHUNKS = 16 };

struct tokenize_thread {
    pthread_t thread;
    atomic_bool stop;
    size_t count;
    struct corpus *corpora[];
};

/* False if the corpus has ended. */
static bool take_turn(struct tokenize_thread *thread, struct corpus *corpus) {
    for (int i = 0; i < TURN_CHUNKS; i++)
        if (atomic_load(&thread->stop) || !corpus_advance(corpus)) return false;
    if (thread->count > 1) corpus_rest(corpus);
    return true;
}

static void *tokenize_all(void *payload) {
    struct tokenize_thread *thread = payload;
    (void)setpriority(PRIO_PROCESS, 0, 19); /* on Linux, of the thread */
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < thread->count; i++)
            more |= take_turn(thread, thread->corpora[i]);
    }
    return NULL;
}

enum status tokenize_thread_start(struct corpus *const *corpora, size_t count, struct tokenize_thread **out) {
    struct tokenize_thread *thread = mem_array(1, sizeof *thread + count * sizeof(struct corpus *));
    if (!thread) return STATUS_FAILED;
    thread->count = count;
    memcpy(thread->corpora, corpora, count * sizeof *corpora);
    int error = fault_point(FAULT_SUBMIT) ? EAGAIN : pthread_create(&thread->thread, NULL, tokenize_all, thread);
    if (error != 0) {
        mem_free(thread);
        return status_set(STATUS_FAILED, "cannot start a thread that tokenizes: %s", strerror(error));
    }
    *out = thread;
    return STATUS_OK;
}

void tokenize_thread_stop(struct tokenize_thread *thread) {
    if (!thread) return;
    atomic_store(&thread->stop, true);
    pthread_join(thread->thread, NULL);
    mem_free(thread);
}
