/* Files of all kinds as one sequence of tokens, whose later part may not be tokenized yet. A reader makes missing
 * tokens itself, unless another thread has made them meanwhile. The tokens at each place never depend on which thread
 * made them or when. */
#pragma once

#include "base/base.h"
#include "comm/comm.h"
#include "data/source.h"
#include "data/tokenize.h"

struct corpus;

/* Opens the files in order, without tokenizing. BAD_INPUT, naming the file, when one is malformed, has no tokens, or
 * has an id that is `vocab_size` or more. Of supervised files the tokens are marked ids (example.h), which are not
 * compared with it. The tokenizer must outlive it. */
enum status corpus_open(const struct sources *sources, const struct dataset_options *options, struct corpus **out);
/* No other thread may still use it. Caches that are not whole are removed. NULL is allowed. */
void corpus_close(struct corpus *corpus);

/* The tokens made so far; their number only grows. */
struct corpus_extent {
    int64_t tokens;
    bool whole; /* nothing follows */
};
struct corpus_extent corpus_extent(struct corpus *corpus);

/* Returns when there are at least `tokens` tokens, or all: makes the missing ones, with up to `effort`. Any number of
 * threads may call it; one of them makes tokens. Where making them failed, in whichever thread, each call that needs
 * more tokens than there are returns that failure (BAD_INPUT or FAILED). */
enum status corpus_require(struct corpus *corpus, int64_t tokens, struct tokenize_effort effort,
                           struct corpus_extent *out);
/* For a background thread: makes one chunk on the calling thread alone, after all threads that wait for tokens. False
 * when all tokens are made, or making them failed. */
bool corpus_advance(struct corpus *corpus);
/* Frees memory that making tokens allocates again. */
void corpus_rest(struct corpus *corpus);

/* Tokens first .. first+count-1, which must be there, into out[count]. FAILED when they cannot be read. */
enum status corpus_read(struct corpus *corpus, int64_t first, int64_t count, int32_t *out);

/* A hash that is equal for equal files and settings, whether their tokens are made or not. It may read all texts; 0
 * when one cannot be read. `of_0_1_0`: as Ballast 0.1.0 made it. */
uint64_t corpus_identity(struct corpus *corpus, bool of_0_1_0);
/* BAD_INPUT where Ballast 0.1.0 may have made other tokens. */
enum status corpus_check_0_1_0(const struct corpus *corpus, const struct tokenizer *tokenizer);
/* Collective: BAD_INPUT on all ranks, naming the first file that differs from rank 0's anywhere in what it holds or how
 * it is read. Reads texts that were not read before; FAILED where that is impossible. */
enum status corpus_check_same(const struct corpus *corpus, struct comm *comm);
/* token_cache_report_text of each text. */
void corpus_report_text(struct corpus *corpus, bool ended);
/* Logs once for each tokenized text how long it took or how far it got. */
void corpus_report(struct corpus *corpus);

/* Tokenizing during training: a thread that makes the missing tokens of corpora, one chunk of text at a time.
 *
 * It is one thread with the lowest priority (nice 19): it takes 1.5% of a core while the compute threads use every
 * core, and all of an idle core. A reader that has to wait for rows makes them itself with all threads, which takes no
 * longer than tokenizing before the first step. So nothing depends on how fast training reads. */

struct tokenize_thread;
/* The corpora must outlive it; the array is copied. FAILED when there is no memory or no thread. */
enum status tokenize_thread_start(struct corpus *const *corpora, size_t count, struct tokenize_thread **out);
/* Ends it after the chunk under way. NULL is allowed. */
void tokenize_thread_stop(struct tokenize_thread *thread);
