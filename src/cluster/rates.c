#include "cluster/rates.h"

#include <string.h>

static const char *const names[] = {
#define ACTIVITY_ROW(name, text) [ACTIVITY_##name] = text,
    ACTIVITY_LIST(ACTIVITY_ROW)
#undef ACTIVITY_ROW
};

const char *activity_name(enum activity activity) { return names[activity]; }

enum activity activity_find(const char *name) {
    enum activity activity = 0;
    while (activity < ACTIVITY_COUNT && strcmp(names[activity], name) != 0)
        activity++;
    return activity;
}
