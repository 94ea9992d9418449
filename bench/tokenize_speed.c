/* Measures the tokenizing speed of one thread.
 *
 *     build/bench/tokenize_speed                      the worst case: runs of one letter, by length
 *     build/bench/tokenize_speed TOKENIZER TEXT       a text, by document (separated by blank lines) and as a whole
 *
 * bench/tokenize.sh compares the second form with the `tokenizers` library. Both print sums of ids, which show that
 * their ids are equal. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/terminal.h"
#include "text/tokenizer/tokenizer.h"

enum { RUN_MIN = 1 << 18, LONGEST_RUN = 1 << 24 };

struct total {
    uint64_t count, sum;
};

static enum status encode(struct tokenizer_encoder *encoder, const char *text, size_t bytes, struct token_ids *ids,
                          struct total *total) {
    ids->count = 0;
    TRY(tokenizer_encoder_append(encoder, text, bytes, false, false, ids));
    total->count += ids->count;
    for (size_t i = 0; i < ids->count; i++)
        total->sum += ids->items[i];
    return STATUS_OK;
}

static void line_print(const char *what, size_t bytes, int64_t taken_ns, const struct total *total) {
    printf("%-22s %6.1f MB %8.3f s %7.1f MB/s  ids %llu sum %llu\n", what, (double)bytes * 1e-6,
           (double)taken_ns * 1e-9, (double)bytes * 1e3 / (double)taken_ns, (unsigned long long)total->count,
           (unsigned long long)total->sum);
    fflush(stdout);
}

static enum status documents_encode(struct tokenizer_encoder *encoder, const char *text, size_t bytes,
                                    struct token_ids *ids, struct total *total) {
    for (const char *end = text + bytes; text < end;) {
        const char *stop = memmem(text, (size_t)(end - text), "\n\n", 2);
        stop = stop ? stop : end;
        TRY(encode(encoder, text, (size_t)(stop - text), ids, total));
        text = stop + 2;
    }
    return STATUS_OK;
}

static enum status text_measure(const struct tokenizer *tokenizer, const char *text, size_t bytes) {
    struct tokenizer_encoder *encoder;
    struct total documents = {0}, whole = {0};
    struct token_ids ids = {0};
    TRY(tokenizer_encoder_create(tokenizer, &encoder));
    int64_t start = clock_now_ns();
    enum status status = documents_encode(encoder, text, bytes, &ids, &documents);
    int64_t middle = clock_now_ns();
    if (status == STATUS_OK) status = encode(encoder, text, bytes, &ids, &whole);
    int64_t stop = clock_now_ns();
    vec_free(&ids);
    tokenizer_encoder_free(encoder);
    if (status != STATUS_OK) return status;
    line_print("ballast, documents", bytes, middle - start, &documents);
    line_print("ballast, whole", bytes, stop - middle, &whole);
    return STATUS_OK;
}

static enum status file_measure(const char *tokenizer_path, const char *text_path) {
    struct tokenizer *tokenizer;
    char *text;
    size_t bytes;
    TRY(tokenizer_open(tokenizer_path, &tokenizer));
    enum status status = file_read(text_path, SIZE_MAX - 1, &text, &bytes);
    if (status == STATUS_OK) {
        status = text_measure(tokenizer, text, bytes);
        mem_free(text);
    }
    tokenizer_free(tokenizer);
    return status;
}

/* Merges of a letter with itself, as in vocabularies trained on real texts. */
static const char run_tokenizer[] =
    "{\"model\":{\"vocab\":{\"a\":0,\"aa\":1,\"aaa\":2,\"aaaa\":3,\"aaaaa\":4,\"aaaaaaaa\":5,\"b\":6,\"ab\":7},"
    "\"merges\":[[\"a\",\"b\"],[\"a\",\"a\"],[\"aa\",\"aa\"],[\"aa\",\"a\"],[\"aaaa\",\"a\"],[\"aaaa\",\"aaaa\"]]}}";

static enum status runs_measure(void) {
    struct tokenizer *tokenizer;
    json_t *file;
    TRY(json_parse_object("runs", run_tokenizer, sizeof run_tokenizer - 1, &file));
    TRY(tokenizer_read("runs", file, &tokenizer));
    char *text = mem_array(LONGEST_RUN, 1);
    enum status status = text ? STATUS_OK : STATUS_FAILED;
    if (text) memset(text, 'a', LONGEST_RUN);
    for (size_t bytes = RUN_MIN; status == STATUS_OK && bytes <= LONGEST_RUN; bytes *= 4) {
        struct tokenizer_encoder *encoder;
        struct total total = {0};
        struct token_ids ids = {0};
        status = tokenizer_encoder_create(tokenizer, &encoder);
        if (status != STATUS_OK) break;
        int64_t start = clock_now_ns();
        status = encode(encoder, text, bytes, &ids, &total);
        if (status == STATUS_OK) line_print("run of one letter", bytes, clock_now_ns() - start, &total);
        tokenizer_encoder_free(encoder);
        vec_free(&ids);
    }
    mem_free(text);
    tokenizer_free(tokenizer);
    return status;
}

int main(int count, char **arguments) {
    if (process_begin() != STATUS_OK) return STATUS_FAILED;
    if (count != 1 && count != 3) {
        fprintf(stderr, "usage: %s [TOKENIZER TEXT]\n", arguments[0]);
        return 2;
    }
    enum status status = count == 1 ? runs_measure() : file_measure(arguments[1], arguments[2]);
    if (status != STATUS_OK) fprintf(stderr, "%s\n", status_message());
    return status == STATUS_OK ? 0 : 1;
}
