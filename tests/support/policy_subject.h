/* Small training runs under a policy. Losses, norms and weights are the same, bit for bit, under any other policy. */
#pragma once

#include "support/outcome.h"

/* Of each family: all weights in fp32, all in bf16 and the family's other form, adapters, some layers frozen. */
enum { POLICY_SUBJECTS_EACH = 4, POLICY_SUBJECT_BLOCKS = 8, POLICY_SUBJECT_MICRO_BATCHES = 5 };
enum { POLICY_LONG_TOKENS = 2048 };
#define POLICY_SUBJECT_CLIP_NORM 0.02 /* below every norm, so that clipping is at work in every step */

struct policy_subject {
    const char *name, *family;
    enum dtype dtype;
    bool other; /* what a config can also say: tied or not, biases, windows, norms behind, narrow embeddings */
    const char *lora, *freeze;
    enum state_format optimizer_dtype;
    enum master_weights master_weights;
    enum update_rule optimizer;
    enum weight_format quantize_base;
};
/* Family by family, each of six layers, then smaller optimizer states; policy_subject_count is a multiple of
 * POLICY_SUBJECTS_EACH. */
extern const struct policy_subject policy_subjects[];
extern const size_t policy_subject_count;
/* The one of that name; the test fails where there is none. */
const struct policy_subject *policy_subject_named(const char *name);
/* Whether it is a mixture of experts. */
bool policy_subject_has_experts(const struct policy_subject *subject);

struct policy_way {
    const struct backend *backend; /* NULL: the CPU's */
    const struct policy *policy;   /* NULL: the plain one, or */
    uint64_t policy_seed;          /* not 0: a random one, but for */
    struct policy_traits policy_traits;
    bool interleaved;        /* by runner_step_interleaved */
    bool long_micro_batches; /* the step is one micro-batch of POLICY_LONG_TOKENS, which tiles cut */
    struct lane_shape lanes; /* of the recipe; all 0: one */
    int64_t round_micro_batches;
    enum dtype reduce_dtype;
    int64_t batch;                     /* sequences; 0: POLICY_SUBJECT_MICRO_BATCHES micro-batches, the last not full */
    double clip_norm;                  /* 0: POLICY_SUBJECT_CLIP_NORM; below 0: none */
    int threads;                       /* 0: 2 */
    struct comm *comm;                 /* ranks that train together; NULL: one */
    int stages;                        /* of a pipeline; 0: one */
    const char *spans;                 /* policy.spans; NULL: chosen */
    const struct partition *partition; /* of states among ranks; NULL: none */
    bool flat;
    int streams; /* more than 1: instructions are dealt to so many at random, by */
    uint64_t stream_seed;
};

/* `config` is theirs as long as they are used. */
struct harness_options policy_options(const struct policy_subject *subject, const struct policy_way *way,
                                      struct model_config *config);
struct outcome policy_train(const struct policy_subject *subject, const struct policy_way *way);
