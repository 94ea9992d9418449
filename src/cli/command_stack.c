#include "cli/command_stack.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/status.h"

struct call {
    int (*run)(int count, char **arguments);
    int count;
    char **arguments;
    sigset_t mask;
    int result;
};

static void *make_call(void *payload) {
    struct call *call = payload;
    pthread_sigmask(SIG_SETMASK, &call->mask, NULL);
    call->result = call->run(call->count, call->arguments);
    return NULL;
}

static bool is_small(void) {
    struct rlimit limit;
    return getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur < COMMAND_STACK_BYTES;
}

static int start(struct call *call, pthread_t *thread) {
    pthread_attr_t attributes;
    int error = pthread_attr_init(&attributes);
    if (error) return error;
    error = pthread_attr_setstacksize(&attributes, COMMAND_STACK_BYTES);
    if (!error) error = pthread_setattr_default_np(&attributes);
    if (!error) error = pthread_create(thread, &attributes, make_call, call);
    pthread_attr_destroy(&attributes);
    return error;
}

/* The thread gets the signals, so that they interrupt its system calls: this one blocks them before that one begins. */
int command_stack_run(int (*run)(int count, char **arguments), int count, char **arguments) {
    struct call call = {.run = run, .count = count, .arguments = arguments, .result = STATUS_FAILED};
    pthread_t thread;
    sigset_t all;
    if (!is_small()) return run(count, arguments);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &call.mask);
    int error = start(&call, &thread);
    if (error) {
        fprintf(stderr, "ballast: error: cannot allocate a stack of %d KiB: %s\nhint: raise `ulimit -s`\n",
                COMMAND_STACK_BYTES >> 10, strerror(error));
        return STATUS_FAILED;
    }
    pthread_join(thread, NULL);
    return call.result;
}
