#include "cli/command.h"

int main(int count, char **words) { return cli_run(count - 1, words + 1); }
