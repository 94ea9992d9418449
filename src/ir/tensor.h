/* Tensors: shapes, dtypes, and kinds. A tensor is a description; its bytes are in a program's buffers. */
#pragma once

#include "base/base.h"
#include "ir/weight_format.h"

#define DTYPE_LIST(X)                                                                                                  \
    X(NONE, 0, "none")                                                                                                 \
    X(F64, 8, "fp64")                                                                                                  \
    X(F32, 4, "fp32")                                                                                                  \
    X(BF16, 2, "bf16")                                                                                                 \
    X(I32, 4, "int32")                                                                                                 \
    X(I8, 1, "int8")                                                                                                   \
    X(U8, 1, "uint8")                                                                                                  \
    X(U16, 2, "uint16")

enum dtype {
#define DTYPE_ENUM(name, bytes, text) DTYPE_##name,
    DTYPE_LIST(DTYPE_ENUM)
#undef DTYPE_ENUM
};
int64_t dtype_bytes(enum dtype dtype);
const char *dtype_name(enum dtype dtype);
/* DTYPE_NONE when there is none of that name. */
enum dtype dtype_find(const char *name);

enum { TENSOR_RANK_MAX = 4 };

struct shape {
    enum dtype dtype;              /* DTYPE_NONE: there is no such tensor (an optional output) */
    int rank;                      /* 0 to TENSOR_RANK_MAX; a rank of 0 is one element */
    int64_t dims[TENSOR_RANK_MAX]; /* row-major, the last is contiguous; all at least 1 */
};
struct shape shape_make(enum dtype dtype, int rank, int64_t d0, int64_t d1, int64_t d2);
int64_t shape_elements(const struct shape *shape);
int64_t shape_bytes(const struct shape *shape);
bool shape_equal(const struct shape *a, const struct shape *b);
/* The last dimension, and the product of all before it. */
int64_t shape_columns(const struct shape *shape);
int64_t shape_rows(const struct shape *shape);
/* "fp32 [4, 1024, 768]"; returns `text`. */
char *shape_print(const struct shape *shape, char text[96]);
enum { SHAPE_TEXT = 96 };

/* A tensor's kind decides how many instances it has and how long they live. */
enum tensor_kind {
    TENSOR_ACTIVATION, /* made in a wave: one instance for each micro-batch in flight and execution of its producer */
    TENSOR_INPUT,      /* set by the caller before a step, one slice for each micro-batch of the step */
    TENSOR_PARAMETER,  /* weights in the compute dtype; persistent */
    TENSOR_GRADIENT,   /* fp32 sum over the micro-batches of a step for one use of a parameter; zeroed when the step
                          begins */
    TENSOR_CACHE,      /* keys and values of earlier tokens; persistent, one for the whole step */
    TENSOR_STATE,      /* optimizer state: master weights or their lower halves, and moments; persistent */
    TENSOR_RESULT, /* fp64 values of a whole step: loss, squared norms, clip factor; sums are zeroed as gradients are.
                      Those with a parameter (block sums of squares) are read by the step's own nodes alone */
};

/* A rank's part of a tensor that is cut among several ranks. The cut dimension consists of segments side by side
 * (queries, keys and values of one GEMM); of each, the rank has the same one of `parts` equal parts. A dimension of one
 * segment may divide unevenly: parts at its end are then padded with zeros, which are outside the whole tensor. */
enum { TENSOR_SEGMENTS_MAX = 4 };
struct tensor_segments {
    int count; /* 0: the dimension is one segment */
    int64_t size[TENSOR_SEGMENTS_MAX];
};
struct tensor_cut {
    int dimension;
    struct tensor_segments segments;
    int64_t part, parts;
};
/* Ranks of the group whose ranks have parts, that stand apart along one axis of the mesh that they form, or all. */
struct group_axis {
    int64_t parts;  /* ranks along it; 0: none */
    int64_t stride; /* ranks of the group between neighbours; 0: all ranks of the group */
};
/* Whether the rank contributes to a sum over the group. Among ranks with the same part, the first one does; without
 * parts, only the first rank does. */
static inline bool group_axis_counts(struct group_axis axis, int64_t rank) {
    int64_t stride = axis.stride > 0 ? axis.stride : 1;
    return axis.parts == 0 ? rank == 0 : rank == rank / stride % axis.parts * stride;
}

enum { TENSOR_CUTS_MAX = 2 };
struct tensor_part {
    struct shape whole;
    enum weight_format
        whole_format; /* of a weight in fewer bits: `whole` is then of its numbers (ir/weight_format.h) */
    int count;        /* of cuts, each of another dimension */
    struct tensor_cut cuts[TENSOR_CUTS_MAX];
    struct group_axis axis; /* the ranks along it have the other parts */
    int64_t copies, copy;   /* ranks of the group that have this part, and which of them this one is */
};

/* The encoding of a frozen weight's bytes. */
struct weight_code {
    enum weight_format format; /* WEIGHT_PLAIN: they are the numbers themselves */
    struct shape values;       /* else a matrix, in the dtype that its numbers are rounded to */
    int64_t block;             /* of weight_layout_of */
};
static inline struct weight_layout weight_code_layout(const struct weight_code *code) {
    return weight_layout_of(code->format, code->block, code->values.dims[0], code->values.dims[1]);
}

/* The position of this parameter in a tensor of the files that stacks several parameters along a dimension before
 * theirs. The name is that of the stacked tensor; NULL: none. */
struct tensor_stack {
    const char *name;
    int64_t index, count; /* count 0: that tensor is this one, under another name */
    int64_t cuts;         /* parts along its second dimension, within each entry of the first; 0: one */
};

struct node;

struct tensor {
    int id;             /* index in its graph */
    const char *name;   /* unique for parameters: the name in the weight files, but for those in a stack */
    struct shape shape; /* activations and inputs: of one micro-batch */
    enum tensor_kind kind;
    int block; /* index of the block that makes it (parameters: that first uses it; gradients: that adds to it) */
    struct node *producer;            /* NULL for inputs, parameters and state */
    struct tensor *base;              /* not NULL: these are columns or rows of `base`, without bytes of their own */
    int64_t base_column, base_row;    /* the first of them */
    bool kept;                        /* read by the caller after a step: lives to its end (results always do) */
    const struct tensor_part *part;   /* parameters and their gradients and state; NULL: this is the whole tensor */
    struct tensor_stack stack;        /* parameters */
    struct tensor_stack fused;        /* parameters: where files may have it instead */
    struct weight_code code;          /* parameters in a format of ir/weight_format.h, which are uint8 [bytes] */
    struct group_axis gradient_parts; /* parameters: the ranks along it have parts of this one's gradient */
    struct group_axis result_parts;   /* results: the ranks along it have parts of its sum, which the caller adds */
    bool trainable;                   /* parameters: has a gradient and optimizer state */
    bool decays;                      /* parameters: weight decay applies */
    bool updated_whole;               /* parameters: an update needs all elements at once, so that one rank makes it */
    struct tensor *parameter;         /* gradients, sums of their squares, and state: the parameter they belong to */
    struct tensor *value;             /* activations of backward: the activation whose gradient they are; else NULL */
    const char *role;                 /* state: "master", "master_low", "exp_avg", "exp_avg_sq"; else NULL */
    /* State and sums of squares may have one element for each block of this many of the parameter's elements; the last
     * block may be shorter. 0: one for each element. */
    int64_t block_elements;
};

/* The shape of the numbers that a tensor stands for: its own, but for weights in a format of fewer bits. */
static inline const struct shape *tensor_values(const struct tensor *tensor) {
    return tensor->code.format == WEIGHT_PLAIN ? &tensor->shape : &tensor->code.values;
}

/* The number of the parameter's elements for each of the tensor's; and the tensor's number of elements for `elements`
 * of the parameter's. */
static inline int64_t tensor_elements_per(const struct tensor *tensor) {
    return tensor->block_elements > 0 ? tensor->block_elements : 1;
}

static inline int64_t tensor_elements_for(const struct tensor *tensor, int64_t elements) {
    int64_t per = tensor_elements_per(tensor);
    return (elements + per - 1) / per;
}

/* Elements from one row to the next in memory: the base's columns for a view. */
int64_t tensor_row_stride(const struct tensor *tensor);
/* The place of element `at` of a rank's part in the whole tensor, or TENSOR_NOWHERE, and the number of elements that
 * follow contiguously in both. For a tensor without parts: `at`, and all that follow. */
enum { TENSOR_NOWHERE = -1 };
int64_t tensor_part_find(const struct tensor *tensor, int64_t at, int64_t *run);
/* The shape of the whole tensor, in this one's dtype: a state has its parameter's part. */
static inline struct shape tensor_whole_shape(const struct tensor *tensor) {
    struct shape shape = tensor->part ? tensor->part->whole : tensor->shape;
    shape.dtype = tensor->shape.dtype;
    return shape;
}

/* The tensor that owns the bytes. */
static inline struct tensor *tensor_storage(struct tensor *tensor) { return tensor->base ? tensor->base : tensor; }
/* Whether there is a tensor, of this kind. */
static inline bool tensor_is_activation(const struct tensor *tensor) {
    return tensor && tensor->kind == TENSOR_ACTIVATION;
}
/* Whether there is something between its rows: other columns of its base. */
static inline bool tensor_has_gaps(const struct tensor *tensor) {
    return tensor_row_stride(tensor) > shape_columns(&tensor->shape);
}

/* Bytes from the storage's first to this tensor's first element. */
int64_t tensor_storage_offset(const struct tensor *tensor);

/* Whether numbers are finite. */

/* Index of the first of `count` contiguous values that is infinite or no number; -1 when all are finite, as whole
 * numbers always are. */
int64_t values_find_nonfinite(enum dtype dtype, const void *values, int64_t count);
