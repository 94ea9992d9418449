/* What the process's control groups allow it, cgroup v1 and v2: memory and processor time. */
#pragma once

#include "base/base.h"

struct cgroup_limits {
    int64_t memory_headroom_bytes; /* least of (limit - present use) over the process's cgroup and all above it that are
                                  visible; page cache of files is not counted as use; -1: no limit */
    double processors;             /* least quota of processor time, in processors; 0: no limit */
};

/* `root` goes before /proc and the mount points: "" for this machine, a directory in tests. What cannot be read counts
 * as no limit. */
void cgroup_read(const char *root, struct cgroup_limits *out);
