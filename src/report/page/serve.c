#include "report/page/serve.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/terminal.h"
#include "report/page/page.h"

enum { WAITING_CONNECTIONS = 16 };

static enum status refuse_address(const char *address, const char *why) {
    return status_set(STATUS_BAD_INPUT, "--serve %s: %s" HINT "write PORT or ADDRESS:PORT; port 0 takes a free one",
                      address, why);
}

static bool is_port(const char *text) {
    size_t length = strlen(text);
    if (length < 1 || length > 5 || strspn(text, "0123456789") != length) return false;
    int port;
    return sscanf(text, "%d", &port) == 1 && port <= 65535;
}

/* Splits the address; the default host is loopback. */
static enum status split(const char *address, char host[LISTEN_HOST_BYTES], const char **port) {
    const char *colon = strrchr(address, ':');
    const char *from = address, *to = colon ? colon : address;
    *port = colon ? colon + 1 : address;
    if (!is_port(*port)) return refuse_address(address, "the port must be a number from 0 to 65535");
    if (!colon) from = "127.0.0.1", to = from + strlen(from);
    if (to - from >= 2 && *from == '[' && to[-1] == ']') from++, to--;
    if (to == from || to - from >= LISTEN_HOST_BYTES) return refuse_address(address, "it must be PORT or ADDRESS:PORT");
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
    if (handle < 0) return refuse_address(address, strerror(errno));
    (void)setsockopt(handle, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(handle, info->ai_addr, info->ai_addrlen) == 0 && listen(handle, WAITING_CONNECTIONS) == 0) {
        *out = handle;
        return STATUS_OK;
    }
    enum status status = refuse_address(address, strerror(errno));
    bool taken = errno == EADDRINUSE;
    close(handle);
    return taken ? status_hint(status, "another program has this port; port 0 takes a free one") : status;
}

static enum status describe(const char *address, int handle, struct listener *out) {
    struct sockaddr_storage bound;
    socklen_t bytes = sizeof bound;
    char port[8];
    if (getsockname(handle, (struct sockaddr *)&bound, &bytes) != 0) return refuse_address(address, strerror(errno));
    if (getnameinfo((struct sockaddr *)&bound, bytes, out->host, sizeof out->host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return refuse_address(address, "cannot be told");
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
    if (getaddrinfo(host, port, &hints, &info) != 0)
        return refuse_address(address, "is no address of this machine in numbers");
    enum status status = open_socket(address, info, &handle);
    freeaddrinfo(info);
    TRY(status);
    status = describe(address, handle, out);
    if (status != STATUS_OK) close(handle);
    return status;
}

/* Limits for all visitors together: 32 connections of 16 KiB, none idle for longer than 15 s. */
enum { CONNECTIONS_MAX = 128, CONNECTION_BYTES = 1 << 14, CONNECTION_IDLE_S = 5 };
/* An answer is made at most four times a second, whatever the requests, to leave time for the step. */
enum { ANSWER_LASTS_NS = 250 * 1000 * 1000 };
enum { HOST_BYTES = 256 };

enum resource { RESOURCE_PAGE, RESOURCE_DATA, RESOURCE_CHANGES, RESOURCE_METRICS, RESOURCE_COUNT };

struct answer {
    struct MHD_Response *response; /* NULL: not made yet */
    unsigned code;
    int64_t made_ns;
};

struct server {
    struct MHD_Daemon *daemon;
    struct listener listener;
    char machine[HOST_BYTES];          /* hostname */
    char canonical[HOST_BYTES];        /* the resolver's full name for it; "" if there is none */
    char url[LISTEN_HOST_BYTES + 280]; /* uses the machine's name if it listens on all addresses */
    char *run_folder;
    /* Used only by the server's thread from here on. */
    struct page_run *run;
    struct answer answers[RESOURCE_COUNT];
};

static const struct {
    const char *path, *type;
} resources[] = {
    [RESOURCE_PAGE] = {"/", "text/html; charset=utf-8"},
    [RESOURCE_DATA] = {"/data.json", "application/json"},
    [RESOURCE_CHANGES] = {"/changes.json", "application/json"},
    [RESOURCE_METRICS] = {"/metrics", "text/plain; version=0.0.4; charset=utf-8"},
};

static struct MHD_Response *response_of(char *text, const char *type) {
    struct MHD_Response *response = MHD_create_response_from_buffer_with_free_callback(strlen(text), text, mem_free);
    if (!response) {
        mem_free(text);
        return NULL;
    }
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    (void)MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    return response;
}

/* The text of a resource, or NULL with the message set. */
static char *make_text(struct server *server, enum resource resource) {
    json_auto_t *document = NULL;
    char *text = NULL;
    enum status status =
        resource == RESOURCE_CHANGES ? page_run_changes(server->run, &document) : page_run_data(server->run, &document);
    if (status != STATUS_OK) return NULL;
    if (resource == RESOURCE_PAGE) json_object_set_new(document, "live", json_true());
    if (resource == RESOURCE_PAGE) text = page_make(document, NULL);
    if (resource == RESOURCE_METRICS) text = prometheus_text(document);
    if (resource == RESOURCE_DATA || resource == RESOURCE_CHANGES) text = page_text_of(document);
    return text;
}

static void make_answer(struct server *server, enum resource resource) {
    struct answer *answer = &server->answers[resource];
    if (answer->response && clock_now_ns() - answer->made_ns < ANSWER_LASTS_NS) return;
    char *text = make_text(server, resource);
    const char *type = text ? resources[resource].type : "text/plain; charset=utf-8";
    unsigned code = text ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE;
    if (!text) text = mem_format("not yet: %s\n", status_message());
    struct MHD_Response *response = text ? response_of(text, type) : NULL;
    if (answer->response) MHD_destroy_response(answer->response);
    *answer = (struct answer){response, code, clock_now_ns()};
}

static enum MHD_Result refuse(struct MHD_Connection *connection, unsigned code, const char *why) {
    char *text = mem_format("%s\n", why);
    struct MHD_Response *response = text ? response_of(text, "text/plain; charset=utf-8") : NULL;
    if (!response) return MHD_NO;
    if (code == MHD_HTTP_METHOD_NOT_ALLOWED)
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    enum MHD_Result result = MHD_queue_response(connection, code, response);
    MHD_destroy_response(response);
    return result;
}

/* The host of a Host header, without its port and an address's brackets. */
static bool copy_host(const char *header, char host[HOST_BYTES]) {
    bool bracketed = header[0] == '[';
    const char *from = header + bracketed;
    size_t length = strcspn(from, bracketed ? "]" : ":");
    if (length >= HOST_BYTES) return false;
    snprintf(host, HOST_BYTES, "%.*s", (int)length, from);
    return true;
}

static bool is_address(const char *host) {
    struct in6_addr address;
    return inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1;
}

/* "box.example.org" also matches "box" and "box.local". */
static bool is_named(const char *host, const char *machine) {
    size_t first = strcspn(machine, ".");
    if (strcasecmp(host, machine) == 0) return true;
    return first > 0 && strncasecmp(host, machine, first) == 0 && (!host[first] || !strcasecmp(host + first, ".local"));
}

/* Prevents DNS rebinding: a web page elsewhere could point its own name here and read the answer as its own. So the
 * server answers requests to any address, but only to this machine's names. */
static bool host_is_mine(const struct server *server, struct MHD_Connection *connection) {
    const char *header = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
    char host[HOST_BYTES];
    if (!header) return true;
    if (!copy_host(header, host)) return false;
    if (is_address(host) || strcasecmp(host, "localhost") == 0) return true;
    if (server->listener.loopback) return false;
    return is_named(host, server->machine) || (server->canonical[0] && strcasecmp(host, server->canonical) == 0);
}

/* Lowers this thread's priority below the step's. On Linux priorities are per thread. */
static void step_back(void) {
    static _Thread_local bool done;
    if (!done) (void)setpriority(PRIO_PROCESS, 0, 19);
    done = true;
}

static enum MHD_Result answer(void *payload, struct MHD_Connection *connection, const char *url, const char *method,
                              const char *version, const char *upload, size_t *upload_bytes, void **state) {
    (void)version, (void)upload, (void)upload_bytes, (void)state;
    struct server *server = payload;
    step_back();
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return refuse(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "read-only: GET and HEAD");
    if (!host_is_mine(server, connection))
        return refuse(connection, MHD_HTTP_FORBIDDEN,
                      "not a name of this machine: use its address, or the name that hostname --fqdn prints");
    for (int i = 0; i < RESOURCE_COUNT; i++) {
        if (strcmp(url, resources[i].path) != 0) continue;
        make_answer(server, (enum resource)i);
        const struct answer *made = &server->answers[i];
        return made->response ? MHD_queue_response(connection, made->code, made->response) : MHD_NO;
    }
    return refuse(connection, MHD_HTTP_NOT_FOUND, "there are /, /data.json, /changes.json and /metrics");
}

/* The thread inherits a mask that blocks all signals, so it takes none that stop a run. */
static struct MHD_Daemon *start_daemon(struct server *server) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    struct MHD_Daemon *daemon =
        MHD_start_daemon(MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_ITC, 0, NULL, NULL, answer, server,
                         MHD_OPTION_LISTEN_SOCKET, server->listener.socket, MHD_OPTION_CONNECTION_LIMIT,
                         (unsigned)CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)CONNECTION_IDLE_S,
                         MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES, MHD_OPTION_END);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return daemon;
}

/* If the hostname is short, finds its full name, by which other machines reach it. */
static void find_canonical(const char *machine, char canonical[HOST_BYTES]) {
    const struct addrinfo wanted = {.ai_flags = AI_CANONNAME, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    if (!machine[0] || getaddrinfo(machine, NULL, &wanted, &found) != 0) return;
    if (found->ai_canonname && strlen(found->ai_canonname) < HOST_BYTES) strcpy(canonical, found->ai_canonname);
    freeaddrinfo(found);
}

/* A wildcard address cannot be reached from another machine, so uses the machine's name. */
static void name_url(struct server *server) {
    const struct listener *listener = &server->listener;
    if (gethostname(server->machine, HOST_BYTES - 1) != 0) server->machine[0] = '\0';
    bool all = strcmp(listener->host, "0.0.0.0") == 0 || strcmp(listener->host, "::") == 0;
    const char *name = server->machine[0] ? server->machine : "localhost";
    const char *form = listener->ipv6 && !all ? "http://[%s]:%d/" : "http://%s:%d/";
    snprintf(server->url, sizeof server->url, form, all ? name : listener->host, listener->port);
    if (listener->loopback) return;
    find_canonical(server->machine, server->canonical);
    log_warning("--serve %s: everybody who reaches this machine can read the run", listener->host);
}

static enum status start(const char *address, const char *compared, struct server *server) {
    const struct listener *listener = &server->listener;
    TRY(page_run_open(server->run_folder, compared, &server->run));
    TRY(listen_at(address, &server->listener));
    name_url(server);
    server->daemon = start_daemon(server);
    if (server->daemon) return STATUS_OK;
    close(listener->socket);
    return status_set(STATUS_FAILED, "--serve %s: the server cannot be started", address);
}

enum status server_open(const char *address, const char *run_folder, const char *compared, struct server **out) {
    struct server *server = mem_array(1, sizeof *server);
    if (!server) return STATUS_FAILED;
    server->run_folder = mem_string(run_folder);
    enum status status = server->run_folder ? start(address, compared, server) : STATUS_FAILED;
    if (status == STATUS_OK)
        *out = server;
    else
        server_close(server);
    return status;
}

void server_close(struct server *server) {
    if (!server) return;
    if (server->daemon) MHD_stop_daemon(server->daemon); /* also closes the socket */
    for (int i = 0; i < RESOURCE_COUNT; i++)
        if (server->answers[i].response) MHD_destroy_response(server->answers[i].response);
    page_run_close(server->run);
    mem_free(server->run_folder);
    mem_free(server);
}

const char *server_url(const struct server *server) { return server->url; }
