/* Any template is refused with its line, or renders valid UTF-8 within its limits. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "text/template/jinja.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static json_t *make_messages(void) {
    static const char text[] =
        "[{\"role\": \"system\", \"content\": \"be short\"}, {\"role\": \"user\", \"content\": \"Gr\\u00f6\\u00dfe?\"},"
        " {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"abcdefgh1\", \"function\": "
        "{\"name\":"
        " \"f\", \"arguments\": {\"x\": 3, \"y\": [1.5, true]}}}]}, {\"role\": \"tool\", \"content\": \"5\"},"
        " {\"role\": \"assistant\", \"content\": \"<think>\\nt\\n</think>\\n\\n5 it is\"}]";
    json_t *messages = json_loads(text, 0, NULL);
    if (!messages) abort();
    return messages;
}

static void check_output(const struct jinja_output *output) {
    if (output->text.count == 0) return;
    if (utf8_valid_bytes(output->text.items, output->text.count) != output->text.count) abort();
    size_t at = 0;
    for (size_t i = 0; i < output->generations.count; i++) {
        const struct text_range *range = &output->generations.items[i];
        if (range->from >= range->to || range->to > output->text.count || range->to < at) abort();
        at = range->to;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct jinja_template *template;
    struct jinja_output output = {0};
    status_clear();
    enum status status = jinja_parse("template", (const char *)data, bytes, &template);
    if (status == STATUS_OK) {
        json_t *messages = make_messages(), *token = json_string("<s>");
        struct jinja_variable variables[] = {{"messages", messages}, {"bos_token", token}, {"tools", NULL}};
        status = jinja_render(template, variables, 3, 1721997296, &output);
        if (status == STATUS_OK) check_output(&output);
        jinja_free(template);
        json_decref(messages);
        json_decref(token);
    }
    if (status != STATUS_OK && (status != STATUS_BAD_INPUT || !strstr(status_message(), "template: "))) abort();
    jinja_output_free(&output);
    return 0;
}
