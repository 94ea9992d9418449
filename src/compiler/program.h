/* A program: a training step (or an evaluation, or a forward pass) as instructions on streams over buffers at fixed
 * offsets.
 *
 *   sections ── instructions ── operands ── buffers ── tiers
 *
 * Order. Sections come in order, each repeated as often as its repeat count says; within a repetition each stream
 * issues its instructions in their order. Streams are concurrent, also across the borders of sections and steps: only
 * waits order them. An instruction waits for the most recent issue of another before its own, or not at all if there is
 * none. So one list of waits serves every repetition, as recorded events do on a GPU.
 *
 * Deferred updates. If optimizer state is not on the device, a step defers its parameters' updates to the next step,
 * where the instructions marked `deferred` make them during forward. The first step omits these instructions. For the
 * last step's updates, the runner issues them alone (runtime/runner.h).
 *
 * Bytes. A buffer lies at a fixed offset of its tier's arena. Two buffers may share bytes only if every use of one
 * happens before every use of the other; program_verify proves it.
 *
 * Files, in the order to read them:
 *   program: this file; compiling;
 *   executions: the order of nodes and micro-batches;
 *   execution_source: inputs for listing executions;
 *   pipeline: messages between stages, and their order;
 *   collectives: collectives of ranks;
 *   schedule: sections, and messages of pipelines;
 *   buffers: all buffers but those of activations;
 *   schedule_nodes: kernels;
 *   schedule_sums: sums, and collectives of shards;
 *   residency: uses on another tier than the home tier, through one copy;
 *   move: gathers of shards and copies between tiers;
 *   place: live ranges and offsets;
 *   order: bytes cut at operands' borders, and vector clocks;
 *   synchronise: waits.
 * The proof is in compiler/verify (verify.h). */
#pragma once

#include "base/base.h"
#include "collective/collective.h"
#include "ir/graph.h"
#include "machine/rates.h"
#include "plan/chunks.h"
#include "plan/lane_shares.h"
#include "plan/plan.h"

/* If ranks have shards of gradients, the shards are GRADIENTS. The whole gradients from which they are made are
 * UNREDUCED: a rank's sums over its own micro-batches, before all ranks' sums are added. */
#define BUFFER_KIND_LIST(X)                                                                                            \
    X(PARAMETERS, "parameters")                                                                                        \
    X(GRADIENTS, "gradients")                                                                                          \
    X(UNREDUCED, "unreduced")                                                                                          \
    X(CACHE, "cache")                                                                                                  \
    X(OPTIMIZER, "optimizer")                                                                                          \
    X(ACTIVATIONS, "activations")                                                                                      \
    X(INPUTS, "inputs")                                                                                                \
    X(RESULTS, "results")                                                                                              \
    X(WORKSPACE, "workspace")
enum buffer_kind {
#define BUFFER_KIND_ENUM(name, text) BUFFER_##name,
    BUFFER_KIND_LIST(BUFFER_KIND_ENUM) BUFFER_KIND_COUNT
#undef BUFFER_KIND_ENUM
};
const char *buffer_kind_name(enum buffer_kind kind);

/* BUFFER_ALIGNMENT everywhere, DISK_ALIGNMENT in programs that use the disk, which moves whole blocks: the largest that
 * common disks and filesystems ask of direct transfers. */
enum { BUFFER_ALIGNMENT = 64, DISK_ALIGNMENT = 4096 };

static inline int64_t buffer_aligned_bytes(int64_t bytes) {
    return (bytes + BUFFER_ALIGNMENT - 1) / BUFFER_ALIGNMENT * BUFFER_ALIGNMENT;
}

/* Tensors side by side in one buffer: a chunk's tensors of one kind, or a rank's shard of them (plan/chunks.h). */
struct pack {
    struct pack_member {
        const struct tensor *tensor;
        int64_t offset;          /* bytes; of whole tensors a multiple of BUFFER_ALIGNMENT */
        int64_t first, elements; /* of the tensor's; a buffer has one run of each */
    } * members;
    int32_t count;
};

struct buffer {
    int id;
    const struct tensor *tensor; /* the tensor in it; NULL for packs and workspace */
    const struct pack *pack;     /* the pack in it; NULL for single tensors and workspace */
    int32_t
        original; /* the buffer that it is a temporary copy of, in another tier or, gathered, of its shard; -1: none */
    const char *name;
    enum buffer_kind kind;
    enum tier tier;
    int64_t bytes;
    int64_t offset;  /* in the tier's arena, a multiple of BUFFER_ALIGNMENT; -1 before placement */
    bool persistent; /* keeps its contents from step to step: parameters, caches, state, inputs */
    bool shared;     /* at the resident program's offset */
    int32_t first,
        last; /* issue positions (indices of instructions) between which it is live, by program_set_lifetimes */
};

/* Whether it holds sums of gradients, of a rank's micro-batches or of all ranks'. */
static inline bool buffer_is_gradient(const struct buffer *buffer) {
    return buffer->kind == BUFFER_GRADIENTS || buffer->kind == BUFFER_UNREDUCED;
}

/* Whether it is read after the step has ended: results, and tensors that the caller keeps. */
static inline bool buffer_is_kept(const struct buffer *buffer) {
    return buffer->tensor && (buffer->tensor->kind == TENSOR_RESULT || buffer->tensor->kept);
}

enum access { ACCESS_READ, ACCESS_WRITE, ACCESS_UPDATE /* read and written */ };

/* The part of a buffer that an instruction uses: all of it, one micro-batch's slice, some rows, or some columns of
 * them. */
struct operand {
    int32_t buffer;
    enum access access;
    int64_t offset;     /* bytes from the buffer's first to the first byte used, in the section's first repetition */
    int64_t stride;     /* bytes added for each further repetition of the section (slices of a step's inputs); else 0 */
    int64_t bytes;      /* from the first byte used to the end of the last */
    int64_t row_bytes;  /* columns: bytes used of each row; 0: all `bytes` are used */
    int64_t row_stride; /* columns: bytes from row to row */
};

/* The end of an operand's bytes in the buffer, including padding that belongs to no other. Parameters begin at
 * multiples of BUFFER_ALIGNMENT, so that together they cover their pack. */
static inline int64_t operand_end(const struct operand *operand, const struct buffer *buffer) {
    int64_t end = operand->offset + operand->bytes;
    return buffer->kind == BUFFER_PARAMETERS && buffer->pack ? buffer_aligned_bytes(end) : end;
}

enum opcode {
    OPCODE_KERNEL,   /* the node's kernel */
    OPCODE_ZERO,     /* writes zeros to output 0 */
    OPCODE_COPY,     /* all of input 0 to output 0, in another tier */
    OPCODE_TAKE,     /* output 0 = input 0, in the same tier; with a node: this rank's part of the sum it scattered */
    OPCODE_ADD,      /* output 0 = output 0 + input 0, in fp32 element by element, each sum rounded once */
    OPCODE_ADD_BF16, /* the same with both rounded to bf16 first; without input 0: output 0 = output 0 so rounded */
    /* Operations between ranks (collective/collective.h); workspace: the staging. With a node they are that operator of
     * the graph (op.collective), whose input is then an operand too where it is not the output. */
    OPCODE_ALL_REDUCE,     /* output 0 = its sum over all ranks */
    OPCODE_REDUCE_SCATTER, /* of output 0 this rank's block = its sum over all ranks, the others are undefined */
    OPCODE_ALL_GATHER, /* output 0 = the blocks of the group's ranks. Input 0: this rank's, in its place in output 0 or
                          in another buffer; none where it is empty */
    OPCODE_ALL_TO_ALL, /* block i of input 0 goes to rank i of the group, block i of output 0 is from it */
    OPCODE_BROADCAST,  /* input 0 of the group's root becomes output 0 of the others; in a group of two, a send */
    /* The bytes are used by other ranks' instructions, which this rank does not have: for the gather pass, which
     * removes it. */
    OPCODE_ELSEWHERE,
};

/* "copy", "add to", "all-reduce", … */
const char *opcode_name(enum opcode opcode);
static inline bool opcode_is_collective(enum opcode opcode) {
    return opcode >= OPCODE_ALL_REDUCE && opcode <= OPCODE_BROADCAST;
}

enum { OPERANDS_MAX = OP_INPUTS_MAX + OP_OUTPUTS_MAX + 1 };

/* Roles of streams. A program numbers the streams that it uses from 0, in this order. */
enum stream_role {
    STREAM_COMPUTE,
    STREAM_UPDATE,   /* deferred updates */
    STREAM_COPY_IN,  /* host to device */
    STREAM_COPY_OUT, /* device to host */
    STREAM_DISK_IN,
    STREAM_DISK_OUT,
    STREAM_COMM, /* operations between ranks */
    STREAM_ROLE_COUNT
};
/* "compute", "update", "copy in", … */
const char *stream_role_name(enum stream_role role);
enum stream_role stream_role_of_copy(enum tier from, enum tier to);

/* Of a program. */
enum { STREAMS_MAX = 8 };

struct instruction {
    enum opcode opcode;
    const struct node *node; /* kernels, and operators that are operations between ranks */
    int stream;
    int section;
    int32_t group;                         /* the stage it belongs to, counted through the program (executions.h) */
    bool deferred;                         /* part of the update that the previous step left */
    enum tier tier;                        /* kernels: the tier of all operands */
    int64_t micro_batch;                   /* slot in the wave, for reports */
    int64_t first_element, elements;       /* kernels: the run of input 0's elements that it works on (kernel_call of
                                              backend.h), to which the operands point; 0: all of them */
    int32_t collective;                    /* operations between ranks: its index in the program's list */
    struct operand operands[OPERANDS_MAX]; /* inputs by index, then outputs from OP_INPUTS_MAX on, then workspace;
                                              buffer -1 where there is none */
    int32_t *waits;                        /* instructions on other streams, ascending */
    int32_t wait_count;
};
enum { OPERAND_WORKSPACE = OP_INPUTS_MAX + OP_OUTPUTS_MAX };

struct section {
    const char *name;     /* "first wave", "middle waves", "last wave", "sums", "update"; with the lane, of several */
    int32_t first, count; /* its instructions */
    int64_t repeat;       /* at least 1 */
    int64_t first_micro_batch; /* of its first repetition; -1 when it holds no wave */
    int64_t micro_batches;     /* of each repetition */
    int64_t share;             /* of the step's (plan/lane_shares.h), counted from 0: its slot in sums of losses */
};

/* An operation of a group of ranks. The ranks of a group have the same operations on it in the same order; a rank
 * leaves those out for which nobody of its group has data. */
struct program_collective {
    enum comm_kind kind;
    const struct node *node;     /* the operator that it is; NULL: of the step's sums and shards */
    struct comm_group group;     /* of the step's reductions: all data ranks */
    int64_t bytes, block_bytes;  /* of data, and of a block; 0: equal blocks (comm_spec) */
    bool round_bf16;             /* reductions: every edge of the tree rounds */
    bool round_sum;              /* all-reduce: and the sum, which is gathered as bf16 */
    const int *owner;            /* by block: its position in the group; NULL: as ranks come */
    const bool *empty;           /* by rank: has nothing to add; NULL: none */
    bool apart;                  /* all-gather: ranks have their blocks in other buffers */
    int root;                    /* broadcast: its position in the group */
    const struct tensor *tensor; /* broadcast: whose bytes they are; NULL: those of several */
    int64_t micro_batch;         /* broadcast of an activation: the rank's micro-batch that it belongs to */
    struct comm_traffic traffic; /* bytes that this rank moves */
    int64_t staging_bytes;       /* of the instruction's workspace */
};

struct program {
    const struct graph *graph; /* borrowed; outlives the program */
    struct scratch memory;
    VEC(struct section) sections;
    VEC(struct instruction) instructions;
    VEC(struct buffer) buffers;
    VEC(struct program_collective) collectives; /* in the order in which their instructions are issued */
    struct rank_place place;                    /* the rank that it is for */
    struct lane_shape lanes;                    /* the recipe's */
    bool flat;                                  /* the policy's: of its operations */
    int streams;
    enum stream_role roles[STREAM_ROLE_COUNT]; /* by stream */
    bool defers;                    /* has deferred instructions: a step ends with an update still to be made */
    int64_t alignment;              /* of offsets and of sizes as they are moved */
    int64_t tier_bytes[TIER_COUNT]; /* size of each arena */
    int64_t live_bytes[TIER_COUNT]; /* largest sum of live buffers: a lower bound for any placement */
    /* The front of each arena belongs to the persistent buffers of another program: only shared buffers lie here. */
    int64_t reserved_bytes[TIER_COUNT];
};

/* Workspace bytes of each node, by node id, as the backend gave them. */
struct workspace_table {
    const int64_t *bytes;
    int count;
    const int64_t *host_bytes; /* of kernels in the host tier; NULL: `bytes` */
};

/* Cuts a program of the graph into shares. A graph without gradients has one share on one rank. The caller frees with
 * lane_shares_free, also after a failure. */
enum status program_cut(const struct graph *graph, const struct recipe *recipe, const struct rank_place *place,
                        struct lane_shares *out);

/* Runs the passes schedule > gather > move > place > synchronise. program_verify proves the result, which takes as long
 * again; only a proved program may be executed. `resident` (NULL: none) is a program with the same parameters that
 * takes turns with this one in one arena. Parameters, and caches that both have, get the offsets of `resident`; nothing
 * else overlaps its persistent buffers. Other persistent buffers of the new program (inputs; caches, if `resident` has
 * none) are lost when `resident` makes a step. BAD_INPUT when the plan does not fit the graph. The caller frees. */
enum status program_compile(const struct graph *graph, const struct plan *plan, const struct workspace_table *workspace,
                            const struct program *resident, struct program **out);
/* Stops after `place`: its bytes are known, and program_synchronise completes it. For a search, in
 * which many programs do not fit. */
enum status program_compile_placed(const struct graph *graph, const struct plan *plan,
                                   const struct workspace_table *workspace, struct program **out);
void program_free(struct program *program);

/* Proves: every operand lies in its buffer and every buffer in its arena; nothing is read before it is written or after
 * other bytes took its place; no two conflicting accesses are concurrent; every wait can be met. FAILED with the
 * instruction, the buffer and the rule that is broken. It shares no code with the passes that make programs. */
enum status program_verify(const struct program *program);

/* Proves that the programs of all ranks, each of which is verified, fit together; also for one rank. FAILED names the
 * rank and the broken rule. The rules:
 * - Ranks have the same operations in the same order, and no operation deadlocks.
 * - Data that other ranks read in place is read before its rank writes it again.
 * - Over two steps, every gradient is the recipe's sum in the recipe's order (compiler/verify). */
enum status program_verify_ranks(const struct program *const *programs, int ranks, const struct recipe *recipe);

/* A buffer's part of a tensor: elements [first, first + elements), from byte `offset` of the buffer on. Without a
 * partition that is the whole tensor. A shard may be empty. */
struct tensor_run {
    int64_t offset, first, elements;
};
/* The buffer that holds a parameter, input, state or result between steps, and its part of the tensor. NULL if the
 * program has none. */
const struct buffer *program_find_buffer(const struct program *program, const struct tensor *tensor,
                                         struct tensor_run *out);
/* False when the buffer is not made for the tensor. */
bool buffer_find(const struct buffer *buffer, const struct tensor *tensor, struct tensor_run *out);

/* How many issues of `waited` must have ended, over all steps, before the issue of `instruction` in this step and
 * repetition of its section may start: the rule of waits, for everything that executes or simulates a program. */
int64_t program_issues_required(const struct program *program, int32_t waited, int32_t instruction, int64_t step,
                                int64_t repetition);

/* The size of a copy of `bytes`: up to the next multiple of the program's alignment, since the disk moves whole blocks.
 */
static inline int64_t program_moved_bytes(const struct program *program, int64_t bytes) {
    return (bytes + program->alignment - 1) / program->alignment * program->alignment;
}

/* Bytes by kind at the moment of the tier's peak; the sum with `unused` is the arena's size. */
struct memory_report {
    int64_t by_kind[BUFFER_KIND_COUNT];
    int64_t unused; /* alignment and gaps between buffers */
    int64_t total;  /* the arena */
};
enum status program_report_memory(const struct program *program, enum tier tier, struct memory_report *out);

/* ---- operations between ranks: what each is, and what it takes of a rank ---- */

/* This rank's block of an operation's data, in bytes from the first byte of the data. */
struct comm_range collectives_own_block(const struct program *program, const struct program_collective *operation);

/* The sum of `bytes` over all ranks, of a round's shares. */
enum status collectives_all_reduce(struct program *program, const struct recipe *recipe, int64_t round, int64_t bytes,
                                   struct program_collective *out);
/* The same for a chunk's gradients: each rank gets its piece (plan/chunks.h). */
enum status collectives_reduce_scatter(struct program *program, const struct recipe *recipe, int64_t round,
                                       const struct shard_cut *cut, struct program_collective *out);
/* Gathers the shard of width `coarse` from its shards of width `fine`; `block_bytes`: the bytes of SHARD_BLOCK
 * elements. 0 bytes: the shard is empty. */
enum status collectives_all_gather(struct program *program, const struct shard_cut *cut, int coarse, int fine,
                                   int64_t block_bytes, struct program_collective *out);

/* `bytes` of the rank at position `root` of the group. */
static inline struct program_collective collectives_broadcast(struct comm_group group, int root, int64_t bytes,
                                                              const struct tensor *tensor, int64_t micro_batch) {
    return (struct program_collective){.kind = COMM_BROADCAST,
                                       .group = group,
                                       .bytes = bytes,
                                       .root = root,
                                       .tensor = tensor,
                                       .micro_batch = micro_batch};
}

/* The collective of an operator of the graph (op.collective), on its tensor group, on `bytes` bytes of data. BAD_INPUT
 * if the plan's tensor group does not have the operator's number of ranks. */
enum status collectives_of_node(const struct program *program, const struct node *node, int64_t bytes,
                                struct program_collective *out);

/* The operations of a graph's forward and backward, in program->collectives, as its program will have them: to price
 * them before there is one. program->place, lanes and flat are set. */
enum status collectives_of_graph(struct program *program, const struct graph *graph);

/* NO_FIT where a rank's programs have more than COMM_OPERATIONS_MAX, with the hint how they become fewer. */
#define COLLECTIVES_FEWER                                                                                              \
    "sums are made once a round and gathers once a wave: a greater --round, or a larger --micro-batch"
enum status collectives_check_count(size_t count);
/* Makes the instruction, which has all operands but the workspace, execute the operation: appends it to
 * program->collectives, and adds the buffer of its staging. program->place, lanes and flat are set. NO_FIT for one too
 * many. */
enum status collectives_add(struct program *program, const struct program_collective *operation,
                            struct instruction *instruction);

/* The operation's specification, without addresses: `mine` only says whether there is one. `tree`: where the order of
 * its sums is put; the caller frees it with lane_tree_free when the operation or schedule is made, also after a
 * failure. */
enum status collectives_spec(const struct program *program, int32_t collective, struct lane_tree *tree,
                             struct comm_spec *out);

/* Bytes that this rank moves in a step, over all operations. */
struct comm_traffic collectives_traffic(const struct program *program);

/* ---- the passes that make a program, in their order; tests call them one by one ---- */

/* Makes sections, instructions and buffers, without live ranges, offsets or waits, all on stream 0 but for
 * collectives. Each buffer is in the tier where the policy keeps it between uses, and instructions use it there.
 *
 * A step is a list of shares (plan/lane_shares.h; one, where there is one lane, round and rank). A share's
 * micro-batches are cut into waves of `micro_batches_per_wave`: a first wave (which zeroes the accumulators), repeated
 * middle waves, and a last one, in which the share's sums are added to others and reduced over ranks. The step's first
 * wave makes the deferred updates; its last one finishes the gradients; then comes the update. The order within a wave
 * is that of executions.h. */
enum status program_schedule(const struct graph *graph, const struct plan *plan,
                             const struct workspace_table *workspace, struct program **out);

/* Used if the policy cuts parameters. Each use of a whole parameter gets a buffer into which the ranks' shards are
 * gathered before it. Whole parameters wait for one of `policy.buffers` places. */
enum status program_gather(struct program *program, const struct policy *policy);

/* Adds the copies between tiers: an instruction that uses a buffer of another tier gets a copy of it, which is fetched
 * before and, if changed, stored after. Assigns instructions to streams, and sets the live ranges of buffers. */
enum status program_move(struct program *program, const struct policy *policy);

/* Sets each buffer's live range: first to last use in issue order; a buffer that enters a repeated section from outside
 * lives to that section's end; results live to the end of the program. */
void program_set_lifetimes(struct program *program);

/* Offsets: persistent buffers first, in their order, so that programs of one model agree on where its parameters lie;
 * the others greedily, by the best of several orders. Sets tier_bytes and live_bytes. */
enum status program_place(struct program *program);

/* Adds the waits that data flow and shared bytes need between streams. */
enum status program_synchronise(struct program *program);
