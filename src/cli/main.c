#include "base/terminal.h"
#include "cli/commands/command.h"
#include "cli/program.h"

int main(int count, char **arguments) {
    if (process_begin() != STATUS_OK) return STATUS_FAILED;
    limit_spinning(arguments);
    return command_stack_run(cli_run, count - 1, arguments + 1);
}
