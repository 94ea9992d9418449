#include "support/deferred_backend.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/mem.h"
#include "collective/lane_tree.h"
#include "ir/ops/ops.h"
#include "plan/recipe.h"
#include "support/deferred_queues.h"

enum { BLOCKS_MAX = 64, PAGE_BYTES = 4096 };

/* Memory that was taken. The device's: the addresses that others have, and as many bytes behind them. */
struct block {
    enum tier tier;
    char *base;
    int64_t bytes;
};

static struct {
    pthread_mutex_t lock; /* of the blocks */
    struct block blocks[BLOCKS_MAX];
    enum status (*kernel_create)(const struct node *node, struct kernel **out);
    struct deferred_sums sums;
    atomic_int threads; /* of kernels */
    int number;
    char products[256];
    int64_t left_bytes;
    atomic_llong kernels_left; /* calls until one is refused; negative: none is */
    atomic_llong batched;      /* kernels that were asked for together */
} device = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The backend's own way to what an address stands for; what is not the device's is left as it is. */
static void *behind(const void *address, bool *of_device) {
    const char *at = address;
    const char *there = at;
    pthread_mutex_lock(&device.lock);
    for (int b = 0; b < BLOCKS_MAX; b++) {
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

static enum status run_kernel(const struct deferred_item *item) {
    if (!item->together) {
        struct kernel_call call = call_behind(item->call);
        return item->kernel->run(item->kernel, &call);
    }
    struct kernel_call calls[KERNELS_TOGETHER];
    for (int i = 0; i < item->together->count; i++)
        calls[i] = call_behind(item->together->calls[i]);
    return item->together->kernels[0]->run_together(item->together->kernels, calls, item->together->count);
}

static enum status run_item(const struct deferred_item *item) {
    static _Thread_local int set; /* threads of the one that works */
    int threads = atomic_load(&device.threads);
    bool unused;
    if (threads != set) backend_cpu.set_threads(set = threads);
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

static enum status take(enum tier tier, int64_t bytes, void **out) {
    TRY(deferred_refuse_capture());
    int64_t whole = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    int64_t copies = tier == TIER_DEVICE ? 2 : 1;
    char *base = mmap(NULL, (size_t)(copies * whole), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return status_set(STATUS_FAILED, "there is not so much");
    if (tier == TIER_DEVICE) BUG_IF(mprotect(base, (size_t)whole, PROT_NONE) != 0, "mprotect");
    pthread_mutex_lock(&device.lock);
    struct block *block = device.blocks;
    while (block->base)
        BUG_IF(++block == device.blocks + BLOCKS_MAX, "too many blocks");
    *block = (struct block){tier, base, whole};
    pthread_mutex_unlock(&device.lock);
    *out = base;
    return STATUS_OK;
}

static void give_back(enum tier tier, void *base) {
    pthread_mutex_lock(&device.lock);
    struct block *block = device.blocks;
    while (block->base != base || block->tier != tier)
        BUG_IF(++block == device.blocks + BLOCKS_MAX, "what was never taken is given back");
    munmap(base, (size_t)((tier == TIER_DEVICE ? 2 : 1) * block->bytes));
    *block = (struct block){0};
    pthread_mutex_unlock(&device.lock);
}

static enum status read_device(void *to, const void *from_device, int64_t bytes) {
    TRY(deferred_refuse_capture());
    memcpy(to, behind_kernel((void *)(uintptr_t)from_device), (size_t)bytes);
    return STATUS_OK;
}

static enum status write_device(void *to_device, const void *from, int64_t bytes) {
    TRY(deferred_refuse_capture());
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

static enum status enqueue_kernel(const struct kernel *kernel, const struct kernel_call *call) {
    struct deferred_item item = {
        .kind = ITEM_KERNEL, .kernel = ((const struct deferred_kernel *)kernel)->own, .call = *call};
    TRY(refuse_kernels(1));
    deferred_enqueue(call->stream, &item);
    return STATUS_OK;
}

static enum status enqueue_together(const struct kernel *const *kernels, const struct kernel_call *calls, int count) {
    struct deferred_together together = {.count = count};
    struct deferred_item item = {.kind = ITEM_KERNEL, .together = &together};
    for (int i = 0; i < count; i++) {
        together.kernels[i] = ((const struct deferred_kernel *)kernels[i])->own;
        together.calls[i] = calls[i];
    }
    TRY(refuse_kernels(count));
    device.batched += count;
    deferred_enqueue(calls[0].stream, &item);
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
        .run = enqueue_kernel, .release = release, .node = node, .workspace_bytes = kernel->own->workspace_bytes};
    if (kernel->own->run_together) kernel->kernel.run_together = enqueue_together;
    *out = &kernel->kernel;
    return STATUS_OK;
}

static void zero(void *to, int64_t bytes, void *stream) {
    deferred_enqueue(stream, &(struct deferred_item){.kind = ITEM_ZERO, .to = to, .bytes = bytes});
}

static void add(void *to, const void *from, int64_t count, bool round_bf16, void *stream) {
    deferred_enqueue(stream, &(struct deferred_item){.kind = ITEM_ADD,
                                                     .to = to,
                                                     .from = from,
                                                     .bytes = count * (int64_t)sizeof(float),
                                                     .round_bf16 = round_bf16});
}

static void pack_bf16(void *to, const float *from, int64_t count, void *stream) {
    deferred_enqueue(stream, &(struct deferred_item){
                                 .kind = ITEM_PACK, .to = to, .from = from, .bytes = count * (int64_t)sizeof(float)});
}

static void unpack_bf16(float *to, const void *from, int64_t count, bool adds, void *stream) {
    deferred_enqueue(
        stream,
        &(struct deferred_item){
            .kind = ITEM_UNPACK, .to = to, .from = from, .bytes = count * (int64_t)sizeof(float), .adds = adds});
}

static const struct backend_peers peers = {.pack_bf16 = pack_bf16, .unpack_bf16 = unpack_bf16};

void deferred_call(void *stream, void (*function)(void *argument), void *argument) {
    deferred_enqueue(stream, &(struct deferred_item){.kind = ITEM_CALL, .function = function, .argument = argument});
}

void *deferred_behind(const void *address) {
    bool of_device;
    return behind(address, &of_device);
}

static void copy(void *to, const void *from, int64_t bytes, void *stream) {
    deferred_enqueue(stream, &(struct deferred_item){.kind = ITEM_COPY, .to = to, .from = from, .bytes = bytes});
}

/* Threads of the host compute as well: what the host tier is worked on with. */
static void set_threads(int threads) {
    int none = 0;
    atomic_compare_exchange_strong(&device.threads, &none, threads);
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

static kernel_maker *maker(const struct op *op) {
    (void)op;
    return create_deferred;
}

static enum status left_bytes(int64_t *device_bytes) {
    *device_bytes = device.left_bytes > 0 ? device.left_bytes : INT64_MAX;
    return STATUS_OK;
}

static const struct backend backend = {.name = "deferred",
                                       .check = check_backend,
                                       .isa = isa,
                                       .fastest_dtype = fastest_dtype,
                                       .capacity = capacity,
                                       .measure = measure,
                                       .left_bytes = left_bytes,
                                       .describe = describe,
                                       .cache_bytes = cache_bytes,
                                       .kernels_version = 2,
                                       .micro_batch_tokens = 1024,
                                       .set_threads = set_threads,
                                       .maker = maker,
                                       .pin_products = pin_products,
                                       .list_products = list_products,
                                       .zero = zero,
                                       .add = add,
                                       .copy = copy,
                                       .streams = &deferred_streams,
                                       .graphs = &deferred_graphs,
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
    device.products[0] = '\0';
    device.threads = 0;
    device.batched = 0;
    device.kernels_left = -1;
    device.left_bytes = 0;
    deferred_queues_begin(seed, run_item);
    return &backend;
}

void deferred_end(void) {
    deferred_queues_end();
    for (int b = 0; b < BLOCKS_MAX; b++)
        BUG_IF(device.blocks[b].base, "memory is left");
}

void deferred_choose(int number) { device.number = number; }

void deferred_refuse_after(int64_t kernels) { device.kernels_left = kernels; }

void deferred_leave_bytes(int64_t bytes) { device.left_bytes = bytes; }

int64_t deferred_batched(void) { return device.batched; }
