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
 * The files' tokens, one file after the other, are cut into sequences of T = sequence_tokens. Sequence i has tokens i*T
 * .. i*T+T-1 as inputs, and each one's successor as target. So it takes T+1 tokens and shares one with the next. The
 * incomplete rest is dropped. Sequences cross the borders of documents. With `documents_apart` each document in a
 * sequence is a separate segment with positions from 0, and its last token has no target.
 *
 * Supervised .jsonl files ({"prompt": ..., "completion": ...} or {"messages": [...]}) give examples instead: trained
 * tokens are targets, by default only those of completions and assistant's turns. An example has its own sequence,
 * padded with tokens without targets; `pack_examples` packs several into one, a segment each. Examples longer than a
 * sequence are truncated.
 *
 * Files of preferences ({"prompt": ..., "chosen": ..., "rejected": ...}) give pairs: two examples, each with its own
 * sequence, the chosen one first. They are adjacent in a batch, whose number of sequences is even.
 *
 * Training paths may have weights (`a.txt:0.7`): then each path is a source with its own epochs, and sources are mixed
 * in exact proportions (rows.h).
 *
 * Text that no earlier run has tokenized is tokenized while it is read (corpus.h). Opening makes the first rows,
 * filling a batch makes the rows it lacks, and dataset_tokenize_beside starts a thread that makes the rest. Batches do
 * not depend on that thread's progress. The call that needs missing tokens returns errors of their text.
 *
 * Any number of threads may fill batches. Tokens are read from files on use and take no memory; making them takes some
 * (dataset_tokenize_beside).
 *
 * Files, in the order to read them:
 *   dataset: this file; source: input files, and the kinds of their lines; component: the files of one weight;
 *   rows: order of sources and rows, one sequence of a batch, and packing of examples;
 *   corpus: files as one sequence of tokens that may still grow, also during training;
 *   tokenize: a text to ids, in parallel; token_cache: ids for later runs; token_file: files of ids;
 *   forms: rows as conversations, prompts and answers, and unread keys. */
#pragma once

#include "base/base.h"
#include "comm/comm.h"
#include "data/rows.h"
#include "text/tokenizer/tokenizer.h"

struct dataset;

enum dataset_split { DATASET_TRAIN, DATASET_VALID, DATASET_SPLITS };

/* Opens all files. Tokenizes the first rows of text that is not in the cache. Tokenizes completely if the size must be
 * known at once: examples, and the text of several sources without weights. BAD_INPUT, naming the file, if:
 * - a file is missing, malformed, empty or of another kind, or has an id that the model lacks;
 * - there are fewer tokens than one sequence takes;
 * - there is text but no tokenizer;
 * - there are neither training paths nor valid_paths. With only valid_paths (evaluation) there are 0 training
 *   sequences. */
enum status dataset_open(const struct dataset_options *options, struct dataset **out);
/* Whether some files hold supervised examples that are not pairs, by their names and first lines. Uses only paths and
 * columns. BAD_INPUT if a file is missing or of an unknown kind. */
enum status dataset_find_examples(const struct dataset_options *options, bool *out);
/* Logs the time or progress of each text that was tokenized meanwhile. Accepts NULL. */
void dataset_close(struct dataset *dataset);

/* Starts a low-priority thread that tokenizes the rest (corpus.h), until dataset_close. Call it once. It takes about 5
 * MiB. From here on, callers that wait for rows make them with at most 4 threads, which take 20 MiB meanwhile (33 if
 * every byte is a token). If the thread cannot start, warns; rows are then made as they are read. */
void dataset_tokenize_beside(struct dataset *dataset);

/* Whether a split has sequences. */
bool dataset_has(const struct dataset *dataset, enum dataset_split split);
/* Whether validation data are held out of the training data. */
bool dataset_holds_out(const struct dataset *dataset);
/* Whether there are supervised examples. */
bool dataset_has_examples(const struct dataset *dataset);
/* Whether it trains on files that a chat template renders (source_takes_template). */
bool dataset_takes_template(const struct dataset *dataset);
/* Whether training mixes several sources by weights, each with its own epochs. */
bool dataset_is_mixed(const struct dataset *dataset);
/* Waits until the files that determine a split's number of sequences are tokenized: its own, or the training files if
 * it is held out. Call it before filling validation batches; not from two threads at once. */
enum status dataset_settle(struct dataset *dataset, enum dataset_split split);
/* 0 if there is no data of this split. -1: unknown, until the split is settled. After opening it is settled if nothing
 * had to be tokenized. */
int64_t dataset_split_sequences(const struct dataset *dataset, enum dataset_split split);
/* All tokens of all files, including dropped ones; -1: not known yet. */
int64_t dataset_tokens(const struct dataset *dataset);
/* Logs how full the rows of examples are and how many examples were truncated or omitted. Also logs unread keys of
 * rows, and how much of a text is not UTF-8. For a text that is still being tokenized, dataset_close logs the last
 * two. */
void dataset_report_cuts(const struct dataset *dataset);
/* Equal for equal files and settings that give equal sequences; otherwise almost surely different. Resuming detects
 * changed data with it. Waits for no tokens, but reads text that was not read before; 0 if that cannot be read. May run
 * concurrently with any other call. */
uint64_t dataset_fingerprint(const struct dataset *dataset);
/* The fingerprint of Ballast 0.1.0 for these files and settings. Its sequences may differ. */
uint64_t dataset_fingerprint_of_0_1_0(const struct dataset *dataset);
/* BAD_INPUT, naming file, line and rule, if the sequences of 0.1.0 may differ. May read all text. */
enum status dataset_check_0_1_0(const struct dataset *dataset, const struct tokenizer *tokenizer);

/* Collective: BAD_INPUT on all ranks, naming the first file that differs from rank 0's. All ranks have opened it with
 * the same options. Several ranks share the reading of text that was not read before: 0.2 s of processor time per
 * GB. */
enum status dataset_check_same(const struct dataset *dataset, struct comm *comm);

/* Arrays, T tokens per row; positions and segments may be NULL. */
struct dataset_batch {
    int32_t *tokens, *targets, *positions, *segments;
    double *references; /* one per row: its sequence's value from dataset_set_references; NULL: not wanted */
};

/* Number of sequences if all files hold examples: first those of training data, in file order, including those held
 * out. */
int64_t dataset_sequences(const struct dataset *dataset);
/* Fills rows with sequences [first, first + *count) of these: up to `max`. Does not set `references`. FAILED like
 * dataset_fill_rows. */
enum status dataset_fill_sequences(const struct dataset *dataset, int64_t first, int64_t max,
                                   const struct dataset_batch *out, int64_t *count);
/* Sets one number per sequence, borrowed as long as batches are filled. */
void dataset_set_references(struct dataset *dataset, const double *references);

/* Rows [first, first + count) of the batch of a step: a rank's, or all `batch`. */
struct dataset_rows {
    int64_t step, batch;
    int64_t first, count; /* within the batch; a count of 0 fills nothing */
};

/* Fills arrays of count*T with rows of a batch, one by one. *targets is the number of their counted targets, or of
 * pairs that begin in them.
 *
 * Row r of a training step is position p = step*batch + r of an endless sequence. The mixture chooses the source of
 * each position. The seed and a source's index determine the order of its sequences (rows.h). So a row is a pure
 * function of the arguments: resuming needs only the step, and a row is the same on every rank. Validation steps go
 * through the sequences once, in order; rows beyond the last are padding (row_fill_padding).
 *
 * The split must have sequences; step is at least 0 and batch at least 1. BAD_INPUT or FAILED if a row's text cannot be
 * tokenized, as in dataset_open. FAILED if a file can no longer be read, for example because it was truncated. */
enum status dataset_fill_rows(const struct dataset *dataset, enum dataset_split split, const struct dataset_rows *rows,
                              const struct dataset_batch *out, int64_t *targets);
