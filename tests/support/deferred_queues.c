#include "support/deferred_queues.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/random.h"
#include "support/deferred_backend.h"

enum { STREAMS_MAX = 64 };

struct deferred_event {
    int64_t recorded, done; /* number of the last record that was asked for, that was done */
    int64_t done_ns;
};

/* A graph: calls in the order in which they were noted. */
struct capture {
    struct deferred_item *first, **last_next;
};

struct stream {
    bool used;
    struct deferred_item *first, **last_next;
    int64_t submitted, done;
    struct capture *capture; /* NULL: it does what it is asked for */
};

static struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t submitted, done; /* for the device; for those who wait for it */
    enum status (*run)(const struct deferred_item *item);
    struct stream streams[STREAMS_MAX];
    uint64_t seed, draws;
    int waiting; /* threads */
    int64_t items, fail_at;
    int64_t graphs, max_graphs, captures, launches;
    bool running, failed, stopping;
} device = {.lock = PTHREAD_MUTEX_INITIALIZER, .submitted = PTHREAD_COND_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};

static _Thread_local bool entered;
/* The stream that the thread captures; whether something was asked for that no graph can have. */
static _Thread_local struct stream *capturing;
static _Thread_local bool spoiled;

static void free_item(struct deferred_item *item) {
    free(item->together);
    free(item);
}

static bool may_run(const struct stream *stream) {
    const struct deferred_item *item = stream->first;
    return item && (item->kind != ITEM_WAIT || item->event->done >= item->number);
}

/* A stream whose head may run; NULL: none. */
static struct stream *draw_stream(void) {
    struct stream *runnable[STREAMS_MAX];
    uint64_t count = 0;
    for (int s = 0; s < STREAMS_MAX; s++)
        if (may_run(&device.streams[s])) runnable[count++] = &device.streams[s];
    return count > 0 ? runnable[random_u64(device.seed, RANDOM_TEST, 11, device.draws++) % count] : NULL;
}

static void finish_item(struct stream *stream, struct deferred_item *item) {
    stream->first = item->next;
    if (!stream->first) stream->last_next = &stream->first;
    stream->done++;
    device.items++;
    if (item->kind == ITEM_RECORD && item->number > item->event->done) {
        item->event->done = item->number;
        item->event->done_ns = clock_now_ns();
    }
    if (device.fail_at >= 0 && device.items >= device.fail_at) device.failed = true;
    /* What others wait for is an event's record or a stream's end. */
    if (device.waiting > 0 && (item->kind == ITEM_RECORD || !stream->first)) pthread_cond_broadcast(&device.done);
    free_item(item);
}

static void *work(void *argument) {
    (void)argument;
    pthread_mutex_lock(&device.lock);
    while (!device.stopping) {
        bool lazy = device.seed % 2 == 1;
        struct stream *stream = lazy && device.waiting == 0 ? NULL : draw_stream();
        if (!stream) {
            pthread_cond_wait(&device.submitted, &device.lock);
            continue;
        }
        struct deferred_item *item = stream->first;
        bool failed = device.failed;
        pthread_mutex_unlock(&device.lock);
        if (!failed) BUG_IF(device.run(item) != STATUS_OK, "a kernel of the CPU's: %s", status_message());
        pthread_mutex_lock(&device.lock);
        finish_item(stream, item);
    }
    pthread_mutex_unlock(&device.lock);
    return NULL;
}

static enum status outcome(void) {
    return device.failed ? status_set(STATUS_FAILED, "the device failed as planted") : STATUS_OK;
}

/* Under the lock: until the number is reached. */
static enum status wait_for(const int64_t *done, int64_t number) {
    if (*done < number) {
        device.waiting++;
        pthread_cond_signal(&device.submitted);
        while (*done < number)
            pthread_cond_wait(&device.done, &device.lock);
        device.waiting--;
    }
    enum status status = outcome();
    pthread_mutex_unlock(&device.lock);
    return status;
}

static void lock_entered(void) {
    BUG_IF(!entered, "a thread that did not enter");
    pthread_mutex_lock(&device.lock);
}

static struct deferred_item *copy_item(const struct deferred_item *item) {
    struct deferred_item *own = malloc(sizeof *own);
    BUG_IF(!own, "out of memory");
    *own = *item;
    own->next = NULL;
    if (!item->together) return own;
    own->together = malloc(sizeof *own->together);
    BUG_IF(!own->together, "out of memory");
    *own->together = *item->together;
    return own;
}

/* Under the lock. Record and wait look at their event at this moment. */
static void append(struct stream *stream, struct deferred_item *own) {
    if (own->kind == ITEM_RECORD) own->number = ++own->event->recorded;
    if (own->kind == ITEM_WAIT) own->number = own->event->recorded;
    *stream->last_next = own;
    stream->last_next = &own->next;
    stream->submitted++;
}

/* Takes over a copy of the item. */
void deferred_enqueue(void *to, const struct deferred_item *item) {
    struct stream *stream = to;
    struct deferred_item *own = copy_item(item);
    lock_entered();
    BUG_IF(stream->capture && stream != capturing, "another thread asks a stream that is being captured");
    if (stream->capture) {
        *stream->capture->last_next = own;
        stream->capture->last_next = &own->next;
    } else {
        append(stream, own);
    }
    pthread_cond_signal(&device.submitted);
    pthread_mutex_unlock(&device.lock);
}

/* What a thread may not ask for while it captures spoils the capture. */
enum status deferred_refuse_capture(void) {
    if (!capturing) return STATUS_OK;
    spoiled = true;
    return status_set(STATUS_FAILED, "asked for in a capture");
}

static enum status enter(void) {
    entered = true;
    return STATUS_OK;
}

static enum status create(void **out) {
    TRY(deferred_refuse_capture());
    lock_entered();
    struct stream *stream = device.streams;
    while (stream->used)
        BUG_IF(++stream == device.streams + STREAMS_MAX, "too many streams");
    *stream = (struct stream){.used = true, .last_next = &stream->first};
    pthread_mutex_unlock(&device.lock);
    *out = stream;
    return STATUS_OK;
}

static void free_stream(void *stream) {
    lock_entered();
    BUG_IF(((struct stream *)stream)->first, "a stream with work is freed");
    *(struct stream *)stream = (struct stream){0};
    pthread_mutex_unlock(&device.lock);
}

static enum status create_event(void **event) {
    *event = mem_array(1, sizeof(struct deferred_event));
    return *event ? STATUS_OK : STATUS_FAILED;
}

static enum status elapsed(void *begin, void *end, double *seconds) {
    const struct deferred_event *from = begin, *to = end;
    lock_entered();
    BUG_IF(from->done < from->recorded || to->done < to->recorded, "an event that is not done was looked at");
    *seconds = (double)(to->done_ns - from->done_ns) * 1e-9;
    pthread_mutex_unlock(&device.lock);
    return STATUS_OK;
}

static void free_event(void *event) { mem_free(event); }

static enum status record(void *event, void *stream) {
    TRY(deferred_refuse_capture());
    deferred_enqueue(stream, &(struct deferred_item){.kind = ITEM_RECORD, .event = event});
    return STATUS_OK;
}

static enum status wait(void *stream, void *event) {
    TRY(deferred_refuse_capture());
    deferred_enqueue(stream, &(struct deferred_item){.kind = ITEM_WAIT, .event = event});
    return STATUS_OK;
}

static enum status await(void *to) {
    struct deferred_event *event = to;
    TRY(deferred_refuse_capture());
    lock_entered();
    return wait_for(&event->done, event->recorded);
}

static enum status finish(void *to) {
    struct stream *stream = to;
    TRY(deferred_refuse_capture());
    lock_entered();
    return wait_for(&stream->done, stream->submitted);
}

static enum status check(void) {
    lock_entered();
    enum status status = outcome();
    pthread_mutex_unlock(&device.lock);
    return status;
}

const struct backend_streams deferred_streams = {.enter = enter,
                                                 .create = create,
                                                 .free = free_stream,
                                                 .create_event = create_event,
                                                 .create_timed_event = create_event,
                                                 .free_event = free_event,
                                                 .record = record,
                                                 .wait = wait,
                                                 .await = await,
                                                 .finish = finish,
                                                 .check = check,
                                                 .elapsed = elapsed};

static void free_graph(void *of) {
    struct capture *graph = of;
    for (struct deferred_item *item = graph->first, *next; item; item = next) {
        next = item->next;
        free_item(item);
    }
    mem_free(graph);
}

/* Where there are as many graphs as there may be, one capture fails at its beginning and the next at its end. */
static bool is_refused(bool beginning) {
    pthread_mutex_lock(&device.lock);
    bool refused = device.graphs >= device.max_graphs && (device.captures % 2 == 0) == beginning;
    if (beginning && refused) device.captures++;
    pthread_mutex_unlock(&device.lock);
    return refused;
}

static enum status begin_capture(void *of) {
    struct stream *stream = of;
    BUG_IF(capturing || stream->capture, "a capture within a capture");
    if (is_refused(true)) return status_set(STATUS_FAILED, "no capture begins, as planted");
    struct capture *graph = mem_array(1, sizeof *graph);
    if (!graph) return STATUS_FAILED;
    graph->last_next = &graph->first;
    stream->capture = graph;
    capturing = stream;
    spoiled = false;
    return STATUS_OK;
}

static enum status end_capture(void *of, void **out) {
    struct stream *stream = of;
    struct capture *graph = stream->capture;
    BUG_IF(stream != capturing, "the end of a capture that did not begin");
    capturing = NULL;
    stream->capture = NULL;
    bool fails = spoiled || is_refused(false);
    pthread_mutex_lock(&device.lock);
    device.captures++;
    if (!fails) device.graphs++;
    pthread_mutex_unlock(&device.lock);
    if (fails) {
        free_graph(graph);
        return status_set(STATUS_FAILED, "a capture fails, as planted");
    }
    *out = graph;
    return STATUS_OK;
}

static enum status launch(void *of, void *stream) {
    const struct capture *graph = of;
    TRY(deferred_refuse_capture());
    lock_entered();
    for (const struct deferred_item *item = graph->first; item; item = item->next)
        append(stream, copy_item(item));
    device.launches++;
    pthread_cond_signal(&device.submitted);
    enum status status = outcome();
    pthread_mutex_unlock(&device.lock);
    return status;
}

static void give_graph_back(void *graph) {
    free_graph(graph);
    pthread_mutex_lock(&device.lock);
    device.graphs--;
    pthread_mutex_unlock(&device.lock);
}

const struct backend_graphs deferred_graphs = {
    .begin = begin_capture, .end = end_capture, .launch = launch, .free = give_graph_back};

static void stop(void) {
    pthread_mutex_lock(&device.lock);
    device.stopping = true;
    pthread_cond_signal(&device.submitted);
    pthread_mutex_unlock(&device.lock);
    pthread_join(device.thread, NULL);
    device.running = false;
}

void deferred_queues_begin(uint64_t seed, enum status (*run)(const struct deferred_item *item)) {
    if (device.running) stop(); /* of a test that failed */
    device.run = run;
    device.seed = seed;
    device.draws = 0;
    device.waiting = 0;
    device.items = 0;
    device.fail_at = -1;
    device.graphs = device.captures = device.launches = 0;
    device.max_graphs = INT64_MAX;
    device.failed = device.stopping = false;
    BUG_IF(pthread_create(&device.thread, NULL, work, NULL) != 0, "the device's thread");
    device.running = true;
}

void deferred_queues_end(void) {
    stop();
    for (int s = 0; s < STREAMS_MAX; s++)
        BUG_IF(device.streams[s].used, "a stream is left");
    BUG_IF(device.graphs != 0, "a graph is left");
}

void deferred_fail_after(int64_t items) {
    pthread_mutex_lock(&device.lock);
    device.fail_at = device.items + items;
    pthread_mutex_unlock(&device.lock);
}

int64_t deferred_items(void) {
    pthread_mutex_lock(&device.lock);
    int64_t items = device.items;
    pthread_mutex_unlock(&device.lock);
    return items;
}

void deferred_limit_graphs(int64_t max) {
    pthread_mutex_lock(&device.lock);
    device.max_graphs = max;
    pthread_mutex_unlock(&device.lock);
}

int64_t deferred_launches(void) {
    pthread_mutex_lock(&device.lock);
    int64_t launches = device.launches;
    pthread_mutex_unlock(&device.lock);
    return launches;
}
