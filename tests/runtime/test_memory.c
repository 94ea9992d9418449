/* Resident memory grows by the arenas' size and no more, and a step allocates nothing, with any tiers. */
/* ctest: PROCESSORS 2 TIMEOUT 600 LABELS long */
/* ctest-again: avx2 slow BALLAST_MAX_ISA=avx2 DNNL_MAX_CPU_ISA=AVX2 */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/random.h"
#include "support/harness.h"
#include "support/random_policy.h"
#include "support/unit.h"

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif

/* In bytes, 0 when the line is missing. */
static int64_t status_line(const char *name) {
    FILE *file = fopen("/proc/self/status", "r");
    assert_non_null(file);
    char line[256];
    long long kibibytes = 0;
    while (fgets(line, sizeof line, file))
        if (strncmp(line, name, strlen(name)) == 0) sscanf(line + strlen(name) + 1, "%lld", &kibibytes);
    fclose(file);
    return kibibytes * 1024;
}

/* The peak of what is not backed by files. */
static int64_t own_peak(void) { return status_line("VmHWM") - status_line("RssFile"); }

static void note_peak(void *payload) { *(int64_t *)payload = own_peak(); }

static void random_batch(struct harness *harness, int64_t vocab, uint64_t step) {
    int64_t count = harness->options.batch * harness->options.sequence_length;
    int32_t *tokens = mem_array((size_t)count * 2, sizeof *tokens);
    assert_non_null(tokens);
    for (int64_t i = 0; i < 2 * count; i++)
        tokens[i] = (int32_t)(random_u64(step, RANDOM_TEST, 0, (uint64_t)i) % (uint64_t)vocab);
    harness_set_inputs(harness, tokens, tokens + count);
    mem_free(tokens);
}

static struct model_config config_of(const char *family, int64_t hidden, int64_t layers, int64_t vocab) {
    struct model_config config;
    assert_int_equal(model_config_init(family, &config), STATUS_OK);
    config.hidden = hidden;
    config.layers = layers;
    config.heads = hidden / 64;
    config.kv_heads = config.head_dim = config.ffn = 0;
    config.vocab_size = vocab;
    config.context = 512;
    return config;
}

/* Everything elsewhere, of each kind some. */
static const struct policy tiered = {.chunk_bytes = 32 << 20,
                                     .buffers = 3,
                                     .lookahead = 1,
                                     .parameters = TIER_DISK,
                                     .gradients = TIER_HOST,
                                     .optimizer = TIER_DISK,
                                     .update = TIER_HOST,
                                     .schedule = "f0-5 h1 d2 b5-4 f3 b3-0"};
static const struct policy plain;

struct measured {
    const char *family;
    int64_t hidden, layers, vocab, batch, length;
    const struct policy *policy; /* NULL: a random one, of */
    uint64_t policy_seed;
    int64_t min_bytes; /* of the arenas in memory */
};

/* In a child, whose peak begins with nothing. Exit status 0: within 2% + 16 MiB. Weights that lie on the disk pass
 * through memory one by one when they are set, so none is larger than that. */
static int measure(const struct measured *measured) {
    struct model_config config = config_of(measured->family, measured->hidden, measured->layers, measured->vocab);
    int64_t before = 0;
    struct harness_options options = {.config = &config,
                                      .purpose = MODEL_LOSS,
                                      .dtype = DTYPE_BF16,
                                      .batch = measured->batch,
                                      .sequence_length = measured->length,
                                      .micro_batch_sequences = 1,
                                      .micro_batches_per_wave = 2,
                                      .policy = measured->policy ? *measured->policy : plain,
                                      .policy_seed = measured->policy_seed,
                                      .clip_norm = 1,
                                      .before_arena = note_peak,
                                      .payload = &before,
                                      .seed = 1};
    struct harness harness;
    harness_open(&options, &harness);
    for (uint64_t step = 0; step < 2; step++) {
        random_batch(&harness, measured->vocab, step);
        harness_step(&harness, 1e-4, false);
    }
    int64_t arenas = harness.engine.arenas[TIER_DEVICE].bytes + harness.engine.arenas[TIER_HOST].bytes,
            grown = own_peak() - before;
    print_message("%s, seed %llu: arenas %.1f MiB, and %.1f MiB on the disk; resident memory grew by %.1f MiB\n",
                  measured->family, (unsigned long long)measured->policy_seed, (double)arenas / 0x1p20,
                  (double)harness.engine.arenas[TIER_DISK].bytes / 0x1p20, (double)grown / 0x1p20);
    double off = (double)(grown - arenas), allowed = 0.02 * (double)arenas + 16 * 0x1p20;
    bool within = fabs(off) <= allowed;
    if (!within) print_policy(&harness.options.policy, measured->policy_seed);
    harness_close(&harness);
    return arenas < measured->min_bytes ? 2 : !within;
}

static void measure_in_child(const struct measured *measured) {
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(measure(measured));
    int result;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result));
    assert_int_equal(WEXITSTATUS(result), 0);
}

static void memory_is_as_planned(void **state) {
    (void)state;
#ifdef SANITIZED
    unit_skip("sanitizers have memory of their own; needs a plain build");
#endif
    measure_in_child(&(struct measured){"llama", 128, 2, 512, 4, 64, &plain, 0, 0});
    measure_in_child(&(struct measured){"llama", 1024, 4, 16000, 4, 128, &plain, 0, (int64_t)1 << 30});
    measure_in_child(&(struct measured){"llama", 128, 4, 512, 4, 64, &tiered, 0, 0});
    measure_in_child(&(struct measured){"llama", 1024, 4, 2000, 4, 128, &tiered, 0, (int64_t)256 << 20});
}

/* Each takes some 60 MiB with all its states, of which the policy leaves anything from a little to all in memory. */
static void memory_of_random_policies_is_as_planned(void **state) {
    (void)state;
#ifdef SANITIZED
    unit_skip("sanitizers have memory of their own; needs a plain build");
#endif
    for (uint64_t f = 0; f < (uint64_t)model_family_count; f++)
        for (uint64_t i = 1, each = unit_sweep(1, 200); i <= each; i++)
            measure_in_child(&(struct measured){.family = model_families[f]->name,
                                                .hidden = 256,
                                                .layers = 3,
                                                .vocab = 4000,
                                                .batch = 4,
                                                .length = 64,
                                                .policy_seed = 1000 * (f + 1) + i});
}

#ifndef SANITIZED
/* Every allocation of the process passes here: ours, oneDNN's, OpenMP's. */
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *block, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
static atomic_bool counting;
static atomic_llong allocations, allocated_bytes;

static void count_allocation(size_t bytes) {
    if (!atomic_load_explicit(&counting, memory_order_relaxed)) return;
    atomic_fetch_add(&allocations, 1);
    atomic_fetch_add(&allocated_bytes, (long long)bytes);
}
void *malloc(size_t bytes) {
    count_allocation(bytes);
    return __libc_malloc(bytes);
}
void *calloc(size_t count, size_t bytes) {
    count_allocation(count * bytes);
    return __libc_calloc(count, bytes);
}
void *realloc(void *block, size_t bytes) {
    count_allocation(bytes);
    return __libc_realloc(block, bytes);
}
void *aligned_alloc(size_t alignment, size_t bytes) {
    count_allocation(bytes);
    return __libc_memalign(alignment, bytes);
}
int posix_memalign(void **out, size_t alignment, size_t bytes) {
    count_allocation(bytes);
    *out = __libc_memalign(alignment, bytes);
    return *out ? 0 : 12;
}
#endif

static void steps_allocate_nothing(void **state) {
    (void)state;
#if defined(SANITIZED) || defined(__clang__)
    unit_skip("LLVM's OpenMP allocates when a parallel region begins; needs a plain build by gcc");
#else
    for (int d = 0; d < 4; d++) {
        bool bf16 = d % 2, moves = d / 2;
        struct model_config config = config_of("llama", 128, 4, 512);
        struct harness_options options = {.config = &config,
                                          .purpose = MODEL_LOSS,
                                          .dtype = bf16 ? DTYPE_BF16 : DTYPE_F32,
                                          .batch = 4,
                                          .sequence_length = 64,
                                          .micro_batch_sequences = 1,
                                          .micro_batches_per_wave = 2,
                                          .policy = moves ? tiered : plain,
                                          .clip_norm = 1,
                                          .seed = 1};
        struct harness harness;
        harness_open(&options, &harness);
        random_batch(&harness, 512, 1);
        struct timeline timeline;
        assert_int_equal(timeline_create(harness.executable->program, &timeline), STATUS_OK);
        runner_set_recorder(harness.runner, &timeline);
        harness_step(&harness, 1e-4, false);
        atomic_store(&allocations, 0);
        atomic_store(&allocated_bytes, 0);
        atomic_store(&counting, true);
        for (int step = 0; step < 3; step++)
            harness_step(&harness, 1e-4, false);
        atomic_store(&counting, false);
        print_message("%s, %s: %lld allocations, %lld bytes in three steps after the first\n", bf16 ? "bf16" : "fp32",
                      moves ? "three tiers" : "one tier", atomic_load(&allocations), atomic_load(&allocated_bytes));
        assert_true(timeline.step_s > 0);
        timeline_free(&timeline);
        harness_close(&harness);
        assert_int_equal(atomic_load(&allocations), 0);
    }
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_as_planned),
        cmocka_unit_test(memory_of_random_policies_is_as_planned),
        cmocka_unit_test(steps_allocate_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
