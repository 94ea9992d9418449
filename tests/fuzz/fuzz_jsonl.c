/* JSON lines of any content: each line is refused, blank, or holds a document of valid UTF-8. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "data/jsonl.h"

static void read_document(const char *line, size_t bytes, int64_t number) {
    json_t *value;
    const char *text;
    size_t text_bytes;
    if (jsonl_parse("input", number, line, bytes, &value, &text, &text_bytes) != STATUS_OK) {
        if (!strstr(status_message(), "input: line ")) abort();
        return;
    }
    if (!value) return;
    json_t *again = json_stringn(text, text_bytes); /* NULL unless UTF-8 */
    if (!again) abort();
    json_decref(again);
    json_decref(value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    char *text = mem_array(bytes, 1);
    if (!text) return 0;
    memcpy(text, data, bytes);
    struct line_reader reader = {.text = text, .bytes = bytes};
    const char *line;
    size_t line_bytes, total = 0;
    while (line_read(&reader, &line, &line_bytes)) {
        total += line_bytes;
        read_document(line, line_bytes, reader.line);
    }
    if (reader.next != bytes || total > bytes) abort();
    mem_free(text);
    return 0;
}
