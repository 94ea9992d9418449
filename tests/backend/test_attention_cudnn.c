/* cuDNN recognizes the graph of attention, on described devices, so no device is needed. Without a driver the check
 * stops after all parts that depend on the graph. Only a device compares results (BALLAST_ATTENTION=cudnn,
 * bench/gpu/first.sh). */
/* ctest: TIMEOUT 600 */
#include "support/unit.h"

#ifdef BALLAST_CUDNN
#include <stdio.h>
#include <string.h>

#include "backend/cuda/attention_cudnn.h"

/* Of an A100 and an H100. */
static const struct device {
    int capability, multiprocessors, shared_bytes;
} devices[] = {{800, 108, 166912}, {900, 132, 232448}};

static void describe(const struct device *device, char text[1024]) {
    snprintf(text, 1024,
             "{\"deviceName\": \"described\", \"cudaDeviceId\": 0, \"deviceVer\": %d, \"driverVer\": 13000, "
             "\"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64], "
             "\"regsPerBlock\": 65536, \"multiProcessorCount\": %d, \"smClockRateKHz\": 1400000, "
             "\"memClockRateKHz\": 1500000, \"l2CacheSize\": 41943040, \"warpSize\": 32, "
             "\"maxSharedMemoryPerBlock\": 49152, \"maxSharedMemoryPerBlockOptin\": %d, "
             "\"reservedSharedMemoryPerBlock\": 1024, \"maxRegistersPerSM\": 65536, \"pciDeviceId\": 0, "
             "\"maxCtasPerSM\": 32, \"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": 2048, \"isTccDriver\": 0, "
             "\"supportCoopLaunch\": 1, \"totalGlobalMem\": 85029158912}",
             device->capability, device->multiprocessors, device->shared_bytes);
}

/* GPT-2's packed q, k and v; grouped heads; a length that no tile divides. Then their gradients. */
static const struct attention_cudnn_shape shapes[] = {
    {4, 1024, 12, 12, 64, 2304, 2304, 2304, 768, 0, 0, 0, 0},
    {1, 4096, 32, 8, 128, 4096, 1024, 1024, 4096, 0, 0, 0, 0},
    {3, 67, 4, 4, 72, 288, 288, 288, 288, 0, 0, 0, 0},
    {4, 1024, 12, 12, 64, 2304, 2304, 2304, 768, 768, 2304, 2304, 2304},
    {1, 4096, 32, 8, 128, 4096, 1024, 1024, 4096, 4096, 4096, 1024, 1024},
    {3, 67, 4, 4, 72, 288, 288, 288, 288, 288, 288, 288, 288},
};

static void graphs_are_recognised(void **state) {
    char text[1024];
    (void)state;
    for (size_t d = 0; d < sizeof devices / sizeof *devices; d++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            struct attention_cudnn *plan;
            describe(&devices[d], text);
            /* With a driver but no device, plans cannot be loaded: that comes later still. */
            (void)attention_cudnn_create(&shapes[s], text, &plan);
            bool recognised = plan || strstr(status_message(), "PREREQUISITE_MISSING") ||
                              strstr(status_message(), "EXECUTION_FAILED_CUDA_DRIVER");
            if (!recognised) fail_msg("sm_%d, shape %zu: %s", devices[d].capability / 10, s, status_message());
            attention_cudnn_free(plan);
            status_clear();
        }
}

static void other_nodes_make_no_graph(void **state) {
    static const struct attention_cudnn_shape uneven = {2, 64, 4, 3, 64, 256, 192, 192, 256, 0, 0, 0, 0};
    struct attention_cudnn *plan;
    char text[1024];
    (void)state;
    describe(&devices[1], text);
    assert_int_equal(attention_cudnn_create(&uneven, text, &plan), STATUS_FAILED);
    assert_null(plan);
    assert_int_equal(attention_cudnn_create(&shapes[0], "{}", &plan), STATUS_FAILED);
    assert_non_null(strstr(status_message(), "properties"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(graphs_are_recognised),
                                       cmocka_unit_test(other_nodes_make_no_graph)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void) { unit_skip_all("this build has no cuDNN; needs the CUDA toolkit, cuDNN and -DBALLAST_CUDNN=ON"); }
#endif
