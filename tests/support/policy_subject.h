/* Small training runs under a policy, whose losses, norms and weights are the same bit for bit under any other. */
#ifndef BALLAST_TESTS_POLICY_SUBJECT_H
#define BALLAST_TESTS_POLICY_SUBJECT_H

#include "support/outcome.h"

enum { POLICY_SUBJECTS = 10, POLICY_SUBJECT_BLOCKS = 8 };

struct policy_subject {
    const char *model; /* of the fixtures; NULL: a Llama of six layers */
    const char *lora, *freeze;
    enum dtype dtype;
};
/* All families, both dtypes, adapters and frozen weights. */
extern const struct policy_subject policy_subjects[POLICY_SUBJECTS];

struct policy_way {
    const struct backend *backend; /* NULL: the CPU's */
    const struct policy *policy;   /* NULL: the plain one, or */
    uint64_t policy_seed;          /* not 0: a random one */
    bool interleaved;              /* by runner_step_interleaved */
    int streams;                   /* more than 1: instructions are dealt to so many at random */
    uint64_t seed;
};

struct outcome policy_train(const struct policy_subject *subject, const struct policy_way *way);

#endif
