
#include "base/file.h"
#include "base/json.h"
#include "base/terminal.h"
#include "cli/commands/command.h"
#include "cli/new_output.h"
#include "cli/step_options.h"
#include "generate/batch.h"

/* The options, and the objects opened for them. */
struct request {
    const struct options *options;
    const char *text, *file; /* the prompt or the file of prompts; one of them is NULL */
    struct writer_model model;
    struct prompt_encoder encoder;
    struct prompts prompts;
    struct writer writer;
};

static bool write_text(void *payload, const char *text, size_t bytes) {
    (void)payload;
    return terminal_write(stdout, text, bytes);
}

static double rate(int64_t tokens, double seconds) { return seconds > 0 && tokens > 0 ? (double)tokens / seconds : 0; }

static enum status write_one(struct request *request) {
    struct generate_result result;
    if (!request->encoder.chat) (void)terminal_write(stdout, request->text, strlen(request->text));
    TRY(generate_continue(&request->writer, 0, &request->prompts.items[0].ids, write_text, NULL, &result));
    putchar('\n');
    log_note("%lld prompt tokens, %.1f tokens/s; %lld new tokens, %.1f tokens/s", (long long)result.prompt_tokens,
             rate(result.prompt_tokens, result.prompt_seconds), (long long)result.tokens,
             rate(result.tokens - 1, result.seconds));
    return STATUS_OK;
}

/* Writes a line to a file, or to standard output if `file` is NULL. */
static enum status put_line(struct file_writer *file, const char *line) {
    if (!file) {
        bool written = printf("%s\n", line) >= 0 && fflush(stdout) == 0;
        return written ? STATUS_OK : status_set(STATUS_FAILED, "standard output: cannot be written");
    }
    file_writer_print(file, "%s\n", line);
    return file_writer_flush(file);
}

/* Returns an object with the prompt's fields, the text, token counts and the reason why it ended. */
static json_t *text_to_json(const struct batch_text *text) {
    json_auto_t *line = json_pack("{s:s%, s:I, s:I, s:s}", "text", text->text, text->bytes, "prompt_tokens",
                                  (json_int_t)text->result->prompt_tokens, "tokens", (json_int_t)text->result->tokens,
                                  "finish", generate_finish_name(text->result->finish));
    json_t *whole = line ? json_copy(text->prompt->source) : NULL;
    return json_unless(!line || json_object_update(whole, line) != 0, whole);
}

/* Returns the list of new tokens. */
static json_t *ids_to_json(const struct batch_text *text) {
    json_t *list = json_array();
    for (size_t i = (size_t)text->result->prompt_tokens; i < text->prompt->ids.count; i++)
        json_push(&list, json_integer(text->prompt->ids.items[i]));
    return list;
}

/* Destination of texts: lines of a file or of stdout, and with --json the document. */
struct text_output {
    struct file_writer *file; /* NULL: none */
    json_t *document;         /* an array; NULL: print lines */
};

static enum status put_text(void *payload, const struct batch_text *text) {
    const struct text_output *output = payload;
    json_auto_t *object = text_to_json(text);
    if (!object) return status_no_memory(text->bytes, "a text");
    enum status status = STATUS_OK;
    if (output->file || !output->document) {
        char *line = json_text(object, JSON_PRESERVE_ORDER | JSON_COMPACT);
        status = line ? put_line(output->file, line) : status_no_memory(text->bytes, "a text");
        mem_free(line);
    }
    if (status == STATUS_OK && output->document &&
        (json_object_set_new(object, "ids", ids_to_json(text)) != 0 ||
         json_array_append(output->document, object) != 0))
        status = status_no_memory(text->bytes, "a text");
    return status;
}

static enum status print_document(const json_t *texts, const struct generate_result *total) {
    json_t *object = json_pack("{s:i, s:O, s:I, s:I, s:f, s:f}", "version", 1, "texts", texts, "prompt_tokens",
                               (json_int_t)total->prompt_tokens, "tokens", (json_int_t)total->tokens, "seconds",
                               total->seconds, "tokens_per_s", rate(total->tokens, total->seconds));
    return object ? cli_print_json(object) : status_no_memory(0, "the texts' JSON");
}

static enum status write_texts(struct request *request, struct text_output *output) {
    struct generate_result total;
    TRY(generate_batch(&request->writer, &request->prompts, put_text, output, &total));
    log_note("%zu texts: %lld prompt tokens, %lld new tokens in %.1f s, %.1f tokens/s", request->prompts.count,
             (long long)total.prompt_tokens, (long long)total.tokens, total.seconds, rate(total.tokens, total.seconds));
    return output->document ? print_document(output->document, &total) : STATUS_OK;
}

static enum status write_many(struct request *request) {
    const char *path = options_text(request->options, OPT_output);
    struct file_writer file;
    bool json = options_flag(request->options, OPT_json);
    json_auto_t *document = json ? json_array() : NULL;
    struct text_output output = {.file = path ? &file : NULL, .document = document};
    if (json && !document) return status_no_memory(0, "the texts' JSON");
    TRY(path ? file_writer_open_named(path, &file) : STATUS_OK);
    enum status status = write_texts(request, &output);
    enum status closed = path ? file_writer_close(&file) : STATUS_OK; /* keeps the texts written before a failure */
    return status == STATUS_OK ? closed : status;
}

/* Returns OK if the first line of the file is one that `generate` writes. */
static enum status read_texts(const char *path) {
    enum { FIRST_LINE_BYTES = 1 << 20 };
    struct file_input input;
    TRY(file_input_open(path, &input));
    size_t bytes = input.bytes < FIRST_LINE_BYTES ? input.bytes : FIRST_LINE_BYTES;
    char *text = mem_array(bytes + 1, 1);
    enum status status = text ? file_input_read(&input, 0, bytes, text) : STATUS_FAILED;
    file_input_close(&input);
    const char *end = status == STATUS_OK ? memchr(text, '\n', bytes) : NULL;
    json_t *first = end ? json_loadb(text, (size_t)(end - text), 0, NULL) : NULL;
    bool known = json_object_get(first, "text") && json_object_get(first, "finish");
    json_decref(first);
    mem_free(text);
    TRY(status);
    return known ? STATUS_OK : status_set(STATUS_BAD_INPUT, "%s: is no file of texts", path);
}

static enum status check(const struct request *request) {
    const struct options *options = request->options;
    const char *output = options_text(options, OPT_output);
    if (!request->text == !request->file)
        return status_set(STATUS_BAD_INPUT, "ballast generate: needs --prompt or --prompts, and not both" HINT
                                            "give --prompt TEXT or --prompts FILE");
    if (request->text && output)
        return status_set(STATUS_BAD_INPUT,
                          "--output: is for the texts of --prompts FILE" HINT "leave out --output, or redirect with >");
    if (output) TRY(new_file_check(output, "a file of texts", read_texts));
    if (options_given(options, OPT_system) && !options_flag(options, OPT_chat))
        return status_set(STATUS_BAD_INPUT, "--system: requires --chat" HINT "add --chat, or leave out --system");
    return STATUS_OK;
}

/* Opens the model and checks the prompts before it allocates memory for weights. */
static enum status open_request(struct request *request) {
    const struct options *options = request->options;
    struct plan_options plan;
    struct generate_options generate;
    TRY(step_options_read(options, false, &plan));
    if (request->text || !SETTINGS_HAVE(&plan, batch))
        SETTINGS_GIVE(&plan, batch, request->text ? 1 : setting_table[SETTING_batch].int_value);
    text_options_read(options, request->encoder.chat, &generate);
    request->encoder.time_s = options_int(options, OPT_chat_time_s);
    TRY(writer_model_open(options->arguments.items[0], &plan, &request->model));
    TRY(request->text ? prompts_add_text(&request->encoder, request->text, &request->prompts)
                      : prompts_read(&request->encoder, request->file, &request->prompts));
    TRY(writer_model_load(&request->model));
    return writer_create(&request->model.engine, request->model.tokenizer, &request->model.config, &generate,
                         &request->writer);
}

static enum status run(const struct options *options) {
    struct request request = {
        .options = options, .text = options_text(options, OPT_prompt), .file = options_text(options, OPT_prompts)};
    request.encoder = (struct prompt_encoder){
        .model = &request.model, .chat = options_flag(options, OPT_chat), .system = options_text(options, OPT_system)};
    TRY(check(&request));
    enum status status;
    TRY_GOTO(status, open_request(&request), done);
    text_options_report(&request.writer);
    status = request.text && !options_flag(options, OPT_json) ? write_one(&request) : write_many(&request);
done:
    writer_free(&request.writer);
    prompts_free(&request.prompts);
    prompt_encoder_close(&request.encoder);
    writer_model_close(&request.model);
    return status;
}

const struct command command_generate = {
    .bit = COMMAND_GENERATE,
    .name = "generate",
    .arguments = "MODEL_DIR --prompt TEXT | --prompts FILE",
    .min = 1,
    .max = 1,
    .summary = "generate text",
    .details = "Prints the prompt and its continuation; with --chat, only the answer, through the model's chat "
               "template. The same seed, prompt and recipe give the same text.",
    .notes = "Key-value caches hold --seq tokens; a text that outgrows them is recomputed from its last half. With "
             "--prompts, prints one line of JSON for each prompt of the file, in order, --batch of them at a time; a "
             "text does not depend on the others. With --json, prints all texts and their tokens as one document.",
    .example = "ballast generate run/model --prompt 'Once upon a time' --tokens 50",
    .run = run,
};
