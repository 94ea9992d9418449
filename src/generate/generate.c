#include "generate/generate.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/terminal.h"
#include "base/text.h"
#include "generate/writer.h"
#include "session/model_tokenizer.h"

static const char *const finish_names[] = {
#define GENERATE_FINISH_NAME(name, text) text,
    GENERATE_FINISH_LIST(GENERATE_FINISH_NAME)};

const char *generate_finish_name(enum generate_finish finish) { return finish_names[finish]; }

#define PLACE(field, ...) [SETTING_##field] = SETTING_PLACE(struct generate_options, field),
const struct settings_holder text_settings = {SETTINGS_GIVEN_AT(struct generate_options),
                                              .places = {SETTING_LIST_TEXT(PLACE)}};
#undef PLACE

void generate_options_init(struct generate_options *out) {
    *out = (struct generate_options){.tokens = setting_table[SETTING_tokens].int_value};
}

enum status generate_options_check(const struct generate_options *options) {
    if (options->tokens < 0) return status_set(STATUS_BAD_INPUT, "tokens: %" PRId64 " is negative", options->tokens);
    for (size_t i = 0; i < options->stop_count; i++)
        if (options->stops[i][0] == '\0') return status_set(STATUS_BAD_INPUT, "stop: is empty");
    return STATUS_OK;
}

static const char file_name[] = "generation_config.json";
enum { FILE_LIMIT_BYTES = 1 << 20 };

/* Keys that do not change the texts of Ballast. --tokens and --stop control lengths. The other keys concern speed,
 * memory, return values in Python, encoders, or beam search (without `num_beams`, which is below). */
static const char *const harmless[] = {
    "_from_model_config",
    "transformers_version",
    "bos_token_id",
    "pad_token_id",
    "decoder_start_token_id",
    "max_length",
    "max_new_tokens",
    "max_time",
    "use_cache",
    "cache_implementation",
    "cache_config",
    "return_legacy_cache",
    "prefill_chunk_size",
    "compile_config",
    "disable_compile",
    "low_memory",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "output_logits",
    "return_dict_in_generate",
    "early_stopping",
    "length_penalty",
    "diversity_penalty",
    "is_assistant",
    "num_assistant_tokens",
    "num_assistant_tokens_schedule",
    "assistant_confidence_threshold",
    "assistant_early_exit",
    "assistant_ensemble_weight",
    "continuous_batching_config",
    "max_cache_len",
    "speculation_type",
    "use_mtp",
    "assistant_lookbehind",
    "target_lookbehind",
    "prompt_lookup_num_tokens",
    "max_matching_ngram_size",
    "encoder_no_repeat_ngram_size",
    "encoder_repetition_penalty",
    "generation_kwargs",
};

/* Keys that change texts unless they have this value (or null). */
static const struct neutral_key {
    const char *name, *value; /* JSON */
} neutral[] = {
    {"num_beams", "1"},
    {"num_beam_groups", "1"},
    {"penalty_alpha", "0"},
    {"dola_layers", "null"},
    {"min_length", "0"},
    {"min_new_tokens", "0"},
    {"stop_strings", "[]"},
    {"min_p", "0"},
    {"top_h", "null"},
    {"typical_p", "1"},
    {"epsilon_cutoff", "0"},
    {"eta_cutoff", "0"},
    {"no_repeat_ngram_size", "0"},
    {"bad_words_ids", "[]"},
    {"force_words_ids", "[]"},
    {"constraints", "[]"},
    {"forced_bos_token_id", "null"},
    {"forced_eos_token_id", "null"},
    {"forced_decoder_ids", "[]"},
    {"suppress_tokens", "[]"},
    {"begin_suppress_tokens", "[]"},
    {"sequence_bias", "[]"},
    {"exponential_decay_length_penalty", "null"},
    {"remove_invalid_values", "false"},
    {"renormalize_logits", "false"},
    {"guidance_scale", "1"},
    {"watermarking_config", "null"},
    {"token_healing", "false"},
};

static const char *const used[] = {"eos_token_id", "do_sample", "temperature", "top_p", "top_k", "repetition_penalty"};

#define COUNT(table) (sizeof(table) / sizeof *(table))

static bool is_among(const char *key, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(key, names[i]) == 0) return true;
    return false;
}

/* Compares values. 1 equals 1.0. */
static bool has_value(const json_t *value, const char *text) {
    if (json_is_null(value)) return true;
    json_auto_t *wanted = json_loads(text, JSON_DECODE_ANY, NULL);
    if (!json_is_number(value) || !json_is_number(wanted)) return wanted && json_equal(value, wanted);
    return !(json_number_value(value) < json_number_value(wanted) ||
             json_number_value(value) > json_number_value(wanted));
}

static const struct neutral_key *find_neutral(const char *key) {
    for (size_t i = 0; i < COUNT(neutral); i++)
        if (strcmp(key, neutral[i].name) == 0) return &neutral[i];
    return NULL;
}

static void warn_of_rest(const char *path, json_t *object) {
    const char *key;
    const json_t *value;
    json_object_foreach(object, key, value) {
        const struct neutral_key *known = find_neutral(key);
        if (known ? has_value(value, known->value)
                  : is_among(key, used, COUNT(used)) || is_among(key, harmless, COUNT(harmless)))
            continue;
        log_warning(known ? "%s: %s: is not applied; transformers would write another text"
                          : "%s: %s: is not known here; it may change what transformers writes",
                    path, key);
    }
}

static enum status add_end(const char *path, const json_t *id, int64_t vocab, struct token_ids *ends) {
    if (!json_is_integer(id))
        return status_set(STATUS_BAD_INPUT, "%s: eos_token_id: must be a token's id, or a list of such", path);
    json_int_t value = json_integer_value(id);
    if (value < 0 || value >= vocab)
        return status_set(STATUS_BAD_INPUT, "%s: eos_token_id: %lld is not among the model's %" PRId64 " tokens", path,
                          (long long)value, vocab);
    return vec_push(ends, (uint32_t)value);
}

static enum status read_ends(const char *path, const json_t *value, int64_t vocab, struct token_ids *ends) {
    if (!json_is_array(value)) return add_end(path, value, vocab, ends);
    for (size_t i = 0; i < json_array_size(value); i++)
        TRY(add_end(path, json_array_get(value, i), vocab, ends));
    return STATUS_OK;
}

#define PLACE(field) [SETTING_##field] = SETTING_PLACE(struct generation_config, field)
static const struct settings_holder config_settings = {
    SETTINGS_GIVEN_AT(struct generation_config),
    .places = {PLACE(temperature), PLACE(top_k), PLACE(top_p), PLACE(repetition_penalty)}};
#undef PLACE

static enum status read_draws(const char *path, const json_t *object, struct generation_config *out) {
    for (enum setting_id id = 0; id < SETTING_COUNT; id++) {
        const struct setting *setting = &setting_table[id];
        struct setting_value value;
        if (!settings_have(&config_settings, id) || !json_present(object, setting->key)) continue;
        TRY(setting_from_json(path, object, setting, true, NULL, &value));
        TRY(settings_store(&config_settings, out, id, path, &value));
    }
    return STATUS_OK;
}

static enum status read_object(const char *path, const json_t *object, int64_t vocab, struct generation_config *out) {
    const json_t *ends = json_object_get(object, "eos_token_id");
    bool sample = true;
    if (ends && !json_is_null(ends)) {
        TRY(read_ends(path, ends, vocab, &out->ends));
        out->ends_given = out->ends.count;
        out->has_ends = true;
    }
    TRY(json_read_bool(path, object, "do_sample", &sample));
    out->greedy = !sample;
    return read_draws(path, object, out);
}

enum status generation_config_from_json(const char *path, const json_t *object, int64_t vocab,
                                        struct generation_config *out) {
    AUTO(generation_config_free) struct generation_config config = {0};
    TRY(read_object(path, object, vocab, &config));
    *out = TAKE(config);
    return STATUS_OK;
}

static enum status read_file(const char *path, json_t **object) {
    if (file_exists(path)) return json_read_object(path, FILE_LIMIT_BYTES, object);
    *object = json_object();
    return *object ? STATUS_OK : status_no_memory(0, file_name);
}

/* End tokens given to model_set_ends replace those in the file. */
enum status generation_config_read(const struct model *model, const struct tokenizer *tokenizer, bool warns,
                                   struct generation_config *out) {
    AUTO(generation_config_free) struct generation_config config = {0};
    json_auto_t *object = NULL;
    AUTO_FREE char *path = path_join(model_companion_folder(model, file_name), file_name);
    TRY(path ? read_file(path, &object) : STATUS_FAILED);
    if (model->ends && json_object_set(object, "eos_token_id", model->ends) != 0) TRY(status_no_memory(0, file_name));
    TRY(generation_config_from_json(path, object, model->config.vocab_size, &config));
    if (warns) warn_of_rest(path, object);
    if (!config.has_ends) TRY(model_end_tokens(model, tokenizer, &config.ends));
    *out = TAKE(config);
    return STATUS_OK;
}

void generation_config_free(struct generation_config *config) { vec_free(&config->ends); }

bool generation_config_is_end(const struct generation_config *config, uint32_t token) {
    for (size_t i = 0; i < config->ends.count; i++)
        if (config->ends.items[i] == token) return true;
    return false;
}

static void note_ends(const struct generation_config *config, char note[GENERATION_NOTE_BYTES]) {
    for (size_t i = 0; i < config->ends_given; i++)
        text_add(note, GENERATION_NOTE_BYTES, "%s%" PRIu32, i == 0 ? ", eos_token_id " : " ", config->ends.items[i]);
}

/* Sets an option that is not given to the file's value, or else to the default. Adds a value from the file to
 * `note`. */
static void take(const struct generation_config *config, enum setting_id id, struct generate_options *options,
                 char note[GENERATION_NOTE_BYTES]) {
    const struct setting *setting = &setting_table[id];
    struct setting_value value;
    char text[SETTING_PRINT_BYTES];
    if (options->given.of[id]) return;
    setting_default(setting, &value);
    if (config->given.of[id]) settings_load(&config_settings, config, id, &value);
    (void)settings_store(&text_settings, options, id, "", &value);
    if (config->given.of[id])
        text_add(note, GENERATION_NOTE_BYTES, ", %s %s", setting->key, setting_print(setting, &value, text));
}

void generation_config_apply(const struct generation_config *config, struct generate_options *options,
                             char note[GENERATION_NOTE_BYTES]) {
    char text[GENERATION_NOTE_BYTES] = "", unused[GENERATION_NOTE_BYTES] = "";
    if (!options->ignore_end) note_ends(config, text);
    if (config->greedy && !SETTINGS_HAVE(options, temperature)) {
        SETTINGS_GIVE(options, temperature, 0);
        text_add(text, GENERATION_NOTE_BYTES, ", do_sample false");
    }
    take(config, SETTING_temperature, options, text);
    char *of_draws = options->temperature > 0 ? text : unused;
    take(config, SETTING_top_k, options, of_draws);
    take(config, SETTING_top_p, options, of_draws);
    take(config, SETTING_repetition_penalty, options, text);
    snprintf(note, GENERATION_NOTE_BYTES, "%s", text[0] ? text + 2 : "");
}
