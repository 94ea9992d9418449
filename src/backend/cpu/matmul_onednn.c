#include "backend/cpu/matmul_onednn.h"

#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <string.h>

#include "backend/cpu/onednn_memory.h"
#include "backend/cpu/parallel.h"
#include "base/mem.h"

enum { ARGUMENTS_MAX = 5 };

struct onednn_matmul {
    struct matmul_spec spec;
    dnnl_primitive_t primitive;
    dnnl_primitive_desc_t description;
    dnnl_exec_arg_t arguments[ARGUMENTS_MAX];
    int count;
    int64_t workspace_bytes;
    const char *implementation;
};

/* One engine for the process; it and its stream hold no state between calls. */
static struct {
    pthread_once_t once;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
} onednn = {.once = PTHREAD_ONCE_INIT};

static void onednn_start(void) {
    if (dnnl_engine_create(&onednn.engine, dnnl_cpu, 0) != dnnl_success) return;
    if (dnnl_stream_create(&onednn.stream, onednn.engine, dnnl_stream_default_flags) != dnnl_success)
        onednn.stream = NULL;
}

static enum status onednn_failed(const char *what, dnnl_status_t status) {
    return status_set(STATUS_FAILED, "oneDNN cannot %s (its status %d)", what, (int)status);
}

static dnnl_data_type_t data_type(enum dtype dtype) { return dtype == DTYPE_BF16 ? dnnl_bf16 : dnnl_f32; }

/* Only these descriptions differ between the releases of oneDNN. */
#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t description_t;

static dnnl_status_t describe(description_t *out, const dnnl_dims_t dims, const dnnl_dims_t strides, enum dtype dtype) {
    return dnnl_memory_desc_create_with_strides(out, 2, dims, data_type(dtype), strides);
}

static dnnl_status_t describe_panels(description_t *out, const dnnl_dims_t dims, enum dtype dtype) {
    return dnnl_memory_desc_create_with_tag(out, 2, dims, data_type(dtype), dnnl_BA16a64b);
}

static void forget(description_t *description) { dnnl_memory_desc_destroy(*description); }

static dnnl_status_t create_memory(dnnl_memory_t *out, const description_t *description) {
    return dnnl_memory_create(out, *description, onednn.engine, DNNL_MEMORY_NONE);
}

static dnnl_status_t append_sum(dnnl_post_ops_t operations) {
    return dnnl_post_ops_append_sum(operations, 1.0f, 0, dnnl_data_type_undef);
}

static dnnl_status_t describe_product(dnnl_primitive_desc_t *out, const description_t operands[4], bool bias,
                                      const_dnnl_primitive_attr_t attributes) {
    return dnnl_matmul_primitive_desc_create(out, onednn.engine, operands[0], operands[1], bias ? operands[2] : NULL,
                                             operands[3], attributes);
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

static dnnl_status_t describe(description_t *out, const dnnl_dims_t dims, const dnnl_dims_t strides, enum dtype dtype) {
    return dnnl_memory_desc_init_by_strides(out, 2, dims, data_type(dtype), strides);
}

static dnnl_status_t describe_panels(description_t *out, const dnnl_dims_t dims, enum dtype dtype) {
    return dnnl_memory_desc_init_by_tag(out, 2, dims, data_type(dtype), dnnl_BA16a64b);
}

static void forget(description_t *description) { (void)description; }

static dnnl_status_t create_memory(dnnl_memory_t *out, const description_t *description) {
    return dnnl_memory_create(out, description, onednn.engine, DNNL_MEMORY_NONE);
}

static dnnl_status_t append_sum(dnnl_post_ops_t operations) { return dnnl_post_ops_append_sum(operations, 1.0f); }

static dnnl_status_t describe_product(dnnl_primitive_desc_t *out, const description_t operands[4], bool bias,
                                      const_dnnl_primitive_attr_t attributes) {
    dnnl_matmul_desc_t product;
    dnnl_status_t status =
        dnnl_matmul_desc_init(&product, &operands[0], &operands[1], bias ? &operands[2] : NULL, &operands[3]);
    return status == dnnl_success ? dnnl_primitive_desc_create(out, &product, attributes, onednn.engine, NULL) : status;
}

static description_t scratch_description(const_dnnl_primitive_desc_t product) {
    const dnnl_memory_desc_t *found = dnnl_primitive_desc_query_md(product, dnnl_query_scratchpad_md, 0);
    return found ? *found : (description_t){.ndims = 0};
}

static size_t description_bytes(const description_t *description) { return dnnl_memory_desc_get_size(description); }
#endif

/* Arguments in the order of onednn_matmul_run's pointers; the bias only where there is one. */
static const int argument_names[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST};

static enum status describe_operands(const struct matmul_spec *spec, enum onednn_b b, description_t operands[4]) {
    const struct {
        dnnl_dims_t dims, strides;
        enum dtype dtype;
        bool panels;
    } shapes[4] = {
        {{spec->m, spec->k}, {spec->a_row, spec->a_k}, spec->dtype, false},
        {{spec->k, spec->n}, {spec->b_k, spec->b_column}, spec->dtype, b == ONEDNN_B_PANELS},
        {{1, spec->n}, {spec->n, 1}, spec->dtype, false},
        {{spec->m, spec->n}, {spec->c_row, 1}, spec->out_dtype, false},
    };
    for (int i = 0; i < 4; i++) {
        dnnl_status_t status = shapes[i].panels
                                   ? describe_panels(&operands[i], shapes[i].dims, shapes[i].dtype)
                                   : describe(&operands[i], shapes[i].dims, shapes[i].strides, shapes[i].dtype);
        if (status == dnnl_success) continue;
        while (i > 0)
            forget(&operands[--i]);
        return onednn_failed("describe a matrix", status);
    }
    return STATUS_OK;
}

static dnnl_status_t create_attributes(const struct matmul_spec *spec, dnnl_primitive_attr_t *out) {
    dnnl_status_t status = dnnl_primitive_attr_create(out);
    if (status != dnnl_success) return status;
    status = dnnl_primitive_attr_set_scratchpad_mode(*out, dnnl_scratchpad_mode_user);
    if (status != dnnl_success || spec->addend_row == 0) return status;
    dnnl_post_ops_t operations;
    status = dnnl_post_ops_create(&operations);
    if (status != dnnl_success) return status;
    status = append_sum(operations);
    if (status == dnnl_success) status = dnnl_primitive_attr_set_post_ops(*out, operations);
    dnnl_post_ops_destroy(operations);
    return status;
}

/* Leaves matmul->primitive NULL when oneDNN has no fast implementation. */
static enum status create_primitive(const struct matmul_spec *spec, const description_t operands[4],
                                    struct onednn_matmul *matmul) {
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_status_t status = create_attributes(spec, &attributes);
    if (status == dnnl_success) status = describe_product(&matmul->description, operands, spec->bias, attributes);
    dnnl_primitive_attr_destroy(attributes);
    if (status == dnnl_unimplemented) return STATUS_OK;
    if (status != dnnl_success) return onednn_failed("describe a matrix product", status);
    status =
        dnnl_primitive_desc_query(matmul->description, dnnl_query_impl_info_str, 0, (void *)&matmul->implementation);
    if (status != dnnl_success) return onednn_failed("name its kernel", status);
    if (strncmp(matmul->implementation, "brg", 3) != 0) return STATUS_OK;
    status = dnnl_primitive_create(&matmul->primitive, matmul->description);
    return status == dnnl_success ? STATUS_OK : onednn_failed("compile a matrix product", status);
}

static enum status add_argument(struct onednn_matmul *matmul, int name, const description_t *description) {
    dnnl_exec_arg_t *argument = &matmul->arguments[matmul->count];
    dnnl_status_t status = create_memory(&argument->memory, description);
    if (status != dnnl_success) return onednn_failed("make an operand", status);
    argument->arg = name;
    matmul->count++;
    return STATUS_OK;
}

static enum status add_arguments(const struct matmul_spec *spec, const description_t operands[4],
                                 struct onednn_matmul *matmul) {
    for (int i = 0; i < 4; i++)
        if (argument_names[i] != DNNL_ARG_BIAS || spec->bias)
            TRY(add_argument(matmul, argument_names[i], &operands[i]));
    description_t scratch = scratch_description(matmul->description);
    matmul->workspace_bytes = (int64_t)description_bytes(&scratch);
    enum status status = STATUS_OK;
    if (matmul->workspace_bytes > 0) {
        status = add_argument(matmul, DNNL_ARG_SCRATCHPAD, &scratch);
        forget(&scratch);
    }
    return status;
}

static enum status create_from(const struct matmul_spec *spec, const description_t operands[4],
                               struct onednn_matmul *matmul) {
    TRY(create_primitive(spec, operands, matmul));
    return matmul->primitive ? add_arguments(spec, operands, matmul) : STATUS_OK;
}

enum status onednn_matmul_create(const struct matmul_spec *spec, enum onednn_b b, struct onednn_matmul **out) {
    pthread_once(&onednn.once, onednn_start);
    if (!onednn.stream) return status_set(STATUS_FAILED, "oneDNN does not start");
    struct onednn_matmul *matmul = mem_array(1, sizeof *matmul);
    if (!matmul) return STATUS_FAILED;
    matmul->spec = *spec;
    description_t operands[4];
    enum status status = describe_operands(spec, b, operands);
    if (status == STATUS_OK) {
        status = create_from(spec, operands, matmul);
        for (int i = 0; i < 4; i++)
            forget(&operands[i]);
    }
    bool usable = status == STATUS_OK && matmul->primitive;
    if (!usable) onednn_matmul_free(matmul);
    *out = usable ? matmul : NULL;
    return status;
}

int64_t onednn_matmul_workspace_bytes(const struct onednn_matmul *matmul) { return matmul->workspace_bytes; }

struct copy_run {
    const struct matmul_spec *spec;
    const struct matmul_operands *operands;
};

static void copy_rows(const void *context, int64_t begin, int64_t end) {
    const struct copy_run *run = context;
    const struct matmul_spec *spec = run->spec;
    int64_t bytes = dtype_bytes(spec->out_dtype);
    for (int64_t row = begin; row < end; row++)
        memcpy((char *)run->operands->c + row * spec->c_row * bytes,
               (const char *)run->operands->addend + row * spec->addend_row * bytes, (size_t)(spec->n * bytes));
}

/* Copies the addend to c, since oneDNN adds its product to c. */
static void put_addend(const struct matmul_spec *spec, const struct matmul_operands *operands) {
    if (!operands->addend || operands->addend == operands->c) return;
    parallel_for(spec->m, parallel_rows(spec->n), copy_rows, &(struct copy_run){spec, operands});
}

void onednn_matmul_run(const struct onednn_matmul *matmul, const struct matmul_operands *operands, void *workspace) {
    put_addend(&matmul->spec, operands);
    const void *pointers[ARGUMENTS_MAX] = {operands->a, operands->b};
    int count = 2;
    if (operands->bias) pointers[count++] = operands->bias;
    pointers[count++] = operands->c;
    if (matmul->workspace_bytes > 0) pointers[count++] = workspace;
    BUG_IF(count != matmul->count, "%d operands of a matrix product of %d", count, matmul->count);
    onednn_memory_enter();
    for (int i = 0; i < count; i++)
        dnnl_memory_set_data_handle(matmul->arguments[i].memory, (void *)pointers[i]);
    dnnl_status_t status = dnnl_primitive_execute(matmul->primitive, onednn.stream, matmul->count, matmul->arguments);
    onednn_memory_leave();
    BUG_IF(status != dnnl_success, "oneDNN cannot run a matrix product (its status %d)", (int)status);
}

void onednn_matmul_free(struct onednn_matmul *matmul) {
    if (!matmul) return;
    for (int i = 0; i < matmul->count; i++)
        dnnl_memory_destroy(matmul->arguments[i].memory);
    if (matmul->primitive) dnnl_primitive_destroy(matmul->primitive);
    if (matmul->description) dnnl_primitive_desc_destroy(matmul->description);
    mem_free(matmul);
}

const char *onednn_matmul_implementation(const struct onednn_matmul *matmul) { return matmul->implementation; }

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
