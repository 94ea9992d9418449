/* The programs that a model is computed by: a training step, the loss of a batch, texts. They take turns in the same
 * arenas, with the weights of all in the same places. */
#pragma once

#include "runtime/executable.h"
#include "search/sim/simulate.h"
#include "session/session.h"

enum { PREFILL_TOKENS = 64, DECODE_TEXTS = 8 };

enum program_use {
    PROGRAM_STEP,      /* a training step: forward, backward, update */
    PROGRAM_LOSS,      /* the loss of a batch */
    PROGRAM_REFERENCE, /* the log-probabilities of a micro-batch's targets, by which preferences are measured */
    PROGRAM_LOGITS,    /* the logits of a batch, for comparison with other implementations */
    PROGRAM_PREFILL,   /* logits after PREFILL_TOKENS tokens of one text at a time */
    PROGRAM_DECODE,    /* the same after one token each of DECODE_TEXTS texts; in the caches of the prefill */
    PROGRAM_USES
};
/* What is made together. The first of them is the main one: its graph has all weights, and policies are for it. */
enum {
    PROGRAMS_TO_TRAIN = 1 << PROGRAM_STEP | 1 << PROGRAM_LOSS,
    PROGRAMS_TO_SIMULATE = 1 << PROGRAM_STEP,
    PROGRAMS_TO_EVALUATE = 1 << PROGRAM_LOSS,
    PROGRAMS_TO_REFER = 1 << PROGRAM_REFERENCE,
    PROGRAMS_TO_WRITE = 1 << PROGRAM_PREFILL | 1 << PROGRAM_DECODE,
};
struct program_set {
    unsigned uses; /* bits by enum program_use; at least one */
    int64_t texts; /* that there are caches for; at least 1 */
};
static inline bool program_set_has(const struct program_set *set, enum program_use use) { return set->uses >> use & 1; }
/* Whether a recipe's batch is of no meaning to it. */
static inline bool program_set_only_writes(const struct program_set *set) {
    return (set->uses & ~(unsigned)PROGRAMS_TO_WRITE) == 0;
}

/* The name of what PROGRAM_REFERENCE makes: [S,T,1] fp32. */
extern const char programs_reference_output[];

/* Whether tiles (policy.tile_tokens) leave the bits as they are: not on a GPU, also one that is only described, whose
 * library chooses how to sum by the size of a GEMM. */
bool programs_take_tiles(const struct machine *machine);

/* A plan as the programs for text take it: one micro-batch of so many sequences, whatever its batch is. */
struct plan plan_of_texts(const struct plan *plan, int64_t sequences);

struct programs {
    struct executable *of[PROGRAM_USES]; /* owned; NULL: not of the set */
    int64_t tier_bytes[TIER_COUNT];      /* the arenas that they take turns in: those of the largest */
};

/* Compiles the set's programs under a plan, and sets the backend's threads; programs_prove comes before they are
 * executed. NO_FIT for more operations between ranks than there can be (compiler/program.h), BAD_INPUT for a policy
 * that is not for this model. The caller frees with programs_free. */
enum status programs_compile(const struct session *session, const struct program_set *set, const struct plan *plan,
                             struct programs *out);
/* The set's programs under another policy for the same graphs: with the same tiles and `selective_recompute`. */
struct recompiled {
    struct program *of[PROGRAM_USES]; /* owned; NULL: not of the set */
    int64_t tier_bytes[TIER_COUNT];   /* as those of struct programs */
};
/* As programs_compile. `main`: the main program where it was compiled already, which is taken; NULL, or where it points
 * to NULL: it is compiled. The caller frees with recompiled_free, or has the programs replaced. */
enum status programs_recompile(const struct programs *programs, const struct plan *plan, struct program **main,
                               struct recompiled *out);
void recompiled_free(struct recompiled *recompiled);
/* Takes over the programs, which are not proved. */
void programs_replace(struct programs *programs, struct recompiled *by);
/* Proves those that were not proved yet (executable_prove). */
enum status programs_prove(struct programs *programs);
void programs_free(struct programs *programs);
/* Only the graph of one of the set's programs. The caller frees it. */
enum status program_build_graph(const struct session *session, const struct program_set *set, enum program_use use,
                                const struct plan *plan, struct graph **out);
/* The graph of the set's main program as ranks have it that share no tensors. The caller frees it. */
enum status programs_build_whole(const struct session *session, const struct program_set *set, const struct plan *plan,
                                 struct graph **out);
/* Finds tier_bytes anew, where a program was replaced. */
void programs_sum_bytes(struct programs *programs);

/* The first of the set; what none was compiled of has none. */
enum program_use programs_main_use(const struct programs *programs);
static inline const struct executable *programs_main(const struct programs *programs) {
    return programs->of[programs_main_use(programs)];
}

/* The steps of all stages of a plan's pipeline, simulated together: one rank of each, which wait for each other's
 * messages. Without a pipeline, the one step. */
struct stage_step {
    struct program *program;  /* NULL: that of `main` */
    struct timeline timeline; /* step_s: of the slowest stage */
    double compute_s;         /* the compute stream at work */
    int64_t tier_bytes[TIER_COUNT];
};

struct stage_steps {
    int count;
    struct stage_step *list; /* by stage */
    double step_s;
    double bubble; /* the part of all stages' time in which they do not compute: Megatron-LM's measure of a pipeline
                      (arXiv 2104.04473, section 2.2), with all other waiting in it */
};

/* `main`: a step of the plan's graph, and if the plan has one stage its program; `costs` are of that graph. Stages are
 * compiled, without their proof, for the ranks that differ from the plan's along this axis alone. The caller frees,
 * also after a failure. */
enum status stage_steps_make(const struct executable *main, const struct plan *plan, const struct costs *costs,
                             struct stage_steps *out);

void stage_steps_free(struct stage_steps *steps);

/* The proof, before the first step, that the programs of all ranks fit together (program_verify_ranks). */

/* With more ranks it takes too long for a start: they are proved one by one alone. */
enum { RANK_PROOF_MAX = 8 };

/* Whether it is made: for few ranks. */
static inline bool rank_proof_is_made(const struct rank_place *place) {
    int ranks = rank_place_ranks(place);
    return ranks > 1 && ranks <= RANK_PROOF_MAX;
}

/* For rank 0, with its training step of the set under a plan: compiles the steps of the others, stages and ranks that
 * share tensors among them, and proves all of them together. FAILED with what does not fit, which is a fault of
 * Ballast's. OK without a look where it is not made. */
enum status rank_proof_make(const struct session *session, const struct program_set *set, const struct executable *step,
                            const struct plan *plan);
