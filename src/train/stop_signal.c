#include "train/stop_signal.h"

static volatile sig_atomic_t received;

static void note_signal(int number) {
    received = number;
    /* The person who asks twice does not want to wait for a checkpoint. */
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
}

static void install(int number, struct sigaction *saved) {
    struct sigaction action = {.sa_handler = note_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(number, NULL, saved);
    if (saved->sa_handler != SIG_IGN) sigaction(number, &action, NULL);
}

void stop_signal_begin(struct stop_signal *saved) {
    received = 0;
    install(SIGINT, &saved->interrupt);
    install(SIGTERM, &saved->terminate);
}

int stop_signal_received(void) { return received; }

void stop_signal_end(const struct stop_signal *saved) {
    sigaction(SIGINT, &saved->interrupt, NULL);
    sigaction(SIGTERM, &saved->terminate, NULL);
}
