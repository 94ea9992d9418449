/* Files of all kinds as one run of tokens, the later of which may still have to be made: what is read is made first, by
 * whoever reads it, unless another thread has done so meanwhile. Which tokens come at which place never depends on who
 * made them or when. */
#ifndef BALLAST_DATA_CORPUS_H
#define BALLAST_DATA_CORPUS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "data/source.h"
#include "data/token_cache.h"
#include "data/tokenize.h"

struct corpus;

/* Opens the files in order, without tokenizing. BAD_INPUT, naming the file, when one is malformed, has no tokens, or
 * has an id that is `vocab_size` or more. Of supervised files the tokens are marked ids (example.h), which are not
 * compared with it. The tokenizer must outlive it. */
enum status corpus_open(const struct sources *sources, const struct token_cache_options *options, struct corpus **out);
/* No other thread uses it any more. What is not whole leaves nothing behind. NULL is allowed. */
void corpus_close(struct corpus *corpus);

/* What is there; it only grows. */
struct corpus_extent {
    int64_t tokens;
    bool whole; /* nothing follows */
};
struct corpus_extent corpus_extent(struct corpus *corpus);

/* Returns when there are at least `tokens` tokens, or all: makes what is missing, with up to `effort`. Any number of
 * threads may ask; one of them makes. BAD_INPUT or FAILED as making them failed, whoever did, when and however often it
 * is asked for what was not there then. */
enum status corpus_require(struct corpus *corpus, int64_t tokens, struct tokenize_effort effort,
                           struct corpus_extent *out);
/* For a thread beside: makes one chunk on the calling thread alone, after all who wait for theirs. False when nothing
 * is left to do, or nothing can be done any more. */
bool corpus_advance(struct corpus *corpus);
/* Gives up memory that making gets anew. */
void corpus_rest(struct corpus *corpus);

/* Tokens first .. first+count-1, which must be there, into out[count]. FAILED when they cannot be read. */
enum status corpus_read(struct corpus *corpus, int64_t first, int64_t count, int32_t *out);

/* Equal for equal tokens from equal files, made or not; others almost surely differ. It may read all texts; 0 when one
 * cannot be read. */
uint64_t corpus_identity(struct corpus *corpus);
/* token_cache_tell_text of each text. */
void corpus_tell_text(struct corpus *corpus, bool ended);
/* Says once of each text that was tokenized how long that took or how far it came. */
void corpus_tell(struct corpus *corpus);

#endif
