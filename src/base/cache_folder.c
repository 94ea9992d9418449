#include "base/cache_folder.h"

#include <pwd.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/folder.h"
#include "base/mem.h"

char *cache_folder(void) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && cache[0] == '/') return path_join(cache, "ballast");
    const struct passwd *user = home && home[0] ? NULL : getpwuid(getuid());
    if (user) home = user->pw_dir;
    return home && home[0] ? path_join(home, ".cache/ballast") : mem_string(".ballast-cache");
}
