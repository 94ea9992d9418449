/* Generates manual pages from the commands and the table of options. */

#include "cli/commands/command.h"
#include "cli/help.h"

/* Prints `text` as part of a paragraph. "-" becomes a minus, `code` becomes bold, and no line can be read as a
 * request. */
static void print_text(FILE *out, const char *text) {
    bool bold = false;
    if (*text == '.' || *text == '\'') fputs("\\&", out);
    for (; *text; text++) {
        if (*text == '`') {
            bold = !bold;
            fputs(bold ? "\\fB" : "\\fR", out);
        } else if (*text == '-') {
            fputs("\\-", out);
        } else if (*text == '\\') {
            fputs("\\e", out);
        } else {
            fputc(*text, out);
        }
    }
}

static void print_paragraph(FILE *out, const char *request, const char *text) {
    fprintf(out, "%s\n", request);
    print_text(out, text);
    fputc('\n', out);
}

static void print_option(FILE *out, const struct setting *option, const struct command *command) {
    char text[HELP_TEXT_BYTES], fallback[HELP_DEFAULT_BYTES];
    fputs(".TP\n", out);
    if (option->letter) fprintf(out, "\\fB\\-%c\\fR, ", option->letter);
    fputs("\\fB\\-\\-", out);
    print_text(out, option->name);
    fputs("\\fR", out);
    if (option_argument(option)[0]) {
        fputs(" \\fI", out);
        print_text(out, option_argument(option));
        fputs("\\fR", out);
    }
    fputc('\n', out);
    print_text(out, help_phrase(option, command, text));
    fputc('.', out);
    if (option->details) {
        fputc(' ', out);
        print_text(out, option->details);
    }
    if (help_is_recipe(option)) fputs(" Part of the recipe.", out);
    print_text(out, help_default(option, command, fallback));
    fputc('\n', out);
}

static void print_options(FILE *out, const struct command *command) {
    fputs(".SH OPTIONS\n", out);
    for (enum option_group group = 0; group < GROUP_COUNT; group++) {
        bool any = false;
        for (int i = 0; i < OPT_COUNT; i++) {
            if (option_table[i]->group != group || !help_shows(command, option_table[i], true)) continue;
            if (!any) fprintf(out, ".SS %s\n", option_group_titles[group]);
            any = true;
            print_option(out, option_table[i], command);
        }
    }
}

static void print_head(FILE *out, const char *name, const char *summary) {
    fprintf(out, ".TH %s 1 \"\" \"ballast " BALLAST_VERSION "\" \"User Commands\"\n.SH NAME\n", name);
    print_text(out, name);
    fputs(" \\- ", out);
    print_text(out, summary);
    fputc('\n', out);
}

static void print_exit_status(FILE *out) {
    fputs(".SH EXIT STATUS\n", out);
#define PRINT_STATUS(name, value, text) fprintf(out, ".TP\n%d\n%s\n", value, text);
    STATUS_LIST(PRINT_STATUS)
}

static void print_command(const struct command *command, FILE *out) {
    char name[64];
    snprintf(name, sizeof name, "ballast-%s", command->name);
    print_head(out, name, command->summary);
    fprintf(out, ".SH SYNOPSIS\n\\fBballast %s\\fR ", command->name);
    print_text(out, command->arguments);
    fputs(" [options]\n.SH DESCRIPTION\n", out);
    print_text(out, command->details);
    fputc('\n', out);
    print_paragraph(out, ".PP", command->notes);
    print_paragraph(out, ".SH EXAMPLE", command->example);
    print_options(out, command);
    print_exit_status(out);
    fputs(".SH SEE ALSO\n\\fBballast\\fR(1)\n", out);
}

static void print_program(FILE *out) {
    print_head(out, "ballast", "train large language models within a memory budget known before the first step");
    fputs(
        ".SH SYNOPSIS\n\\fBballast\\fR COMMAND ARGUMENTS... [options]\n.SH DESCRIPTION\n"
        "Ballast measures the machine, plans where each part of a training step lives and when it moves, proves that\n"
        "the plan fits in memory, runs it, and writes a model that transformers loads.\n.SH COMMANDS\n",
        out);
    for (int i = 0; i < COMMAND_COUNT; i++) {
        fprintf(out, ".TP\n\\fBballast\\-%s\\fR(1)\n", commands[i]->name);
        print_text(out, commands[i]->summary);
        fputc('\n', out);
    }
    print_exit_status(out);
}

void manual_print(const struct command *command, FILE *out) {
    if (command)
        print_command(command, out);
    else
        print_program(out);
}
