/* The directories of a launch's mpirun: one below TMPDIR for its session, one in /dev/shm for the memory that its ranks
 * share. Both have the launch's name and are locked while the launching process or its mpirun lives, so that a later
 * launch recognizes the directories that a SIGKILL left behind. */
#ifndef BALLAST_COMM_LAUNCH_PLACES_H
#define BALLAST_COMM_LAUNCH_PLACES_H

#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

/* "ballast-PROCESS-MARK", the name of a launch. */
enum { LAUNCH_NAME_BYTES = 64 };
void launch_print_name(pid_t process, uint64_t mark, char name[LAUNCH_NAME_BYTES]);

enum launch_place { LAUNCH_SESSION, LAUNCH_SHARED, LAUNCH_PLACES };

struct launch_places {
    char *path[LAUNCH_PLACES]; /* NULL: there is none; /dev/shm may be missing */
    int lock[LAUNCH_PLACES];   /* held where the path is set */
};
/* FAILED when TMPDIR takes no directory. */
enum status launch_places_create(const char *name, struct launch_places *out);
/* In the child, before it becomes mpirun: the locks are mpirun's too. Async-signal-safe. */
void launch_places_inherit(const struct launch_places *places);
/* Removes them with all in them; a failure is ignored. */
void launch_places_remove(struct launch_places *places);
/* Removes the directories of dead launches: of this user, named by a process that is not there, and not locked. */
void launch_places_clear(void);

#endif
