/* Serves a run's page over HTTP while it trains, read-only. The server uses only the run's directory: it reads the
 * run's files on its own thread, shares no memory with the step, and never makes it wait. */
#pragma once

#include "base/base.h"

/* A listening socket from an address as people write it. */

enum { LISTEN_HOST_BYTES = 64 };

struct listener {
    int socket;
    char host[LISTEN_HOST_BYTES]; /* numeric, without brackets */
    int port;                     /* the actual port */
    bool ipv6, loopback;
};
/* "PORT", "ADDRESS:PORT" or "[ADDRESS]:PORT", numeric or "localhost". BAD_INPUT names the address. */
enum status listen_at(const char *address, struct listener *out);

struct server;

/* Listens at "PORT" (of the loopback address), "ADDRESS:PORT" or "[ADDRESS]:PORT" and serves from now on:
 * - `/`: the page
 * - `/data.json`: its document
 * - `/changes.json`: the parts that change from step to step
 * - `/metrics`: for Prometheus
 *
 * Port 0 takes a free one. compared: page.h. Until the directory holds a run, the answer is 503. BAD_INPUT if the
 * address is malformed or in use, and in a build without libmicrohttpd. The caller closes. */
enum status server_open(const char *address, const char *run_folder, const char *compared, struct server **out);
void server_close(struct server *server);
/* "http://127.0.0.1:8080/"; valid until the server is closed. */
const char *server_url(const struct server *server);
