/* Any lines as conversations: each is refused with its number, or gives valid examples in which only the assistant's
 * turns are trained. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "data/source.h"
#include "text/chat/chat.h"

int LLVMFuzzerInitialize(int *count, char ***arguments);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static struct tokenizer *tokenizer;
static struct chat_template *chat;
static struct example_encoder *examples;
static struct chat_encoder *encoder;

/* Leaves thoughts out of all turns but the last, so that both ways of making examples are met. */
static const char template_text[] =
    "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' and not loop.last %}"
    "{{ m.content.split('</t>')[-1] }}{% elif m.content is string %}{{ m.content }}{% else %}{{ m|tojson }}{% endif "
    "%}<end>"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}{% if tools %}{{ tools|length }}{% endif %}";

static void require(enum status status) {
    if (status == STATUS_OK) return;
    fprintf(stderr, "%s\n", status_message());
    abort();
}

int LLVMFuzzerInitialize(int *count, char ***arguments) {
    static const char text[] = "a river under a bridge, a bridge over a river", *const special[] = {"<end>", "<user>"};
    char folder[] = "/tmp/ballast-fuzz-XXXXXX", path[64];
    (void)count, (void)arguments;
    if (!mkdtemp(folder)) abort();
    snprintf(path, sizeof path, "%s/chat_template.jinja", folder);
    require(file_replace(path, template_text, strlen(template_text)));
    require(chat_template_open(folder, &chat));
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    const struct file_input input = file_input_of_memory(text, strlen(text));
    require(tokenizer_train_file(&input, 262, special, 2, path));
    require(tokenizer_open(path, &tokenizer));
    require(folder_remove(folder));
    require(example_encoder_create(tokenizer, &examples));
    require(chat_encoder_create(chat, examples, 0, &encoder));
    return 0;
}

static void encode_line(const char *line, size_t bytes, int64_t number) {
    json_t *object;
    struct token_ids ids = {0};
    if (jsonl_parse_object("input", number, line, bytes, &object) != STATUS_OK || !object) return;
    status_clear();
    enum status status = chat_encode(encoder, "input", number, object, 0, &ids);
    if (status != STATUS_OK && (status != STATUS_BAD_INPUT || !strstr(status_message(), "input: line "))) abort();
    for (size_t i = 0; i < ids.count && status == STATUS_OK; i++)
        if ((i == 0) > ((ids.items[i] & EXAMPLE_FIRST) != 0) || (ids.items[i] & EXAMPLE_ID) >= 262) abort();
    vec_free(&ids);
    json_decref(object);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct line_reader reader = {.text = (const char *)data, .bytes = bytes};
    const char *line;
    size_t line_bytes;
    while (line_read(&reader, &line, &line_bytes))
        encode_line(line, line_bytes, reader.line);
    return 0;
}
