/* GEMMs and their algorithms as text, as a recipe has them (plan/recipe.h). */
#include <cublasLt.h>
#include <pthread.h>

#include "backend/cuda/matmul.h"
#include "backend/cuda_constants.h"
#include "backend/kernel_parts.h"
#include "plan/recipe.h"

/* Bytes of a name, and of a line: the library's description of an algorithm has at most 64 bytes. */
enum {
    CUDA_PRODUCT_BYTES = 256,
    CUDA_ALGORITHM_BYTES = 64,
    CUDA_PRODUCT_LINE_BYTES = CUDA_PRODUCT_BYTES + 2 * CUDA_ALGORITHM_BYTES + 2
};

/* The parts of the spec that the choice of an algorithm depends on:
 * "bf16>fp32:512x768x768:a768,1:b1,768:c768:d0:@64,64,64".
 */
static void cuda_product_name(const struct cuda_matmul_spec *spec, char out[CUDA_PRODUCT_BYTES]) {
    const struct matmul_spec *of = &spec->product;
    snprintf(out, CUDA_PRODUCT_BYTES,
             "%s>%s:%" PRId64 "x%" PRId64 "x%" PRId64 ":a%" PRId64 ",%" PRId64 ":b%" PRId64 ",%" PRId64 ":c%" PRId64
             ":d%" PRId64 "%s:@%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64,
             dtype_name(of->dtype), dtype_name(of->out_dtype), of->m, of->n, of->k, of->a_row, of->a_k, of->b_k,
             of->b_column, of->c_row, of->addend_row, of->bias ? ":bias" : "", spec->a_alignment, spec->b_alignment,
             spec->c_alignment, of->addend_row ? spec->addend_alignment : 0);
}

/* Whether the lines have the GEMM; copies its algorithm's bytes, followed by zeros. */
static bool cuda_product_find(const char *lines, const char *product, unsigned char *algorithm, size_t bytes) {
    size_t length = strlen(product);
    while (*lines && (strncmp(lines, product, length) != 0 || lines[length] != ' ')) {
        lines += strcspn(lines, "\n");
        lines += *lines == '\n';
    }
    if (!*lines) return false;
    memset(algorithm, 0, bytes);
    const char *digits = lines + length + 1;
    for (size_t i = 0; i < bytes && sscanf(digits + 2 * i, "%2hhx", &algorithm[i]) == 1; i++)
        if (digits[2 * i + 1] == '\n' || digits[2 * i + 2] == '\n') break;
    return true;
}

/* Writes the line of a spec, less than CUDA_PRODUCT_LINE_BYTES, and returns its length. */
static size_t cuda_product_print(const struct cuda_matmul_spec *spec, const unsigned char *algorithm,
                                 size_t algorithm_bytes, char *line) {
    BUG_IF(algorithm_bytes > CUDA_ALGORITHM_BYTES, "an algorithm of %zu bytes", algorithm_bytes);
    cuda_product_name(spec, line);
    char *to = line + strlen(line);
    *to++ = ' ';
    for (size_t i = 0; i < algorithm_bytes; i++)
        to += snprintf(to, 3, "%02x", algorithm[i]);
    memcpy(to, "\n", 2);
    return (size_t)(to + 1 - line);
}

/* The algorithm for a spec; GEMMs of equal specs share it. */
struct choice {
    struct cuda_matmul_spec spec;
    struct choice *next;
    int users;
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace_bytes; /* what it needs, from a multiple of OWN_ALIGN on */
};

/* cuBLASLt stores matrices by columns, so it computes the transpose, c^t = b^t a^t: its first matrix is our b, its
 * second our a. */
struct cuda_matmul {
    struct choice *choice;
    cublasLtMatmulDescOpaque_t operation;
    cublasLtMatrixLayoutOpaque_t b, a, addend, c;
};

/* Algorithms need their workspace at a multiple of this. */
enum { OWN_ALIGN = 256 };

/* All choices in use, what the recipe says of others, and the library once it is open. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct choice *choices;
static char *pinned; /* NULL: nothing */
static cublasLtHandle_t library;

static enum status check(cublasStatus_t status, const char *what) {
    if (status == CUBLAS_STATUS_SUCCESS) return STATUS_OK;
    return status_set(STATUS_FAILED, "cuBLASLt: %s: %s", what, cublasLtGetStatusString(status));
}

static cudaDataType_t type_of(enum dtype dtype) { return dtype == DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_32F; }

static bool product_equal(const struct matmul_spec *a, const struct matmul_spec *b) {
    return a->m == b->m && a->n == b->n && a->k == b->k && a->a_row == b->a_row && a->a_k == b->a_k &&
           a->b_k == b->b_k && a->b_column == b->b_column && a->c_row == b->c_row && a->addend_row == b->addend_row &&
           a->dtype == b->dtype && a->out_dtype == b->out_dtype && a->bias == b->bias;
}

/* Without an addend, its alignment does not count. */
static bool spec_equal(const struct cuda_matmul_spec *a, const struct cuda_matmul_spec *b) {
    return product_equal(&a->product, &b->product) && a->a_alignment == b->a_alignment &&
           a->b_alignment == b->b_alignment && a->c_alignment == b->c_alignment &&
           (a->product.addend_row == 0 || a->addend_alignment == b->addend_alignment);
}

/* A matrix [rows][columns] by columns, whose element (i, j) is i * row + j * column elements from the first. If row is
 * 1 it is used as it is, else transposed. With a single column its stride does not count. */
static enum status layout_init(enum dtype dtype, int64_t rows, int64_t columns, int64_t row, int64_t column,
                               cublasOperation_t *turn, cublasLtMatrixLayoutOpaque_t *out) {
    bool as_is = row == 1 && (column >= rows || columns == 1);
    int64_t down = as_is ? rows : columns, across = as_is ? columns : rows, stride = as_is ? column : row;
    BUG_IF(!as_is && column != 1, "no stride of a matrix is 1");
    *turn = as_is ? CUBLAS_OP_N : CUBLAS_OP_T;
    return check(
        cublasLtMatrixLayoutInit(out, type_of(dtype), (uint64_t)down, (uint64_t)across, stride > down ? stride : down),
        "a layout");
}

static enum status set_operation(struct cuda_matmul *matmul, cublasLtMatmulDescAttributes_t attribute,
                                 const void *value, size_t bytes) {
    return check(cublasLtMatmulDescSetAttribute(&matmul->operation, attribute, value, bytes), "an operation");
}

/* cuBLASLt may choose by the bias's address; until there is one, this sets an address with the alignment of buffers. */
static enum status operation_init(struct cuda_matmul *matmul, bool bias, cublasOperation_t b_turn,
                                  cublasOperation_t a_turn) {
    cublasLtEpilogue_t epilogue = bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    uintptr_t anywhere = CUDA_ALIGN;
    TRY(check(cublasLtMatmulDescInit(&matmul->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "an operation"));
    TRY(set_operation(matmul, CUBLASLT_MATMUL_DESC_TRANSA, &b_turn, sizeof b_turn));
    TRY(set_operation(matmul, CUBLASLT_MATMUL_DESC_TRANSB, &a_turn, sizeof a_turn));
    if (bias) TRY(set_operation(matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &anywhere, sizeof anywhere));
    return set_operation(matmul, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
}

static enum status describe(const struct matmul_spec *spec, struct cuda_matmul *matmul) {
    cublasOperation_t b_turn, a_turn, as_is;
    int64_t addend_row = spec->addend_row ? spec->addend_row : spec->c_row;
    TRY(layout_init(spec->dtype, spec->n, spec->k, spec->b_column, spec->b_k, &b_turn, &matmul->b));
    TRY(layout_init(spec->dtype, spec->k, spec->m, spec->a_k, spec->a_row, &a_turn, &matmul->a));
    TRY(layout_init(spec->out_dtype, spec->n, spec->m, 1, addend_row, &as_is, &matmul->addend));
    TRY(layout_init(spec->out_dtype, spec->n, spec->m, 1, spec->c_row, &as_is, &matmul->c));
    return operation_init(matmul, spec->bias, b_turn, a_turn);
}

static enum status prefer(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
                          const void *value, size_t bytes) {
    return check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, value, bytes), "a preference");
}

/* Allows algorithms that add the parts of a sum in a pass of their own, in order, but none that add them as they
 * finish. */
static enum status preference_init(const struct cuda_matmul_spec *spec, cublasLtMatmulPreference_t preference) {
    uint64_t workspace = CUDA_PRODUCT_WORKSPACE_BYTES;
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    uint32_t first = (uint32_t)spec->b_alignment, second = (uint32_t)spec->a_alignment;
    uint32_t result = (uint32_t)spec->c_alignment;
    uint32_t addend = spec->product.addend_row ? (uint32_t)spec->addend_alignment : result;
    TRY(check(cublasLtMatmulPreferenceInit(preference), "a preference"));
    TRY(prefer(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace));
    TRY(prefer(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions));
    TRY(prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &first, sizeof first));
    TRY(prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &second, sizeof second));
    TRY(prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &addend, sizeof addend));
    return prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &result, sizeof result);
}

static enum status open_library(void) {
    return library ? STATUS_OK : check(cublasLtCreate(&library), "cannot be used");
}

enum status cuda_matmul_open(void) {
    pthread_mutex_lock(&lock);
    enum status status = open_library();
    pthread_mutex_unlock(&lock);
    return status;
}

/* The library's first choice of an algorithm, made from the spec and the GPU without measuring. */
static enum status put_forward(const struct cuda_matmul_spec *spec, struct cuda_matmul *matmul, struct choice *choice) {
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t best = {.state = CUBLAS_STATUS_NOT_SUPPORTED};
    int found = 0;
    TRY(preference_init(spec, &preference));
    TRY(check(cublasLtMatmulAlgoGetHeuristic(library, &matmul->operation, &matmul->b, &matmul->a, &matmul->addend,
                                             &matmul->c, &preference, 1, &best, &found),
              "the choice of an algorithm"));
    if (found < 1) return status_set(STATUS_FAILED, "cuBLASLt has no algorithm for this product");
    TRY(check(best.state, "the choice of an algorithm"));
    choice->algorithm = best.algo;
    choice->workspace_bytes = best.workspaceSize;
    return STATUS_OK;
}

/* The algorithm that the recipe pins. */
static enum status take_pinned(const char *product, struct cuda_matmul *matmul, struct choice *choice) {
    cublasLtMatmulHeuristicResult_t found = {.state = CUBLAS_STATUS_NOT_SUPPORTED};
    cublasStatus_t checked = cublasLtMatmulAlgoCheck(library, &matmul->operation, &matmul->b, &matmul->a,
                                                     &matmul->addend, &matmul->c, &choice->algorithm, &found);
    if (checked == CUBLAS_STATUS_SUCCESS) checked = found.state;
    choice->workspace_bytes = found.workspaceSize;
    if (checked == CUBLAS_STATUS_SUCCESS && found.workspaceSize <= CUDA_PRODUCT_WORKSPACE_BYTES) return STATUS_OK;
    (void)status_set(STATUS_BAD_INPUT, "recipe: products: cuBLASLt does not take the algorithm of %s: %s", product,
                     cublasLtGetStatusString(checked));
    return status_hint(STATUS_BAD_INPUT, "go on where the run was begun, with its driver and libraries; or train anew "
                                         "from the model of its last checkpoint");
}

static enum status choose(const struct cuda_matmul_spec *spec, struct cuda_matmul *matmul, struct choice *choice) {
    char product[CUDA_PRODUCT_BYTES];
    unsigned char *algorithm = (unsigned char *)choice->algorithm.data;
    TRY(open_library());
    cuda_product_name(spec, product);
    if (pinned && cuda_product_find(pinned, product, algorithm, sizeof choice->algorithm.data))
        return take_pinned(product, matmul, choice);
    return put_forward(spec, matmul, choice);
}

enum status cuda_matmul_pin(const char *lines) {
    char *copy = mem_string(lines ? lines : "");
    if (!copy) return STATUS_FAILED;
    pthread_mutex_lock(&lock);
    mem_free(pinned);
    pinned = copy;
    pthread_mutex_unlock(&lock);
    return STATUS_OK;
}

/* Under the lock: the lines of all choices, in fresh memory; NULL without. */
static char *print_choices(void) {
    size_t count = 0, used = 0;
    for (const struct choice *choice = choices; choice; choice = choice->next)
        count++;
    char *lines = mem_array(count * CUDA_PRODUCT_LINE_BYTES + 1, 1);
    for (const struct choice *choice = choices; choice && lines; choice = choice->next)
        used += cuda_product_print(&choice->spec, (const unsigned char *)choice->algorithm.data,
                                   sizeof choice->algorithm.data, lines + used);
    return lines;
}

enum status cuda_matmul_list(const char **lines) {
    pthread_mutex_lock(&lock);
    char *printed = print_choices();
    pthread_mutex_unlock(&lock);
    if (!printed) return STATUS_FAILED;
    enum status status = recipe_lines_keep(printed, lines);
    mem_free(printed);
    return status;
}

static enum status find_or_choose(const struct cuda_matmul_spec *spec, struct cuda_matmul *matmul) {
    for (struct choice *choice = choices; choice; choice = choice->next)
        if (spec_equal(&choice->spec, spec)) {
            choice->users++;
            matmul->choice = choice;
            return STATUS_OK;
        }
    struct choice *choice = mem_array(1, sizeof *choice);
    if (!choice) return STATUS_FAILED;
    enum status status = choose(spec, matmul, choice);
    if (status != STATUS_OK) {
        mem_free(choice);
        return status;
    }
    choice->spec = *spec;
    choice->users = 1;
    choice->next = choices;
    matmul->choice = choices = choice;
    return STATUS_OK;
}

enum status cuda_matmul_create(const struct cuda_matmul_spec *spec, struct cuda_matmul **out) {
    BUG_IF(spec->product.bias && spec->product.dtype != spec->product.out_dtype,
           "a bias of another dtype than the result");
    struct cuda_matmul *matmul = mem_array(1, sizeof *matmul);
    if (!matmul) return STATUS_FAILED;
    enum status status;
    pthread_mutex_lock(&lock);
    TRY_GOTO(status, describe(&spec->product, matmul), failed);
    TRY_GOTO(status, find_or_choose(spec, matmul), failed);
    pthread_mutex_unlock(&lock);
    *out = matmul;
    return STATUS_OK;
failed:
    pthread_mutex_unlock(&lock);
    mem_free(matmul);
    return status;
}

void cuda_matmul_free(struct cuda_matmul *matmul) {
    if (!matmul) return;
    pthread_mutex_lock(&lock);
    if (--matmul->choice->users == 0) {
        struct choice **at = &choices;
        while (*at != matmul->choice)
            at = &(*at)->next;
        *at = matmul->choice->next;
        mem_free(matmul->choice);
    }
    pthread_mutex_unlock(&lock);
    mem_free(matmul);
}

int64_t cuda_matmul_max_workspace_bytes(struct cuda_matmul *const *matmuls, int count) {
    int64_t max = 0;
    for (int i = 0; i < count; i++)
        if (cuda_matmul_workspace_bytes(matmuls[i]) > max) max = cuda_matmul_workspace_bytes(matmuls[i]);
    return max;
}

void cuda_matmul_free_all(struct cuda_matmul *const *matmuls, int count) {
    for (int i = 0; i < count; i++)
        cuda_matmul_free(matmuls[i]);
}

int64_t cuda_matmul_workspace_bytes(const struct cuda_matmul *matmul) {
    if (!matmul) return 0;
    int64_t bytes = (int64_t)matmul->choice->workspace_bytes;
    return bytes > 0 ? workspace_align(bytes) + OWN_ALIGN - WORKSPACE_ALIGN : 0;
}

static bool is_aligned(const void *address, int64_t alignment) {
    return (uintptr_t)address % (uintptr_t)alignment == 0;
}

static void check_operands(const struct cuda_matmul_spec *spec, const struct matmul_operands *operands) {
    bool addend = !spec->product.addend_row || is_aligned(operands->addend, spec->addend_alignment);
    BUG_IF(!is_aligned(operands->a, spec->a_alignment) || !is_aligned(operands->b, spec->b_alignment) ||
               !is_aligned(operands->c, spec->c_alignment) || !addend,
           "an operand of a product is not aligned as was said");
}

void cuda_matmul_run(struct cuda_matmul *matmul, const struct matmul_operands *operands, void *workspace,
                     cudaStream_t stream) {
    const struct choice *choice = matmul->choice;
    bool has_addend = choice->spec.product.addend_row != 0;
    float one = 1, addend_factor = has_addend ? 1 : 0;
    uintptr_t aligned = ((uintptr_t)workspace + OWN_ALIGN - 1) / OWN_ALIGN * OWN_ALIGN;
    check_operands(&choice->spec, operands);
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    if (choice->spec.product.bias)
        status = cublasLtMatmulDescSetAttribute(&matmul->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &operands->bias,
                                                sizeof operands->bias);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmul(library, &matmul->operation, &one, operands->b, &matmul->b, operands->a, &matmul->a,
                                &addend_factor, has_addend ? operands->addend : operands->c, &matmul->addend,
                                operands->c, &matmul->c, &choice->algorithm,
                                choice->workspace_bytes ? (void *)aligned : NULL, choice->workspace_bytes, stream);
    /* On a device that has failed before, this fails too; cuda_refused then reports the device's failure. */
    if (status != CUBLAS_STATUS_SUCCESS) cuda_refused(stream, "cuBLASLt: a product", cublasLtGetStatusString(status));
}

/* GEMMs whose b may be a weight in fewer bits (ir/weight_format.h). Such a b is unpacked into the workspace, some
 * of the GEMM's columns at a time (a slab), where a GPU's cache still holds them when that part of the GEMM
 * reads them. Each number is code times scale in fp32, rounded to the GEMM's dtype: the bits are those of the
 * GEMMs of the unpacked slabs. */
struct cuda_slabs {
    struct matmul_spec spec;
    int64_t columns;            /* of a slab; n: there is but one */
    struct cuda_matmul *matmul; /* of a slab */
    struct cuda_matmul *last;   /* of the last one where it is narrower; NULL: it is not */
    int64_t unpacked_at;        /* in the workspace, after the GEMMs' */
};

static bool is_quantized(const struct matmul_spec *spec) { return spec->b_format != WEIGHT_PLAIN; }

/* b's rows are the weight's, or its columns are. */
static bool is_along(const struct matmul_spec *spec) { return spec->b_k == 1; }

static struct cuda_matmul_spec slab_spec(const struct cuda_matmul_spec *spec, int64_t columns) {
    struct cuda_matmul_spec slab = *spec;
    if (!is_quantized(&spec->product)) return slab;
    slab.product.b_format = WEIGHT_PLAIN;
    slab.product.n = columns;
    if (!is_along(&spec->product)) slab.product.b_k = columns;
    slab.b_alignment = CUDA_ALIGN;
    return slab;
}

static enum status create_products(const struct cuda_matmul_spec *spec, struct cuda_slabs *slabs) {
    int64_t rest = spec->product.n % slabs->columns;
    struct cuda_matmul_spec whole = slab_spec(spec, slabs->columns), last = slab_spec(spec, rest);
    TRY(cuda_matmul_create(&whole, &slabs->matmul));
    return rest > 0 ? cuda_matmul_create(&last, &slabs->last) : STATUS_OK;
}

static int64_t products_bytes(const struct cuda_slabs *slabs) {
    int64_t bytes = cuda_matmul_workspace_bytes(slabs->matmul);
    int64_t last = slabs->last ? cuda_matmul_workspace_bytes(slabs->last) : 0;
    return workspace_align(last > bytes ? last : bytes);
}

static void cuda_slabs_free(struct cuda_slabs *slabs) {
    if (!slabs) return;
    cuda_matmul_free(slabs->matmul);
    cuda_matmul_free(slabs->last);
    mem_free(slabs);
}

/* As cuda_matmul_create, with one GEMM for each width of a slab. */
static enum status cuda_slabs_create(const struct cuda_matmul_spec *spec, struct cuda_slabs **out) {
    struct cuda_slabs *slabs = mem_array(1, sizeof *slabs);
    if (!slabs) return STATUS_FAILED;
    slabs->spec = spec->product;
    slabs->columns = is_quantized(&spec->product) ? cuda_slab_columns(&spec->product) : spec->product.n;
    enum status status = create_products(spec, slabs);
    if (status != STATUS_OK) {
        cuda_slabs_free(slabs);
        return status;
    }
    slabs->unpacked_at = products_bytes(slabs);
    *out = slabs;
    return STATUS_OK;
}

static int64_t cuda_slabs_workspace_bytes(const struct cuda_slabs *slabs) {
    return slabs->unpacked_at + (is_quantized(&slabs->spec) ? cuda_slab_bytes(&slabs->spec) : 0);
}

static void unpack(const struct cuda_slabs *slabs, const void *b, int64_t column, int64_t columns, void *to,
                   cudaStream_t stream) {
    const struct matmul_spec *spec = &slabs->spec;
    struct weight_layout layout = is_along(spec) ? weight_layout_of(spec->b_format, spec->b_block, spec->n, spec->k)
                                                 : weight_layout_of(spec->b_format, spec->b_block, spec->k, spec->n);
    struct cuda_weight_tile tile = is_along(spec) ? (struct cuda_weight_tile){column, columns, 0, spec->k}
                                                  : (struct cuda_weight_tile){0, spec->k, column, columns};
    cuda_unpack_weight(stream, &layout, b, &tile, spec->dtype, to);
}

static const void *behind(const void *first, enum dtype dtype, int64_t elements) {
    return first ? (const char *)first + elements * dtype_bytes(dtype) : NULL;
}

static void cuda_slabs_run(struct cuda_slabs *slabs, const struct matmul_operands *operands, void *workspace,
                           cudaStream_t stream) {
    const struct matmul_spec *spec = &slabs->spec;
    void *unpacked = (char *)workspace + slabs->unpacked_at;
    for (int64_t column = 0; column < spec->n; column += slabs->columns) {
        int64_t left = spec->n - column, columns = left < slabs->columns ? left : slabs->columns;
        struct matmul_operands own = *operands;
        if (is_quantized(spec)) {
            unpack(slabs, operands->b, column, columns, unpacked, stream);
            own.b = unpacked;
        }
        own.bias = behind(operands->bias, spec->dtype, column);
        own.addend = behind(operands->addend, spec->out_dtype, column);
        own.c = (char *)operands->c + column * dtype_bytes(spec->out_dtype);
        cuda_matmul_run(columns < slabs->columns ? slabs->last : slabs->matmul, &own, workspace, stream);
    }
}

/* Linear layers and their gradients: one GEMM each. */

struct linear_kernel {
    struct kernel kernel;
    struct cuda_slabs *product;
    int64_t sums_at; /* in the workspace, after the GEMM's */
};

static void linear_release(struct kernel *kernel) {
    cuda_slabs_free(((struct linear_kernel *)kernel)->product);
    mem_free(kernel);
}

/* `sums`: bytes of workspace for sums over rows. */
static enum status linear_create(const struct node *node, struct linear_product product, int64_t sums, kernel_run *run,
                                 struct kernel **out) {
    const struct cuda_matmul_spec spec = {
        .product = product.spec,
        .a_alignment = cuda_alignment(product.a),
        .b_alignment = cuda_alignment(product.b),
        .c_alignment = cuda_alignment(product.c),
        .addend_alignment = product.addend ? cuda_alignment(product.addend) : 0,
    };
    struct linear_kernel *kernel = kernel_new(node, sizeof *kernel, run);
    if (!kernel) return STATUS_FAILED;
    kernel->kernel.release = linear_release;
    enum status status = cuda_slabs_create(&spec, &kernel->product);
    if (status == STATUS_OK) kernel->sums_at = workspace_align(cuda_slabs_workspace_bytes(kernel->product));
    kernel->kernel.workspace_bytes = kernel->sums_at + sums;
    return kernel_finish(&kernel->kernel, status, out);
}

static void product_run(const struct kernel *kernel, const struct kernel_call *call, struct matmul_operands operands) {
    cuda_slabs_run(((const struct linear_kernel *)kernel)->product, &operands, call->workspace, stream_of(call));
}

static enum status linear_run(const struct kernel *kernel, const struct kernel_call *call) {
    product_run(kernel, call, linear_operands(call));
    return cuda_outcome();
}

enum status cuda_linear_create(const struct node *node, struct kernel **out) {
    return linear_create(node, linear_product(node), 0, linear_run, out);
}

static enum status linear_dx_run(const struct kernel *kernel, const struct kernel_call *call) {
    product_run(kernel, call, linear_dx_operands(call));
    return cuda_outcome();
}

enum status cuda_linear_dx_create(const struct node *node, struct kernel **out) {
    return linear_create(node, linear_dx_product(node), 0, linear_dx_run, out);
}

static void sum_bias(const struct tensor *dy, const struct kernel_call *call, const void *data, int64_t workspace,
                     float *sum) {
    cuda_sum_columns(stream_of(call), dy->shape.dtype, shape_rows(&dy->shape), shape_columns(&dy->shape), data,
                     tensor_row_stride(dy), workspace_at(call, workspace), sum);
}

static int64_t bias_workspace(const struct tensor *dy) {
    return cuda_sum_workspace(shape_rows(&dy->shape), shape_columns(&dy->shape));
}

static enum status linear_dw_run(const struct kernel *kernel, const struct kernel_call *call) {
    int64_t sums_at = ((const struct linear_kernel *)kernel)->sums_at;
    product_run(kernel, call, linear_dw_operands(kernel->node, call));
    if (call->out[1]) sum_bias(kernel->node->in[1], call, call->in[1], sums_at, call->out[1]);
    return cuda_outcome();
}

enum status cuda_linear_dw_create(const struct node *node, struct kernel **out) {
    int64_t sums = node->out[1] ? bias_workspace(node->in[1]) : 0;
    return linear_create(node, linear_dw_product(node), sums, linear_dw_run, out);
}

static enum status bias_grad_run(const struct kernel *kernel, const struct kernel_call *call) {
    sum_bias(kernel->node->in[0], call, call->in[0], 0, call->out[0]);
    return cuda_outcome();
}

enum status cuda_bias_grad_create(const struct node *node, struct kernel **out) {
    return kernel_plain(node, bias_grad_run, bias_workspace(node->in[0]), out);
}
