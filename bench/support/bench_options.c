#include "support/bench_options.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_LONG = 256 }; /* what getopt_long returns for the first entry: above all letters */

void bench_options_append(struct bench_option *options, struct model_step_options *step) {
    const struct bench_option appended[] = {
        {"layers", .number = &step->layers, .max = 1 << 10},
        {"hidden", .number = &step->hidden, .max = 1 << 20},
        {"heads", .number = &step->heads, .max = 1 << 16},
        {"vocab", .number = &step->vocab, .max = 1 << 24},
        {"batch", .number = &step->plan.batch, .max = 1 << 20, BENCH_SETTING(&step->plan, batch)},
        {"seq", .number = &step->plan.sequence_length, .max = 1 << 20, BENCH_SETTING(&step->plan, sequence_length)},
        {"micro-batch", .number = &step->plan.micro_batch_sequences, .max = 1 << 20,
         BENCH_SETTING(&step->plan, micro_batch_sequences)},
        {"dtype", .dtype = &step->plan.dtype, BENCH_SETTING(&step->plan, dtype)},
        {"disk", .text = &step->disk_folder},
        {0},
    };
    while (options->name)
        options++;
    memcpy(options, appended, sizeof appended);
}

static enum status parse_number(const struct bench_option *option, const char *text) {
    char *end;
    long long value = strtoll(text, &end, 10);
    if (*end || end == text || value < 1 || value > option->max)
        return status_set(STATUS_BAD_INPUT, "--%s: '%s' is no number from 1 to %" PRId64, option->name, text,
                          option->max);
    if (option->number)
        *option->number = value;
    else
        *option->count = (int)value;
    return STATUS_OK;
}

static enum status parse_dtype(const struct bench_option *option, const char *text) {
    *option->dtype = dtype_find(text);
    if (*option->dtype == DTYPE_F32 || *option->dtype == DTYPE_BF16) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "--%s: '%s' is neither fp32 nor bf16", option->name, text);
}

static enum status parse(const struct bench_option *option, const char *text) {
    if (option->given) *option->given = true;
    if (option->flag) return *option->flag = true, STATUS_OK;
    if (option->text) return *option->text = text, STATUS_OK;
    return option->dtype ? parse_dtype(option, text) : parse_number(option, text);
}

static bool is_letter(const struct bench_option *option) { return option->name[1] == '\0'; }

/* What getopt_long found; NULL: it knows no such option. */
static const struct bench_option *find(const struct bench_option *options, int found) {
    if (found >= FIRST_LONG) return &options[found - FIRST_LONG];
    for (; options->name; options++)
        if (is_letter(options) && options->name[0] == found) return options;
    return NULL;
}

enum status bench_options_read(int count, char **arguments, const struct bench_option *options, const char *source) {
    struct option known[BENCH_OPTIONS_MAX + 1] = {0}, *next = known;
    char letters[2 * BENCH_OPTIONS_MAX + 1] = "", *letter = letters;
    int found;
    for (int i = 0; options[i].name; i++) {
        BUG_IF(i == BENCH_OPTIONS_MAX, "more than %d options", BENCH_OPTIONS_MAX);
        if (is_letter(&options[i]))
            *letter++ = options[i].name[0], *letter++ = ':';
        else
            *next++ = (struct option){options[i].name, options[i].flag ? no_argument : required_argument, NULL,
                                      FIRST_LONG + i};
    }
    while ((found = getopt_long(count, arguments, letters, known, NULL)) != -1) {
        const struct bench_option *option = find(options, found);
        if (!option) break;
        TRY(parse(option, optarg));
    }
    if (found == -1 && optind == count) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "unknown option; %s begins with those that there are", source);
}

enum status bench_options_require_disk(const struct model_step_options *step) {
    if (step->disk_folder) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "--disk DIR is missing: where the disk tier of policies is");
}

struct model_step_options bench_options_small(void) {
    struct model_step_options step = {.family = "gpt2", .layers = 4, .hidden = 256, .heads = 4, .vocab = 2048};
    plan_options_init(&step.plan);
    SETTINGS_GIVE(&step.plan, batch, 4);
    SETTINGS_GIVE(&step.plan, sequence_length, 256);
    SETTINGS_GIVE(&step.plan, micro_batch_sequences, 1);
    SETTINGS_GIVE(&step.plan, dtype, DTYPE_F32);
    return step;
}
