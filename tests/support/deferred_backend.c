#include "support/deferred_backend.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/random.h"
#include "collective/lane_sum.h"
#include "ops/ops.h"
#include "plan/recipe_lines.h"

enum { STREAMS_MOST = 64, BLOCKS_MOST = 64, PAGE_BYTES = 4096 };

struct event {
    int64_t recorded, done; /* number of the last record that was asked for, that was done */
    int64_t done_ns;
};

enum item_kind {
    ITEM_KERNEL,
    ITEM_ZERO,
    ITEM_ADD,
    ITEM_PACK,
    ITEM_UNPACK,
    ITEM_COPY,
    ITEM_CALL,
    ITEM_RECORD,
    ITEM_WAIT
};

struct together {
    int count;
    const struct kernel *kernels[KERNELS_TOGETHER];
    struct kernel_call calls[KERNELS_TOGETHER];
};

struct item {
    enum item_kind kind;
    const struct kernel *kernel;
    struct kernel_call call;
    struct together *together; /* NULL, or several kernels in place of that */
    void *to;
    const void *from;
    int64_t bytes;
    bool round_bf16; /* additions */
    bool adds;       /* unpacking */
    void (*function)(void *argument);
    void *argument;
    struct event *event;
    int64_t number; /* of the event's record */
    struct item *next;
};

/* A graph: calls in the order in which they were noted. */
struct capture {
    struct item *first, **last_next;
};

struct stream {
    bool used;
    struct item *first, **last_next;
    int64_t asked, done;
    struct capture *capture; /* NULL: it does what it is asked for */
};

/* Memory that was taken. The device's: the addresses that others have, and as many bytes behind them. */
struct block {
    enum tier tier;
    char *base;
    int64_t bytes;
};

static struct device {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t asked, done; /* for the device; for those who wait for it */
    struct stream streams[STREAMS_MOST];
    struct block blocks[BLOCKS_MOST];
    enum status (*kernel_create)(const struct node *node, struct kernel **out);
    struct deferred_sums sums;
    uint64_t seed, draws;
    int waiting; /* threads */
    int threads; /* of kernels */
    int number;
    char products[256];
    int64_t items, fail_at;
    atomic_llong kernels_left; /* calls until one is refused; negative: none is */
    atomic_llong batched;      /* kernels that were asked for together */
    int64_t graphs, graphs_most, captures, launches;
    bool failed, stopping;
} device = {.lock = PTHREAD_MUTEX_INITIALIZER, .asked = PTHREAD_COND_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};

static _Thread_local bool entered;
/* The stream that the thread captures; whether something was asked for that no graph can have. */
static _Thread_local struct stream *capturing;
static _Thread_local bool spoiled;

/* The backend's own way to what an address stands for; what is not the device's is left as it is. */
static void *behind(const void *address, bool *of_device) {
    const char *at = address;
    const char *there = at;
    pthread_mutex_lock(&device.lock);
    for (int b = 0; b < BLOCKS_MOST; b++) {
        const struct block *block = &device.blocks[b];
        bool within = block->base && at >= block->base && at < block->base + block->bytes;
        if (within && block->tier == TIER_DEVICE) there = at + block->bytes;
    }
    pthread_mutex_unlock(&device.lock);
    *of_device = there != at;
    return (void *)(uintptr_t)there;
}

static void *behind_kernel(void *address) {
    bool of_device;
    void *there = behind(address, &of_device);
    BUG_IF(address && !of_device, "a kernel's operand is not in the device's memory");
    return there;
}

static struct kernel_call call_behind(struct kernel_call call) {
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        call.in[i] = behind_kernel(call.in[i]);
    for (int i = 0; i < OP_OUTPUTS_MAX; i++)
        call.out[i] = behind_kernel(call.out[i]);
    call.workspace = behind_kernel(call.workspace);
    call.scalars = behind_kernel((void *)(uintptr_t)call.scalars);
    call.stream = NULL;
    return call;
}

static enum status run_kernel(const struct item *item) {
    if (!item->together) {
        struct kernel_call call = call_behind(item->call);
        return item->kernel->run(item->kernel, &call);
    }
    struct kernel_call calls[KERNELS_TOGETHER];
    for (int i = 0; i < item->together->count; i++)
        calls[i] = call_behind(item->together->calls[i]);
    return item->together->kernels[0]->run_together(item->together->kernels, calls, item->together->count);
}

static void free_item(struct item *item) {
    free(item->together);
    free(item);
}

static enum status run_item(struct item *item) {
    bool unused;
    switch (item->kind) {
    case ITEM_KERNEL: return run_kernel(item);
    case ITEM_ZERO: memset(behind_kernel(item->to), 0, (size_t)item->bytes); break;
    case ITEM_ADD:
        device.sums.add(behind_kernel(item->to), behind_kernel((void *)(uintptr_t)item->from),
                        item->bytes / (int64_t)sizeof(float), item->round_bf16, NULL);
        break;
    case ITEM_PACK:
        device.sums.peers.pack_bf16(behind_kernel(item->to), behind_kernel((void *)(uintptr_t)item->from),
                                    item->bytes / (int64_t)sizeof(float), NULL);
        break;
    case ITEM_UNPACK:
        device.sums.peers.unpack_bf16(behind_kernel(item->to), behind_kernel((void *)(uintptr_t)item->from),
                                      item->bytes / (int64_t)sizeof(float), item->adds, NULL);
        break;
    case ITEM_CALL: item->function(item->argument); break;
    case ITEM_COPY: memcpy(behind(item->to, &unused), behind(item->from, &unused), (size_t)item->bytes); break;
    case ITEM_RECORD:
    case ITEM_WAIT: break;
    }
    return STATUS_OK;
}

static bool may_run(const struct stream *stream) {
    const struct item *item = stream->first;
    return item && (item->kind != ITEM_WAIT || item->event->done >= item->number);
}

/* A stream whose head may run; NULL: none. */
static struct stream *draw_stream(void) {
    struct stream *candidates[STREAMS_MOST];
    uint64_t count = 0;
    for (int s = 0; s < STREAMS_MOST; s++)
        if (may_run(&device.streams[s])) candidates[count++] = &device.streams[s];
    return count > 0 ? candidates[random_u64(device.seed, RANDOM_TEST, 11, device.draws++) % count] : NULL;
}

static void finish_item(struct stream *stream, struct item *item) {
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
    int threads = 0;
    pthread_mutex_lock(&device.lock);
    while (!device.stopping) {
        bool lazy = device.seed % 2 == 1;
        struct stream *stream = lazy && device.waiting == 0 ? NULL : draw_stream();
        if (!stream) {
            pthread_cond_wait(&device.asked, &device.lock);
            continue;
        }
        struct item *item = stream->first;
        bool failed = device.failed, sets = threads != device.threads;
        threads = device.threads;
        pthread_mutex_unlock(&device.lock);
        if (sets) backend_cpu.set_threads(threads);
        if (!failed) BUG_IF(run_item(item) != STATUS_OK, "a kernel of the CPU's: %s", status_message());
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
        pthread_cond_signal(&device.asked);
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

static struct item *copy_item(const struct item *item) {
    struct item *own = malloc(sizeof *own);
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
static void append(struct stream *stream, struct item *own) {
    if (own->kind == ITEM_RECORD) own->number = ++own->event->recorded;
    if (own->kind == ITEM_WAIT) own->number = own->event->recorded;
    *stream->last_next = own;
    stream->last_next = &own->next;
    stream->asked++;
}

/* Takes over a copy of the item. */
static void ask(void *to, const struct item *item) {
    struct stream *stream = to;
    struct item *own = copy_item(item);
    lock_entered();
    BUG_IF(stream->capture && stream != capturing, "another thread asks a stream that is being captured");
    if (stream->capture) {
        *stream->capture->last_next = own;
        stream->capture->last_next = &own->next;
    } else {
        append(stream, own);
    }
    pthread_cond_signal(&device.asked);
    pthread_mutex_unlock(&device.lock);
}

/* What a thread may not ask for while it captures spoils the capture. */
static enum status refuse_capture(void) {
    if (!capturing) return STATUS_OK;
    spoiled = true;
    return status_set(STATUS_FAILED, "asked for in a capture");
}

static enum status enter(void) {
    entered = true;
    return STATUS_OK;
}

static enum status create(void **out) {
    TRY(refuse_capture());
    lock_entered();
    struct stream *stream = device.streams;
    while (stream->used)
        BUG_IF(++stream == device.streams + STREAMS_MOST, "too many streams");
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
    *event = mem_array(1, sizeof(struct event));
    return *event ? STATUS_OK : STATUS_FAILED;
}

static enum status elapsed(void *begin, void *end, double *seconds) {
    const struct event *from = begin, *to = end;
    lock_entered();
    BUG_IF(from->done < from->recorded || to->done < to->recorded, "an event that is not done was looked at");
    *seconds = (double)(to->done_ns - from->done_ns) * 1e-9;
    pthread_mutex_unlock(&device.lock);
    return STATUS_OK;
}

static void free_event(void *event) { mem_free(event); }

static enum status record(void *event, void *stream) {
    TRY(refuse_capture());
    ask(stream, &(struct item){.kind = ITEM_RECORD, .event = event});
    return STATUS_OK;
}

static enum status wait(void *stream, void *event) {
    TRY(refuse_capture());
    ask(stream, &(struct item){.kind = ITEM_WAIT, .event = event});
    return STATUS_OK;
}

static enum status await(void *to) {
    struct event *event = to;
    TRY(refuse_capture());
    lock_entered();
    return wait_for(&event->done, event->recorded);
}

static enum status finish(void *to) {
    struct stream *stream = to;
    TRY(refuse_capture());
    lock_entered();
    return wait_for(&stream->done, stream->asked);
}

static enum status check(void) {
    lock_entered();
    enum status status = outcome();
    pthread_mutex_unlock(&device.lock);
    return status;
}

static const struct backend_streams streams = {.enter = enter,
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
    for (struct item *item = graph->first, *next; item; item = next) {
        next = item->next;
        free_item(item);
    }
    mem_free(graph);
}

/* Where there are as many graphs as there may be, one capture fails at its beginning and the next at its end. */
static bool is_refused(bool beginning) {
    pthread_mutex_lock(&device.lock);
    bool refused = device.graphs >= device.graphs_most && (device.captures % 2 == 0) == beginning;
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
    TRY(refuse_capture());
    lock_entered();
    for (const struct item *item = graph->first; item; item = item->next)
        append(stream, copy_item(item));
    device.launches++;
    pthread_cond_signal(&device.asked);
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

static const struct backend_graphs graphs = {
    .begin = begin_capture, .end = end_capture, .launch = launch, .free = give_graph_back};

static enum status take(enum tier tier, int64_t bytes, void **out) {
    TRY(refuse_capture());
    int64_t whole = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    int64_t copies = tier == TIER_DEVICE ? 2 : 1;
    char *base = mmap(NULL, (size_t)(copies * whole), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return status_set(STATUS_FAILED, "there is not so much");
    if (tier == TIER_DEVICE) BUG_IF(mprotect(base, (size_t)whole, PROT_NONE) != 0, "mprotect");
    pthread_mutex_lock(&device.lock);
    struct block *block = device.blocks;
    while (block->base)
        BUG_IF(++block == device.blocks + BLOCKS_MOST, "too many blocks");
    *block = (struct block){tier, base, whole};
    pthread_mutex_unlock(&device.lock);
    *out = base;
    return STATUS_OK;
}

static void give_back(enum tier tier, void *base) {
    pthread_mutex_lock(&device.lock);
    struct block *block = device.blocks;
    while (block->base != base || block->tier != tier)
        BUG_IF(++block == device.blocks + BLOCKS_MOST, "what was never taken is given back");
    munmap(base, (size_t)((tier == TIER_DEVICE ? 2 : 1) * block->bytes));
    *block = (struct block){0};
    pthread_mutex_unlock(&device.lock);
}

static enum status read_device(void *to, const void *from_device, int64_t bytes) {
    TRY(refuse_capture());
    memcpy(to, behind_kernel((void *)(uintptr_t)from_device), (size_t)bytes);
    return STATUS_OK;
}

static enum status write_device(void *to_device, const void *from, int64_t bytes) {
    TRY(refuse_capture());
    memcpy(behind_kernel(to_device), from, (size_t)bytes);
    return STATUS_OK;
}

static const struct backend_memory memory = {
    .take = take, .give_back = give_back, .read = read_device, .write = write_device};

/* The CPU's kernel behind one that only asks for it. */
struct deferred_kernel {
    struct kernel kernel;
    struct kernel *own;
};

/* The one that was chosen, alone. */
static enum status refuse_kernels(int count) {
    long long left = atomic_fetch_sub(&device.kernels_left, count);
    bool refuses = left >= 0 && left < count;
    return refuses ? status_set(STATUS_FAILED, "a kernel is refused, as planted") : STATUS_OK;
}

static enum status ask_kernel(const struct kernel *kernel, const struct kernel_call *call) {
    struct item item = {.kind = ITEM_KERNEL, .kernel = ((const struct deferred_kernel *)kernel)->own, .call = *call};
    TRY(refuse_kernels(1));
    ask(call->stream, &item);
    return STATUS_OK;
}

static enum status ask_together(const struct kernel *const *kernels, const struct kernel_call *calls, int count) {
    struct together together = {.count = count};
    struct item item = {.kind = ITEM_KERNEL, .together = &together};
    for (int i = 0; i < count; i++) {
        together.kernels[i] = ((const struct deferred_kernel *)kernels[i])->own;
        together.calls[i] = calls[i];
    }
    TRY(refuse_kernels(count));
    device.batched += count;
    ask(calls[0].stream, &item);
    return STATUS_OK;
}

static void release(struct kernel *kernel) {
    struct kernel *own = ((struct deferred_kernel *)kernel)->own;
    own->release(own);
    mem_free(kernel);
}

static enum status create_deferred(const struct node *node, struct kernel **out) {
    struct deferred_kernel *kernel = mem_array(1, sizeof *kernel);
    if (!kernel) return STATUS_FAILED;
    enum status status = device.kernel_create(node, &kernel->own);
    if (status != STATUS_OK) {
        mem_free(kernel);
        return status;
    }
    kernel->kernel = (struct kernel){
        .run = ask_kernel, .release = release, .node = node, .workspace_bytes = kernel->own->workspace_bytes};
    if (kernel->own->run_together) kernel->kernel.run_together = ask_together;
    *out = &kernel->kernel;
    return STATUS_OK;
}

static void zero(void *to, int64_t bytes, void *stream) {
    ask(stream, &(struct item){.kind = ITEM_ZERO, .to = to, .bytes = bytes});
}

static void add(void *to, const void *from, int64_t count, bool round_bf16, void *stream) {
    ask(stream, &(struct item){.kind = ITEM_ADD,
                               .to = to,
                               .from = from,
                               .bytes = count * (int64_t)sizeof(float),
                               .round_bf16 = round_bf16});
}

static void pack_bf16(void *to, const float *from, int64_t count, void *stream) {
    ask(stream, &(struct item){.kind = ITEM_PACK, .to = to, .from = from, .bytes = count * (int64_t)sizeof(float)});
}

static void unpack_bf16(float *to, const void *from, int64_t count, bool adds, void *stream) {
    ask(stream,
        &(struct item){
            .kind = ITEM_UNPACK, .to = to, .from = from, .bytes = count * (int64_t)sizeof(float), .adds = adds});
}

static const struct backend_peers peers = {.pack_bf16 = pack_bf16, .unpack_bf16 = unpack_bf16};

void deferred_call(void *stream, void (*function)(void *argument), void *argument) {
    ask(stream, &(struct item){.kind = ITEM_CALL, .function = function, .argument = argument});
}

void *deferred_behind(const void *address) {
    bool of_device;
    return behind(address, &of_device);
}

static void copy(void *to, const void *from, int64_t bytes, void *stream) {
    ask(stream, &(struct item){.kind = ITEM_COPY, .to = to, .from = from, .bytes = bytes});
}

/* Threads of the host compute as well: what the host tier is worked on with. */
static void set_threads(int threads) {
    pthread_mutex_lock(&device.lock);
    if (device.threads == 0) device.threads = threads;
    pthread_mutex_unlock(&device.lock);
    backend_cpu.set_threads(threads);
}

static enum status check_backend(void) { return backend_cpu.check(); }
static const char *isa(void) { return backend_cpu.isa(); }
static enum dtype fastest_dtype(void) { return backend_cpu.fastest_dtype(); }
static enum status measure(struct cluster *out) { return backend_cpu.measure(out); }

static enum status describe(char *text, size_t bytes) {
    snprintf(text, bytes, "deferred %d", device.number);
    return STATUS_OK;
}

/* Small, so that operands of tests are thrown out of it. */
static int64_t cache_bytes(void) { return 1 << 16; }

static enum status capacity(int64_t bytes[TIER_COUNT]) {
    TRY(backend_cpu.capacity(bytes));
    bytes[TIER_HOST] = bytes[TIER_DEVICE] /= 2;
    return STATUS_OK;
}

static enum status pin_products(const char *lines) {
    snprintf(device.products, sizeof device.products, "%s", lines ? lines : "");
    return STATUS_OK;
}

/* What it chooses by itself depends on which device it is. */
static enum status list_products(const char **lines) {
    if (!device.products[0]) snprintf(device.products, sizeof device.products, "product %02x\n", device.number);
    return recipe_lines_keep(device.products, lines);
}

static const struct kernel_entry deferred_all = {.op = NULL, .create = create_deferred};
static const struct kernel_list deferred_kernels = {.entries = &deferred_all, .count = 1};

static const struct backend backend = {.name = "deferred",
                                       .check = check_backend,
                                       .isa = isa,
                                       .fastest_dtype = fastest_dtype,
                                       .capacity = capacity,
                                       .measure = measure,
                                       .describe = describe,
                                       .cache_bytes = cache_bytes,
                                       .kernels_version = 2,
                                       .grain_tokens = 1024,
                                       .set_threads = set_threads,
                                       .kernels = &deferred_kernels,
                                       .pin_products = pin_products,
                                       .list_products = list_products,
                                       .zero = zero,
                                       .add = add,
                                       .copy = copy,
                                       .streams = &streams,
                                       .graphs = &graphs,
                                       .memory = &memory,
                                       .peers = &peers,
                                       .host = &backend_cpu};

static void pack_cpu(void *to, const float *from, int64_t count, void *stream) {
    (void)stream;
    lane_pack_bf16(to, from, count);
}

static void unpack_cpu(float *to, const void *from, int64_t count, bool adds, void *stream) {
    (void)stream;
    for (int64_t i = 0; i < count; i++) {
        float came;
        lane_unpack_bf16(&came, (const uint16_t *)from + i, 1);
        if (adds)
            lane_add(&to[i], &to[i], &came, 1, true);
        else
            to[i] = came;
    }
}

static const struct deferred_sums sums_of_cpu = {{.pack_bf16 = pack_cpu, .unpack_bf16 = unpack_cpu}, NULL};

void deferred_use_sums(const struct deferred_sums *sums) { device.sums = *sums; }

static enum status create_cpu(const struct node *node, struct kernel **out) {
    return backend_kernel_create(&backend_cpu, node, out);
}

const struct backend *deferred_begin(uint64_t seed) { return deferred_begin_with(seed, create_cpu); }

const struct backend *deferred_begin_with(uint64_t seed,
                                          enum status (*create_kernel)(const struct node *node, struct kernel **out)) {
    device.kernel_create = create_kernel;
    device.sums = sums_of_cpu;
    device.sums.add = backend_cpu.add;
    device.seed = seed;
    device.products[0] = '\0';
    device.draws = 0;
    device.threads = device.waiting = 0;
    device.items = 0;
    device.batched = 0;
    device.fail_at = -1;
    device.kernels_left = -1;
    device.graphs = device.captures = device.launches = 0;
    device.graphs_most = INT64_MAX;
    device.failed = device.stopping = false;
    BUG_IF(pthread_create(&device.thread, NULL, work, NULL) != 0, "the device's thread");
    return &backend;
}

void deferred_end(void) {
    pthread_mutex_lock(&device.lock);
    device.stopping = true;
    pthread_cond_signal(&device.asked);
    pthread_mutex_unlock(&device.lock);
    pthread_join(device.thread, NULL);
    for (int s = 0; s < STREAMS_MOST; s++)
        BUG_IF(device.streams[s].used, "a stream is left");
    for (int b = 0; b < BLOCKS_MOST; b++)
        BUG_IF(device.blocks[b].base, "memory is left");
    BUG_IF(device.graphs != 0, "a graph is left");
}

void deferred_choose(int number) { device.number = number; }

void deferred_fail_after(int64_t items) {
    pthread_mutex_lock(&device.lock);
    device.fail_at = device.items + items;
    pthread_mutex_unlock(&device.lock);
}

void deferred_refuse_after(int64_t kernels) { device.kernels_left = kernels; }

int64_t deferred_batched(void) { return device.batched; }
int64_t deferred_items(void) {
    pthread_mutex_lock(&device.lock);
    int64_t items = device.items;
    pthread_mutex_unlock(&device.lock);
    return items;
}

void deferred_limit_graphs(int64_t most) {
    pthread_mutex_lock(&device.lock);
    device.graphs_most = most;
    pthread_mutex_unlock(&device.lock);
}

int64_t deferred_launches(void) {
    pthread_mutex_lock(&device.lock);
    int64_t launches = device.launches;
    pthread_mutex_unlock(&device.lock);
    return launches;
}
