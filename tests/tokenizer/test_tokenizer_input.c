/* Wrong tokenizer files, and files with unsupported features, are refused with a message that names the cause. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "support/temp_folder.h"
#include "support/tokenizer_text.h"
#include "support/unit.h"
#include "text/tokenizer/tokenizer.h"

/* A small good file, in parts that the tests change. */
#define HEAD "\"version\": \"1.0\", \"truncation\": null, \"padding\": null"
#define BYTES "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": true}"
#define MODEL "{\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [\"a b\"]}"
#define TOKEN(id, content)                                                                                             \
    "{\"id\": " #id ", \"content\": \"" content "\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "   \
    "\"normalized\": false, \"special\": true}"
#define FILE_OF(added, normalizer, pre, post, decoder, model)                                                          \
    "{" HEAD ", \"added_tokens\": " added ", \"normalizer\": " normalizer ", \"pre_tokenizer\": " pre                  \
    ", \"post_processor\": " post ", \"decoder\": " decoder ", \"model\": " model "}"
#define WITH_ADDED(added) FILE_OF(added, "null", BYTES, "null", BYTES, MODEL)
#define WITH_NORMALIZER(normalizer) FILE_OF("[]", normalizer, BYTES, "null", BYTES, MODEL)
#define WITH_PRE(pre) FILE_OF("[]", "null", pre, "null", BYTES, MODEL)
#define WITH_POST(post) FILE_OF("[" TOKEN(3, "<s>") "]", "null", BYTES, post, BYTES, MODEL)
#define WITH_DECODER(decoder) FILE_OF("[]", "null", BYTES, "null", decoder, MODEL)
#define WITH_MODEL(model) FILE_OF("[]", "null", BYTES, "null", BYTES, model)
#define WITH_PATTERN(pattern)                                                                                          \
    WITH_PRE("{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\": \"" pattern  \
             "\"}, \"behavior\": \"Isolated\", \"invert\": false}, " BYTES "]}")
#define TEMPLATE(single, specials)                                                                                     \
    WITH_POST("{\"type\": \"TemplateProcessing\", \"single\": " single ", \"pair\": [], \"special_tokens\": " specials \
              "}")
#define METASPACE_FIRST "{\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"first\"}"
#define SEQUENCE_A "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}"

static const char good[] = FILE_OF("[" TOKEN(3, "<s>") "]", "{\"type\": \"NFC\"}", BYTES, "null", BYTES, MODEL);

static const struct {
    const char *file, *words;
} refused[] = {
    {"", "not valid JSON"},
    {"[]", "object"},
    {"{", "not valid JSON"},
    {"{}", "model: missing"},
    {"{\"model\": 3}", "model: must be an object"},
    {"{\"model\": {}, \"surprise\": 1}", "surprise"},
    {"{\"version\": \"2.0\", \"model\": {}}", "version: 2.0"},
    {"{\"version\": 1, \"model\": {}}", "version: must be a string"},
    /* model */
    {WITH_MODEL("{\"type\": \"Unigram\", \"vocab\": []}"), "Unigram is not supported"},
    {WITH_MODEL("{\"type\": \"WordPiece\", \"vocab\": {}}"), "WordPiece is not supported"},
    {WITH_MODEL("{\"merges\": []}"), "vocab: missing"},
    {WITH_MODEL("{\"vocab\": {\"a\": 0}}"), "merges: missing"},
    {WITH_MODEL("{\"vocab\": [], \"merges\": []}"), "vocab: must be an object"},
    {WITH_MODEL("{\"vocab\": {}, \"merges\": []}"), "vocab: is empty"},
    {WITH_MODEL("{\"vocab\": {\"a\": -1}, \"merges\": []}"), "vocab: a: must be"},
    {WITH_MODEL("{\"vocab\": {\"a\": 1.5}, \"merges\": []}"), "vocab: a: must be"},
    {WITH_MODEL("{\"vocab\": {\"a\": 4194304}, \"merges\": []}"), "vocab: a: must be"},
    {WITH_MODEL("{\"vocab\": {\"a\": 99999999999999999999}, \"merges\": []}"), "must be a whole number from 0"},
    {WITH_MODEL("{\"vocab\": {\"a\": 0, \"a\": 1}, \"merges\": []}"), "duplicate"},
    {WITH_MODEL("{\"vocab\": {\"a\": 7, \"b\": 7}, \"merges\": []}"), "one id, 7"},
    {WITH_MODEL("{\"vocab\": {\"a\": 0}, \"merges\": {}}"), "merges: must be an array"},
    {WITH_MODEL("{\"vocab\": {\"a\": 0}, \"merges\": [\"a\"]}"), "merges[0]: must be"},
    {WITH_MODEL("{\"vocab\": {\"a\": 0}, \"merges\": [\"a a a\"]}"), "merges[0]: must be"},
    {WITH_MODEL("{\"vocab\": {\"a\": 0}, \"merges\": [[\"a\"]]}"), "merges[0]: must be"},
    {WITH_MODEL("{\"vocab\": {\"a\": 0}, \"merges\": [[\"a\", 1]]}"), "merges[0]: must be"},
    {WITH_MODEL("{\"vocab\": {\"a\": 0}, \"merges\": [\"a a\"]}"), "no token \"aa\""},
    {WITH_MODEL("{\"vocab\": {\"a\": 0}, \"merges\": [[\"a\", \"xyz\"]]}"), "no token \"xyz\""},
    {WITH_MODEL("{\"vocab\": {\"a\": 0}, \"merges\": [], \"dropout\": 0.1}"), "dropout: is set"},
    {WITH_MODEL("{\"vocab\": {\"a\": 0}, \"merges\": [], \"dropout\": 7}"), "dropout"},
    {WITH_MODEL("{\"vocab\": {\"a\": 0}, \"merges\": [], \"byte_fallback\": 1}"), "byte_fallback: must be true or"},
    {WITH_MODEL("{\"vocab\": {\"a\": 0}, \"merges\": [], \"byte_fallback\": true, \"unk_token\": \"<unk>\"}"),
     "unk_token: <unk> is not in"},
    {WITH_MODEL("{\"vocab\": {\"a\": 0}, \"merges\": [], \"end_of_word_suffix\": \"</w>\"}"), "end_of_word_suffix"},
    {WITH_MODEL("{\"vocab\": {\"a\": 0}, \"merges\": [], \"continuing_subword_prefix\": \"##\"}"), "subword_prefix"},
    {WITH_MODEL("{\"vocab\": {\"a\": 0}, \"merges\": [], \"unk_token\": \"<unk>\"}"), "unk_token: <unk> is not in"},
    {WITH_MODEL("{\"vocab\": {\"a\": 0}, \"merges\": [], \"ignore_merges\": 1}"), "ignore_merges: must be true or"},
    {WITH_MODEL("{\"vocab\": {\"a\": 0}, \"merges\": [], \"trick\": 1}"), "model: trick"},
    /* added tokens */
    {WITH_ADDED("{}"), "added_tokens: must be an array"},
    {WITH_ADDED("[5]"), "added_tokens[0]: must be an object"},
    {WITH_ADDED("[{\"id\": 3}]"), "added_tokens[0]: content: missing"},
    {WITH_ADDED("[{\"content\": \"x\"}]"), "added_tokens[0]: id: missing"},
    {WITH_ADDED("[{\"content\": \"x\", \"id\": 3}]"), "single_word: missing"},
    {WITH_ADDED("[" TOKEN(-1, "x") "]"), "id: -1"},
    {WITH_ADDED("[" TOKEN(3, "") "]"), "content: is empty"},
    {WITH_ADDED("[" TOKEN(9, "<s>") "]"), "id: is 9, but by its vocabulary <s> has 3"},
    {WITH_ADDED("[" TOKEN(3, "a") "]"), "id: is 3, but by its vocabulary a has 0"},
    {WITH_ADDED("[" TOKEN(3, "<s>") ", " TOKEN(3, "<s>") "]"), "<s> is there twice"},
    {WITH_ADDED("[" TOKEN(3, "<s>") ", " TOKEN(3, "</s>") "]"), "added_tokens[1]: id"},
    {FILE_OF("[" TOKEN(2, "<s>") "]", "null", BYTES, "null", BYTES,
             "{\"vocab\": {\"a\": 1, \"b\": 2}, \"merges\": []}"),
     "2 is that of b too"},
    /* components */
    {WITH_NORMALIZER("{\"type\": \"Precompiled\", \"precompiled_charsmap\": \"\"}"), "Precompiled is not supported"},
    {WITH_NORMALIZER("{\"type\": \"Nmt\"}"), "normalizer: Nmt is not supported"},
    {WITH_NORMALIZER("{\"type\": \"Lowercase\", \"locale\": \"tr\"}"), "normalizer: locale"},
    {WITH_NORMALIZER("{\"type\": \"Prepend\"}"), "normalizer: prepend: missing"},
    {WITH_NORMALIZER("{\"type\": \"Strip\", \"strip_left\": true}"), "normalizer: strip_right: missing"},
    {WITH_NORMALIZER("{\"type\": \"Replace\", \"pattern\": {\"String\": \"\"}, \"content\": \"x\"}"), "is empty"},
    {WITH_NORMALIZER("{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"a*\"}, \"content\": \"x\"}"),
     "matches nothing"},
    {WITH_NORMALIZER("{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"\\\\ba\"}, \"content\": \"x\"}"),
     "\\b is not"},
    {WITH_NORMALIZER("{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}}"), "content: missing"},
    {WITH_NORMALIZER("{\"type\": \"Replace\", \"content\": \"x\"}"), "pattern: missing"},
    {WITH_NORMALIZER("{\"type\": \"NFC\", \"strength\": 2}"), "normalizer: strength"},
    {WITH_NORMALIZER("{}"), "normalizer: type: missing"},
    {WITH_NORMALIZER("\"NFC\""), "normalizer: must be an object or null"},
    {WITH_NORMALIZER("{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}, {\"type\": \"Odd\"}]}"),
     "normalizer.normalizers[1]: Odd is not supported"},
    {WITH_NORMALIZER("{\"type\": \"Sequence\", \"normalizers\": [null]}"), "normalizers[0]: is null"},
    {WITH_NORMALIZER("{\"type\": \"Sequence\"}"), "normalizers: missing"},
    {WITH_PRE("{\"type\": \"BertPreTokenizer\"}"), "pre_tokenizer: BertPreTokenizer is not supported"},
    {WITH_PRE("{\"type\": \"Metaspace\"}"), "pre_tokenizer: replacement: missing"},
    {WITH_PRE("{\"type\": \"Metaspace\", \"replacement\": \"__\"}"), "replacement: must be one character"},
    {WITH_PRE("{\"type\": \"Metaspace\", \"replacement\": \"\"}"), "replacement: must be one character"},
    {WITH_PRE("{\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"last\"}"),
     "prepend_scheme: last is not supported"},
    {WITH_PRE("{\"type\": \"Metaspace\", \"replacement\": \"_\", \"add_prefix_space\": false}"),
     "add_prefix_space: is false"},
    {FILE_OF("[]", "{\"type\": \"Strip\", \"strip_left\": true, \"strip_right\": false}", METASPACE_FIRST, "null",
             "null", MODEL),
     "prepend_scheme: first is not supported with this normalizer"},
    {FILE_OF("[]", "{\"type\": \"NFC\"}",
             "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Whitespace\"}, " METASPACE_FIRST "]}", "null",
             "null", MODEL),
     "prepend_scheme: first is not supported with this normalizer"},
    {WITH_PRE("{\"type\": \"Sequence\", \"pretokenizers\": [" BYTES ", " METASPACE_FIRST "]}"), "after ByteLevel"},
    {WITH_PRE("{\"type\": \"Sequence\", \"pretokenizers\": [" BYTES ", {\"type\": \"Whitespace\"}]}"),
     "after ByteLevel"},
    {WITH_PRE("{\"type\": \"CharDelimiterSplit\", \"delimiter\": \"ab\"}"), "delimiter: must be one character"},
    {WITH_PRE("{\"type\": \"Punctuation\", \"behavior\": \"Odd\"}"), "behavior: Odd"},
    {WITH_PRE("{\"type\": \"ByteLevel\"}"), "add_prefix_space: missing"},
    {WITH_PRE("{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"alphabet\": 1}"), "alphabet"},
    {WITH_PRE("{\"type\": \"Sequence\", \"pretokenizers\": [" BYTES ", " BYTES "]}"), "after ByteLevel"},
    {WITH_PRE("{\"type\": \"Sequence\", \"pretokenizers\": [" BYTES ", {\"type\": \"Digits\"}]}"), "after ByteLevel"},
    {WITH_PRE("{\"type\": \"Split\", \"pattern\": {\"Regex\": \"x\"}, \"behavior\": \"Odd\", \"invert\": false}"),
     "Odd"},
    {WITH_PRE("{\"type\": \"Split\", \"pattern\": {\"Regex\": \"x\"}, \"behavior\": \"Isolated\"}"), "invert: missing"},
    {WITH_PRE("{\"type\": \"Split\", \"pattern\": \"x\", \"behavior\": \"Isolated\", \"invert\": false}"), "pattern"},
    {WITH_PRE("{\"type\": \"Split\", \"pattern\": {\"Glob\": \"x\"}, \"behavior\": \"Isolated\", \"invert\": false}"),
     "Glob"},
    {WITH_PATTERN(""), "the pattern is empty"},
    {WITH_PATTERN("(a"), "pretokenizers[0].pattern: at byte 2 of the pattern: ( has no )"},
    {WITH_PATTERN("a*"), "matches nothing"},
    {WITH_PATTERN("\\\\w+"), "\\w is not supported"},
    {WITH_POST("{\"type\": \"BertProcessing\"}"), "post_processor: BertProcessing is not supported"},
    {TEMPLATE("{}", "{}"), "single: must be an array"},
    {TEMPLATE("[]", "{}"), "the sequence A once"},
    {TEMPLATE("[" SEQUENCE_A ", " SEQUENCE_A "]", "{}"), "the sequence A once"},
    {TEMPLATE("[{\"Sequence\": {\"id\": \"B\", \"type_id\": 0}}]", "{}"), "Sequence B"},
    {TEMPLATE("[5]", "{}"), "single: must hold"},
    {TEMPLATE("[" SEQUENCE_A ", {\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": 0}}]", "{}"), "has no <s>"},
    {TEMPLATE("[" SEQUENCE_A ", {\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": 0}}]", "{\"<s>\": {\"ids\": [4]}}"),
     "an id that no token has"},
    {WITH_DECODER("{\"type\": \"WordPiece\"}"), "decoder: WordPiece is not supported"},
    {WITH_DECODER("{\"type\": \"Metaspace\"}"), "decoder: replacement: missing"},
    {WITH_DECODER("{\"type\": \"Fuse\", \"more\": 1}"), "decoder: more"},
    {WITH_DECODER("{\"type\": \"Strip\", \"content\": \" \", \"start\": 1}"), "decoder: stop: missing"},
    {WITH_DECODER("{\"type\": \"Strip\", \"content\": \" \", \"start\": -1, \"stop\": 0}"), "decoder: start: -1"},
    {WITH_DECODER("{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Fuse\"}, {\"type\": \"CTC\"}]}"),
     "decoder.decoders[1]: CTC is not supported"},
    {WITH_DECODER("{\"type\": \"ByteLevel\", \"trim_offsets\": 3}"), "trim_offsets: must be true or false"},
};

static enum status parse(const char *text, size_t bytes) {
    struct tokenizer *tokenizer;
    status_clear();
    enum status status = tokenizer_parse("some.json", text, bytes, &tokenizer);
    if (status == STATUS_OK) tokenizer_free(tokenizer);
    return status;
}

static void bad_files_are_refused_by_name(void **state) {
    (void)state;
    assert_int_equal(parse(good, strlen(good)), STATUS_OK);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        enum status status = parse(refused[i].file, strlen(refused[i].file));
        if (status != STATUS_BAD_INPUT) fail_msg("case %zu is not refused: %s", i, refused[i].file);
        if (!strstr(status_message(), refused[i].words) || !strstr(status_message(), "some.json"))
            fail_msg("\"%s\" does not say \"%s\"", status_message(), refused[i].words);
    }
}

/* Cut anywhere, a file is malformed; with any byte changed it may be another file, but never a crash. */
static void cut_and_changed_files_do_no_harm(void **state) {
    (void)state;
    char changed[sizeof good];
    for (size_t bytes = 0; bytes < strlen(good); bytes++)
        assert_int_equal(parse(good, bytes), STATUS_BAD_INPUT);
    for (size_t i = 0; i < strlen(good); i++) {
        static const char others[] = {'"', '}', '\\', '9', '\xff', '\0', ' '};
        for (size_t k = 0; k < sizeof others; k++) {
            memcpy(changed, good, sizeof good);
            changed[i] = others[k];
            enum status status = parse(changed, strlen(good));
            assert_true(status == STATUS_OK || (status == STATUS_BAD_INPUT && status_message()[0]));
        }
    }
}

static void nested(struct text_buffer *out, const char *open, const char *middle, const char *close, size_t depth) {
    out->count = 0;
    for (size_t i = 0; i < depth; i++)
        assert_int_equal(text_append(out, open, strlen(open)), STATUS_OK);
    assert_int_equal(text_append(out, middle, strlen(middle)), STATUS_OK);
    for (size_t i = 0; i < depth; i++)
        assert_int_equal(text_append(out, close, strlen(close)), STATUS_OK);
}

static void deep_files_are_refused(void **state) {
    (void)state;
    struct text_buffer text = {0};
    nested(&text, "[", "", "]", 1000000);
    assert_int_equal(parse(text.items, text.count), STATUS_BAD_INPUT);
    nested(&text, "{\"model\":", "{}", "}", 100000);
    assert_int_equal(parse(text.items, text.count), STATUS_BAD_INPUT);
    nested(&text, "{\"type\":\"Sequence\",\"normalizers\":[", "", "]}", 500);
    char *file = mem_format("{\"normalizer\": %.*s, \"model\": " MODEL "}", (int)text.count, text.items);
    assert_non_null(file);
    assert_int_equal(parse(file, strlen(file)), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "too many Sequences"));
    mem_free(file);
    nested(&text, "(", "a", ")", 500);
    file = mem_format(WITH_PATTERN("%.*s"), (int)text.count, text.items);
    assert_non_null(file);
    assert_int_equal(parse(file, strlen(file)), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "too many groups"));
    mem_free(file);
    vec_free(&text);
}

static void files_are_named(void **state) {
    const char *path = temp_path(*state, "tokenizer.json");
    struct tokenizer *tokenizer;
    assert_int_equal(tokenizer_open(path, &tokenizer), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), path));
    temp_write_text(path, "{\"model\": [}");
    assert_int_equal(tokenizer_open(path, &tokenizer), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), path));
    temp_write_text(path, good);
    assert_int_equal(tokenizer_open(path, &tokenizer), STATUS_OK);
    assert_int_equal(tokenizer_vocab_size(tokenizer), 4);
    tokenizer_free(tokenizer);
}

/* A pattern that takes more and more steps the longer the text: stopped, with its name. */
static void runaway_patterns_are_stopped(void **state) {
    (void)state;
    static const char file[] = WITH_PATTERN("(a|a)+(a|a)+(a|a)+(a|a)+(a|a)+b");
    char text[200];
    struct tokenizer *tokenizer;
    struct token_ids ids = {0};
    memset(text, 'a', sizeof text);
    memcpy(text + sizeof text - 2, "cb", 2); /* PCRE2 looks whether there is a b at all */
    assert_int_equal(tokenizer_parse("some.json", file, strlen(file), &tokenizer), STATUS_OK);
    assert_int_equal(tokenizer_encode(tokenizer, text, sizeof text, false, &ids), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "too costly"));
    assert_non_null(strstr(status_message(), "pretokenizers[0].pattern"));
    vec_free(&ids);
    tokenizer_free(tokenizer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_files_are_refused_by_name),
        cmocka_unit_test(cut_and_changed_files_do_no_harm),
        cmocka_unit_test(deep_files_are_refused),
        cmocka_unit_test_setup_teardown(files_are_named, temp_folder_make, temp_folder_drop),
        cmocka_unit_test(runaway_patterns_are_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
