#include "plan/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"

enum { PLAN_FILE_LIMIT_BYTES = 1 << 24, THREADS_MAX = 4096 };
static const int64_t SEQUENCES_MAX = (int64_t)1 << 24, TOKENS_MAX = (int64_t)1 << 24;

int64_t recipe_default_grain(int64_t batch, int64_t sequence_length, int64_t least_tokens) {
    int64_t sequences = (least_tokens + sequence_length - 1) / sequence_length;
    return sequences < batch ? sequences : batch;
}

int64_t recipe_grains(const struct recipe *recipe) {
    return (recipe->batch + recipe->grain_sequences - 1) / recipe->grain_sequences;
}

enum status plan_check(const struct plan *plan) {
    const struct recipe *recipe = &plan->recipe;
    TRY(plan_check_range("recipe.batch", recipe->batch, 1, SEQUENCES_MAX, "a step needs at least one sequence"));
    TRY(plan_check_range("recipe.sequence_length", recipe->sequence_length, 1, TOKENS_MAX,
                         "a sequence needs at least one token"));
    TRY(plan_check_range("recipe.grain_sequences", recipe->grain_sequences, 1, recipe->batch,
                         "a grain holds whole sequences and at most the batch"));
    TRY(plan_check_range("recipe.threads", recipe->threads, 1, THREADS_MAX, "at least one compute thread"));
    return policy_check(&plan->policy, recipe_grains(recipe));
}

const char *document_attention_name(enum document_attention attention) {
    return attention == DOCUMENT_ATTENTION_WITHIN ? "within" : "across";
}

enum document_attention document_attention_find(const char *name) {
    if (strcmp(name, "across") == 0) return DOCUMENT_ATTENTION_ACROSS;
    return strcmp(name, "within") == 0 ? DOCUMENT_ATTENTION_WITHIN : DOCUMENT_ATTENTION_NONE;
}

/* One list of the recipe's numbers serves writing, reading and comparing. */
#define RECIPE_INTEGERS(X)                                                                                             \
    X(batch, int64_t, SEQUENCES_MAX)                                                                                   \
    X(sequence_length, int64_t, TOKENS_MAX)                                                                            \
    X(grain_sequences, int64_t, SEQUENCES_MAX)                                                                         \
    X(threads, int, THREADS_MAX)                                                                                       \
    X(seed, uint64_t, INT64_MAX)                                                                                       \
    X(kernels_version, int, INT32_MAX)
#define RECIPE_DOUBLES(X) X(beta1) X(beta2) X(epsilon) X(weight_decay) X(clip_norm)

/* Left out where plans were written before there were such: "" then. */
#define RECIPE_TEXTS(X) X(lora) X(freeze)

json_t *recipe_to_json(const struct recipe *recipe) {
    json_t *object = json_object();
    int failed = !object;
    failed |= json_object_set_new(object, "dtype", json_string(dtype_name(recipe->dtype)));
#define SET_INTEGER(field, type, most)                                                                                 \
    failed |= json_object_set_new(object, #field, json_integer((json_int_t)recipe->field));
    RECIPE_INTEGERS(SET_INTEGER)
#define SET_DOUBLE(field) failed |= json_object_set_new(object, #field, json_real(recipe->field));
    RECIPE_DOUBLES(SET_DOUBLE)
    failed |= json_object_set_new(object, "document_attention",
                                  json_string(document_attention_name(recipe->document_attention)));
    failed |= json_object_set_new(object, "isa", json_string(recipe->isa));
#define SET_TEXT(field) failed |= json_object_set_new(object, #field, json_string(recipe->field));
    RECIPE_TEXTS(SET_TEXT)
    if (!failed) return object;
    json_decref(object);
    (void)status_no_memory(0, "a recipe's JSON");
    return NULL;
}

json_t *plan_to_json(const struct plan *plan) {
    json_t *recipe = recipe_to_json(&plan->recipe);
    if (!recipe) return NULL;
    json_t *policy = policy_to_json(&plan->policy);
    if (!policy) {
        json_decref(recipe);
        return NULL;
    }
    json_t *object = json_pack("{s:i, s:o, s:o}", "version", PLAN_VERSION, "recipe", recipe, "policy", policy);
    if (!object) (void)status_no_memory(0, "a plan's JSON");
    return object;
}

static enum status read_text(const char *file, const json_t *object, const char *field, char out[RECIPE_TEXT_BYTES]) {
    const char *text = "";
    TRY(json_read_string(file, object, field, &text));
    if (strlen(text) >= RECIPE_TEXT_BYTES)
        return status_set(STATUS_BAD_INPUT, "%s: %s: is longer than %d bytes", file, field, RECIPE_TEXT_BYTES - 1);
    strcpy(out, text);
    return STATUS_OK;
}

enum status recipe_from_json(const char *file, const json_t *object, struct recipe *out) {
    enum { OPTIONAL_FIELDS = 2 };
    static const char *const known[] = {"lora",
                                        "freeze",
                                        "dtype",
                                        "isa",
                                        "document_attention",
#define NAME_INTEGER(field, type, most) #field,
                                        RECIPE_INTEGERS(NAME_INTEGER)
#define NAME_DOUBLE(field) #field,
                                            RECIPE_DOUBLES(NAME_DOUBLE)};
    struct recipe recipe = {0};
    for (size_t i = OPTIONAL_FIELDS; i < sizeof known / sizeof *known; i++)
        TRY(json_require(file, object, known[i]));
    TRY(json_refuse_unknown(file, "recipe.", object, known, sizeof known / sizeof *known));
#define READ_INTEGER(field, type, most)                                                                                \
    {                                                                                                                  \
        int64_t value = 0;                                                                                             \
        TRY(json_read_int(file, object, #field, 0, most, &value));                                                     \
        recipe.field = (type)value;                                                                                    \
    }
    RECIPE_INTEGERS(READ_INTEGER)
#define READ_DOUBLE(field) TRY(json_read_double(file, object, #field, 0, 1e30, &recipe.field));
    RECIPE_DOUBLES(READ_DOUBLE)
    const char *dtype = "", *isa = "", *attention = "";
    TRY(json_read_string(file, object, "dtype", &dtype));
    TRY(json_read_string(file, object, "isa", &isa));
    TRY(json_read_string(file, object, "document_attention", &attention));
    recipe.document_attention = document_attention_find(attention);
    if (recipe.document_attention == DOCUMENT_ATTENTION_NONE)
        return status_set(STATUS_BAD_INPUT, "%s: document_attention: '%s' is neither across nor within", file,
                          attention);
    recipe.dtype = dtype_find(dtype);
    if (recipe.dtype != DTYPE_F32 && recipe.dtype != DTYPE_BF16)
        return status_set(STATUS_BAD_INPUT, "%s: dtype: '%s' is neither fp32 nor bf16", file, dtype);
    snprintf(recipe.isa, sizeof recipe.isa, "%s", isa);
#define READ_TEXT(field) TRY(read_text(file, object, #field, recipe.field));
    RECIPE_TEXTS(READ_TEXT)
    *out = recipe;
    return STATUS_OK;
}

enum status plan_from_json(const char *file, const json_t *object, struct plan *out) {
    struct plan plan = {0};
    int64_t version = 0;
    TRY(json_require(file, object, "version"));
    TRY(json_read_int(file, object, "version", PLAN_VERSION, PLAN_VERSION, &version));
    const json_t *recipe = json_object_get(object, "recipe"), *policy = json_object_get(object, "policy");
    if (!json_is_object(recipe)) return status_set(STATUS_BAD_INPUT, "%s: recipe: must be an object", file);
    if (!json_is_object(policy)) return status_set(STATUS_BAD_INPUT, "%s: policy: must be an object", file);
    TRY(recipe_from_json(file, recipe, &plan.recipe));
    TRY(policy_from_json(file, policy, &plan.policy));
    enum status status = plan_check(&plan);
    if (status != STATUS_OK) {
        char hint[256];
        snprintf(hint, sizeof hint, "%s", status_hint_text());
        return status_hint(status_prefix(status, "%s", file), "%s", hint);
    }
    *out = plan;
    return STATUS_OK;
}

enum status plan_read(const char *path, struct plan *out) {
    json_t *object;
    TRY(json_read_object(path, PLAN_FILE_LIMIT_BYTES, &object));
    enum status status = plan_from_json(path, object, out);
    json_decref(object);
    return status;
}

enum status plan_set_model(json_t *plan, const char *model_folder) {
    json_t *text = json_string(model_folder);
    if (!text) return STATUS_OK;
    return json_object_set_new(plan, "model", text) == 0 ? STATUS_OK : status_no_memory(0, "a plan's JSON");
}

enum status plan_read_model(const char *path, struct scratch *memory, const char **out) {
    json_t *object;
    const char *folder = NULL, *copy = NULL;
    TRY(json_read_object(path, PLAN_FILE_LIMIT_BYTES, &object));
    enum status status = json_read_string(path, object, "model", &folder);
    if (status == STATUS_OK && folder) {
        copy = scratch_format(memory, "%s", folder);
        if (!copy) status = STATUS_FAILED;
    }
    json_decref(object);
    if (status == STATUS_OK) *out = copy;
    return status;
}

enum status recipe_require_equal(const struct recipe *expected, const struct recipe *actual) {
#define DIFFERENT(field) return status_set(STATUS_BAD_INPUT, "recipe: %s is another here", #field);
#define COMPARE_INTEGER(field, type, most)                                                                             \
    if (expected->field != actual->field) DIFFERENT(field)
    RECIPE_INTEGERS(COMPARE_INTEGER)
#define COMPARE_DOUBLE(field)                                                                                          \
    if (expected->field < actual->field || expected->field > actual->field) DIFFERENT(field)
    RECIPE_DOUBLES(COMPARE_DOUBLE)
    if (expected->dtype != actual->dtype) DIFFERENT(dtype)
#define COMPARE_TEXT(field)                                                                                            \
    if (strcmp(expected->field, actual->field) != 0) DIFFERENT(field)
    RECIPE_TEXTS(COMPARE_TEXT)
    if ((expected->document_attention == DOCUMENT_ATTENTION_WITHIN) !=
        (actual->document_attention == DOCUMENT_ATTENTION_WITHIN))
        DIFFERENT(document_attention)
    if (strcmp(expected->isa, actual->isa) != 0) DIFFERENT(isa)
    return STATUS_OK;
}
