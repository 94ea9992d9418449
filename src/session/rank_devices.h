/* How collectives between GPUs move what is in their memory: from one to the other, or by way of the host. */
#ifndef BALLAST_SESSION_RANK_DEVICES_H
#define BALLAST_SESSION_RANK_DEVICES_H

#include "comm/comm.h"
#include "session/machine.h"

/* Where no option names a device, the ranks of a host take its GPUs in turn, if it has so many; else each takes the
 * first. Selects it; false where there is none for this rank. NULL: one rank. */
bool rank_devices_select(const struct comm *comm, const struct backend *backend);
/* As backend_find, with that choice where `device` is NULL. */
enum status rank_devices_find(const struct comm *comm, const char *device, const struct backend **out);

/* Collective, before anything is planned. Connects the devices of the ranks (comm_device_open), unless the options say
 * that the host is to be used, and measures anew what is left of the device's memory. Where they cannot be connected
 * (no NCCL, two ranks on one GPU) the host is used, and rank 0 notes why; but BAD_INPUT where they were to be. Does
 * nothing on one rank, and where devices have no memory of their own. */
enum status rank_devices_open(struct comm *comm, const struct plan_options *options, struct machine *machine);

#endif
