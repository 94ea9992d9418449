#include "profile/contention.h"

#include <pthread.h>

#include "base/fault.h"

enum { MESSAGE_BYTES = 512 };

/* A measurement under way. Members that could be started wait at the start for those that could not. */
struct meeting {
    const struct contention *contention;
    const struct contention_work *work;
    void *payload;
    atomic_int arrived;
    atomic_bool begun, ended;
};

struct member {
    struct meeting *meeting;
    int index;
    pthread_t thread;
    enum status status;
    char message[MESSAGE_BYTES];
};

/* Where only some of them are allowed the system grants those alone. */
static bool may_have(const cpu_set_t *cores) {
    cpu_set_t had;
    return sched_setaffinity(0, sizeof *cores, cores) == 0 && sched_getaffinity(0, sizeof had, &had) == 0 &&
           CPU_EQUAL(cores, &had);
}

bool contention_is_allowed(const struct contention *contention) {
    cpu_set_t own;
    if (!contention->bound) return true;
    if (sched_getaffinity(0, sizeof own, &own) != 0) return false;
    bool allowed = true;
    for (int member = 0; member < contention->members && allowed; member++)
        allowed = may_have(&contention->cores[member]);
    return sched_setaffinity(0, sizeof own, &own) == 0 && allowed;
}

static enum status take_cores(const struct contention *contention, int member) {
    if (!contention->bound || sched_setaffinity(0, sizeof(cpu_set_t), &contention->cores[member]) == 0)
        return STATUS_OK;
    return status_set(STATUS_FAILED, "cannot measure on the cores of rank %d of this node: %s", member,
                      strerror(errno));
}

static void *contend(void *argument) {
    struct member *member = argument;
    struct meeting *meeting = member->meeting;
    member->status = take_cores(meeting->contention, member->index);
    atomic_fetch_add(&meeting->arrived, 1);
    while (!atomic_load(&meeting->begun))
        sched_yield();
    if (member->status == STATUS_OK && !atomic_load(&meeting->ended))
        member->status = meeting->work->beside(meeting->payload, member->index, &meeting->ended);
    if (member->status != STATUS_OK) snprintf(member->message, sizeof member->message, "%s", status_message());
    return NULL;
}

static enum status start(struct meeting *meeting, struct member *members, int *started) {
    int others = contention_members(meeting->contention) - 1;
    for (*started = 0; *started < others; ++*started) {
        struct member *member = &members[*started];
        *member = (struct member){.meeting = meeting, .index = *started + 1};
        int error = fault_point(FAULT_SUBMIT) ? errno : pthread_create(&member->thread, NULL, contend, member);
        if (error) return status_set(STATUS_FAILED, "cannot start a thread to measure with: %s", strerror(error));
    }
    while (atomic_load(&meeting->arrived) < others)
        sched_yield();
    return STATUS_OK;
}

static enum status end(struct meeting *meeting, struct member *members, int started, enum status status) {
    atomic_store(&meeting->ended, true);
    atomic_store(&meeting->begun, true);
    for (int i = 0; i < started; i++) {
        pthread_join(members[i].thread, NULL);
        if (status == STATUS_OK && members[i].status != STATUS_OK)
            status = status_set(members[i].status, "%s", members[i].message);
    }
    return status;
}

enum status contention_measure(const struct contention *contention, const struct contention_work *work, void *payload) {
    struct meeting meeting = {.contention = contention, .work = work, .payload = payload};
    struct member members[CONTENTION_MAX];
    int started = 0;
    enum status status = start(&meeting, members, &started);
    atomic_store(&meeting.begun, true);
    if (status == STATUS_OK) status = work->lead(payload);
    return end(&meeting, members, started, status);
}
