/* The programs that compute a model: a training step, the loss of a batch, text generation. They share the same arenas,
 * one at a time, and have all weights in the same places. */
#pragma once

#include "runtime/executable.h"
#include "search/sim/simulate.h"
#include "session/session.h"

enum { PREFILL_TOKENS = 64, DECODE_TEXTS = 8 };

enum program_use {
    PROGRAM_STEP,      /* a training step: forward, backward, update */
    PROGRAM_LOSS,      /* the loss of a batch */
    PROGRAM_REFERENCE, /* the log-probabilities of a micro-batch's targets, the reference of DPO */
    PROGRAM_LOGITS,    /* the logits of a batch, for comparison with other implementations */
    PROGRAM_PREFILL,   /* logits after PREFILL_TOKENS tokens of one text */
    PROGRAM_DECODE,    /* logits after one token each of DECODE_TEXTS texts, in the caches of the prefill */
    PROGRAM_USES
};
/* Program sets. The first one of a set is the main program: its graph has all weights, and policies apply to it. */
enum {
    PROGRAMS_TO_TRAIN = 1 << PROGRAM_STEP | 1 << PROGRAM_LOSS,
    PROGRAMS_TO_SIMULATE = 1 << PROGRAM_STEP,
    PROGRAMS_TO_EVALUATE = 1 << PROGRAM_LOSS,
    PROGRAMS_TO_REFER = 1 << PROGRAM_REFERENCE,
    PROGRAMS_TO_WRITE = 1 << PROGRAM_PREFILL | 1 << PROGRAM_DECODE,
};
struct program_set {
    unsigned uses; /* bits by enum program_use; at least one */
    int64_t texts; /* with caches; at least 1 */
};
static inline bool program_set_has(const struct program_set *set, enum program_use use) { return set->uses >> use & 1; }
/* Whether a set only generates text, so that the recipe's batch does not matter. */
static inline bool program_set_only_writes(const struct program_set *set) {
    return (set->uses & ~(unsigned)PROGRAMS_TO_WRITE) == 0;
}

/* The name of the output of PROGRAM_REFERENCE: [S,T,1] fp32. */
extern const char programs_reference_output[];

/* Whether tiles (policy.tile_tokens) preserve the bits. Not on a GPU, connected or target: its library chooses the
 * order of summation by the size of a GEMM. */
bool programs_take_tiles(const struct machine *machine);

/* The plan of the programs for text: one micro-batch of so many sequences, whatever the plan's batch. */
struct plan plan_of_texts(const struct plan *plan, int64_t sequences);

struct programs {
    struct executable *of[PROGRAM_USES]; /* owned; NULL: not in the set */
    int64_t tier_bytes[TIER_COUNT];      /* the arenas that they share: the largest of each tier */
};

/* Compiles the set's programs under a plan, and sets the backend's threads. Call programs_prove before they are
 * executed. NO_FIT if there are too many collectives (compiler/program.h). BAD_INPUT if a policy is not for this model.
 * The caller frees with programs_free. */
enum status programs_compile(const struct session *session, const struct program_set *set, const struct plan *plan,
                             struct programs *out);
/* The set's programs under another policy for the same graphs: with the same tiles and `selective_recompute`. */
struct recompiled {
    struct program *of[PROGRAM_USES]; /* owned; NULL: not in the set */
    int64_t tier_bytes[TIER_COUNT];   /* as in struct programs */
};
/* Like programs_compile. `main`: the main program if it is compiled already, which is taken over. It is compiled if
 * `main` is NULL or points to NULL. The caller frees with recompiled_free, or passes it to programs_replace. */
enum status programs_recompile(const struct programs *programs, const struct plan *plan, struct program **main,
                               struct recompiled *out);
void recompiled_free(struct recompiled *recompiled);
/* Takes over the programs, which are not proved. */
void programs_replace(struct programs *programs, struct recompiled *by);
/* Proves the programs that are not proved yet (executable_prove). */
enum status programs_prove(struct programs *programs);
void programs_free(struct programs *programs);
/* Only the graph of one of the set's programs. The caller frees it. */
enum status program_build_graph(const struct session *session, const struct program_set *set, enum program_use use,
                                const struct plan *plan, struct graph **out);
/* Builds the graph of the set's main program without tensor parallelism. The caller frees it. */
enum status programs_build_whole(const struct session *session, const struct program_set *set, const struct plan *plan,
                                 struct graph **out);
/* Recomputes tier_bytes after a program was replaced. */
void programs_sum_bytes(struct programs *programs);

/* The first of the set. There is none if nothing was compiled. */
enum program_use programs_main_use(const struct programs *programs);
static inline const struct executable *programs_main(const struct programs *programs) {
    return programs->of[programs_main_use(programs)];
}

/* The steps of all stages of a plan's pipeline, simulated together: one rank per stage, with waits for each other's
 * messages. Without a pipeline, the single step. */
struct stage_step {
    struct program *program;  /* NULL: the program of `main` */
    struct timeline timeline; /* step_s: of the slowest stage */
    double compute_s;         /* busy time of the compute stream */
    int64_t tier_bytes[TIER_COUNT];
};

struct stage_steps {
    int count;
    struct stage_step *list; /* by stage */
    double step_s;
    double bubble; /* fraction of all stages' time without computation, including any waiting: Megatron-LM's pipeline
                    * bubble (arXiv 2104.04473, section 2.2) */
};

/* Simulates the stages' steps. `main`: a step of the plan's graph, and its program if the plan has one stage. `costs`
 * are for that graph. Stages are compiled, without their proof, for the ranks that differ from the plan's only along
 * this axis. The caller frees, also after a failure. */
enum status stage_steps_make(const struct executable *main, const struct plan *plan, const struct costs *costs,
                             struct stage_steps *out);

void stage_steps_free(struct stage_steps *steps);

/* Proves, before the first step, that the programs of all ranks fit together (program_verify_ranks). */

/* With more ranks the proof delays the start too much: only each rank's own program is proved. */
enum { RANK_PROOF_MAX = 8 };

/* Whether the proof is made: only for few ranks. */
static inline bool rank_proof_is_made(const struct rank_place *place) {
    int ranks = rank_place_ranks(place);
    return ranks > 1 && ranks <= RANK_PROOF_MAX;
}

/* For rank 0, with its compiled training step: compiles the steps of all other ranks, including stages and
 * tensor-parallel ranks, and proves all of them together. FAILED with the mismatch, which is a bug in Ballast. OK
 * without a proof if rank_proof_is_made is false. */
enum status rank_proof_make(const struct session *session, const struct program_set *set, const struct executable *step,
                            const struct plan *plan);
