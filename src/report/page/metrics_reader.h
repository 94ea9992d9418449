/* Reads RUN_DIR/metrics.jsonl as it grows. Memory does not grow with the file. */
#ifndef BALLAST_REPORT_PAGE_METRICS_READER_H
#define BALLAST_REPORT_PAGE_METRICS_READER_H

#include "base/mem.h"
#include "report/page/curve.h"
#include "report/page/line_reader.h"

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
const char *metric_name(enum metric metric);
enum { METRIC_CURVES = METRIC_MFU }; /* those before it are drawn; of the others the last value is enough */

struct metrics_reader {
    struct line_reader lines;
    int64_t step;     /* the last one; 0: none */
    int64_t val_step; /* of the last validation; 0: none */
    double last[METRIC_COUNT];
    double min_val_loss;  /* NaN: none */
    struct curve *curves; /* METRIC_CURVES */
    json_t *expert_slots; /* by layer and expert, of the last line that has them; NULL: none has */
    int64_t expert_step;  /* of that line */
    json_t *replans;      /* the lines of the last changes of the plan, at most METRIC_REPLANS */
};
enum { METRIC_REPLANS = 16 };

/* The file need not exist. NaN where nothing was read. The caller closes. */
enum status metrics_reader_open(const char *path, struct metrics_reader *out);
void metrics_reader_close(struct metrics_reader *reader);
/* Reads on to the last whole line; from the start where the file became shorter. BAD_INPUT "FILE: line N: FIELD: …". */
enum status metrics_reader_advance(struct metrics_reader *reader);
/* {"step", "val_step", "last": {NAME: value or null}, "min_val_loss", "curves": {NAME: curve_to_json}, "experts":
 * {"step", "slots"} or null, "replans": [the lines of metrics.jsonl]}; NULL when out of memory. */
json_t *metrics_reader_to_json(const struct metrics_reader *reader);

#endif
