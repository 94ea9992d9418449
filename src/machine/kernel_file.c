#include "machine/kernel_file.h"

#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

bool kernel_file_read(const char *root, const char *path, char *text, size_t bytes) {
    char full[PATH_MAX];
    if (snprintf(full, sizeof full, "%s%s", root, path) >= (int)sizeof full) return false;
    int file = open(full, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    size_t used = 0;
    ssize_t got = 1;
    while (used < bytes - 1 && got != 0) {
        got = read(file, text + used, bytes - 1 - used);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) break;
        used += (size_t)got;
    }
    close(file);
    text[used] = '\0';
    return got >= 0;
}

bool kernel_file_number(const char *text, const char *key, int64_t *out) {
    size_t length = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n'), line += line ? 1 : 0) {
        if (strncmp(line, key, length) != 0) continue;
        char *end;
        errno = 0;
        long long value = strtoll(line + length, &end, 10);
        if (end == line + length || errno != 0) return false;
        *out = value;
        return true;
    }
    return false;
}
