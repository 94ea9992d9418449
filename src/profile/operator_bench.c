#include "profile/operator_bench.h"

#include <math.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include "base/half.h"

const struct tensor *operand_tensor(const struct node *node, int operand) {
    return operand < OP_INPUTS_MAX ? node->in[operand] : node->out[operand - OP_INPUTS_MAX];
}

static const struct tensor *storage_of(const struct tensor *tensor) { return tensor->base ? tensor->base : tensor; }

static bool is_cold(const struct node *node, const struct tensor *tensor) {
    switch (tensor->kind) {
    case TENSOR_PARAMETER:
    case TENSOR_GRADIENT:
    case TENSOR_CACHE:
    case TENSOR_STATE: return true;
    case TENSOR_ACTIVATION: return tensor->producer && tensor->producer->phase != node->phase;
    default: return false;
    }
}

static bool read_later(const struct graph *graph, const struct node *node, const struct tensor *storage) {
    for (size_t i = (size_t)node->id + 1; i < graph->nodes.count; i++)
        for (int k = 0; k < OP_INPUTS_MAX; k++) {
            const struct tensor *in = graph->nodes.items[i]->in[k];
            if (in && storage_of(in) == storage) return true;
        }
    return false;
}

static int find_storage(struct operands *operands, const struct tensor *tensor) {
    for (int i = 0; i < operands->storage_count; i++)
        if (operands->storages[i].tensor == tensor) return i;
    operands->storages[operands->storage_count] =
        (struct operand_storage){.tensor = tensor, .cold = is_cold(operands->node, tensor)};
    return operands->storage_count++;
}

void operands_find(const struct graph *graph, const struct node *node, struct operands *out) {
    *out = (struct operands){.node = node};
    int in_place = node_in_place_input(node);
    if (in_place >= 0 && read_later(graph, node, node->in[in_place])) in_place = -1;
    for (int i = 0; i < OPERAND_COUNT; i++) {
        const struct tensor *tensor = operand_tensor(node, i);
        if (i == OP_INPUTS_MAX && in_place >= 0)
            out->storage[i] = out->storage[in_place];
        else
            out->storage[i] = tensor ? find_storage(out, storage_of(tensor)) : -1;
    }
}

bool *operands_kept(const struct graph *graph) {
    bool *kept = mem_array(graph->tensors.count, sizeof *kept);
    for (size_t i = 0; i < graph->nodes.count && kept; i++)
        for (int k = 0; k < OP_INPUTS_MAX; k++) {
            const struct node *node = graph->nodes.items[i];
            const struct tensor *storage = node->in[k] ? storage_of(node->in[k]) : NULL;
            if (storage && storage->producer && storage->producer->phase != node->phase) kept[storage->id] = true;
        }
    return kept;
}

static bool is_input(const struct operands *operands, int storage) {
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        if (operands->storage[i] == storage) return true;
    return false;
}

uint32_t operands_out_of_caches(const struct operands *operands, const bool *kept) {
    uint32_t bits = 0;
    for (int i = 0; i < operands->storage_count; i++) {
        const struct operand_storage *storage = &operands->storages[i];
        bool waits = kept[storage->tensor->id] && !is_input(operands, i);
        if (storage->cold || waits) bits |= UINT32_C(1) << i;
    }
    return bits;
}

static void add_operand(const struct operands *operands, int operand, struct op_key *key) {
    if (operand == OP_INPUTS_MAX) op_key_add(key, " >");
    if (operands->storage[operand] < 0) {
        op_key_add(key, " -");
        return;
    }
    const struct operand_storage *storage = &operands->storages[operands->storage[operand]];
    const struct tensor *tensor = operand_tensor(operands->node, operand);
    op_key_add(key, " %d%c:%s", operands->storage[operand], storage->cold ? 'c' : 'w', dtype_name(tensor->shape.dtype));
    if (tensor->code.format != WEIGHT_PLAIN) op_key_add(key, "=%s", weight_format_name(tensor->code.format));
    if (tensor->code.block != 0) op_key_add(key, "/%" PRId64, tensor->code.block);
    for (int i = 0; i < tensor->shape.rank; i++)
        op_key_add(key, "%c%" PRId64, i ? ',' : '[', tensor->shape.dims[i]);
    if (tensor->shape.rank > 0) op_key_add(key, "]");
    if (tensor->base) op_key_add(key, "/%" PRId64, tensor_row_stride(tensor));
}

const char *operator_key(const struct operands *operands, struct scratch *memory) {
    struct op_key key = {.used = 0};
    op_key_begin(operands->node, &key);
    for (int i = 0; i < OPERAND_COUNT; i++)
        if (i < operands->node->op->inputs || i >= OP_INPUTS_MAX) add_operand(operands, i, &key);
    return scratch_format(memory, "%s", key.text);
}

/* A prime number of values, so that rows of a matrix differ. */
enum { PATTERN = 8191 };

static void write_value(void *to, enum dtype dtype, int64_t index, double value) {
    switch (dtype) {
    case DTYPE_F64: ((double *)to)[index] = value; return;
    case DTYPE_F32: ((float *)to)[index] = (float)value; return;
    case DTYPE_BF16: ((uint16_t *)to)[index] = bf16_from_float((float)value); return;
    case DTYPE_I32: ((int32_t *)to)[index] = (int32_t)value; return;
    case DTYPE_U8: ((uint8_t *)to)[index] = (uint8_t)value; return;
    case DTYPE_U16: ((uint16_t *)to)[index] = (uint16_t)value; return;
    default: BUG("no values of %s", dtype_name(dtype));
    }
}

/* Any codes will do; scales are to be of the size that a weight's are. */
static void fill_quantized(const struct tensor *tensor, unsigned char *to) {
    enum { EXPONENT = 124, MIDDLE = WEIGHT_SCALES / 2 };
    struct weight_layout layout = weight_code_layout(&tensor->code);
    const float scale = 0.125f;
    for (int64_t i = 0; i < layout.scales_at; i++)
        to[i] = (unsigned char)(i % PATTERN * 151 % 256);
    memset(to + layout.scales_at, layout.groups > 0 ? MIDDLE : EXPONENT, (size_t)(layout.bytes - layout.scales_at));
    int64_t floats = layout.groups > 0 ? layout.groups_at : layout.scales_at;
    int64_t end = layout.zeros_at > 0 ? layout.scales_at + layout.scales * layout.scale_bytes : layout.bytes;
    for (int64_t at = floats; layout.format != WEIGHT_MXFP4 && at < end; at += (int64_t)sizeof scale)
        memcpy(to + at, &scale, sizeof scale);
}

/* Computes the first values one by one and copies them to the rest; integers are all computed. */
void operator_values_fill(const struct node *node, const struct tensor *tensor, void *to) {
    enum dtype dtype = tensor->shape.dtype;
    if (tensor->code.format != WEIGHT_PLAIN) return fill_quantized(tensor, to);
    int64_t count = shape_elements(&tensor->shape), bytes = dtype_bytes(dtype);
    int64_t first = dtype == DTYPE_I32 || count < PATTERN ? count : PATTERN;
    for (int64_t i = 0; i < first; i++)
        write_value(to, dtype, i, op_example(node, tensor, i));
    for (int64_t i = first; i < count; i += first) {
        int64_t here = count - i < first ? count - i : first;
        memcpy((char *)to + i * bytes, to, (size_t)(here * bytes));
    }
}

void operator_values_scalars(const struct node *node, double scalars[SCALAR_COUNT]) {
    int64_t tokens = node->in[0] && node->in[0]->shape.rank == 3 ? node->in[0]->shape.dims[1] : 1;
    memset(scalars, 0, SCALAR_COUNT * sizeof *scalars);
    scalars[SCALAR_LOSS_SCALE] = 1.0 / 4096;
    scalars[SCALAR_LEARNING_RATE] = 1e-4;
    scalars[SCALAR_BIAS_CORRECTION] = 5;
    scalars[SCALAR_STEP] = 2;
    scalars[SCALAR_BIAS_CORRECTION_SQ] = 10;
    scalars[SCALAR_NEW_TOKENS] = (double)tokens;
}

enum { LINE_BYTES = 64 /* or more; the rest of a line is written again */ };

#if defined(__x86_64__)

bool evict_possible(void) {
    enum { LEAF = 7, CLFLUSHOPT = 23 };
    unsigned a, b = 0, c, d;
    return __get_cpuid_count(LEAF, 0, &a, &b, &c, &d) && b >> CLFLUSHOPT & 1;
}

__attribute__((target("clflushopt"))) static void evict_lines(const char *at, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += LINE_BYTES)
        _mm_clflushopt((void *)(uintptr_t)(at + i));
    _mm_clflushopt((void *)(uintptr_t)(at + bytes - 1));
    _mm_mfence();
}
#elif defined(__aarch64__)
bool evict_possible(void) { return true; }

static void evict_lines(const char *at, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += LINE_BYTES)
        __asm__ volatile("dc civac, %0" ::"r"(at + i) : "memory");
    __asm__ volatile("dc civac, %0\n\tdsb ish" ::"r"(at + bytes - 1) : "memory");
}
#else
bool evict_possible(void) { return false; }
static void evict_lines(const char *at, int64_t bytes) { (void)at, (void)bytes; }
#endif

/* Threads take parts: one alone evicts a few GB a second. */
void evict(const void *from, int64_t bytes) {
    enum { PART_BYTES = 1 << 20 };
    const char *at = from;
    if (bytes <= 0 || !evict_possible()) return;
#pragma omp parallel for schedule(static)
    for (int64_t first = 0; first < bytes; first += PART_BYTES)
        evict_lines(at + first, bytes - first < PART_BYTES ? bytes - first : PART_BYTES);
}

/* Shorter than any clock resolves. */
static const double MIN_S = 1e-9;

enum status work_clock_open(const struct backend *backend, struct work_clock *out) {
    const struct backend_streams *streams = backend->streams;
    *out = (struct work_clock){.backend = backend};
    if (!streams) return STATUS_OK;
    TRY(streams->enter());
    TRY(streams->create(&out->stream));
    TRY(streams->create_timed_event(&out->begin));
    return streams->create_timed_event(&out->end);
}

void work_clock_close(struct work_clock *clock) {
    if (clock->stream) clock->backend->streams->free(clock->stream);
    if (clock->begin) clock->backend->streams->free_event(clock->begin);
    if (clock->end) clock->backend->streams->free_event(clock->end);
    *clock = (struct work_clock){0};
}

static enum status repeat_call(work_call *work, void *payload, int calls) {
    for (int i = 0; i < calls; i++)
        TRY(work(payload));
    return STATUS_OK;
}

static enum status time_calls(work_call *work, void *payload, int calls, struct sample *out) {
    struct stopwatch stopwatch = stopwatch_begin();
    TRY(repeat_call(work, payload, calls));
    *out = stopwatch_end(&stopwatch);
    return STATUS_OK;
}

static enum status call_on_stream(const struct work_clock *clock, work_call *work, void *payload, int calls) {
    TRY(repeat_call(work, payload, calls));
    TRY(clock->backend->streams->check());
    return clock->backend->streams->record(clock->end, clock->stream);
}

static enum status time_stream(const struct work_clock *clock, work_call *work, void *payload, int calls,
                               struct sample *out) {
    const struct backend_streams *streams = clock->backend->streams;
    *out = (struct sample){0};
    TRY(streams->record(clock->begin, clock->stream));
    enum status called = call_on_stream(clock, work, payload, calls), finished = streams->finish(clock->stream);
    TRY(called);
    TRY(finished);
    return streams->elapsed(clock->begin, clock->end, &out->seconds);
}

enum status work_clock_time(const struct work_clock *clock, work_call *work, void *payload, int calls,
                            struct sample *out) {
    TRY(clock->stream ? time_stream(clock, work, payload, calls, out) : time_calls(work, payload, calls, out));
    out->seconds /= calls;
    out->waited_s /= calls;
    if (out->seconds < MIN_S) out->seconds = MIN_S;
    return STATUS_OK;
}

enum status work_clock_finish(const struct work_clock *clock) {
    return clock->stream ? clock->backend->streams->finish(clock->stream) : STATUS_OK;
}

enum { CALLS_MAX = 6, ROW_MAX = 10, ALIGNMENT = 4096 };
static const double LONG_CALL_S = 0.15; /* the extra work of a first call is little compared with it */
static const double CALLS_MAX_S = 0.06, ROW_S = 1e-3;
/* Memory delivers fewer bytes within microseconds; emptying the caches for them would take milliseconds. */
static const int64_t COLD_BYTES_MIN = (int64_t)64 << 10;
static const int64_t COPIES_BYTES_MAX = (int64_t)256 << 20, CACHE_DEFAULT_BYTES = (int64_t)32 << 20,
                     FLUSH_BYTES_MAX = (int64_t)64 << 20;

static int64_t align(int64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

void bench_memory_free(struct bench_memory *memory) { arena_close(&memory->arena); }

enum status bench_memory_grow(const struct backend *backend, struct bench_memory *memory, int64_t bytes) {
    const struct arena_settings settings = {.memory = backend->memory};
    if (memory->arena.bytes >= bytes) return STATUS_OK;
    arena_close(&memory->arena);
    memory->arena = (struct arena){0};
    return arena_open(TIER_DEVICE, bytes, &settings, &memory->arena);
}

/* Touching 1.5 times the bytes of the last cache replaces all that it holds. */
static int64_t flush_bytes(const struct backend *backend) {
    int64_t cache = backend->cache_bytes();
    return (cache > 0 ? cache : CACHE_DEFAULT_BYTES) / 2 * 3;
}

/* As many copies as fill the caches, but no more than there are calls or space for. On a device, where several calls
 * are one sample, calls use a copy more than once. */
static int count_copies(const struct backend *backend, int64_t bytes, int64_t left_bytes) {
    int64_t max = backend->streams ? INT16_MAX : CALLS_MAX + 1;
    if (bytes == 0 || (backend->streams && bytes < COLD_BYTES_MIN)) return 1;
    if (left_bytes > COPIES_BYTES_MAX) left_bytes = COPIES_BYTES_MAX;
    int64_t copies = flush_bytes(backend) / bytes + 1;
    if (copies > left_bytes / bytes) copies = left_bytes / bytes;
    return (int)(copies < 1 ? 1 : copies > max ? max : copies);
}

/* Sets the offsets of all storages; returns their bytes together. */
static int64_t lay_out(struct operator_bench *bench, int64_t max_bytes) {
    int64_t warm = 0, cold = 0;
    for (int i = 0; i < bench->operands.storage_count; i++) {
        const struct operand_storage *storage = &bench->operands.storages[i];
        int64_t *at = storage->cold ? &cold : &warm;
        bench->offset[i] = *at;
        *at += align(shape_bytes(&storage->tensor->shape));
    }
    bench->scalars_offset = warm;
    bench->workspace_offset = warm + align(SCALAR_COUNT * sizeof(double));
    bench->cold_offset = bench->workspace_offset + align(bench->kernel->workspace_bytes);
    bench->cold_bytes = cold;
    bench->copies = bench->evicts ? 1 : count_copies(bench->clock.backend, cold, max_bytes - bench->cold_offset);
    return bench->cold_offset + bench->copies * cold;
}

static char *storage_data(const struct operator_bench *bench, int storage, int copy) {
    bool cold = bench->operands.storages[storage].cold;
    return bench->base + (cold ? bench->cold_offset + copy * bench->cold_bytes : 0) + bench->offset[storage];
}

/* A device's caches are emptied whole or not at all; of a processor's the first ones matter most. */
static int64_t bytes_to_flush(const struct backend *backend, int64_t left_bytes) {
    int64_t bytes = flush_bytes(backend);
    if (backend->memory) return bytes <= left_bytes ? bytes : 0;
    if (bytes > FLUSH_BYTES_MAX) bytes = FLUSH_BYTES_MAX;
    return bytes <= left_bytes ? bytes : left_bytes > 0 ? left_bytes : 0;
}

/* Empties the caches of the operands' values by reading other bytes (written ones would have to be written back);
 * memory that the CPU cannot read is cleared instead. */
static void flush(const struct operator_bench *bench) {
    const struct backend *backend = bench->clock.backend;
    char *from = bench->base + bench->flush_offset;
    volatile const char *at = from;
    if (bench->flush_bytes == 0) return;
    if (backend->memory) {
        backend->zero(from, bench->flush_bytes, bench->clock.stream);
        return;
    }
    for (int64_t i = 0; i < bench->flush_bytes; i += LINE_BYTES)
        (void)at[i];
}

static int count_fills(const struct operator_bench *bench, int storage) {
    return bench->operands.storages[storage].cold ? bench->copies : 1;
}

static void fill_mapped(const struct operator_bench *bench, int storage) {
    const struct tensor *tensor = bench->operands.storages[storage].tensor;
    for (int copy = 0; copy < count_fills(bench, storage); copy++)
        operator_values_fill(bench->operands.node, tensor, storage_data(bench, storage, copy));
}

/* Makes the values once, in memory of the CPU, and copies them to the device. */
static enum status fill_device(const struct operator_bench *bench, int storage) {
    const struct tensor *tensor = bench->operands.storages[storage].tensor;
    int64_t bytes = shape_bytes(&tensor->shape);
    AUTO_FREE void *values = mem_array((size_t)bytes, 1);
    if (!values) return STATUS_FAILED;
    operator_values_fill(bench->operands.node, tensor, values);
    for (int copy = 0; copy < count_fills(bench, storage); copy++)
        TRY(bench->clock.backend->memory->write(storage_data(bench, storage, copy), values, bytes));
    return STATUS_OK;
}

static enum status fill_scalars(const struct operator_bench *bench) {
    const struct backend_memory *memory = bench->clock.backend->memory;
    double scalars[SCALAR_COUNT];
    operator_values_scalars(bench->operands.node, scalars);
    if (memory) return memory->write(bench->base + bench->scalars_offset, scalars, sizeof scalars);
    memcpy(bench->base + bench->scalars_offset, scalars, sizeof scalars);
    return STATUS_OK;
}

static enum status fill(const struct operator_bench *bench) {
    TRY(fill_scalars(bench));
    for (int i = 0; i < bench->operands.storage_count; i++)
        if (bench->clock.backend->memory)
            TRY(fill_device(bench, i));
        else
            fill_mapped(bench, i);
    return STATUS_OK;
}

static enum status open_bench(const struct backend *backend, struct bench_memory *memory,
                              struct operator_bench *bench) {
    TRY(work_clock_open(backend, &bench->clock));
    TRY(backend_kernel_create(backend, bench->operands.node, &bench->kernel));
    int64_t max = memory->max_bytes > 0 ? memory->max_bytes : INT64_MAX, bytes = lay_out(bench, max);
    bool flushes = !bench->evicts && bench->cold_bytes >= COLD_BYTES_MIN &&
                   bench->copies * bench->cold_bytes < flush_bytes(backend);
    bench->flush_offset = bytes;
    bench->flush_bytes = flushes ? bytes_to_flush(backend, max - bytes) : 0;
    TRY(bench_memory_grow(backend, memory, bytes + bench->flush_bytes));
    bench->base = memory->arena.base;
    TRY(fill(bench));
    flush(bench);
    return work_clock_finish(&bench->clock);
}

enum status operator_bench_open(const struct backend *backend, const struct operands *operands, bool evicts,
                                struct bench_memory *memory, struct operator_bench *out) {
    *out = (struct operator_bench){.operands = *operands, .evicts = evicts};
    enum status status = open_bench(backend, memory, out);
    if (status != STATUS_OK) operator_bench_close(out);
    return status;
}

void operator_bench_close(struct operator_bench *bench) {
    if (bench->kernel) bench->kernel->release(bench->kernel);
    bench->kernel = NULL;
    work_clock_close(&bench->clock);
}

static void *operand_data(const struct operator_bench *bench, int operand) {
    int storage = bench->operands.storage[operand];
    if (storage < 0) return NULL;
    const struct tensor *tensor = operand_tensor(bench->operands.node, operand);
    return storage_data(bench, storage, bench->next) + tensor_storage_offset(tensor);
}

void operator_bench_evict(const struct operator_bench *bench) {
    for (int i = 0; i < bench->operands.storage_count && bench->evicts; i++)
        if (bench->operands.storages[i].cold)
            evict(storage_data(bench, i, 0), shape_bytes(&bench->operands.storages[i].tensor->shape));
}

enum status operator_bench_run(struct operator_bench *bench) {
    bool works = bench->kernel->workspace_bytes > 0;
    struct kernel_call call = {.workspace = works ? bench->base + bench->workspace_offset : NULL,
                               .scalars = (const double *)(bench->base + bench->scalars_offset),
                               .stream = bench->clock.stream};
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        call.in[i] = operand_data(bench, i);
    for (int i = 0; i < OP_OUTPUTS_MAX; i++)
        call.out[i] = operand_data(bench, OP_INPUTS_MAX + i);
    bench->next = (bench->next + 1) % bench->copies;
    return bench->kernel->run(bench->kernel, &call);
}

static enum status enqueue(void *bench) { return operator_bench_run(bench); }

static enum status time_bench(struct operator_bench *bench, int calls, struct sample *out) {
    operator_bench_evict(bench);
    return work_clock_time(&bench->clock, enqueue, bench, calls, out);
}

/* The number of calls that make one sample. */
static int row_calls(const struct operator_bench *bench, double call_s) {
    if (!bench->clock.stream || call_s > ROW_S) return 1;
    return call_s * ROW_MAX <= ROW_S ? ROW_MAX : (int)(ROW_S / call_s);
}

enum status operator_bench_measure(struct operator_bench *bench, double budget_s, struct measurement *out) {
    struct sample calls[CALLS_MAX], first;
    int count = 0;
    if (bench->clock.stream) TRY(time_bench(bench, 1, &first)); /* it loads the kernel's code */
    TRY(time_bench(bench, 1, &first));
    if (first.seconds >= LONG_CALL_S) {
        *out = measurement_of(&first, 1);
        return STATUS_OK;
    }
    double spent = first.seconds;
    int row = row_calls(bench, first.seconds);
    if (!bench->clock.stream) calls[count++] = first;
    do {
        TRY(time_bench(bench, row, &calls[count]));
        spent += calls[count++].seconds * row;
        if (!bench->clock.stream && measurement_settled(calls, count)) break;
    } while (count < CALLS_MAX && spent < fmin(budget_s, CALLS_MAX_S));
    *out = measurement_of(calls, count);
    return STATUS_OK;
}
