/* Published training steps, as rows of a JSON file (bench/scale_tables.c lists the fields). Each becomes a job for
 * src/search/scale, or has a reason why it cannot. */
#pragma once

#include <stdbool.h>

#include "base/mem.h"
#include "search/scale/training.h"

struct scale_row {
    int64_t id;
    const char *source;  /* borrowed from the document */
    struct training job; /* where `described` */
    bool described;
    char why[160];            /* why it is not; "" */
    bool picks_micro_batch;   /* the row does not say the micro-batch: the fastest that fits is meant */
    bool picks_chunks;        /* nor how many virtual stages there are, where the system can have several */
    bool picks_recomputation; /* nor, for sure, what is computed again: the least with which it fits */
    double step_s;            /* published; 0: not */
    double peak_bytes;        /* published; 0: not */
};

struct scale_rows {
    json_t *document;
    VEC(struct scale_row) list;
};

/* BAD_INPUT "FILE: row 3 (id 25): tp: ..." where a field is of a wrong type or out of range, or an id is there twice.
 */
enum status scale_rows_read(const char *path, struct scale_rows *out);
/* The same from a document, which `out` takes over on success; `name` stands for the path. */
enum status scale_rows_parse(const char *name, json_t *document, struct scale_rows *out);
void scale_rows_free(struct scale_rows *rows);

/* Devices that the layout uses. */
int64_t layout_devices(const struct layout *layout);
