#include "base/cache_folder.h"

#include <pwd.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/folder.h"
#include "base/mem.h"

char *cache_folder(void) {
    const char *cache = getenv("XDG_CACHE_HOME"), *user_folder = getenv("HOME");
    if (cache && cache[0] == '/') return path_join(cache, "ballast");
    const struct passwd *user = user_folder && user_folder[0] ? NULL : getpwuid(getuid());
    if (user) user_folder = user->pw_dir;
    return user_folder && user_folder[0] ? path_join(user_folder, ".cache/ballast") : mem_string(".ballast-cache");
}
