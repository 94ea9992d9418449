#include "report/page/prometheus.h"
#include "base/base.h"

#include <stdarg.h>

/* path in the document, name, type, help */
#define SAMPLE_LIST(X)                                                                                                 \
    X("metrics/step", "ballast_step", "counter", "Optimizer steps done")                                               \
    X("options/steps", "ballast_steps_target", "gauge", "Optimizer steps of the whole run")                            \
    X("metrics/last/loss", "ballast_loss", "gauge", "Training loss of the last step")                                  \
    X("metrics/last/val_loss", "ballast_validation_loss", "gauge", "Loss of the last validation")                      \
    X("metrics/val_step", "ballast_validation_step", "gauge", "Step of the last validation, 0 before the first")       \
    X("metrics/last/tokens", "ballast_tokens_total", "counter", "Tokens trained on since step 1")                      \
    X("metrics/last/tokens_per_s", "ballast_tokens_per_second", "gauge", "Tokens a second in the last step")           \
    X("metrics/last/step_s", "ballast_step_seconds", "gauge", "Seconds of the last step")                              \
    X("plan/step_s", "ballast_predicted_step_seconds", "gauge", "Seconds of a step by the plan")                       \
    X("metrics/last/predicted_step_s", "ballast_predicted_step_seconds", "gauge", "Seconds of a step by the plan")     \
    X("metrics/last/lr", "ballast_learning_rate", "gauge", "Learning rate of the last step")                           \
    X("metrics/last/grad_norm", "ballast_grad_norm", "gauge", "Global gradient norm before clipping")                  \
    X("metrics/last/mfu", "ballast_mfu_ratio", "gauge", "Model FLOPs a second over the machine's matrix rate")         \
    X("metrics/last/device_bytes", "ballast_memory_resident_bytes", "gauge", "Of the device arena, in memory now")

struct text {
    VEC(char) bytes;
    bool failed;
};

__attribute__((format(printf, 2, 3))) static void append(struct text *text, const char *format, ...) {
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    size_t wanted = text->bytes.count + (size_t)length + 1;
    if (wanted > text->bytes.capacity && vec_reserve(&text->bytes, 2 * wanted) != STATUS_OK) text->failed = true;
    if (!text->failed) {
        vsnprintf(text->bytes.items + text->bytes.count, (size_t)length + 1, format, again);
        text->bytes.count += (size_t)length;
    }
    va_end(again);
    va_end(arguments);
}

/* "a/b/c": fields of objects in one another. */
static const json_t *find(const json_t *document, const char *path) {
    char key[64];
    for (const char *slash = path; document && slash; path = slash + 1) {
        slash = strchr(path, '/');
        snprintf(key, sizeof key, "%.*s", slash ? (int)(slash - path) : (int)strlen(path), path);
        document = json_object_get(document, key);
        if (!slash) break;
    }
    return document;
}

static void append_head(struct text *text, const char *name, const char *type, const char *help) {
    append(text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void append_value(struct text *text, const json_t *value) {
    if (json_is_integer(value))
        append(text, " %lld\n", (long long)json_integer_value(value));
    else
        append(text, " %.17g\n", json_real_value(value));
}

/* A label's value: a name from a plan file, with what would end it escaped. */
static void append_label(struct text *text, const char *value) {
    for (const char *c = value; *c; c++) {
        if (*c == '\n')
            append(text, "\\n");
        else
            append(text, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
    }
}

static void append_tiers(struct text *text, const json_t *document, const char *field, const char *name,
                         const char *help) {
    const json_t *tiers = find(document, "plan/tiers"), *tier;
    size_t i;
    if (json_array_size(tiers) > 0) append_head(text, name, "gauge", help);
    json_array_foreach(tiers, i, tier) {
        const json_t *value = json_object_get(tier, field), *title = json_object_get(tier, "name");
        if (!json_is_number(value) || !json_is_string(title)) continue;
        append(text, "%s{tier=\"", name);
        append_label(text, json_string_value(title));
        append(text, "\"}");
        append_value(text, value);
    }
}

char *prometheus_text(const json_t *document) {
    static const char *const samples[][4] = {
#define SAMPLE_ROW(path, name, type, help) {path, name, type, help},
        SAMPLE_LIST(SAMPLE_ROW)
#undef SAMPLE_ROW
    };
    struct text text = {0};
    const char *last = "";
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        const json_t *value = find(document, samples[i][0]);
        if (!json_is_number(value) || strcmp(last, samples[i][1]) == 0) continue; /* the first that is known */
        last = samples[i][1];
        append_head(&text, samples[i][1], samples[i][2], samples[i][3]);
        append(&text, "%s", samples[i][1]);
        append_value(&text, value);
    }
    append_tiers(&text, document, "program_bytes", "ballast_memory_used_bytes", "The arena of each memory tier");
    append_tiers(&text, document, "capacity_bytes", "ballast_memory_capacity_bytes", "The most that a tier may take");
    append(&text, "%s", "");
    if (!text.failed) return text.bytes.items;
    vec_free(&text.bytes);
    return NULL;
}
