#include "cli/new_file.h"

#include <sys/stat.h>

enum status new_file_check(const char *path, const char *kind, enum status (*read)(const char *path)) {
    struct stat info;
    if (stat(path, &info) != 0 || !(S_ISREG(info.st_mode) || S_ISDIR(info.st_mode))) return STATUS_OK;
    if (S_ISREG(info.st_mode) && read(path) == STATUS_OK) return STATUS_OK;
    (void)status_set(STATUS_BAD_INPUT, "%s: exists and is not %s; it is left as it is", path, kind);
    return status_hint(STATUS_BAD_INPUT, "give -o a new file, or one of the same kind, which is replaced");
}
