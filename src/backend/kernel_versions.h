/* The history of each backend's kernels_version, so that a run of an older version is refused with the release, or the
 * commit, that resumes it.
 *
 * CHANGELOG.md has the same table, with the reason for each raise; backend.kernel_versions compares the two. */
#ifndef BALLAST_BACKEND_KERNEL_VERSIONS_H
#define BALLAST_BACKEND_KERNEL_VERSIONS_H

#include <stdbool.h>

struct kernel_version {
    const char *backend; /* its name */
    int version;
    const char
        *last; /* the last release with these kernels, or the last commit where no release has them; NULL: here */
    bool only_balance; /* it changed the loss that balances experts alone */
};
extern const struct kernel_version kernel_versions[]; /* by backend, versions ascending */
extern const int kernel_version_count;

/* `last` of that version; NULL for the backend's own version, and for one that is not in the table. */
const char *kernel_version_last(const char *backend, int version);
/* Whether a run of version `from` has the same bits with version `to`, unless its loss balances experts. */
bool kernel_versions_alike(const char *backend, int from, int to);

#endif
