/* Constants that no data sheet gives, fitted together on published steps (build/bench/scale_tables --fit). None belongs
 * to one row of a table or to one source. */
#ifndef BALLAST_SEARCH_SCALE_CALIBRATION_H
#define BALLAST_SEARCH_SCALE_CALIBRATION_H

/* name, value, meaning. bench/RESULTS.md says how they were fitted. */
#define CALIBRATION_LIST(X)                                                                                            \
    X(product_volta, 0.9, "of the GPU's best product rate, what products reach in training: V100")                     \
    X(product_ampere, 0.8674, "the same: A100, A800")                                                                  \
    X(product_hopper, 0.8041, "the same: H100, H200 and later")                                                        \
    X(tile_wave_part, 0.3876, "of a last wave of tiles that is not full, how much is lost")                            \
    X(flash2_ampere, 0.471, "of the data sheet's rate, FlashAttention 2 forward: A100")                                \
    X(flash2_hopper, 0.2513, "the same: H100")                                                                         \
    X(flash1_part, 0.9311, "FlashAttention 1 and Triton's, of FlashAttention 2")                                       \
    X(flash_backward, 0.65, "rate of flash attention's gradient, of its forward")                                      \
    X(memory_part, 0.6792, "of the data sheet's memory rate, what streaming kernels reach")                            \
    X(elementwise_traffic, 0.8743, "bytes of elementwise kernels, of those counted")                                   \
    X(kernel_s, 8e-06, "seconds of a kernel apart from its work: its launch, beginning and end")                       \
    X(launch_s, 6.428e-05, "seconds from a kernel to the next where launches block")                                   \
    X(collective_slowdown, 0.6, "how much longer kernels take during a collective at the links' full rate")            \
    X(congestion, 0.1533, "of the rate across two nodes, what a doubling of them takes away")                          \
    X(broadcast_s, 0.001702, "seconds of a broadcast of new parameters apart from its bytes")                          \
    X(runtime_bytes, 6.052e+09, "of CUDA, its libraries and NCCL's buffers")                                           \
    X(step_s, 0.04413, "seconds of a step that are neither kernels nor collectives")

struct calibration {
#define CALIBRATION_FIELD(name, value, meaning) double name;
    CALIBRATION_LIST(CALIBRATION_FIELD)
#undef CALIBRATION_FIELD
};

/* The values of the list above. */
struct calibration calibration_default(void);

#endif
