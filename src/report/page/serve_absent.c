#include "report/page/serve.h"

/* Replaces serve.c in a build without libmicrohttpd (src/report/page/CMakeLists.txt). */
enum status server_open(const char *address, const char *run_folder, const char *compared, struct server **out) {
    (void)run_folder, (void)compared, (void)out;
    (void)status_set(STATUS_BAD_INPUT, "--serve %s: this build cannot serve: libmicrohttpd was not found", address);
    return status_hint(STATUS_BAD_INPUT, "install libmicrohttpd-dev and build again, or use `ballast report RUN_DIR`");
}

void server_close(struct server *server) { (void)server; }

const char *server_url(const struct server *server) {
    (void)server;
    return "";
}
