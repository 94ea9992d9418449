/* What stays of a metrics file when its run goes on from a checkpoint, whatever became of the file meanwhile. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "train/metrics.h"

struct byte_range {
    size_t begin, end;
};

struct metrics_text {
    char *data;
    size_t bytes;
};

struct cutting {
    const char *path;
    const struct metrics_cut *cut;
    int64_t last, last_step; /* steps of the last good line, and of the last that is a step's */
    bool validated;
    size_t end;                 /* of the last line that stays */
    VEC(struct byte_range) bad; /* lines that do not */
    size_t bad_within;          /* so many of them lie before the end */
    int64_t first_bad;          /* the number of the first */
    int64_t missing;            /* steps without a line */
    char ranges[128];           /* of these, as far as there is space: "3 to 5, 9" */
};

enum line_kind { LINE_STEP, LINE_VALIDATION, LINE_REPLAN };

static enum status read_line(const char *path, const char *line, size_t bytes, int64_t *step, enum line_kind *kind) {
    json_t *object = NULL;
    enum status status;
    *kind = LINE_STEP;
    TRY_GOTO(status, json_parse_object(path, line, bytes, &object), done);
    TRY_GOTO(status, json_require(path, object, "step"), done);
    if (json_object_get(object, "val_loss")) *kind = LINE_VALIDATION;
    if (json_object_get(object, "replan")) *kind = LINE_REPLAN;
    TRY_GOTO(status, json_read_int(path, object, "step", *kind == LINE_REPLAN ? 0 : 1, INT64_MAX, step), done);
done:
    json_decref(object);
    return status;
}

static void note_missing(struct cutting *cutting, int64_t first, int64_t last) {
    char range[64];
    if (!cutting->cut->every_step || first > last) return;
    if (first == last)
        snprintf(range, sizeof range, "%" PRId64, first);
    else
        snprintf(range, sizeof range, "%" PRId64 " to %" PRId64, first, last);
    size_t used = strlen(cutting->ranges), space = sizeof cutting->ranges - used;
    if (strlen(range) + sizeof ", ..." < space)
        snprintf(cutting->ranges + used, space, "%s%s", cutting->missing > 0 ? ", " : "", range);
    else if (!strstr(cutting->ranges, "..."))
        snprintf(cutting->ranges + used, space, "...");
    cutting->missing += last - first + 1;
}

enum verdict { STAYS, GOES, ENDS };

static enum verdict judge_good(struct cutting *cutting, int64_t step, enum line_kind kind) {
    const struct metrics_cut *cut = cutting->cut;
    if (step > cut->step) return ENDS;
    if (step < cutting->last) return GOES;
    if (kind == LINE_VALIDATION && step == cut->step) {
        if (cut->valid_every == 0 || step % cut->valid_every != 0) return ENDS;
        cutting->validated = true;
    }
    cutting->last = step;
    if (kind == LINE_STEP && step > cutting->last_step) {
        note_missing(cutting, cutting->last_step + 1, step - 1);
        cutting->last_step = step;
    }
    return STAYS;
}

/* After the lines of the cut's step anything may come: the end of a run that was killed. */
static enum status judge(struct cutting *cutting, const char *line, size_t bytes, enum verdict *verdict) {
    int64_t step;
    enum line_kind kind;
    enum status status = read_line(cutting->path, line, bytes, &step, &kind);
    if (status == STATUS_OK)
        *verdict = judge_good(cutting, step, kind);
    else
        *verdict = cutting->last >= cutting->cut->step ? ENDS : GOES;
    return status == STATUS_BAD_INPUT ? STATUS_OK : status;
}

static enum status walk(struct cutting *cutting, const struct metrics_text *text) {
    size_t begin = 0;
    for (int64_t number = 1; begin < text->bytes; number++) {
        const char *line = text->data + begin, *end = memchr(line, '\n', text->bytes - begin);
        enum verdict verdict;
        if (!end) break;
        struct byte_range byte_range = {begin, begin + (size_t)(end - line) + 1};
        TRY(judge(cutting, line, (size_t)(end - line), &verdict));
        if (verdict == ENDS) break;
        if (verdict == GOES && cutting->bad.count == 0) cutting->first_bad = number;
        if (verdict == GOES) TRY(vec_push(&cutting->bad, byte_range));
        if (verdict == STAYS) {
            cutting->end = byte_range.end;
            cutting->bad_within = cutting->bad.count;
        }
        begin = byte_range.end;
    }
    note_missing(cutting, cutting->last_step + 1, cutting->cut->step);
    return STATUS_OK;
}

static size_t gather(const struct cutting *cutting, const char *from, char *to) {
    size_t at = 0, used = 0;
    for (size_t i = 0; i <= cutting->bad_within; i++) {
        bool last = i == cutting->bad_within;
        size_t stop = last ? cutting->end : cutting->bad.items[i].begin;
        memcpy(to + used, from + at, stop - at);
        used += stop - at;
        at = last ? stop : cutting->bad.items[i].end;
    }
    return used;
}

static enum status leave_out(struct cutting *cutting, const struct metrics_text *text) {
    char *kept = mem_array(cutting->end, 1), *aside = mem_format("%s.damaged", cutting->path);
    enum status status;
    TRY_GOTO(status, kept && aside ? file_copy(cutting->path, aside) : STATUS_FAILED, done);
    cutting->end = gather(cutting, text->data, kept);
    TRY_GOTO(status, file_replace(cutting->path, kept, cutting->end), done);
    log_warning("%s: %zu lines, the first of them line %" PRId64 ", were damaged or out of order and are left out; "
                "%s has the file as it was",
                cutting->path, cutting->bad_within, cutting->first_bad, aside);
done:
    mem_free(aside);
    mem_free(kept);
    return status;
}

enum status metrics_cut_find(const char *path, const struct metrics_cut *cut, size_t *bytes, bool *validated) {
    struct cutting cutting = {.path = path, .cut = cut};
    struct metrics_text text = {0};
    if (file_exists(path)) TRY(file_read(path, SIZE_MAX - 1, &text.data, &text.bytes));
    enum status status = walk(&cutting, &text);
    if (status == STATUS_OK && cutting.bad_within > 0) status = leave_out(&cutting, &text);
    if (status == STATUS_OK && cutting.missing > 0)
        log_warning("%s: %" PRId64 " of %" PRId64 " steps have no line: %s; the run goes on from its checkpoint", path,
                    cutting.missing, cut->step, cutting.ranges);
    mem_free(text.data);
    vec_free(&cutting.bad);
    *bytes = cutting.end;
    *validated = cutting.validated;
    return status;
}
