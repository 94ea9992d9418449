#include "report/page/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WAITING_CONNECTIONS = 16 };

static enum status refuse(const char *address, const char *why) {
    return status_set(STATUS_BAD_INPUT, "--serve %s: %s", address, why);
}

static bool is_port(const char *text) {
    size_t length = strlen(text);
    if (length < 1 || length > 5 || strspn(text, "0123456789") != length) return false;
    int port;
    return sscanf(text, "%d", &port) == 1 && port <= 65535;
}

/* Cuts the text in two; the host is loopback where there is none. */
static enum status split(const char *address, char host[LISTEN_HOST_BYTES], const char **port) {
    const char *colon = strrchr(address, ':');
    const char *from = address, *to = colon ? colon : address;
    *port = colon ? colon + 1 : address;
    if (!is_port(*port)) return refuse(address, "the port must be a number from 0 to 65535");
    if (!colon) from = "127.0.0.1", to = from + strlen(from);
    if (to - from >= 2 && *from == '[' && to[-1] == ']') from++, to--;
    if (to == from || to - from >= LISTEN_HOST_BYTES) return refuse(address, "it must be PORT or ADDRESS:PORT");
    snprintf(host, LISTEN_HOST_BYTES, "%.*s", (int)(to - from), from);
    if (strcmp(host, "localhost") == 0) snprintf(host, LISTEN_HOST_BYTES, "127.0.0.1");
    return STATUS_OK;
}

static bool is_loopback(const struct sockaddr *address) {
    if (address->sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
    return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 == 127;
}

static enum status open_socket(const char *address, const struct addrinfo *info, int *out) {
    int on = 1, handle = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (handle < 0) return refuse(address, strerror(errno));
    (void)setsockopt(handle, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(handle, info->ai_addr, info->ai_addrlen) == 0 && listen(handle, WAITING_CONNECTIONS) == 0) {
        *out = handle;
        return STATUS_OK;
    }
    enum status status = refuse(address, strerror(errno));
    bool taken = errno == EADDRINUSE;
    close(handle);
    return taken ? status_hint(status, "another program has this port; port 0 takes a free one") : status;
}

static enum status describe(const char *address, int handle, struct listener *out) {
    struct sockaddr_storage bound;
    socklen_t bytes = sizeof bound;
    char port[8];
    if (getsockname(handle, (struct sockaddr *)&bound, &bytes) != 0) return refuse(address, strerror(errno));
    if (getnameinfo((struct sockaddr *)&bound, bytes, out->host, sizeof out->host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return refuse(address, "cannot be told");
    out->socket = handle;
    sscanf(port, "%d", &out->port);
    out->ipv6 = bound.ss_family == AF_INET6;
    out->loopback = is_loopback((struct sockaddr *)&bound);
    return STATUS_OK;
}

enum status listen_at(const char *address, struct listener *out) {
    char host[LISTEN_HOST_BYTES];
    const char *port;
    int handle = -1;
    TRY(split(address, host, &port));
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    struct addrinfo *info = NULL;
    if (getaddrinfo(host, port, &hints, &info) != 0) return refuse(address, "is no address of this machine in numbers");
    enum status status = open_socket(address, info, &handle);
    freeaddrinfo(info);
    TRY(status);
    status = describe(address, handle, out);
    if (status != STATUS_OK) close(handle);
    return status;
}
