/* The numbers that no data sheet gives. Each has a meaning and a range; together they are fitted on known steps
 * (fit.h). None belongs to a row of a table or to a source. */
#ifndef BALLAST_SCALE_CALIBRATION_H
#define BALLAST_SCALE_CALIBRATION_H

/* name, where a fit starts, value, least, most, meaning. Flash attention's ranges are what arXiv 2307.08691 measured
 * (figures 4 to 7: causal, from 2048 positions to 16384, heads of 64 and 128), since few places have rows of long
 * sequences. The values were fitted as
 * bench/results/2026-11-23-scale-tables.md says. */
#define CALIBRATION_LIST(X)                                                                                            \
    X(product_volta, 0.9, 0.9, 0.5, 1.1, "of the card's best product rate, what products reach in training: V100")     \
    X(product_ampere, 0.9, 0.8674, 0.6, 1.1, "the same: A100, A800")                                                   \
    X(product_hopper, 0.9, 0.8041, 0.5, 1.1, "the same: H100, H200 and later")                                         \
    X(wave_part, 0.7, 0.3876, 0, 1, "of a last wave of tiles that is not full, how much is lost")                      \
    X(flash2_ampere, 0.55, 0.471, 0.45, 0.7, "of the data sheet's rate, FlashAttention 2 forward: A100")               \
    X(flash2_hopper, 0.35, 0.2513, 0.25, 0.45, "the same: H100")                                                       \
    X(flash1_part, 0.75, 0.9311, 0.4, 1.0, "FlashAttention 1 and Triton's, of FlashAttention 2")                       \
    X(flash_backward, 0.8, 0.65, 0.65, 1.1, "rate of flash attention's gradient, of its forward")                      \
    X(memory_part, 0.85, 0.6792, 0.55, 0.95, "of the data sheet's memory rate, what streaming kernels reach")          \
    X(elementwise_traffic, 1, 0.8743, 0.7, 2.0, "bytes of elementwise kernels, of those counted")                      \
    X(kernel_s, 5e-06, 8e-06, 0, 8e-6, "seconds of a kernel beside its work: its launch, beginning and end")           \
    X(launch_s, 1.5e-4, 6.428e-05, 0, 4e-4, "seconds from a kernel to the next where launches block")                  \
    X(collective_slowdown, 0.3, 0.6, 0, 0.6,                                                                           \
      "how much longer kernels take beside a collective at the links' full rate")                                      \
    X(congestion, 0.05, 0.1533, 0, 0.3, "of the rate across two nodes, what a doubling of them takes away")            \
    X(broadcast_s, 0.0015, 0.001702, 0, 5e-3, "seconds of a broadcast of new parameters beside its bytes")             \
    X(runtime_bytes, 3e+09, 6.052e+09, 0.5e9, 9e9, "of CUDA, its libraries and NCCL's buffers")                        \
    X(step_s, 0.03, 0.04413, 0, 0.3, "seconds of a step that are neither kernels nor collectives")

struct calibration {
#define CALIBRATION_FIELD(name, start, value, least, most, meaning) double name;
    CALIBRATION_LIST(CALIBRATION_FIELD)
#undef CALIBRATION_FIELD
};

/* One of its numbers; the struct is an array of them. */
struct calibration_number {
    const char *name;
    double start, value, least, most;
    const char *meaning;
};
extern const struct calibration_number calibration_numbers[];
enum { CALIBRATION_COUNT = (int)(sizeof(struct calibration) / sizeof(double)) };

/* The values of the list above, and where a fit starts: what one would guess without a known step. */
struct calibration calibration_default(void);
struct calibration calibration_start(void);
/* By index, below CALIBRATION_COUNT. */
double calibration_get(const struct calibration *calibration, int index);
void calibration_set(struct calibration *calibration, int index, double value);

#endif
