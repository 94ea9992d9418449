/* Decoding id by id: when each piece of text appears. (test_tokenizer.c checks that all pieces together equal the
 * text of tokenizer_decode.) */
#include <string.h>

#include "base/text.h"
#include "support/fault_sweep.h"
#include "support/tokenizer_text.h"
#include "support/unit.h"
#include "text/tokenizer/tokenizer.h"

#define FALLBACK(decoder)                                                                                              \
    "{\"decoder\": " decoder                                                                                           \
    ", \"model\": {\"byte_fallback\": true, \"merges\": [], \"vocab\": {\"▁\": 0, \"▁a\": 1, "                     \
    "\"b\": 2, \"<0xF0>\": 3, \"<0x9F>\": 4, \"<0x99>\": 5, \"<0x82>\": 6, \"<0x41>\": 7, \"e \": 8, \" \": 9}}}"
#define STRIP(start, stop) "{\"type\": \"Strip\", \"content\": \" \", \"start\": " #start ", \"stop\": " #stop "}"
#define SPACES "{\"type\": \"Replace\", \"pattern\": {\"String\": \"▁\"}, \"content\": \" \"}"
#define SEQUENCE(list) "{\"type\": \"Sequence\", \"decoders\": [" list "]}"
#define BYTES_FUSED "{\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}"
#define LLAMA FALLBACK(SEQUENCE(SPACES ", " BYTES_FUSED ", " STRIP(1, 0)))
#define LEVEL                                                                                                          \
    "{\"decoder\": {\"type\": \"ByteLevel\"}, \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": "     \
    "false}, \"model\": {\"merges\": [], \"vocab\": {\"Ġ\": 0, \"a\": 1, \"ð\": 2, \"Ł\": 3, \"Ļ\": 4, \"Ĥ\": 5}}}"

enum { IDS_MAX = 12 };

static const struct {
    const char *file;
    uint32_t ids[IDS_MAX];
    size_t count;
    const char *out; /* what each id gives, then the finish, each with | behind it */
    const char *whole;
} cases[] = {
    {LLAMA, {1, 2, 0, 1}, 4, "a|b| | a||", "ab  a"},
    /* A character of four tokens comes with its last one, and what follows at once. */
    {LLAMA,
     {1, 3, 4, 5, 6, 7, 2},
     7,
     "a||||\xF0\x9F\x99\x82|A|b||",
     "a\xF0\x9F\x99\x82"
     "Ab"},
    /* Cut off: each byte is a replacement character. */
    {LLAMA,
     {3, 4, 2},
     3,
     "||\xEF\xBF\xBD\xEF\xBF\xBD"
     "b||",
     "\xEF\xBF\xBD\xEF\xBF\xBD"
     "b"},
    {LLAMA, {2, 3}, 2, "b||\xEF\xBF\xBD|", "b\xEF\xBF\xBD"},
    /* The library makes replacement characters of the A as well; here it has gone out. */
    {LLAMA,
     {7, 6, 7, 2},
     4,
     "A|\xEF\xBF\xBD|\xEF\xBF\xBD|b||",
     "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"
     "b"},
    /* Blanks that may yet be stripped wait. */
    {FALLBACK(SEQUENCE("{\"type\": \"Fuse\"}, " STRIP(0, 2))), {2, 8, 9, 9, 9, 2, 9}, 7, "b|e|| | |  b|||", "be    b"},
    {FALLBACK(STRIP(0, 1)), {8, 2, 9}, 3, "e|b|||", "eb"},
    {FALLBACK("null"), {2, 2, 7}, 3, "b| b| <0x41>||", "b b <0x41>"},
    {FALLBACK("{\"type\": \"Metaspace\", \"replacement\": \"▁\"}"), {0, 1, 0}, 3, "| a| ||", " a "},
    {LEVEL,
     {1, 0, 2, 3, 4, 5, 1},
     7,
     "a| ||||\xF0\x9F\x99\x82|a||",
     "a \xF0\x9F\x99\x82"
     "a"},
    {LEVEL,
     {2, 3, 1, 4, 2},
     5,
     "||\xEF\xBF\xBD"
     "a|\xEF\xBF\xBD||\xEF\xBF\xBD|",
     "\xEF\xBF\xBD"
     "a\xEF\xBF\xBD\xEF\xBF\xBD"},
};

static enum status text_gather(void *payload, const char *text, size_t bytes) {
    return text_append(payload, text, bytes);
}

static void text_comes_as_soon_as_it_is_known(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tokenizer *tokenizer;
        struct tokenizer_decoder *decoder;
        struct text_buffer out = {0};
        char *whole;
        const struct tokenizer_text_sink sink = {text_gather, &out};
        if (tokenizer_parse("case", cases[i].file, strlen(cases[i].file), &tokenizer) != STATUS_OK)
            fail_msg("case %zu: %s", i, status_message());
        assert_int_equal(tokenizer_decoder_create(tokenizer, false, &decoder), STATUS_OK);
        for (size_t k = 0; k <= cases[i].count; k++) {
            assert_int_equal(k < cases[i].count ? tokenizer_decoder_push(decoder, &cases[i].ids[k], 1, sink)
                                                : tokenizer_decoder_finish(decoder, sink),
                             STATUS_OK);
            assert_int_equal(text_append(&out, "|", 1), STATUS_OK);
        }
        if (out.count != strlen(cases[i].out) || memcmp(out.items, cases[i].out, out.count) != 0)
            fail_msg("case %zu: \"%.*s\" for \"%s\"", i, (int)out.count, out.items, cases[i].out);
        assert_int_equal(tokenizer_decode(tokenizer, cases[i].ids, cases[i].count, false, &whole, NULL), STATUS_OK);
        assert_string_equal(whole, cases[i].whole);
        mem_free(whole);
        vec_free(&out);
        tokenizer_decoder_free(decoder);
        tokenizer_free(tokenizer);
    }
    tokenizer_decoder_free(NULL);
}

static enum status sink_fails(void *payload, const char *text, size_t bytes) {
    (void)payload, (void)text, (void)bytes;
    return status_set(STATUS_INTERRUPTED, "enough");
}

/* After a failure nothing of the text is left. */
static void a_sink_stops_the_decoding(void **state) {
    (void)state;
    struct tokenizer *tokenizer;
    struct tokenizer_decoder *decoder;
    struct text_buffer out = {0};
    static const uint32_t ids[] = {3, 4, 2}, next[] = {1, 2};
    assert_int_equal(tokenizer_parse("llama", LLAMA, strlen(LLAMA), &tokenizer), STATUS_OK);
    assert_int_equal(tokenizer_decoder_create(tokenizer, false, &decoder), STATUS_OK);
    assert_int_equal(tokenizer_decoder_push(decoder, ids, 3, (struct tokenizer_text_sink){sink_fails, NULL}),
                     STATUS_INTERRUPTED);
    assert_string_equal(status_message(), "enough");
    const struct tokenizer_text_sink sink = {text_gather, &out};
    assert_int_equal(tokenizer_decoder_push(decoder, next, 2, sink), STATUS_OK);
    assert_int_equal(tokenizer_decoder_finish(decoder, sink), STATUS_OK);
    assert_int_equal(out.count, 2);
    assert_memory_equal(out.items, "ab", 2);
    vec_free(&out);
    tokenizer_decoder_free(decoder);
    tokenizer_free(tokenizer);
}

static enum status decode_in_stream(void *payload) {
    struct tokenizer_decoder *decoder;
    struct text_buffer out = {0};
    const struct tokenizer_text_sink sink = {text_gather, &out};
    TRY(tokenizer_decoder_create(payload, true, &decoder));
    enum status status = tokenizer_decoder_push(decoder, cases[1].ids, cases[1].count, sink);
    if (status == STATUS_OK) status = tokenizer_decoder_finish(decoder, sink);
    tokenizer_decoder_free(decoder);
    vec_free(&out);
    return status;
}

static void streams_survive_faults(void **state) {
    (void)state;
    struct tokenizer *tokenizer;
    assert_int_equal(tokenizer_parse("llama", LLAMA, strlen(LLAMA), &tokenizer), STATUS_OK);
    assert_true(fault_sweep(FAULT_ALLOCATE, false, decode_in_stream, tokenizer) > 5);
    assert_true(fault_sweep(FAULT_ALLOCATE, true, decode_in_stream, tokenizer) > 5);
    tokenizer_free(tokenizer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_comes_as_soon_as_it_is_known),
        cmocka_unit_test(a_sink_stops_the_decoding),
        cmocka_unit_test(streams_survive_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
