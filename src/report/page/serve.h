/* A run's page over HTTP while it trains, read-only. The server knows the run by its directory alone: it reads what the
 * run writes there, on a thread of its own, and neither shares memory with the step nor makes it wait. */
#pragma once

#include "base/base.h"

/* A listening socket from an address as people write it. */

enum { LISTEN_HOST_BYTES = 64 };

struct listener {
    int socket;
    char host[LISTEN_HOST_BYTES]; /* in numbers, without brackets */
    int port;                     /* the one that was taken */
    bool ipv6, loopback;
};
/* "PORT", "ADDRESS:PORT" or "[ADDRESS]:PORT", in numbers or "localhost". BAD_INPUT names the address. */
enum status listen_at(const char *address, struct listener *out);

struct server;

/* Listens at "PORT" (of the loopback address), "ADDRESS:PORT" or "[ADDRESS]:PORT" and answers from now on: `/`, the
 * page; `/data.json`, its document; `/changes.json`, what changes from step to step; `/metrics`, for Prometheus. Port 0
 * takes a free one. compared: page.h. As long as the directory holds no run the answer is 503. BAD_INPUT when the
 * address is malformed or taken, and in a build without libmicrohttpd. The caller closes. */
enum status server_open(const char *address, const char *run_folder, const char *compared, struct server **out);
void server_close(struct server *server);
/* "http://127.0.0.1:8080/"; valid until the server is closed. */
const char *server_url(const struct server *server);
