#include "backend/cpu/matmul/onednn.h"

#include <dlfcn.h>
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

/* Memory for oneDNN's small working structures, so that a training step allocates nothing.
 *
 * dnnl_primitive_execute makes a map of its arguments and some wrappers on every call (6 to 8 blocks of at most 104
 * bytes in release 2.6) with C++'s operator new, and frees them before it returns. A program may replace operator
 * new (ISO C++ [replacement.functions]). The one below takes blocks from a fixed pool between enter and leave on the
 * thread that called them. It passes all other calls on to the C++ library. */

/* As many groups as there are threads at once, so that each finds a group that no other uses. */
enum { GROUPS = 512, SLOTS = 16, SLOT_BYTES = 128 };

struct group {
    _Alignas(64) _Atomic uint32_t used; /* a bit for each slot */
    _Alignas(64) unsigned char slots[SLOTS][SLOT_BYTES];
};

static struct group groups[GROUPS];
static _Atomic uint32_t thread_count;
static _Thread_local int inside, own_group = -1;

static void onednn_memory_enter(void) {
    if (own_group < 0) own_group = (int)(atomic_fetch_add(&thread_count, 1) % GROUPS);
    inside++;
}

static void onednn_memory_leave(void) { inside--; }

static void *slot_take(struct group *group) {
    uint32_t used = atomic_load_explicit(&group->used, memory_order_relaxed);
    while (used != (UINT32_C(1) << SLOTS) - 1) {
        int slot = __builtin_ctz(~used);
        if (atomic_compare_exchange_weak_explicit(&group->used, &used, used | UINT32_C(1) << slot, memory_order_acquire,
                                                  memory_order_relaxed))
            return group->slots[slot];
    }
    return NULL;
}

static bool slot_give(const void *block) {
    uintptr_t offset = (uintptr_t)block - (uintptr_t)groups;
    if (offset >= sizeof groups) return false;
    struct group *group = &groups[offset / sizeof *group];
    uintptr_t slot = ((uintptr_t)block - (uintptr_t)group->slots) / SLOT_BYTES;
    atomic_fetch_and_explicit(&group->used, ~(UINT32_C(1) << slot), memory_order_release);
    return true;
}

/* Calls the C++ library's operator, or malloc and free in a program without the C++ library. */
static void *pass_on_new(size_t bytes) {
    static void *(*_Atomic next)(size_t);
    void *(*function)(size_t) = atomic_load(&next);
    if (!function) {
        *(void **)&function = dlsym(RTLD_NEXT, "_Znwm");
        if (!function) function = malloc;
        atomic_store(&next, function);
    }
    return function(bytes);
}

static void pass_on_delete(void *block) {
    static void (*_Atomic next)(void *);
    void (*function)(void *) = atomic_load(&next);
    if (!function) {
        *(void **)&function = dlsym(RTLD_NEXT, "_ZdlPv");
        if (!function) function = free;
        atomic_store(&next, function);
    }
    function(block);
}

/* operator new(size_t), operator delete(void *) and operator delete(void *, size_t) by their names in the object code
 * (Itanium C++ ABI, 64-bit). */
void *onednn_operator_new(size_t bytes) __asm__("_Znwm");
void onednn_operator_delete(void *block) __asm__("_ZdlPv");
void onednn_operator_delete_sized(void *block, size_t bytes) __asm__("_ZdlPvm");

void *onednn_operator_new(size_t bytes) {
    void *slot = inside > 0 && bytes <= SLOT_BYTES ? slot_take(&groups[own_group]) : NULL;
    return slot ? slot : pass_on_new(bytes);
}

void onednn_operator_delete(void *block) {
    if (!slot_give(block)) pass_on_delete(block);
}

void onednn_operator_delete_sized(void *block, size_t bytes) {
    (void)bytes;
    onednn_operator_delete(block);
}

enum { OPERANDS = 3, ARGUMENTS = 4 };

/* Arguments of the primitive: a, b, c, and the scratch if there is one. */
struct arguments {
    dnnl_exec_arg_t list[ARGUMENTS];
};

struct onednn_block {
    struct onednn_shape shape;
    int users;
    struct onednn_block *next;
    dnnl_primitive_desc_t description;
    dnnl_primitive_t primitive;
    int64_t scratch_bytes;
    int count;               /* of arguments */
    struct arguments *seats; /* [seats][shape.threads] */
};

/* The blocks that are in use. */
static struct {
    pthread_mutex_t lock;
    struct onednn_block *first;
} taken = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* One engine for the process; it and its stream hold no state between calls. */
static struct {
    pthread_once_t once;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    int processors; /* of the machine, whatever the process may use */
} onednn = {.once = PTHREAD_ONCE_INIT};

enum { SEATS_MAX = 64 };
static struct {
    pthread_mutex_t lock;
    pthread_cond_t freed;
    bool occupied[SEATS_MAX];
} seats = {.lock = PTHREAD_MUTEX_INITIALIZER, .freed = PTHREAD_COND_INITIALIZER};

static int count_seats(int threads) {
    int callers = onednn.processors / threads;
    return callers < 1 ? 1 : callers < SEATS_MAX ? callers : SEATS_MAX;
}

int onednn_begin(int threads) {
    int count = count_seats(threads), seat = 0;
    pthread_mutex_lock(&seats.lock);
    while (seats.occupied[seat]) {
        if (++seat < count) continue;
        pthread_cond_wait(&seats.freed, &seats.lock);
        seat = 0;
    }
    seats.occupied[seat] = true;
    pthread_mutex_unlock(&seats.lock);
    return seat;
}

void onednn_end(int seat) {
    pthread_mutex_lock(&seats.lock);
    seats.occupied[seat] = false;
    pthread_cond_broadcast(&seats.freed);
    pthread_mutex_unlock(&seats.lock);
}

static void onednn_start(void) {
    onednn.processors = (int)sysconf(_SC_NPROCESSORS_CONF);
    if (dnnl_engine_create(&onednn.engine, dnnl_cpu, 0) != dnnl_success) return;
    if (dnnl_stream_create(&onednn.stream, onednn.engine, dnnl_stream_default_flags) != dnnl_success)
        onednn.stream = NULL;
}

static enum status onednn_failed(const char *what, dnnl_status_t status) {
    return status_set(STATUS_FAILED, "oneDNN cannot %s (its status %d)", what, (int)status);
}

/* Only these descriptions differ between the releases of oneDNN. */
#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t description_t;

static dnnl_status_t describe_tagged(description_t *out, const dnnl_dims_t dims, dnnl_data_type_t type,
                                     dnnl_format_tag_t tag) {
    return dnnl_memory_desc_create_with_tag(out, 2, dims, type, tag);
}

static void forget(description_t *description) { dnnl_memory_desc_destroy(*description); }

static dnnl_status_t create_memory(dnnl_memory_t *out, const description_t *description) {
    return dnnl_memory_create(out, *description, onednn.engine, DNNL_MEMORY_NONE);
}

static dnnl_status_t describe_product(dnnl_primitive_desc_t *out, const description_t operands[OPERANDS],
                                      const_dnnl_primitive_attr_t attributes) {
    return dnnl_matmul_primitive_desc_create(out, onednn.engine, operands[0], operands[1], NULL, operands[2],
                                             attributes);
}

static description_t scratch_description(const_dnnl_primitive_desc_t product) {
    const_dnnl_memory_desc_t found = dnnl_primitive_desc_query_md(product, dnnl_query_scratchpad_md, 0);
    description_t copy = NULL;
    return found && dnnl_memory_desc_clone(&copy, found) == dnnl_success ? copy : NULL;
}

static size_t description_bytes(const description_t *description) {
    return *description ? dnnl_memory_desc_get_size(*description) : 0;
}
#else
typedef dnnl_memory_desc_t description_t;

static dnnl_status_t describe_tagged(description_t *out, const dnnl_dims_t dims, dnnl_data_type_t type,
                                     dnnl_format_tag_t tag) {
    return dnnl_memory_desc_init_by_tag(out, 2, dims, type, tag);
}

static void forget(description_t *description) { (void)description; }

static dnnl_status_t create_memory(dnnl_memory_t *out, const description_t *description) {
    return dnnl_memory_create(out, description, onednn.engine, DNNL_MEMORY_NONE);
}

static dnnl_status_t describe_product(dnnl_primitive_desc_t *out, const description_t operands[OPERANDS],
                                      const_dnnl_primitive_attr_t attributes) {
    dnnl_matmul_desc_t product;
    dnnl_status_t status = dnnl_matmul_desc_init(&product, &operands[0], &operands[1], NULL, &operands[2]);
    return status == dnnl_success ? dnnl_primitive_desc_create(out, &product, attributes, onednn.engine, NULL) : status;
}

static description_t scratch_description(const_dnnl_primitive_desc_t product) {
    const dnnl_memory_desc_t *found = dnnl_primitive_desc_query_md(product, dnnl_query_scratchpad_md, 0);
    return found ? *found : (description_t){.ndims = 0};
}

static size_t description_bytes(const description_t *description) { return dnnl_memory_desc_get_size(description); }
#endif

static dnnl_format_tag_t panel_tag(const struct onednn_shape *shape) {
    static const dnnl_format_tag_t pairs[] = {dnnl_BA16a16b2a, dnnl_BA16a32b2a, dnnl_BA16a48b2a, dnnl_BA16a64b2a};
    return pairs[shape->panel / 16 - 1];
}

static enum status describe_operands(const struct onednn_shape *shape, description_t operands[OPERANDS]) {
    const struct {
        dnnl_dims_t dims;
        dnnl_data_type_t type;
        dnnl_format_tag_t tag;
    } matrices[OPERANDS] = {
        {{shape->rows, shape->k}, dnnl_bf16, dnnl_ab},
        {{shape->k, shape->columns}, dnnl_bf16, shape->panel ? panel_tag(shape) : dnnl_ba},
        {{shape->rows, shape->columns}, dnnl_f32, dnnl_ab},
    };
    for (int i = 0; i < OPERANDS; i++) {
        dnnl_status_t status = describe_tagged(&operands[i], matrices[i].dims, matrices[i].type, matrices[i].tag);
        if (status == dnnl_success) continue;
        while (i > 0)
            forget(&operands[--i]);
        return onednn_failed("describe a matrix", status);
    }
    return STATUS_OK;
}

/* Leaves block->primitive NULL when oneDNN has no fast implementation. */
static enum status create_primitive(const description_t operands[OPERANDS], struct onednn_block *block) {
    const char *implementation;
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(&attributes);
    if (status == dnnl_success) status = dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user);
    if (status == dnnl_success) status = describe_product(&block->description, operands, attributes);
    dnnl_primitive_attr_destroy(attributes);
    if (status == dnnl_unimplemented) return STATUS_OK;
    if (status != dnnl_success) return onednn_failed("describe a GEMM", status);
    status = dnnl_primitive_desc_query(block->description, dnnl_query_impl_info_str, 0, (void *)&implementation);
    if (status != dnnl_success) return onednn_failed("name its kernel", status);
    if (strncmp(implementation, "brg", 3) != 0) return STATUS_OK;
    status = dnnl_primitive_create(&block->primitive, block->description);
    return status == dnnl_success ? STATUS_OK : onednn_failed("compile a GEMM", status);
}

/* oneDNN makes a GEMM for as many threads as OpenMP's next loop would have. */
static enum status create_primitive_for_one_thread(const description_t operands[OPERANDS], struct onednn_block *block) {
    int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    enum status status = create_primitive(operands, block);
    omp_set_num_threads(threads);
    return status;
}

static int count_places(const struct onednn_block *block) {
    return count_seats(block->shape.threads) * block->shape.threads;
}

static enum status add_arguments(const description_t *operands, int count, struct onednn_block *block) {
    static const int names[ARGUMENTS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD};
    int places = count_places(block);
    block->seats = mem_array((size_t)places, sizeof *block->seats);
    if (!block->seats) return STATUS_FAILED;
    block->count = count;
    for (int place = 0; place < places; place++)
        for (int i = 0; i < count; i++) {
            dnnl_exec_arg_t *argument = &block->seats[place].list[i];
            argument->arg = names[i];
            dnnl_status_t status = create_memory(&argument->memory, &operands[i]);
            if (status != dnnl_success) return onednn_failed("make an operand", status);
        }
    return STATUS_OK;
}

/* operands[OPERANDS] is for the scratch. */
static enum status create_from(description_t operands[ARGUMENTS], struct onednn_block *block) {
    TRY(create_primitive_for_one_thread(operands, block));
    if (!block->primitive) return STATUS_OK;
    operands[OPERANDS] = scratch_description(block->description);
    block->scratch_bytes = (int64_t)description_bytes(&operands[OPERANDS]);
    enum status status = add_arguments(operands, block->scratch_bytes > 0 ? ARGUMENTS : OPERANDS, block);
    forget(&operands[OPERANDS]);
    return status;
}

static void destroy(struct onednn_block *block) {
    for (int place = 0; block->seats && place < count_places(block); place++)
        for (int i = 0; i < block->count; i++)
            dnnl_memory_destroy(block->seats[place].list[i].memory);
    if (block->primitive) dnnl_primitive_destroy(block->primitive);
    if (block->description) dnnl_primitive_desc_destroy(block->description);
    mem_free(block->seats);
    mem_free(block);
}

static enum status create(const struct onednn_shape *shape, struct onednn_block **out) {
    struct onednn_block *block = mem_array(1, sizeof *block);
    if (!block) return STATUS_FAILED;
    block->shape = *shape;
    description_t operands[ARGUMENTS];
    enum status status = describe_operands(shape, operands);
    if (status == STATUS_OK) {
        status = create_from(operands, block);
        for (int i = 0; i < OPERANDS; i++)
            forget(&operands[i]);
    }
    bool usable = status == STATUS_OK && block->primitive;
    if (!usable) destroy(block);
    *out = usable ? block : NULL;
    return status;
}

static bool same_shape(const struct onednn_shape *a, const struct onednn_shape *b) {
    return a->rows == b->rows && a->columns == b->columns && a->k == b->k && a->panel == b->panel &&
           a->threads == b->threads;
}

static enum status find_or_create(const struct onednn_shape *shape, struct onednn_block **out) {
    for (struct onednn_block *block = taken.first; block; block = block->next)
        if (same_shape(&block->shape, shape)) {
            *out = block;
            return STATUS_OK;
        }
    TRY(create(shape, out));
    if (!*out) return STATUS_OK;
    (*out)->next = taken.first;
    taken.first = *out;
    return STATUS_OK;
}

enum status onednn_block_take(const struct onednn_shape *shape, struct onednn_block **out) {
    pthread_once(&onednn.once, onednn_start);
    if (!onednn.stream) return status_set(STATUS_FAILED, "oneDNN does not start");
    *out = NULL;
    pthread_mutex_lock(&taken.lock);
    enum status status = find_or_create(shape, out);
    if (*out) (*out)->users++;
    pthread_mutex_unlock(&taken.lock);
    return status;
}

void onednn_block_give(struct onednn_block *block) {
    if (!block) return;
    pthread_mutex_lock(&taken.lock);
    if (--block->users == 0) {
        struct onednn_block **at = &taken.first;
        while (*at != block)
            at = &(*at)->next;
        *at = block->next;
        destroy(block);
    }
    pthread_mutex_unlock(&taken.lock);
}

int64_t onednn_block_scratch_bytes(const struct onednn_block *block) { return block->scratch_bytes; }

void onednn_block_run(const struct onednn_block *block, int seat, int thread, const void *a, const void *b, float *c,
                      void *scratch) {
    const dnnl_exec_arg_t *arguments = block->seats[seat * block->shape.threads + thread].list;
    const void *pointers[ARGUMENTS] = {a, b, c, scratch};
    onednn_memory_enter();
    for (int i = 0; i < block->count; i++)
        dnnl_memory_set_data_handle(arguments[i].memory, (void *)pointers[i]);
    dnnl_status_t status = dnnl_primitive_execute(block->primitive, onednn.stream, block->count, arguments);
    onednn_memory_leave();
    BUG_IF(status != dnnl_success, "oneDNN cannot run a GEMM (its status %d)", (int)status);
}

void onednn_limit_avx2(void) { (void)dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2); }

const char *onednn_isa_name(void) {
    const struct {
        dnnl_cpu_isa_t isa;
        const char *name;
    } known[] = {
        {dnnl_cpu_isa_avx512_core_amx, "amx"},
        {dnnl_cpu_isa_avx512_core_bf16, "bf16"},
        {dnnl_cpu_isa_avx512_core, ""},
    };
    unsigned effective = (unsigned)dnnl_get_effective_cpu_isa();
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++)
        if ((effective & (unsigned)known[i].isa) == (unsigned)known[i].isa) return known[i].name;
    return "avx2";
}
