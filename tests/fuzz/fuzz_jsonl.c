/* JSON lines of any content: each line is refused, blank, or holds a document or an example of valid UTF-8. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "data/source.h"

static void expect_text(const json_t *text) {
    json_t *again = json_stringn(json_string_value(text), json_string_length(text)); /* NULL unless UTF-8 */
    if (!again) abort();
    json_decref(again);
}

static void read_document(const char *line, size_t bytes, int64_t number) {
    json_t *value;
    const json_t *text;
    enum status status = jsonl_parse_object("input", number, line, bytes, &value);
    if (status != STATUS_OK && !strstr(status_message(), "input: line ")) abort();
    if (status != STATUS_OK || !value) return;
    if (jsonl_read_string(&(struct jsonl_row){NULL, "input", number, value}, "text", &text) == STATUS_OK)
        expect_text(text);
    else if (!strstr(status_message(), "input: line "))
        abort();
    json_decref(value);
}

static void read_example(const char *line, size_t bytes, int64_t number) {
    json_t *value;
    const json_t *prompt, *completion;
    if (jsonl_parse_object("input", number, line, bytes, &value) != STATUS_OK || !value) return;
    if (jsonl_read_string(&(struct jsonl_row){NULL, "input", number, value}, "prompt", &prompt) == STATUS_OK &&
        jsonl_read_string(&(struct jsonl_row){NULL, "input", number, value}, "completion", &completion) == STATUS_OK) {
        expect_text(prompt);
        expect_text(completion);
    } else if (!strstr(status_message(), "input: line ")) {
        abort();
    }
    json_decref(value);
}

static void read_form(const char *line, size_t bytes, int64_t number) {
    json_t *value, *formed;
    size_t first;
    if (jsonl_parse_object("input", number, line, bytes, &value) != STATUS_OK || !value) return;
    for (int form = 0; form < 3; form++) {
        formed = NULL;
        status_clear();
        enum status status =
            form < 2 ? jsonl_form_alpaca(&(struct jsonl_row){NULL, "input", number, value}, form == 1, &formed)
                     : jsonl_form_conversation(&(struct jsonl_row){NULL, "input", number, value}, &formed, &first);
        if (status != STATUS_OK && !strstr(status_message(), "input: line ")) abort();
        json_decref(formed);
    }
    json_decref(value);
}

/* Two answers: texts, or messages of which those of an answer are there. */
static void read_preference(const char *line, size_t bytes, int64_t number) {
    json_t *value;
    if (jsonl_parse_object("input", number, line, bytes, &value) != STATUS_OK || !value) return;
    for (int field = JSONL_CHOSEN; field <= JSONL_REJECTED; field++) {
        json_t *formed = NULL;
        size_t first = 0;
        status_clear();
        enum status status = jsonl_form_preference(&(struct jsonl_row){NULL, "input", number, value},
                                                   (enum jsonl_field)field, &formed, &first);
        const json_t *messages = json_object_get(formed, "messages");
        if (status != STATUS_OK && !strstr(status_message(), "input: line ")) abort();
        if (status == STATUS_OK && messages && first >= json_array_size(messages)) abort();
        if (status == STATUS_OK && !messages && !json_is_string(json_object_get(formed, "completion"))) abort();
        json_decref(formed);
    }
    json_decref(value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    char *text = mem_array(bytes, 1);
    if (!text) return 0;
    memcpy(text, data, bytes);
    struct file_input file = file_input_of_memory(text, bytes);
    enum source_kind kind;
    if (jsonl_find_file_kind(&file, NULL, &kind) != STATUS_OK) abort();
    struct line_reader reader = {.text = text, .bytes = bytes};
    const char *line;
    size_t line_bytes, total = 0;
    while (line_read(&reader, &line, &line_bytes)) {
        total += line_bytes;
        read_document(line, line_bytes, reader.line);
        read_example(line, line_bytes, reader.line);
        read_form(line, line_bytes, reader.line);
        read_preference(line, line_bytes, reader.line);
    }
    if (reader.next != bytes || total > bytes) abort();
    mem_free(text);
    return 0;
}
