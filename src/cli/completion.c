/* Generates shell completions from the commands and the table of options. */

#include "cli/commands/command.h"
#include "cli/help.h"

/* Prints text for use within single quotes, in any of the shells, with a backslash before each of `escaped`. */
static void print_quoted(FILE *out, const char *text, const char *escaped) {
    for (; *text; text++) {
        if (strchr(escaped, *text)) fputc('\\', out);
        if (*text == '\'')
            fputs("'\\''", out);
        else
            fputc(*text, out);
    }
}

/* Prints the option's choices, separated by blanks. */
static void print_choices(FILE *out, const struct setting *option) {
    for (const char *at = option->choices; *at; at++)
        fputc(*at == '|' ? ' ' : *at, out);
}

enum value_kind { VALUE_NONE, VALUE_CHOICE, VALUE_PATH, VALUE_OTHER };

static enum value_kind value_kind(const struct setting *option) {
    const char *argument = option_argument(option);
    if (!argument[0]) return VALUE_NONE;
    if (option->type == SETTING_CHOICE) return VALUE_CHOICE;
    bool path = strstr(argument, "FILE") || strstr(argument, "DIR") || strstr(argument, "PATH");
    return path ? VALUE_PATH : VALUE_OTHER;
}

static void print_bash_value(FILE *out, const struct setting *option) {
    fprintf(out, "    --%s", option->name);
    if (option->letter) fprintf(out, " | -%c", option->letter);
    fputs(") ", out);
    switch (value_kind(option)) {
    case VALUE_CHOICE:
        fputs("words='", out);
        print_choices(out, option);
        fputs("' ;;\n", out);
        break;
    case VALUE_PATH: fputs("files=yes ;;\n", out); break;
    case VALUE_NONE:
    case VALUE_OTHER: fputs("return ;;\n", out); break;
    }
}

static void print_bash(FILE *out) {
    fputs("# bash completion for ballast\n_ballast() {\n"
          "    local word=${COMP_WORDS[COMP_CWORD]} words= files=\n    COMPREPLY=()\n"
          "    if ((COMP_CWORD == 1)); then\n        COMPREPLY=($(compgen -W '",
          out);
    for (int i = 0; i < COMMAND_COUNT; i++)
        fprintf(out, "%s ", commands[i]->name);
    fputs("help version' -- \"$word\"))\n        return\n    fi\n    case ${COMP_WORDS[COMP_CWORD - 1]} in\n", out);
    for (int i = 0; i < OPT_COUNT; i++)
        if (option_table[i]->commands && value_kind(option_table[i]) != VALUE_NONE)
            print_bash_value(out, option_table[i]);
    fputs("    esac\n    if [[ -z $words$files && $word == -* ]]; then\n        case ${COMP_WORDS[1]} in\n", out);
    for (int c = 0; c < COMMAND_COUNT; c++) {
        fprintf(out, "        %s) words='", commands[c]->name);
        for (int i = 0; i < OPT_COUNT; i++)
            if (help_shows(commands[c], option_table[i], true)) fprintf(out, "--%s ", option_table[i]->name);
        fputs("--help --help-all' ;;\n", out);
    }
    fputs("        esac\n    fi\n"
          "    if [[ -n $words ]]; then\n        COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
          "    else\n        COMPREPLY=($(compgen -f -- \"$word\"))\n    fi\n}\n"
          "complete -o filenames -F _ballast ballast\n",
          out);
}

/* "[", "]" and ":" separate the parts of a specification of _arguments. */
static void print_zsh_text(FILE *out, const char *text) { print_quoted(out, text, "[]:\\"); }

static void print_zsh_option(FILE *out, const struct setting *option, const struct command *command) {
    char text[HELP_TEXT_BYTES];
    fprintf(out, "        '%s--%s%s[", option->type == SETTING_TEXTS ? "*" : "", option->name,
            option->bare || value_kind(option) == VALUE_NONE ? "" : "=");
    print_zsh_text(out, help_phrase(option, command, text));
    fputc(']', out);
    if (value_kind(option) != VALUE_NONE && !option->bare) {
        fputc(':', out);
        print_zsh_text(out, option_argument(option));
        fputc(':', out);
    }
    if (value_kind(option) == VALUE_PATH) fputs("_files", out);
    if (value_kind(option) == VALUE_CHOICE && !option->bare) {
        fputc('(', out);
        print_choices(out, option);
        fputc(')', out);
    }
    fputs("' \\\n", out);
}

static void print_zsh(FILE *out) {
    fputs("#compdef ballast\nlocal -a commands\ncommands=(\n", out);
    for (int c = 0; c < COMMAND_COUNT; c++) {
        fprintf(out, "    '%s:", commands[c]->name);
        print_zsh_text(out, commands[c]->summary);
        fputs("'\n", out);
    }
    fputs(")\nif ((CURRENT == 2)); then\n    _describe command commands\n    return\nfi\nshift words\n((CURRENT--))\n"
          "case $words[1] in\n",
          out);
    for (int c = 0; c < COMMAND_COUNT; c++) {
        fprintf(out, "%s)\n    _arguments \\\n", commands[c]->name);
        for (int i = 0; i < OPT_COUNT; i++)
            if (help_shows(commands[c], option_table[i], true)) print_zsh_option(out, option_table[i], commands[c]);
        fputs("        '--help[show the options that people use]' '--help-all[show all options]' '*:file:_files'\n"
              "    ;;\n",
              out);
    }
    fputs("esac\n", out);
}

static void print_fish_option(FILE *out, const struct setting *option, const struct command *command) {
    char text[HELP_TEXT_BYTES];
    fprintf(out, "complete -c ballast -n '__fish_seen_subcommand_from %s' -l %s ", command->name, option->name);
    if (option->letter) fprintf(out, "-s %c ", option->letter);
    switch (option->bare ? VALUE_NONE : value_kind(option)) {
    case VALUE_NONE: break;
    case VALUE_PATH: fputs("-r -F ", out); break;
    case VALUE_OTHER: fputs("-x ", out); break;
    case VALUE_CHOICE:
        fputs("-x -a '", out);
        print_choices(out, option);
        fputs("' ", out);
    }
    fputs("-d '", out);
    print_quoted(out, help_phrase(option, command, text), "");
    fputs("'\n", out);
}

static void print_fish(FILE *out) {
    fputs("# fish completion for ballast\n", out);
    for (int c = 0; c < COMMAND_COUNT; c++) {
        fprintf(out, "complete -c ballast -n __fish_use_subcommand -f -a %s -d '", commands[c]->name);
        print_quoted(out, commands[c]->summary, "");
        fputs("'\n", out);
        for (int i = 0; i < OPT_COUNT; i++)
            if (help_shows(commands[c], option_table[i], true)) print_fish_option(out, option_table[i], commands[c]);
    }
}

enum status completion_print(const char *shell, FILE *out) {
    static const struct {
        const char *shell;
        void (*print)(FILE *out);
    } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++) {
        if (strcmp(shells[i].shell, shell) != 0) continue;
        shells[i].print(out);
        return STATUS_OK;
    }
    enum status status = status_set(STATUS_BAD_INPUT, "there is no completion for the shell '%s'", shell);
    return status_hint(status, "`ballast help completion bash`, zsh or fish");
}
