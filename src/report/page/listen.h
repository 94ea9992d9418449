/* A listening socket from an address as people write it. */
#ifndef BALLAST_REPORT_PAGE_LISTEN_H
#define BALLAST_REPORT_PAGE_LISTEN_H

#include <stdbool.h>

#include "base/status.h"

enum { LISTEN_HOST_BYTES = 64 };

struct listener {
    int socket;
    char host[LISTEN_HOST_BYTES]; /* in numbers, without brackets */
    int port;                     /* the one that was taken */
    bool ipv6, loopback;
};
/* "PORT", "ADDRESS:PORT" or "[ADDRESS]:PORT", in numbers or "localhost". BAD_INPUT names the address. */
enum status listen_at(const char *address, struct listener *out);

#endif
