#include "model/adapter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANK_MAX = 1 << 16 };
static const char all_linear[] = "all-linear";
static const char target_letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";

const char adapter_prefix[] = "base_model.model.", adapter_suffix_a[] = ".lora_A.weight",
           adapter_suffix_b[] = ".lora_B.weight";

static enum status malformed(const char *text, const char *why) {
    status_set(STATUS_BAD_INPUT, "lora: '%.80s': %s", text, why);
    return status_hint(STATUS_BAD_INPUT, "RANK,ALPHA,TARGETS, such as 8,16,q_proj,v_proj or 16,32,all-linear");
}

enum status adapter_each_target(const struct adapter *adapter,
                                enum status (*each)(void *payload, const char *target, size_t length), void *payload) {
    for (const char *at = adapter->targets;; at++) {
        size_t length = strcspn(at, ",");
        TRY(each(payload, at, length));
        at += length;
        if (!*at) return STATUS_OK;
    }
}

static enum status append(void *payload, const char *target, size_t length) {
    int failed = json_array_append_new(payload, json_stringn(target, length));
    return failed ? status_no_memory(0, "a list of targets") : STATUS_OK;
}

json_t *adapter_list_targets(const struct adapter *adapter) {
    json_t *list = json_array();
    if (list && adapter_each_target(adapter, append, list) == STATUS_OK) return list;
    json_decref(list);
    return NULL;
}

bool adapter_names_layer(const char *target) { return *target && target[strspn(target, target_letters)] == '\0'; }

static enum status check_target(void *payload, const char *target, size_t length) {
    const char *text = payload;
    if (length == 0) return malformed(text, "a target is empty");
    if (strspn(target, target_letters) < length) return malformed(text, "a target is no layer's name");
    bool all = length == strlen(all_linear) && strncmp(target, all_linear, length) == 0;
    if (all && target[length] == ',') return malformed(text, "all-linear stands alone");
    return STATUS_OK;
}

static enum status check(const char *text, const struct adapter *adapter) {
    if (adapter->rank < 1 || adapter->rank > RANK_MAX) return malformed(text, "the rank is not in 1 to 65536");
    if (!(adapter->alpha > 0 && adapter->alpha <= 1e9)) return malformed(text, "alpha is not above 0 and at most 1e9");
    const char *all = strstr(adapter->targets, ",all-linear");
    if (all && (all[strlen(all_linear) + 1] == ',' || !all[strlen(all_linear) + 1]))
        return malformed(text, "all-linear stands alone");
    return adapter_each_target(adapter, check_target, (void *)(uintptr_t)text);
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

bool adapter_matches(const char *layer, const char *target, size_t target_length) {
    size_t length = strlen(layer);
    if (length < target_length || strncmp(layer + length - target_length, target, target_length) != 0) return false;
    return length == target_length || layer[length - target_length - 1] == '.';
}

bool adapter_wanted(const struct adapter *adapter, const char *layer) {
    if (adapter->rank == 0) return false;
    if (strcmp(adapter->targets, all_linear) == 0) return true;
    for (const char *at = adapter->targets; *at;) {
        size_t length = strcspn(at, ",");
        if (adapter_matches(layer, at, length)) return true;
        at += length + (at[length] == ',');
    }
    return false;
}

bool adapter_owns(const char *parameter) { return strncmp(parameter, adapter_prefix, strlen(adapter_prefix)) == 0; }
