/* Reads RUN_DIR/metrics.jsonl as it grows. Memory does not grow with the file. */
#pragma once

#include <jansson.h>

#include "base/base.h"

#define METRIC_LIST(X)                                                                                                 \
    X(LOSS, "loss")                                                                                                    \
    X(VAL_LOSS, "val_loss")                                                                                            \
    X(TOKENS_PER_S, "tokens_per_s")                                                                                    \
    X(STEP_S, "step_s")                                                                                                \
    X(LR, "lr")                                                                                                        \
    X(GRAD_NORM, "grad_norm")                                                                                          \
    X(EXPERT_MAX, "expert_max")                                                                                        \
    X(EXPERT_MIN, "expert_min")                                                                                        \
    X(MARGIN, "margin")                                                                                                \
    X(VAL_MARGIN, "val_margin")                                                                                        \
    X(ACCURACY, "accuracy")                                                                                            \
    X(VAL_ACCURACY, "val_accuracy")                                                                                    \
    X(MFU, "mfu")                                                                                                      \
    X(TOKENS, "tokens")                                                                                                \
    X(DEVICE_BYTES, "device_bytes")                                                                                    \
    X(PREDICTED_STEP_S, "predicted_step_s")
enum metric {
#define METRIC_ENUM(name, text) METRIC_##name,
    METRIC_LIST(METRIC_ENUM) METRIC_COUNT
#undef METRIC_ENUM
};

/* A text file read line by line as it grows. Each call takes the complete lines added since the last one, so a run can
 * be followed through its files alone. */

struct growing_file {
    char *path;
    size_t max_line_bytes;
    int64_t offset, lines; /* bytes and lines read */
};

/* A curve of any length in bounded memory. Adjacent samples share a bucket, which keeps their minimum and maximum, so
 * no peak is lost. */

enum { CURVE_BUCKETS = 1024 }; /* about the number of columns of a wide screen */

struct curve_bucket {
    int64_t last_step; /* of its samples */
    int64_t samples;
    double sum, min, max;
};

/* All zero: empty. */
struct curve {
    struct curve_bucket buckets[CURVE_BUCKETS];
    int count;
    int64_t share; /* samples per bucket: a power of two, doubled when all buckets are full; 0: empty */
};

/* Steps must not decrease. Omits values that are not finite. Takes amortized constant time. */
void curve_add(struct curve *curve, int64_t step, double value);
/* {"step": [last of each bucket], "mean": [], "low": [], "high": []}; low and high only if they differ from the mean
 * somewhere. NULL if out of memory. */
json_t *curve_to_json(const struct curve *curve);

/* Scans a line of metrics.jsonl as Ballast writes it, without a JSON tree: a million lines take 3 s of processor time
 * instead of 12. */

/* Values of a line. NaN: missing, or null. */
struct metrics_line {
    int64_t step;
    double values[METRIC_COUNT];
    json_t *expert_slots; /* NULL: none, as in every scanned line */
};

/* Scans a flat object of numbers and nulls without escapes, with one "step", an integer from 1. False for every other
 * line, including other valid JSON, which a JSON reader then parses. `line` ends with '\n'. */
bool metrics_line_scan(const char *line, struct metrics_line *out);

/* Reads RUN_DIR/samples.jsonl, the model's text samples, as it grows. Keeps a bounded number, evenly spread, and always
 * the last. */

/* Texts are cut to this size, which fills some screens; the file has the full texts. */
enum { SAMPLES_MAX = 128, SAMPLE_TEXT_BYTES_MAX = 4000 };

struct samples_reader {
    struct growing_file lines;
    int64_t count, stride; /* of all samples; one in `stride` is kept */
    json_t *kept;          /* [{"step", "prompt", "text"}] */
    json_t *last;          /* the newest; NULL: none */
};

/* The file need not exist. The caller closes. */
enum status samples_reader_open(const char *path, struct samples_reader *out);
void samples_reader_close(struct samples_reader *reader);
/* BAD_INPUT "FILE: line N: FIELD: …". */
enum status samples_reader_advance(struct samples_reader *reader);
/* {"count", "kept": [{"step", "prompt", "text"}]}, in the order of steps; NULL if out of memory. */
json_t *samples_reader_to_json(const struct samples_reader *reader);

const char *metric_name(enum metric metric);

struct metrics_reader {
    struct growing_file lines;
    int64_t step;     /* the last one; 0: none */
    int64_t val_step; /* of the last validation; 0: none */
    double last[METRIC_COUNT];
    double min_val_loss;  /* NaN: none */
    struct curve *curves; /* METRIC_CURVES */
    json_t *expert_slots; /* by layer and expert, of the last line with experts; NULL: there is none */
    int64_t expert_step;  /* of that line */
    json_t *replans;      /* lines of the last changes of the plan, at most METRIC_REPLANS */
};
enum { METRIC_REPLANS = 16 };

/* The file need not exist. Values not read are NaN. The caller closes. */
enum status metrics_reader_open(const char *path, struct metrics_reader *out);
void metrics_reader_close(struct metrics_reader *reader);
/* Reads up to the last complete line; from the start if the file became shorter. BAD_INPUT "FILE: line N: FIELD: …". */
enum status metrics_reader_advance(struct metrics_reader *reader);
/* {"step", "val_step", "last": {NAME: value or null}, "min_val_loss", "curves": {NAME: curve_to_json}, "experts":
 * {"step", "slots"} or null, "replans": [the lines of metrics.jsonl]}; NULL if out of memory. */
json_t *metrics_reader_to_json(const struct metrics_reader *reader);
