/* Training and validation data as batches of token sequences.
 *
 *     struct dataset_options options = {.paths = paths, .path_count = n, .vocab_size = 50257, .sequence_tokens = 1024};
 *     struct dataset *dataset;
 *     struct dataset_batch batch = {.tokens = tokens, .targets = targets};
 *     struct dataset_rows rows = {.step = step, .batch = batch_rows, .count = batch_rows};
 *     TRY(dataset_open(&options, &dataset));
 *     TRY(dataset_fill_rows(dataset, DATASET_TRAIN, &rows, &batch, &counted));
 *     dataset_close(dataset);
 *
 * The files' tokens, one file after the other, are cut into sequences of T = sequence_tokens: sequence i has tokens
 * i*T .. i*T+T-1 as inputs and each one's successor as target, so it takes T+1 tokens and shares one with the next.
 * What is left at the end is dropped. Sequences cross the borders of documents; with `documents_apart` each document in
 * a sequence is a segment of its own, with positions from 0, and its last token has no target.
 *
 * Supervised .jsonl files ({"prompt": ..., "completion": ...} or {"messages": [...]}) give examples instead: each
 * token's successor is its target where that is trained on, by default in completions and assistant's turns only. An
 * example has a sequence of its own, padded with tokens without targets; `pack_examples` packs several into one, a
 * segment each. The end of an example that is longer than a sequence is cut.
 *
 * Files of preferences ({"prompt": ..., "chosen": ..., "rejected": ...}) give pairs: two examples, each with a sequence
 * of its own, the chosen one first. They follow each other in a batch, whose number of sequences is even.
 *
 * Training paths may have weights (`a.txt:0.7`): then each path's sequences are a source of their own, and sources are
 * mixed in exact proportions (rows.h), each going through epochs of its own.
 *
 * Text that no earlier run has tokenized is tokenized while it is read (corpus.h): opening makes the first rows,
 * filling a batch makes the rows it lacks, and dataset_tokenize_beside starts a thread that makes the rest. Batches are
 * the same however far that thread is. An error in a text is returned by the call that needs the missing tokens.
 *
 * Any number of threads may fill batches. Tokens are read from files where they are used and take no memory; making
 * them takes some (dataset_tokenize_beside).
 *
 * Files, in the order to read them:
 *   dataset: this file; source: which files are meant, and what their lines are; component: the files of one weight;
 *   rows: whose turn it is, which row comes, one sequence of a batch, and which examples share one;
 *   corpus: files as one sequence of tokens that may still grow, also during training;
 *   tokenize: a text to ids, in parallel; token_cache: ids that later runs find; token_file: ids as they lie in files;
 *   forms: rows as conversations, prompts and answers, and keys that nothing reads. */
#pragma once

#include "base/base.h"
#include "comm/comm.h"
#include "data/rows.h"
#include "text/tokenizer/tokenizer.h"

struct dataset;

enum dataset_split { DATASET_TRAIN, DATASET_VALID, DATASET_SPLITS };

/* Opens all files. Of text that is not in the cache the first rows are tokenized, and all that must be known at once:
 * examples, and the text of several sources without weights. BAD_INPUT, naming the file, when a file is missing,
 * malformed, empty, of another kind, or has an id that the model has not; when there are fewer tokens than one sequence
 * takes; when text comes without a tokenizer. Fails also without training
 * paths unless there are valid_paths (evaluation: then there are 0 training sequences). */
enum status dataset_open(const struct dataset_options *options, struct dataset **out);
/* Whether some of the files hold supervised examples that are no pairs, by their names and first lines; uses paths and
 * columns alone. BAD_INPUT where a file is missing or of no kind. */
enum status dataset_find_examples(const struct dataset_options *options, bool *out);
/* Says of each text that was tokenized meanwhile how long that took or how far it came. NULL is allowed. */
void dataset_close(struct dataset *dataset);

/* Has a thread of low priority tokenize what is left (corpus.h), until dataset_close; once. It takes
 * about 5 MiB. From here on whoever waits for rows makes them with at most 4 threads, which takes 20 MiB (33 where
 * every byte is a token) while it waits. Without such a thread, which is only warned of, rows are made as they are
 * read.
 */
void dataset_tokenize_beside(struct dataset *dataset);

/* Whether a split has sequences. */
bool dataset_has(const struct dataset *dataset, enum dataset_split split);
/* Whether its validation data is a part of the training data. */
bool dataset_holds_out(const struct dataset *dataset);
/* Whether there are supervised examples. */
bool dataset_has_examples(const struct dataset *dataset);
/* Whether it trains on files that a chat template renders (source_takes_template). */
bool dataset_takes_template(const struct dataset *dataset);
/* Whether training mixes several sources by weights, so that each has epochs of its own. */
bool dataset_is_mixed(const struct dataset *dataset);
/* Waits until all that decides how many sequences a split has is tokenized: its files, or the training files where
 * their last part is held out. Before it fills batches of validation; not from two threads at once. */
enum status dataset_settle(struct dataset *dataset, enum dataset_split split);
/* 0 when there is no data of this split. -1: not known as long as the split is not settled; it is after opening if
 * nothing had to be tokenized. */
int64_t dataset_split_sequences(const struct dataset *dataset, enum dataset_split split);
/* All tokens of all files, what is dropped included; -1: not known yet. */
int64_t dataset_tokens(const struct dataset *dataset);
/* Logs how full the rows of examples are, how many examples were cut or left out, which keys of rows are not read,
 * and how much of a text is not UTF-8. For a text that is still being tokenized dataset_close logs the last two. */
void dataset_report_cuts(const struct dataset *dataset);
/* Equal for equal files and settings that give equal sequences; other things almost surely differ. For noticing on
 * resume that the data are not the same. It waits for no tokens, but reads text that was not read before, and is 0
 * where that cannot be read; concurrently with any other call. */
uint64_t dataset_fingerprint(const struct dataset *dataset);
/* The fingerprint that Ballast 0.1.0 gave these files and settings, whose sequences need not be equal. */
uint64_t dataset_fingerprint_of_0_1_0(const struct dataset *dataset);
/* BAD_INPUT, naming file, line and rule, where the sequences of 0.1.0 may differ. It may read all text. */
enum status dataset_check_0_1_0(const struct dataset *dataset, const struct tokenizer *tokenizer);

/* Collective: BAD_INPUT on all ranks, naming the first file that differs from rank 0's anywhere. They have opened it
 * with the same options. Several ranks read text that was not read before: 0.2 s of processor time a GB. */
enum status dataset_check_same(const struct dataset *dataset, struct comm *comm);

/* Arrays, T tokens a row; positions and segments may be NULL. */
struct dataset_batch {
    int32_t *tokens, *targets, *positions, *segments;
    double *references; /* one a row: what dataset_set_references has for its sequence; NULL: not wanted */
};

/* Where all files hold examples: their sequences, those of training data first, in the files' order, those held out
 * among them. */
int64_t dataset_sequences(const struct dataset *dataset);
/* Fills rows with sequences [first, first + *count) of these: as many of `max` as there are. `references` are not
 * wanted. FAILED as dataset_fill_rows. */
enum status dataset_fill_sequences(const struct dataset *dataset, int64_t first, int64_t max,
                                   const struct dataset_batch *out, int64_t *count);
/* A number of each of them, borrowed for as long as batches are filled. */
void dataset_set_references(struct dataset *dataset, const double *references);

/* Rows [first, first + count) of the batch of a step: a rank's, or all `batch`. */
struct dataset_rows {
    int64_t step, batch;
    int64_t first, count; /* within the batch; a count of 0 fills nothing */
};

/* Fills arrays of count*T with rows of a batch, one by one. *targets is the number of targets that count in them, or of
 * pairs: that begin in them.
 *
 * Row r of a training step is position p = step*batch + r of an endless sequence. The mixture picks the source, and
 * each source gives its sequences in an order that the seed and its number among the sources decide (rows.h): a
 * pure function of the arguments, so that resuming needs the step only, and a row is the same whichever rank has it.
 * Validation steps go through the sequences once, in order; rows beyond the last are padding (row_fill_padding). The
 * split must have sequences; step is at least 0 and batch at least 1. BAD_INPUT or FAILED where the text of a row could
 * not be tokenized, as dataset_open; FAILED where a file cannot be read any more, such as one that was cut short. */
enum status dataset_fill_rows(const struct dataset *dataset, enum dataset_split split, const struct dataset_rows *rows,
                              const struct dataset_batch *out, int64_t *targets);
