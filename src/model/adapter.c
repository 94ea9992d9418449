#include "model/model.h"

#include <math.h>

#include "base/json.h"

enum { RANK_MAX = 1 << 16 };
static const char all_linear[] = "all-linear";
static const char target_letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";

const char adapter_prefix[] = "base_model.model.", adapter_suffix_a[] = ".lora_A.weight",
           adapter_suffix_b[] = ".lora_B.weight";

static enum status malformed(const char *text, const char *why) {
    return status_set(STATUS_BAD_INPUT,
                      "lora: '%.80s': %s" HINT "RANK,ALPHA,TARGETS, such as 8,16,q_proj,v_proj or 16,32,all-linear",
                      text, why);
}

bool adapter_take_target(const char **left, struct adapter_target *out) {
    if (!*left) return false;
    *out = (struct adapter_target){*left, strcspn(*left, ",")};
    *left = out->name[out->length] ? out->name + out->length + 1 : NULL;
    return true;
}

json_t *adapter_list_targets(const struct adapter *adapter) {
    json_t *list = json_array();
    int failed = !list;
    struct adapter_target target;
    for (const char *left = adapter->targets; adapter_take_target(&left, &target);)
        failed |= json_array_append_new(list, json_stringn(target.name, target.length));
    return json_unless(failed, list);
}

static enum status check(const char *text, const struct adapter *adapter) {
    struct adapter_target target;
    if (adapter->rank < 1 || adapter->rank > RANK_MAX) return malformed(text, "the rank is not in 1 to 65536");
    if (!(adapter->alpha > 0 && adapter->alpha <= 1e9)) return malformed(text, "alpha is not above 0 and at most 1e9");
    for (const char *left = adapter->targets; adapter_take_target(&left, &target);) {
        bool all = target.length == strlen(all_linear) && strncmp(target.name, all_linear, target.length) == 0;
        if (target.length == 0) return malformed(text, "a target is empty");
        if (strspn(target.name, target_letters) < target.length) return malformed(text, "a target is no layer's name");
        if (all && strcmp(adapter->targets, all_linear) != 0) return malformed(text, "all-linear stands alone");
    }
    return STATUS_OK;
}

enum status adapter_parse(const char *text, struct adapter *out) {
    struct adapter adapter = {0};
    char *end;
    adapter.rank = strtoll(text, &end, 10);
    if (end != text && *end == '\0') return malformed(text, "alpha and the targets are missing");
    if (end == text || *end != ',') return malformed(text, "the rank is no whole number");
    const char *alpha = end + 1;
    adapter.alpha = strtod(alpha, &end);
    if (end == alpha || *end != ',') return malformed(text, "alpha is no number, or the targets are missing");
    if (strlen(end + 1) >= sizeof adapter.targets) return malformed(text, "the targets are too long");
    strcpy(adapter.targets, end + 1);
    TRY(check(text, &adapter));
    *out = adapter;
    return STATUS_OK;
}

char *adapter_print(const struct adapter *adapter, char text[ADAPTER_TEXT_BYTES]) {
    snprintf(text, ADAPTER_TEXT_BYTES, "%lld,%.15g,%s", (long long)adapter->rank, adapter->alpha, adapter->targets);
    return text;
}

bool adapter_matches(const char *layer, const struct adapter_target *target) {
    size_t length = strlen(layer);
    if (length < target->length) return false;
    const char *end = layer + length - target->length;
    return strncmp(end, target->name, target->length) == 0 && (end == layer || end[-1] == '.');
}

bool adapter_wanted(const struct adapter *adapter, const char *layer) {
    struct adapter_target target;
    if (adapter->rank == 0) return false;
    if (strcmp(adapter->targets, all_linear) == 0) return true;
    for (const char *left = adapter->targets; adapter_take_target(&left, &target);)
        if (adapter_matches(layer, &target)) return true;
    return false;
}

bool adapter_owns(const char *parameter) { return strncmp(parameter, adapter_prefix, strlen(adapter_prefix)) == 0; }

/* --- adapter_config.json in peft's form, read and written --- */

/* peft's settings, with the JSON types of their values: a(rray), b(oolean), n(umber), o(bject), s(tring), 0 for null.
 * Settings that would change the adapter's results and are not read here must be off. */
static const struct adapter_key {
    const char *name, *types;
    bool must_be_off;
} keys[] = {
    {"peft_type", "s", false},
    {"task_type", "s0", false},
    {"r", "n", false},
    {"lora_alpha", "n", false},
    {"target_modules", "as", false},
    {"base_model_name_or_path", "s0", false},
    {"lora_dropout", "n", false},
    {"init_lora_weights", "bs", false},
    {"fan_in_fan_out", "b", false},
    {"revision", "s0", false},
    {"peft_version", "s0", false},
    {"inference_mode", "b", false},
    {"auto_mapping", "o0", false},
    {"megatron_core", "s0", false},
    {"qalora_group_size", "n", false},
    {"layers_pattern", "as0", false},
    {"runtime_config", "o0", false},
    {"bias", "s0", true},
    {"ensure_weight_tying", "b0", true},
    {"lora_bias", "b0", true},
    {"use_dora", "b0", true},
    {"use_qalora", "b0", true},
    {"use_rslora", "b0", true},
    {"alpha_pattern", "o0", true},
    {"rank_pattern", "o0", true},
    {"loftq_config", "o0", true},
    {"exclude_modules", "as0", true},
    {"layers_to_transform", "an0", true},
    {"modules_to_save", "a0", true},
};

static const struct adapter_key *find_key(const char *name) {
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(keys[i].name, name) == 0) return &keys[i];
    return NULL;
}

static char type_of(const json_t *value) {
    static const char types[] = {[JSON_OBJECT] = 'o', [JSON_ARRAY] = 'a', [JSON_STRING] = 's', [JSON_INTEGER] = 'n',
                                 [JSON_REAL] = 'n',   [JSON_TRUE] = 'b',  [JSON_FALSE] = 'b',  [JSON_NULL] = '0'};
    return types[json_typeof(value)];
}

/* null, false, [] or {}: peft's values for a setting that is off. For `bias` it is "none". */
static bool is_off(const char *key, const json_t *value) {
    if (json_is_string(value)) return strcmp(key, "bias") == 0 && strcmp(json_string_value(value), "none") == 0;
    if (json_is_array(value)) return json_array_size(value) == 0;
    if (json_is_object(value)) return json_object_size(value) == 0;
    return json_is_null(value) || json_is_false(value);
}

static enum status check_keys(const char *file, const json_t *object) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, name, value) {
        const struct adapter_key *key = find_key(name);
        if ((!key || key->must_be_off) && !is_off(name, value))
            return status_set(STATUS_BAD_INPUT, "%s: %.80s: this setting of adapters is not supported", file, name);
        if (key && !strchr(key->types, type_of(value)))
            return status_set(STATUS_BAD_INPUT, "%s: %s: peft does not write a value of this type", file, name);
    }
    return STATUS_OK;
}

static enum status check_kind(const char *file, const json_t *object) {
    const char *type = "", *task = "CAUSAL_LM";
    TRY(json_require(file, object, "peft_type"));
    TRY(json_read_string(file, object, "peft_type", &type));
    if (strcmp(type, "LORA") != 0)
        return status_set(STATUS_BAD_INPUT, "%s: peft_type: \"%.60s\" is not supported (LORA is)", file, type);
    if (!json_is_null(json_object_get(object, "task_type"))) TRY(json_read_string(file, object, "task_type", &task));
    if (strcmp(task, "CAUSAL_LM") != 0)
        return status_set(STATUS_BAD_INPUT, "%s: task_type: \"%.60s\" is not supported (CAUSAL_LM is)", file, task);
    /* Other values change the base weights, too, which the adapter's file does not hold. */
    const json_t *initial = json_object_get(object, "init_lora_weights");
    const char *text = json_string_value(initial);
    if (!initial || json_is_boolean(initial) || (text && strcmp(text, "gaussian") == 0)) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: init_lora_weights: only true, false and \"gaussian\" are supported", file);
}

static enum status append_target(const char *file, const json_t *value, struct adapter *adapter) {
    const char *target = json_string_value(value);
    size_t used = strlen(adapter->targets);
    if (!target || !*target || target[strspn(target, target_letters)] != '\0')
        return status_set(STATUS_BAD_INPUT, "%s: target_modules: must be names of linear layers", file);
    int length = snprintf(adapter->targets + used, sizeof adapter->targets - used, "%s%s", used ? "," : "", target);
    if (length >= 0 && used + (size_t)length < sizeof adapter->targets) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: target_modules: too many", file);
}

/* peft takes a single string, except all-linear, for a regular expression. */
static enum status read_targets(const char *file, const json_t *object, struct adapter *adapter) {
    const json_t *targets = json_object_get(object, "target_modules");
    const char *text = json_string_value(targets);
    if (text && strcmp(text, all_linear) == 0) return append_target(file, targets, adapter);
    if (!json_is_array(targets) || json_array_size(targets) == 0)
        return status_set(STATUS_BAD_INPUT, "%s: target_modules: must be a list of names or \"all-linear\"", file);
    for (size_t i = 0; i < json_array_size(targets); i++)
        TRY(append_target(file, json_array_get(targets, i), adapter));
    return STATUS_OK;
}

enum status adapter_read_config(const char *file, const json_t *object, struct adapter *out, const char **base) {
    struct adapter adapter = {0}, again;
    char text[ADAPTER_TEXT_BYTES];
    double dropout = 0;
    TRY(check_kind(file, object));
    TRY(check_keys(file, object));
    TRY(json_require(file, object, "r"));
    TRY(json_read_int(file, object, "r", 1, 1 << 16, &adapter.rank));
    TRY(json_require(file, object, "lora_alpha"));
    TRY(json_read_double(file, object, "lora_alpha", 0x1p-126, 1e9, &adapter.alpha));
    TRY(json_read_double(file, object, "lora_dropout", 0, 1, &dropout));
    TRY(read_targets(file, object, &adapter));
    enum status status = adapter_parse(adapter_print(&adapter, text), &again);
    if (status != STATUS_OK) return status_prefix(status, "%s", file);
    *base = json_string_value(json_object_get(object, "base_model_name_or_path"));
    *out = adapter;
    return STATUS_OK;
}

json_t *adapter_write_config(const struct adapter *adapter, const char *base, json_t *targets, bool weight_is_kn) {
    return json_pack("{s:s, s:s, s:s, s:I, s:f, s:f, s:o, s:s, s:b, s:b, s:b, s:b, s:b, s:n, s:{}, s:{}}", "peft_type",
                     "LORA", "task_type", "CAUSAL_LM", "base_model_name_or_path", base, "r", (json_int_t)adapter->rank,
                     "lora_alpha", adapter->alpha, "lora_dropout", 0.0, "target_modules", targets, "bias", "none",
                     "fan_in_fan_out", (int)weight_is_kn, "inference_mode", 1, "init_lora_weights", 1, "use_rslora", 0,
                     "use_dora", 0, "modules_to_save", "rank_pattern", "alpha_pattern");
}
