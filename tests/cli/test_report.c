/* `ballast report` and `train --serve` from the view of a user and a browser. */
/* ctest: PROCESSORS 2 LABELS long */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/file.h"
#include "report/page/serve.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include "support/tiny_run.h"
#include "support/unit.h"

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, temp_folder_drop)
#define EXPECT(folder, status, texts, ...)                                                                             \
    program_expect(folder, status, texts, (const char *const[]){__VA_ARGS__, NULL})
#define TEXTS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define SETTINGS "--batch", "2", "--seq", "16", "--dtype", "fp32", "--save-every", "0", "--quiet"

#define NO_SERVER "this build has no --serve; needs libmicrohttpd"

static int set_up(void **state) {
    if (temp_folder_make(state) != 0) return -1;
    make_text(temp_path(*state, "text.txt"), 3000);
    make_tiny_model(*state, temp_path(*state, "model"), temp_path(*state, "text.txt"));
    return 0;
}

static bool begins(const char *path, const char *text) {
    char *whole;
    size_t bytes;
    assert_int_equal(file_read(path, 1 << 26, &whole, &bytes), STATUS_OK);
    bool same = strncmp(whole, text, strlen(text)) == 0;
    mem_free(whole);
    return same;
}

static bool holds(const char *path, const char *text) {
    char *whole;
    size_t bytes;
    assert_int_equal(file_read(path, 1 << 26, &whole, &bytes), STATUS_OK);
    bool found = strstr(whole, text) != NULL;
    mem_free(whole);
    return found;
}

static void report_writes_a_page(void **state) {
    const char *folder = *state, *run = temp_path(folder, "run"), *plan = temp_path(folder, "p.json");
    EXPECT(folder, 0, NULL, "train", temp_path(folder, "model"), temp_path(folder, "text.txt"), "-o", run, "--steps",
           "3", SETTINGS);
    EXPECT(folder, 0, TEXTS("run/report.html"), "report", run);
    EXPECT(folder, 0, NULL, "report", run); /* a page may be replaced */
    assert_true(begins(temp_path(run, "report.html"), "<!doctype html>"));
    EXPECT(folder, 0, NULL, "report", run, "--compare", run, "-o", temp_path(folder, "two.html"));
    assert_true(holds(temp_path(folder, "two.html"), "\"compare\":{"));
    assert_true(holds(temp_path(folder, "two.html"), "\"state\":\"finished\""));
    assert_false(holds(temp_path(run, "report.html"), "\"compare\":{"));
    EXPECT(folder, 2, TEXTS("model: is not the directory of a run"), "report", run, "--compare",
           temp_path(folder, "model"));
    EXPECT(folder, 0, NULL, "plan", temp_path(folder, "model"), "-o", plan);
    EXPECT(folder, 2, TEXTS("p.json is a plan, which has no curves"), "report", plan, "--compare", run);
    EXPECT(folder, 0, TEXTS("p.html"), "report", plan);
    EXPECT(folder, 0, NULL, "report", plan, "-o", temp_path(folder, "x.html"), "--quiet");
    assert_true(begins(temp_path(folder, "x.html"), "<!doctype html>"));
    EXPECT(folder, 2, TEXTS("text.txt: exists and is not a page"), "report", run, "-o", temp_path(folder, "text.txt"));
    EXPECT(folder, 2, TEXTS("nowhere: no such file or directory"), "report", "nowhere");
    EXPECT(folder, 2, TEXTS("model: is not the directory of a run"), "report", temp_path(folder, "model"));
    EXPECT(folder, 2, TEXTS("text.txt: not valid JSON"), "report", temp_path(folder, "text.txt"), "-o",
           temp_path(folder, "y.html"));
    EXPECT(folder, 1, TEXTS("cannot"), "report", run, "-o", temp_path(folder, "no/folder/y.html"));
}

/* The port that a run told on stderr; 0: this build cannot serve. */
static int port_of(const char *folder, pid_t process) {
    for (;; usleep(5000)) {
        char *text;
        size_t bytes;
        int port = 0;
        if (file_exists(temp_path(folder, ".stderr"))) {
            assert_int_equal(file_read(temp_path(folder, ".stderr"), 1 << 20, &text, &bytes), STATUS_OK);
            const char *line = strstr(text, "page: http://");
            if (line) sscanf(line, "page: http://%*[^:]:%d/", &port);
            bool cannot = strstr(text, "this build cannot serve") != NULL;
            mem_free(text);
            if (port > 0 || cannot) return port;
        }
        program_expect_running(folder, process);
    }
}

/* With SOCK_NONBLOCK it is only begun. */
static int connect_to(int port, int flags) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int handle = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
    assert_true(handle >= 0);
    if (connect(handle, (struct sockaddr *)&address, sizeof address) == 0 || errno == EINPROGRESS) return handle;
    close(handle);
    return -1;
}

/* Sends a request and returns all of the answer, "" where nobody listens; free. */
static char *send_request(int port, const char *request, size_t length) {
    static const size_t max = 8 << 20;
    int handle = connect_to(port, 0);
    if (handle < 0) return calloc(1, 1);
    for (size_t sent = 0; sent < length;) {
        ssize_t put = send(handle, request + sent, length - sent, MSG_NOSIGNAL);
        if (put <= 0) break; /* refused before it was all said */
        sent += (size_t)put;
    }
    char *answer = malloc(max + 1);
    size_t used = 0;
    for (ssize_t got; used < max && (got = recv(handle, answer + used, max - used, 0)) > 0;)
        used += (size_t)got;
    answer[used] = '\0';
    close(handle);
    return answer;
}

static char *request(int port, const char *method, const char *path, const char *host) {
    char text[512];
    int length =
        snprintf(text, sizeof text, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", method, path, host);
    return send_request(port, text, (size_t)length);
}

static void expect_answer(int port, const char *method, const char *path, const char *host, const char *status,
                          const char *part) {
    char *answer = request(port, method, path, host), line[32];
    snprintf(line, sizeof line, "HTTP/1.1 %s ", status);
    if (strncmp(answer, line, strlen(line)) != 0 || (part && !strstr(answer, part)))
        fail_msg("%s %s: not %s with '%s': %.600s", method, path, status, part ? part : "", answer);
    free(answer);
}

/* Until the run has done a step that the server tells of. */
static void wait_for_a_step(const char *folder, pid_t process, int port) {
    for (bool there = false; !there;) {
        char *answer = request(port, "GET", "/metrics", "localhost");
        there = strstr(answer, "\nballast_loss ") != NULL;
        free(answer);
        program_expect_running(folder, process);
        if (!there) usleep(100000);
    }
}

/* Of the many, those that the server has no place for would wait for its patience with silent ones. */
static void expect_hostile_requests_are_bounded(const char *folder, pid_t process, int port) {
    enum { LONG = 1 << 20, MANY = 100 };
    char *text = malloc(LONG + 100);
    memset(text, 'a', LONG);
    memcpy(text, "GET /", 5);
    strcpy(text + LONG, " HTTP/1.1\r\nHost: x\r\n\r\n");
    char *answer = send_request(port, text, strlen(text));
    assert_null(strstr(answer, " 200 "));
    free(answer);
    free(text);
    int handles[MANY];
    for (int i = 0; i < MANY; i++)
        handles[i] = connect_to(port, SOCK_NONBLOCK);
    for (int i = 0; i < MANY; i++)
        if (handles[i] >= 0) close(handles[i]);
    wait_for_a_step(folder, process, port);
}

/* Requests that are never finished hold no place that another needs. Under load the server may take so long to answer
 * that it has given these up: then they are sent again. */
static void expect_unfinished_requests_delay_none(int port) {
    enum { MANY = 40, TRIES = 10 };
    static const char begun[] = "GET / HTTP/1.1\r\nHost: ";
    int open = 0;
    for (int try = 0; try < TRIES && open < MANY; try++) {
        int handles[MANY];
        for (int i = 0; i < MANY; i++) {
            handles[i] = connect_to(port, 0);
            assert_int_equal(send(handles[i], begun, strlen(begun), MSG_NOSIGNAL), strlen(begun));
        }
        expect_answer(port, "GET", "/metrics", "localhost", "200", "ballast_loss ");
        open = 0;
        for (int i = 0; i < MANY; i++) {
            char byte;
            open += recv(handles[i], &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
            close(handles[i]);
        }
    }
    assert_int_equal(open, MANY);
}

static void a_run_is_served_while_it_trains(void **state) {
    const char *folder = *state, *run = temp_path(folder, "run");
    const char *const arguments[] = {"train",
                                     temp_path(folder, "model"),
                                     temp_path(folder, "text.txt"),
                                     "-o",
                                     run,
                                     "--steps",
                                     "1000000",
                                     "--serve",
                                     "0",
                                     SETTINGS,
                                     NULL};
    pid_t process = program_start(folder, arguments);
    int port = port_of(folder, process);
    if (port == 0) {
        program_run_free(&(struct program_run[]){program_finish(folder, process)}[0]);
        unit_skip(NO_SERVER);
    }
    wait_for_a_step(folder, process, port);
    char host[32], taken[16];
    snprintf(host, sizeof host, "127.0.0.1:%d", port);
    snprintf(taken, sizeof taken, "%d", port);
    expect_answer(port, "GET", "/", host, "200", "<!doctype html>");
    expect_answer(port, "GET", "/", host, "200", "\"live\":true");
    expect_answer(port, "GET", "/data.json", "localhost", "200", "\"kind\":\"run\"");
    expect_answer(port, "GET", "/changes.json", host, "200", "\"revision\":");
    expect_answer(port, "GET", "/metrics", host, "200", "# TYPE ballast_tokens_total counter");
    expect_answer(port, "HEAD", "/metrics", host, "200", "text/plain; version=0.0.4");
    expect_answer(port, "POST", "/", host, "405", "Allow: GET, HEAD");
    expect_answer(port, "DELETE", "/metrics", host, "405", NULL);
    expect_answer(port, "GET", "/../run.json", host, "404", NULL);
    expect_answer(port, "GET", "/", "elsewhere.example", "403", NULL);
    expect_answer(port, "GET", "/", "localhost.example", "403", NULL);
    expect_answer(port, "GET", "/metrics", "[::1]:80", "200", NULL);
    expect_unfinished_requests_delay_none(port);
    expect_hostile_requests_are_bounded(folder, process, port);
    EXPECT(temp_path(folder, "model"), 2, TEXTS("Address already in use", "hint: another program has this port"),
           "train", temp_path(folder, "model"), temp_path(folder, "text.txt"), "-o", temp_path(folder, "other"),
           "--serve", taken);
    assert_false(file_exists(temp_path(folder, "other")));
    assert_int_equal(kill(process, SIGINT), 0);
    struct program_run done = program_finish(folder, process);
    assert_int_equal(done.status, 130);
    program_run_free(&done);
    assert_int_equal(connect_to(port, 0), -1);
}

static void a_finished_run_is_served(void **state) {
    const char *folder = *state, *run = temp_path(folder, "run"), *model = temp_path(folder, "model");
    EXPECT(folder, 0, NULL, "train", model, temp_path(folder, "text.txt"), "-o", run, "--steps", "2", SETTINGS);
    EXPECT(folder, 2, TEXTS("model: is not the directory of a run"), "report", model, "--serve", "0");
    EXPECT(folder, 2, TEXTS("--serve writes no file"), "report", run, "--serve", "0", "-o", "page.html");
    const char *const arguments[] = {"report", run, "--serve", "0", NULL};
    pid_t process = program_start(folder, arguments);
    int port = port_of(folder, process);
    if (port > 0) {
        expect_answer(port, "GET", "/", "localhost", "200", "<!doctype html>");
        expect_answer(port, "GET", "/metrics", "localhost", "200", "\nballast_loss ");
        assert_int_equal(kill(process, SIGINT), 0);
    }
    struct program_run done = program_finish(folder, process);
    assert_int_equal(done.status, port > 0 ? 0 : 2);
    program_run_free(&done);
    if (port == 0) unit_skip(NO_SERVER);
}

/* As under http://gpu1.cluster.example:8080/ where the hostname is gpu1. */
static void expect_canonical_answers(int port, const char *machine) {
    const struct addrinfo wanted = {.ai_flags = AI_CANONNAME};
    struct addrinfo *found;
    if (getaddrinfo(machine, NULL, &wanted, &found) != 0) return;
    expect_answer(port, "GET", "/metrics", found->ai_canonname, "200", NULL);
    freeaddrinfo(found);
}

/* At an address that others reach, names of this machine are answered to and no others. */
static void other_names_are_refused_at_every_address(void **state) {
    const char *folder = *state, *run = temp_path(folder, "run");
    char machine[256] = "", label[300];
    EXPECT(folder, 0, NULL, "train", temp_path(folder, "model"), temp_path(folder, "text.txt"), "-o", run, "--steps",
           "2", SETTINGS);
    const char *const arguments[] = {"report", run, "--serve", "0.0.0.0:0", NULL};
    pid_t process = program_start(folder, arguments);
    int port = port_of(folder, process);
    if (port > 0) {
        assert_int_equal(gethostname(machine, sizeof machine - 1), 0);
        snprintf(label, sizeof label, "%.*s.local:%d", (int)strcspn(machine, "."), machine, port);
        expect_answer(port, "GET", "/metrics", "192.0.2.7", "200", NULL);
        expect_answer(port, "GET", "/metrics", "[2001:db8::7]:80", "200", NULL);
        expect_answer(port, "GET", "/metrics", machine, "200", NULL);
        expect_answer(port, "GET", "/metrics", label, "200", NULL);
        expect_answer(port, "GET", "/metrics", "localhost", "200", NULL);
        expect_canonical_answers(port, machine);
        expect_answer(port, "GET", "/metrics", "elsewhere.example", "403", "not a name of this machine");
        snprintf(label, sizeof label, "%.*s.elsewhere.example", (int)strcspn(machine, "."), machine);
        expect_answer(port, "GET", "/metrics", label, "403", NULL);
        assert_int_equal(kill(process, SIGINT), 0);
    }
    struct program_run done = program_finish(folder, process);
    program_run_free(&done);
    if (port == 0) unit_skip(NO_SERVER);
}

/* The server reads what the run writes; the run does not know of it. */
static void the_bits_are_those_of_a_run_alone(void **state) {
    const char *folder = *state, *served = temp_path(folder, "served"), *alone = temp_path(folder, "alone");
    const char *model = temp_path(folder, "model"), *text = temp_path(folder, "text.txt");
    const char *const arguments[] = {"train", model,     text, "-o",     served, "--steps",
                                     "20",    "--serve", "0",  SETTINGS, NULL};
    pid_t process = program_start(folder, arguments);
    int port = port_of(folder, process);
    bool there = port > 0;
    for (int i = 0; there; i++) { /* until the run ends */
        char *answer = request(port, "GET", i % 2 ? "/" : "/changes.json", "localhost");
        there = answer[0] != '\0';
        free(answer);
    }
    struct program_run done = program_finish(folder, process);
    if (port == 0) assert_int_equal(done.status, 2);
    program_run_free(&done);
    if (port == 0) unit_skip(NO_SERVER);
    EXPECT(folder, 0, NULL, "train", model, text, "-o", alone, "--steps", "20", SETTINGS);
    assert_true(files_equal(temp_path(served, "model/model.safetensors"), temp_path(alone, "model/model.safetensors")));
}

static void addresses_are_read(void **state) {
    static const char *const wrong[] = {
        "",           "x", "-1", "65536", "1.2.3.4", ":80", "example.org:80", "127.0.0.1:", "a:b:1", "203.0.113.1:0",
        "99999999999"};
    (void)state;
    struct listener listener;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        expect_status(listen_at(wrong[i], &listener), STATUS_BAD_INPUT, "--serve");
    static const char *const right[] = {"0", "127.0.0.1:0", "localhost:0", "[127.0.0.1]:0"};
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        assert_int_equal(listen_at(right[i], &listener), STATUS_OK);
        assert_true(listener.loopback && listener.port > 0);
        assert_string_equal(listener.host, "127.0.0.1");
        close(listener.socket);
    }
    assert_int_equal(listen_at("0.0.0.0:0", &listener), STATUS_OK);
    assert_false(listener.loopback);
    close(listener.socket);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(report_writes_a_page),           CASE(a_run_is_served_while_it_trains),
        CASE(a_finished_run_is_served),       CASE(the_bits_are_those_of_a_run_alone),
        cmocka_unit_test(addresses_are_read), CASE(other_names_are_refused_at_every_address),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
