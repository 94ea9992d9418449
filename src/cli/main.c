#include "cli/command.h"
#include "cli/limit_spinning.h"

int main(int count, char **arguments) {
    limit_spinning(arguments);
    return cli_run(count - 1, arguments + 1);
}
