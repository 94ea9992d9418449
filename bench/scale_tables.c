/* Compares src/search/scale with published training steps.
 *
 *     build/bench/scale_tables FILE                  by source: rows used and skipped, errors of step time and memory
 *     build/bench/scale_tables --fit NAMES FILE      the same after calibration on the sources whose names contain one
 *                                                    of NAMES (a,b,c), at most 30 rows per place; prints the fitted
 *                                                    numbers, and the errors of the rows left to check
 *     build/bench/scale_tables --rows FILE           also prints each row's published and simulated time
 *     build/bench/scale_tables --fit NAMES --without FILE
 *                                                    simulates each place of publication with a calibration on the
 *                                                    others, and prints a table of the errors
 *     build/bench/scale_tables --json FILE           [{"id", "step_s", "peak_bytes", "why"}, ...] on stdout
 *
 * FILE is a list of rows. Each is an object with a unique number "id" and the known fields of: "src", "model",
 * "hidden", "layers", "heads", "kv_heads", "ffn", "vocab", "seq", "gpus", "gpus_per_node", "hw", "inter_node",
 * "framework", "tp", "pp", "cp", "dp", "vp", "sharding", "micro_batch", "grad_accum", "global_batch_seqs", "act_ckpt",
 * "precision", "overlap". Mixtures of experts also have "experts" per MLP, "top_k" per token, and "ep", the ranks that
 * share them. Published results are "sec_per_iter", "sec_per_iter_derived", "tokens_per_s_per_gpu" or "mfu", and
 * "mem_gb", "mem_gib" or "mem_mib".
 *
 * Rows that cannot be described are skipped with the reason. Step time and peak memory of all others are simulated,
 * whether or not the row has a result. Exits with 2 if the file is wrong. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/terminal.h"
#include "support/published_systems.h"
#include "support/scale_fit.h"
#include "support/scale_rows.h"

/* FIT_ROWS limits the rows of a place for calibration. Of a larger place every second, third, … row is used; the
 * others check the fit. */
enum { FIT_ROUNDS = 8, FIT_ROWS = 30, GROUP_BYTES = 96 };

struct result {
    struct forecast forecast;
    bool done;
};

struct tables {
    struct scale_rows rows;
    bool *fitted; /* by row: it was used for calibration */
    struct result *results;
    struct calibration calibration;
    double fit_error; /* weighted mean error of time and memory over the calibration's rows */
};

/* Picks the fastest number of virtual stages that divides a stage's layers. */
static void pick_chunks(struct scale_row *row, const struct calibration *calibration) {
    struct layout *layout = &row->job.layout;
    int64_t best = 1, layers = row->job.model.layers;
    double fastest = INFINITY;
    for (int64_t chunks = 1; chunks * layout->pipeline <= layers; chunks++) {
        struct forecast forecast;
        layout->virtual_stages = chunks;
        if (layers % (chunks * layout->pipeline) != 0) continue;
        if (forecast_step(&row->job, calibration, &forecast) != STATUS_OK || forecast.step_s >= fastest) continue;
        fastest = forecast.step_s;
        best = chunks;
    }
    layout->virtual_stages = best;
}

/* If the row does not give the micro-batch, picks the fastest that divides a rank's batch and fits. */
static void pick_micro_batch(struct scale_row *row, const struct calibration *calibration) {
    struct layout *layout = &row->job.layout;
    struct layout best = *layout;
    double fastest = INFINITY;
    int64_t batch = layout->micro_batch * layout->micro_batches;
    for (int64_t size = 1; size <= batch && size <= 64; size *= 2) {
        struct forecast forecast;
        if (batch % size != 0) break;
        layout->micro_batch = size;
        layout->micro_batches = batch / size;
        if (forecast_step(&row->job, calibration, &forecast) != STATUS_OK) continue;
        if (size > 1 && forecast.peak_bytes > row->job.cluster.device.tiers[0].capacity_bytes) break;
        if (forecast.step_s >= fastest) continue;
        fastest = forecast.step_s;
        best = *layout;
    }
    *layout = best;
}

static void simulate_row(struct scale_row *row, const struct calibration *calibration, struct result *out) {
    *out = (struct result){.done = false};
    if (!row->described) return;
    if (row->picks_chunks && row->job.layout.pipeline > 1 && system_has(&row->job.system, INTERLEAVES))
        pick_chunks(row, calibration);
    if (row->picks_micro_batch) pick_micro_batch(row, calibration);
    out->done = forecast_step(&row->job, calibration, &out->forecast) == STATUS_OK;
    if (!out->done) snprintf(row->why, sizeof row->why, "%.150s", status_message());
}

static void simulate_all(struct tables *tables) {
    for (size_t i = 0; i < tables->rows.list.count; i++)
        simulate_row(&tables->rows.list.items[i], &tables->calibration, &tables->results[i]);
}

static double time_error(const struct tables *tables, size_t i) {
    return tables->results[i].forecast.step_s / tables->rows.list.items[i].step_s - 1;
}

static double memory_error(const struct tables *tables, size_t i) {
    return (double)tables->results[i].forecast.peak_bytes / tables->rows.list.items[i].peak_bytes - 1;
}

static bool has_time(const struct tables *tables, size_t i) {
    return tables->results[i].done && tables->rows.list.items[i].step_s > 0;
}

static bool has_memory(const struct tables *tables, size_t i) {
    return tables->results[i].done && tables->rows.list.items[i].peak_bytes > 0;
}

struct errors {
    int count;
    double sum, worst;
};

static void add_error(struct errors *errors, double error) {
    errors->count++;
    errors->sum += fabs(error);
    errors->worst = fmax(errors->worst, fabs(error));
}

static void print_errors(const char *what, const struct errors *errors) {
    if (errors->count == 0) return;
    printf("  %s of %d: mean %.1f%%, worst %.1f%%\n", what, errors->count, 100 * errors->sum / errors->count,
           100 * errors->worst);
}

static int compare(const void *a, const void *b) {
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

/* Prints reasons by number of rows, for one source or (NULL) all. */
static void print_left_out(const struct tables *tables, const char *source) {
    const struct scale_row *rows = tables->rows.list.items;
    for (size_t i = 0; i < tables->rows.list.count; i++) {
        int same = 0;
        bool first = true;
        if (tables->results[i].done || (source && strcmp(rows[i].source, source) != 0)) continue;
        for (size_t j = 0; j < tables->rows.list.count; j++) {
            if (tables->results[j].done || (source && strcmp(rows[j].source, source) != 0)) continue;
            if (strcmp(rows[j].why, rows[i].why) != 0) continue;
            same++;
            if (j < i) first = false;
        }
        if (first) printf("  left out %d: %s\n", same, rows[i].why);
    }
}

static void print_source(const struct tables *tables, size_t first, bool each) {
    const struct scale_row *rows = tables->rows.list.items;
    struct errors time = {0}, memory = {0};
    int used = 0;
    for (size_t i = first; i < tables->rows.list.count; i++) {
        if (strcmp(rows[i].source, rows[first].source) != 0) continue;
        used += tables->results[i].done;
        if (has_time(tables, i)) add_error(&time, time_error(tables, i));
        if (has_memory(tables, i)) add_error(&memory, memory_error(tables, i));
    }
    printf("%s\n  rows used: %d\n", rows[first].source, used);
    print_left_out(tables, rows[first].source);
    print_errors("step time", &time);
    print_errors("peak memory", &memory);
    for (size_t i = first; each && i < tables->rows.list.count; i++) {
        if (strcmp(rows[i].source, rows[first].source) != 0 || !tables->results[i].done) continue;
        printf("    id %lld:", (long long)rows[i].id);
        if (has_time(tables, i))
            printf(" %.4g s for %.4g s (%+.1f%%)", tables->results[i].forecast.step_s, rows[i].step_s,
                   100 * time_error(tables, i));
        if (has_memory(tables, i))
            printf(" %.1f GB for %.1f GB (%+.1f%%)", (double)tables->results[i].forecast.peak_bytes / 1e9,
                   rows[i].peak_bytes / 1e9, 100 * memory_error(tables, i));
        putchar('\n');
    }
}

static bool is_first_of_source(const struct tables *tables, size_t index) {
    for (size_t i = 0; i < index; i++)
        if (strcmp(tables->rows.list.items[i].source, tables->rows.list.items[index].source) == 0) return false;
    return true;
}

static int64_t batch_of(const struct layout *layout) {
    return layout->data * layout->micro_batch * layout->micro_batches;
}

/* Whether two rows of a source differ only in their layout, and their times by more than 5%. */
static bool are_rivals(const struct scale_row *a, const struct scale_row *b) {
    const struct layout *one = &a->job.layout, *other = &b->job.layout;
    if (strcmp(a->source, b->source) != 0 || memcmp(&a->job.model, &b->job.model, sizeof a->job.model) != 0)
        return false;
    if (memcmp(&a->job.system, &b->job.system, sizeof a->job.system) != 0) return false;
    if (memcmp(&a->job.cluster.device.limits, &b->job.cluster.device.limits, sizeof a->job.cluster.device.limits) !=
            0 ||
        a->job.cluster.network.node_bytes_per_s != b->job.cluster.network.node_bytes_per_s)
        return false;
    if (layout_devices(one) != layout_devices(other) || batch_of(one) != batch_of(other)) return false;
    if (one->sequence_length != other->sequence_length || memcmp(one, other, sizeof *one) == 0) return false;
    return fabs(a->step_s / b->step_s - 1) > 0.05 && fabs(b->step_s / a->step_s - 1) > 0.05;
}

static void print_ranking(const struct tables *tables) {
    int pairs = 0, right = 0;
    for (size_t i = 0; i < tables->rows.list.count; i++)
        for (size_t j = 0; j < i; j++) {
            const struct scale_row *a = &tables->rows.list.items[i], *b = &tables->rows.list.items[j];
            if (!has_time(tables, i) || !has_time(tables, j) || !are_rivals(a, b)) continue;
            double first = tables->results[i].forecast.step_s, second = tables->results[j].forecast.step_s;
            pairs++;
            right += (first < second) == (a->step_s < b->step_s);
        }
    if (pairs > 0) printf("  layouts that differ by more than 5%%: %d of %d pairs in the right order\n", right, pairs);
}

static enum status print_totals(const struct tables *tables) {
    struct errors time = {0}, memory = {0}, checked = {0};
    double *sorted = mem_array(tables->rows.list.count + 1, sizeof *sorted);
    if (!sorted) return STATUS_FAILED;
    for (size_t i = 0; i < tables->rows.list.count; i++) {
        if (has_time(tables, i)) {
            sorted[time.count] = fabs(time_error(tables, i));
            add_error(&time, time_error(tables, i));
            if (!tables->fitted[i]) add_error(&checked, time_error(tables, i));
        }
        if (has_memory(tables, i)) add_error(&memory, memory_error(tables, i));
    }
    qsort(sorted, (size_t)time.count, sizeof *sorted, compare);
    printf("all\n");
    print_errors("step time", &time);
    if (time.count > 0) printf("  step time, median %.1f%%\n", 100 * sorted[time.count / 2]);
    if (checked.count < time.count) print_errors("step time of rows that were not calibrated on,", &checked);
    print_errors("peak memory", &memory);
    print_ranking(tables);
    mem_free(sorted);
    return STATUS_OK;
}

static bool is_named(const char *names, const char *source) {
    while (*names) {
        size_t length = strcspn(names, ",");
        for (const char *at = source; length > 0 && *at; at++)
            if (strncmp(at, names, length) == 0) return true;
        names += length + (names[length] == ',');
    }
    return false;
}

/* Where a source was published: "mosaicml/llm-foundry" for "github mosaicml/llm-foundry@8c8dd48f7 ...", else the
 * first word. --without leaves out all tables of a place together. */
static void group_of(const char *source, char out[GROUP_BYTES]) {
    const char *from = strncmp(source, "github ", 7) == 0 ? source + 7 : source;
    size_t length = strcspn(from, "@ ");
    snprintf(out, GROUP_BYTES, "%.*s", (int)(length < GROUP_BYTES ? length : GROUP_BYTES - 1), from);
}

static bool is_of_group(const struct scale_row *row, const char *group) {
    char own[GROUP_BYTES];
    group_of(row->source, own);
    return group && strcmp(own, group) == 0;
}

/* Whether the row can be used for calibration. */
static bool is_known(const struct scale_row *row, const char *names) {
    return row->described && (row->step_s > 0 || row->peak_bytes > 0) && is_named(names, row->source);
}

/* The weight of a known row in a calibration; 0: it checks the fit. A place with four times the rows counts twice as
 * much, because neither rows nor places are independent. */
static double fit_weight(const struct tables *tables, const char *names, size_t index) {
    char group[GROUP_BYTES];
    int rows = 0, before = 0;
    group_of(tables->rows.list.items[index].source, group);
    for (size_t i = 0; i < tables->rows.list.count; i++) {
        const struct scale_row *row = &tables->rows.list.items[i];
        bool counts = is_known(row, names) && is_of_group(row, group);
        rows += counts;
        before += counts && i < index;
    }
    int every = (rows + FIT_ROWS - 1) / FIT_ROWS;
    return before % every == 0 ? every / sqrt(rows) : 0;
}

static enum status check_any(size_t steps, const char *names) {
    if (steps > 0) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "--fit: %s: no source with one of these names has rows to calibrate on", names);
}

/* Fits on the rows of the named sources, without those of the group `but` (NULL: all). */
static enum status fit(struct tables *tables, const char *names, const char *but, size_t *used) {
    size_t count = 0;
    struct known_step *steps = mem_array(tables->rows.list.count + 1, sizeof *steps);
    if (!steps) return STATUS_FAILED;
    for (size_t i = 0; i < tables->rows.list.count; i++) {
        const struct scale_row *row = &tables->rows.list.items[i];
        tables->fitted[i] = false;
        if (!is_known(row, names) || is_of_group(row, but)) continue;
        double weight = fit_weight(tables, names, i);
        tables->fitted[i] = weight > 0;
        if (weight > 0) steps[count++] = (struct known_step){&row->job, row->step_s, row->peak_bytes, weight};
    }
    tables->calibration = calibration_start();
    simulate_all(tables); /* picks the open settings of rows anew */
    enum status status = check_any(count, names);
    if (status == STATUS_OK)
        status = calibration_fit(steps, count, FIT_ROUNDS, &tables->calibration, &tables->fit_error);
    mem_free(steps);
    *used = count;
    return status;
}

static void print_calibration(const struct tables *tables, size_t rows) {
    printf("calibrated on %zu rows to %.2f%%\n", rows, 100 * tables->fit_error);
    for (int i = 0; i < CALIBRATION_COUNT; i++)
        printf("  %-20s %.4g\n", calibration_ranges[i].name, calibration_get(&tables->calibration, i));
}

/* A column of the table. */
static void print_cell(const struct errors *errors) {
    if (errors->count == 0)
        printf("  %6s  %6s  %6s", "", "", "");
    else
        printf("  %6d  %5.1f%%  %5.1f%%", errors->count, 100 * errors->sum / errors->count, 100 * errors->worst);
}

static bool takes_part(const struct tables *tables, const char *group) {
    for (size_t i = 0; i < tables->rows.list.count; i++)
        if (tables->fitted[i] && is_of_group(&tables->rows.list.items[i], group)) return true;
    return false;
}

/* The fit on all sources. */
struct whole_fit {
    struct calibration calibration;
    bool *fitted; /* by row */
    size_t rows;
};

/* Prints a group's errors with a calibration that did not use its rows. */
static enum status print_without(struct tables *tables, const char *names, const struct whole_fit *whole,
                                 const char *group) {
    struct errors time = {0}, memory = {0};
    size_t used = whole->rows;
    memcpy(tables->fitted, whole->fitted, tables->rows.list.count * sizeof *tables->fitted);
    tables->calibration = whole->calibration;
    if (takes_part(tables, group)) TRY(fit(tables, names, group, &used));
    simulate_all(tables);
    for (size_t i = 0; i < tables->rows.list.count; i++) {
        if (!is_of_group(&tables->rows.list.items[i], group)) continue;
        if (has_time(tables, i)) add_error(&time, time_error(tables, i));
        if (has_memory(tables, i)) add_error(&memory, memory_error(tables, i));
    }
    printf("%-36s  %6zu", group, used);
    print_cell(&time);
    print_cell(&memory);
    putchar('\n');
    return STATUS_OK;
}

static enum status leave_out_each(struct tables *tables, const char *names, const struct whole_fit *whole) {
    printf("%-36s  %6s  %22s  %22s\n", "left out", "fit on", "time: rows  mean  worst", "memory: rows mean worst");
    for (size_t i = 0; i < tables->rows.list.count; i++) {
        char group[GROUP_BYTES];
        bool seen = false;
        if (!tables->rows.list.items[i].described) continue;
        group_of(tables->rows.list.items[i].source, group);
        for (size_t j = 0; j < i && !seen; j++)
            seen = tables->rows.list.items[j].described && is_of_group(&tables->rows.list.items[j], group);
        if (seen) continue;
        TRY(print_without(tables, names, whole, group));
        if (fflush(stdout) != 0) return status_set(STATUS_FAILED, "standard output: cannot be written");
    }
    return STATUS_OK;
}

static enum status leave_out_in_turn(struct tables *tables, const char *names) {
    size_t count = tables->rows.list.count;
    struct whole_fit whole = {.fitted = mem_array(count + 1, sizeof *whole.fitted)};
    if (!whole.fitted) return STATUS_FAILED;
    enum status status = fit(tables, names, NULL, &whole.rows);
    whole.calibration = tables->calibration;
    memcpy(whole.fitted, tables->fitted, count * sizeof *whole.fitted);
    if (status == STATUS_OK) status = leave_out_each(tables, names, &whole);
    mem_free(whole.fitted);
    return status;
}

static enum status print_json(const struct tables *tables) {
    json_t *array = json_array();
    enum status status = array ? STATUS_OK : status_no_memory(0, "the results");
    for (size_t i = 0; i < tables->rows.list.count && status == STATUS_OK; i++) {
        const struct result *one = &tables->results[i];
        const struct scale_row *row = &tables->rows.list.items[i];
        json_t *object = json_pack("{s:I, s:o, s:o, s:o}", "id", (json_int_t)row->id, "step_s",
                                   one->done ? json_real(one->forecast.step_s) : json_null(), "peak_bytes",
                                   one->done ? json_integer(one->forecast.peak_bytes) : json_null(), "why",
                                   one->done ? json_null() : json_string(row->why));
        if (json_array_append_new(array, object) != 0) status = status_no_memory(0, "the results");
    }
    if (status == STATUS_OK && json_dumpf(array, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) != 0)
        status = status_set(STATUS_FAILED, "standard output: cannot be written");
    if (status == STATUS_OK) putchar('\n');
    json_decref(array);
    return status;
}

struct request {
    const char *path, *fit;
    bool json, rows, without;
};

static enum status work(const struct request *request, struct tables *tables) {
    size_t used;
    if (request->without) return leave_out_in_turn(tables, request->fit);
    if (request->fit) TRY(fit(tables, request->fit, NULL, &used));
    if (request->fit && !request->json) print_calibration(tables, used);
    simulate_all(tables);
    if (request->json) return print_json(tables);
    for (size_t i = 0; i < tables->rows.list.count; i++)
        if (is_first_of_source(tables, i)) print_source(tables, i, request->rows);
    return print_totals(tables);
}

static enum status run(const struct request *request) {
    struct tables tables = {.calibration = calibration_default()};
    TRY(scale_rows_read(request->path, &tables.rows));
    tables.results = mem_array(tables.rows.list.count + 1, sizeof *tables.results);
    tables.fitted = tables.results ? mem_array(tables.rows.list.count + 1, sizeof *tables.fitted) : NULL;
    enum status status = tables.fitted ? work(request, &tables) : STATUS_FAILED;
    mem_free(tables.results);
    mem_free(tables.fitted);
    scale_rows_free(&tables.rows);
    if (status == STATUS_OK && fflush(stdout) != 0)
        status = status_set(STATUS_FAILED, "standard output: cannot be written");
    return status;
}

static bool read_arguments(int count, char **arguments, struct request *out) {
    for (int i = 1; i < count; i++) {
        if (strcmp(arguments[i], "--json") == 0)
            out->json = true;
        else if (strcmp(arguments[i], "--rows") == 0)
            out->rows = true;
        else if (strcmp(arguments[i], "--without") == 0)
            out->without = true;
        else if (strcmp(arguments[i], "--fit") == 0 && i + 1 < count)
            out->fit = arguments[++i];
        else if (arguments[i][0] == '-' || out->path)
            return false;
        else
            out->path = arguments[i];
    }
    return out->path && (out->fit || !out->without) && !(out->json && (out->rows || out->without));
}

int main(int argc, char **argv) {
    struct request request = {0};
    if (process_begin() != STATUS_OK) return STATUS_FAILED;
    if (!read_arguments(argc, argv, &request)) {
        fprintf(stderr, "usage: scale_tables [--fit NAMES] [--rows | --without | --json] FILE\n");
        return STATUS_BAD_INPUT;
    }
    enum status status = run(&request);
    if (status == STATUS_OK) return STATUS_OK;
    fprintf(stderr, "scale_tables: %s\n", status_message());
    if (status_hint_text()[0]) fprintf(stderr, "hint: %s\n", status_hint_text());
    return (int)status;
}
