#include "backend/cuda/cuda_matmul.h"

#include <cublasLt.h>
#include <pthread.h>
#include <string.h>

#include "backend/cuda/cuda_products.h"
#include "backend/cuda_constants.h"
#include "plan/recipe_lines.h"

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

/* A matrix [rows][columns] by columns, whose element (i, j) is i * row + j * column elements from the first: as it is
 * when row is 1, else transposed. With a single column its stride does not count. */
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

int64_t cuda_matmul_workspace_bytes(const struct cuda_matmul *matmul) {
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
