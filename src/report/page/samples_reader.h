/* Reads RUN_DIR/samples.jsonl as it grows: what the model wrote while it was trained. A bounded number is kept, evenly
 * from all, and always the last. */
#ifndef BALLAST_REPORT_PAGE_SAMPLES_READER_H
#define BALLAST_REPORT_PAGE_SAMPLES_READER_H

#include <jansson.h>

#include "report/page/line_reader.h"

/* Texts are cut to so many bytes, which fill some screens; the file has all of them. */
enum { SAMPLES_MAX = 128, SAMPLE_TEXT_BYTES_MAX = 4000 };

struct samples_reader {
    struct line_reader lines;
    int64_t count, stride; /* of all there were; each so many one is kept */
    json_t *kept;          /* [{"step", "prompt", "text"}] */
    json_t *last;          /* the newest; NULL: none */
};

/* The file need not exist. The caller closes. */
enum status samples_reader_open(const char *path, struct samples_reader *out);
void samples_reader_close(struct samples_reader *reader);
/* BAD_INPUT "FILE: line N: FIELD: …". */
enum status samples_reader_advance(struct samples_reader *reader);
/* {"count", "kept": [{"step", "prompt", "text"}]}, by their steps; NULL when out of memory. */
json_t *samples_reader_to_json(const struct samples_reader *reader);

#endif
