#include "machine/rates.h"

#include "base/json.h"

/* Far beyond any machine: what is larger is a damaged file. */
static const double SECONDS_MAX = 1e3, MAX_BYTES_PER_S = 1e18, SLOWDOWN_MAX = 1e6;
enum { FIELD_BYTES = 96 };

static json_t *transfer_to_json(const struct transfer_rate *rate) {
    return json_pack("{s:f, s:f}", "latency_s", rate->latency_s, "bytes_per_s", rate->bytes_per_s);
}

static json_t *copies_to_json(const struct cluster_rates *rates) {
    json_t *copies = json_array();
    int failed = !copies;
    for (int from = 0; from < TIER_COUNT; from++)
        for (int to = 0; to < TIER_COUNT; to++) {
            const struct transfer_rate *rate = &rates->copy[from][to];
            if (rate->bytes_per_s == 0) continue;
            json_t *copy = transfer_to_json(rate);
            failed |= json_object_set_new(copy, "from", json_string(tier_name((enum tier)from)));
            failed |= json_object_set_new(copy, "to", json_string(tier_name((enum tier)to)));
            failed |= json_array_append_new(copies, copy);
        }
    if (!failed) return copies;
    json_decref(copies);
    return NULL;
}

json_t *rates_slowdown_to_json(const struct cluster_rates *rates) {
    json_t *rows = json_object();
    int failed = !rows;
    for (int a = 0; a < ACTIVITY_COUNT; a++) {
        json_t *row = json_object();
        for (int b = 0; b < ACTIVITY_COUNT; b++)
            failed |= json_object_set_new(row, activity_name((enum activity)b), json_real(rates->slowdown[a][b]));
        failed |= json_object_set_new(rows, activity_name((enum activity)a), row);
    }
    if (!failed) return rows;
    json_decref(rows);
    return NULL;
}

json_t *rates_to_json(const struct cluster_rates *rates) {
    json_t *object = json_pack("{s:f, s:f, s:f, s:o, s:o, s:o}", "issue_s", rates->issue_s, "wake_s", rates->wake_s,
                               "noise", rates->noise, "zero", transfer_to_json(&rates->zero), "copies",
                               copies_to_json(rates), "slowdown", rates_slowdown_to_json(rates));
    if (!object) (void)status_no_memory(0, "the rates' JSON");
    return object;
}

static enum status read_number(const char *file, const char *where, const json_t *object, const char *field, double min,
                               double max, double *out) {
    enum status status = json_require(where, object, field);
    if (status == STATUS_OK) status = json_read_double(where, object, field, min, max, out);
    return status == STATUS_OK ? status : status_prefix(status, "%s", file);
}

static enum status read_transfer(const char *file, const char *where, const json_t *object, struct transfer_rate *out) {
    if (!json_is_object(object)) return status_set(STATUS_BAD_INPUT, "%s: %s: must be an object", file, where);
    TRY(read_number(file, where, object, "latency_s", 0, SECONDS_MAX, &out->latency_s));
    return read_number(file, where, object, "bytes_per_s", 1, MAX_BYTES_PER_S, &out->bytes_per_s);
}

static enum status read_tier(const char *file, const char *where, const json_t *copy, const char *field,
                             enum tier *out) {
    const char *name = json_string_value(json_object_get(copy, field));
    *out = name ? tier_find(name) : TIER_COUNT;
    if (*out != TIER_COUNT) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: %s: %s: must be device, host or disk", file, where, field);
}

static enum status read_copies(const char *file, const json_t *copies, struct cluster_rates *out) {
    if (!json_is_array(copies)) return status_set(STATUS_BAD_INPUT, "%s: rates.copies: must be a list", file);
    for (size_t i = 0; i < json_array_size(copies); i++) {
        char where[FIELD_BYTES];
        enum tier from, to;
        const json_t *copy = json_array_get(copies, i);
        snprintf(where, sizeof where, "rates.copies[%zu]", i);
        TRY(read_tier(file, where, copy, "from", &from));
        TRY(read_tier(file, where, copy, "to", &to));
        if (out->copy[from][to].bytes_per_s > 0)
            return status_set(STATUS_BAD_INPUT, "%s: %s: %s to %s is there twice", file, where, tier_name(from),
                              tier_name(to));
        TRY(read_transfer(file, where, copy, &out->copy[from][to]));
    }
    return STATUS_OK;
}

enum status rates_slowdown_from_json(const char *file, const json_t *rows, struct cluster_rates *out) {
    bool messages = json_object_get(rows, activity_name(ACTIVITY_MESSAGE)) != NULL;
    for (int a = 0; a < ACTIVITY_COUNT; a++) {
        char where[FIELD_BYTES];
        const char *name = activity_name((enum activity)a);
        const json_t *row = json_object_get(rows, name);
        for (int b = 0; b < ACTIVITY_COUNT; b++)
            out->slowdown[a][b] = 1;
        if (a == ACTIVITY_MESSAGE && !messages) continue;
        snprintf(where, sizeof where, "rates.slowdown.%s", name);
        if (!json_is_object(row)) return status_set(STATUS_BAD_INPUT, "%s: %s: must be an object", file, where);
        for (int b = 0; b < ACTIVITY_COUNT; b++)
            if (b != ACTIVITY_MESSAGE || messages)
                TRY(read_number(file, where, row, activity_name((enum activity)b), 1, SLOWDOWN_MAX,
                                &out->slowdown[a][b]));
    }
    return STATUS_OK;
}

enum status rates_from_json(const char *file, const json_t *object, struct cluster_rates *out) {
    struct cluster_rates rates = {.measured = true};
    if (!json_is_object(object)) return status_set(STATUS_BAD_INPUT, "%s: rates: must be an object", file);
    TRY(read_number(file, "rates", object, "issue_s", 0, SECONDS_MAX, &rates.issue_s));
    TRY(read_number(file, "rates", object, "wake_s", 0, SECONDS_MAX, &rates.wake_s));
    TRY(read_number(file, "rates", object, "noise", 0, SLOWDOWN_MAX, &rates.noise));
    TRY(read_transfer(file, "rates.zero", json_object_get(object, "zero"), &rates.zero));
    TRY(read_copies(file, json_object_get(object, "copies"), &rates));
    TRY(rates_slowdown_from_json(file, json_object_get(object, "slowdown"), &rates));
    *out = rates;
    return STATUS_OK;
}
