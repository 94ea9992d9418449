/* Files of all kinds as one sequence of tokens, whose later part may not be tokenized yet. A reader makes missing
 * tokens itself, unless another thread has made them meanwhile. The token at a position depends neither on the thread
 * that made it nor on the time. */
#pragma once

#include "base/base.h"
#include "comm/comm.h"
#include "data/source.h"
#include "data/tokenize.h"

struct corpus;

/* Opens the files in order, without tokenizing. BAD_INPUT, naming the file, if one is malformed, has no tokens, or has
 * an id that is `vocab_size` or more. The tokens of supervised files are marked ids (example.h), which are not compared
 * with it. The tokenizer must outlive the corpus. */
enum status corpus_open(const struct sources *sources, const struct dataset_options *options, struct corpus **out);
/* No other thread may still use it. Removes incomplete caches. Accepts NULL. */
void corpus_close(struct corpus *corpus);

/* The tokens made so far; their number only grows. */
struct corpus_extent {
    int64_t tokens;
    bool whole; /* there are no more */
};
struct corpus_extent corpus_extent(struct corpus *corpus);

/* Waits for at least `tokens` tokens, or all: makes missing ones, with up to `effort`. Any number of threads may call
 * it; one of them makes tokens. If making them failed, in any thread, each call that needs further tokens returns that
 * failure (BAD_INPUT or FAILED). */
enum status corpus_require(struct corpus *corpus, int64_t tokens, struct tokenize_effort effort,
                           struct corpus_extent *out);
/* For a background thread: makes one chunk on the calling thread alone, after all threads that wait for tokens. False
 * if all tokens are made, or making them failed. */
bool corpus_advance(struct corpus *corpus);
/* Frees memory that making tokens allocates again. */
void corpus_rest(struct corpus *corpus);

/* Reads tokens first .. first+count-1, which must exist, into out[count]. FAILED if they cannot be read. */
enum status corpus_read(struct corpus *corpus, int64_t first, int64_t count, int32_t *out);

/* A hash that is equal for equal files and settings, whether tokens are made or not. May read all texts; 0 if one
 * cannot be read. `of_0_1_0`: the hash of Ballast 0.1.0. */
uint64_t corpus_identity(struct corpus *corpus, bool of_0_1_0);
/* BAD_INPUT if Ballast 0.1.0 may have made other tokens. */
enum status corpus_check_0_1_0(const struct corpus *corpus, const struct tokenizer *tokenizer);
/* Collective: BAD_INPUT on all ranks, naming the first file whose content or reading differs from rank 0's. Reads texts
 * that were not read before; FAILED if that is impossible. */
enum status corpus_check_same(const struct corpus *corpus, struct comm *comm);
/* Calls token_cache_report_text for each text. */
void corpus_report_text(struct corpus *corpus, bool ended);
/* Logs for each tokenized text, once, its time or progress. */
void corpus_report(struct corpus *corpus);

/* Tokenizes during training: a thread makes the missing tokens of corpora, one chunk of text at a time.
 *
 * The thread has the lowest priority (nice 19). It takes 1.5% of a core while the compute threads use every core, and
 * all of an idle core. A reader that must wait for rows makes them itself with all threads, which takes no longer than
 * tokenizing before the first step. So results do not depend on the speed of reading. */

struct tokenize_thread;
/* The corpora must outlive it; the array is copied. FAILED without memory or a thread. */
enum status tokenize_thread_start(struct corpus *const *corpora, size_t count, struct tokenize_thread **out);
/* Stops it after the current chunk. Accepts NULL. */
void tokenize_thread_stop(struct tokenize_thread *thread);
