#include "search/scale/training.h"

/* The first whose name is in a framework's text counts, so longer names stand before shorter ones. state_bytes: weights
 * and gradients in 16 bits, a master weight and two moments in fp32 make 16; a gradient in fp32 makes 18. Columns:
 * name, attention, sum, gradient_bytes, state_bytes, traits. */
static const struct training_system systems[] = {
    /* What Ballast plans for at scale: fused attention, everything that moves overlapped with compute, gradients in
     * fp32.
     */
    {"Ballast", ATTENTION_OWN, SUM_BY_PRODUCT, 4, 18,
     OWN_KERNELS | FUSED_KERNELS | OVERLAPS_PARAMETERS | OVERLAPS_GRADIENTS | INTERLEAVES | CUTS_SEQUENCE,
     .gathers = 1},
    /* llm-foundry: MPT's attention is Triton's FlashAttention 1; mixed precision of FSDP gathers in bf16 and, but for
     * "PURE", reduces in fp32. */
    {"Composer FSDP1", ATTENTION_FLASH1, SUM_BY_KERNEL, 4, 16, FP32_LOSS | OVERLAPS_PARAMETERS | OVERLAPS_GRADIENTS,
     .gathers = 1},
    /* torch.compile joins elementwise kernels; fms-fsdp's policy reduces in bf16. */
    {"FSDP1+torch.compile", ATTENTION_FLASH2, SUM_BY_KERNEL, 2, 16,
     FUSED_KERNELS | FP32_LOSS | OVERLAPS_PARAMETERS | OVERLAPS_GRADIENTS, .gathers = 1},
    {"torchtitan", ATTENTION_FLASH2, SUM_BY_KERNEL, 4, 16,
     FUSED_KERNELS | FP32_LOSS | OVERLAPS_PARAMETERS | OVERLAPS_GRADIENTS | CUTS_SENDS | CUTS_SEQUENCE, .gathers = 1},
    {"PyTorch FSDP1", ATTENTION_SCORES, SUM_BY_KERNEL, 2, 16, FP32_LOSS | OVERLAPS_PARAMETERS | OVERLAPS_GRADIENTS,
     .gathers = 1},
    /* hybrid-ZeRO: gradients are all-reduced, owners broadcast what they updated (AMSP, arXiv 2311.00257, section IV).
     * Gathers: of queries, keys and values, of the output, and of the MLP's three. */
    {"InternEvo", ATTENTION_FLASH2, SUM_BY_KERNEL, 2, 24,
     FUSED_KERNELS | FP32_LOSS | OVERLAPS_PARAMETERS | OVERLAPS_GRADIENTS | BROADCASTS, .update_bytes = 4,
     .gathers = 5},
    /* Stages send each other activations cut among the tensor ranks ("pipe_partitioned"); with bf16, gradients are
     * added up in fp32. Three buckets of 5e8 elements, its default. */
    {"Megatron-DeepSpeed", ATTENTION_SCORES, SUM_BY_KERNEL, 2, 16,
     FUSED_KERNELS | REREADS_NORMS | BLOCKS_LAUNCHES | FP32_LOSS | CUTS_SENDS | FILLS_STAGES,
     .buffer_bytes = 3000000000, .gathers = 1},
    /* 0.3, with PyTorch 1.8: ZeRO-3 waits for the device, makes a view of each rank's piece of a weight, and PyTorch
     * copies each out of what it gathered; gradients the same way back (microsoft/DeepSpeed@ab5534fc,
     * partition_parameters.py: _allgather_param, _reduce_scatter_gradient; PyTorch's ProcessGroupNCCL). A layer above
     * stage3_max_reuse_distance, 1e9, is released after it is computed again. */
    {"DeepSpeed 0.3", ATTENTION_SCORES, SUM_BY_KERNEL, 2, 18, FUSED_KERNELS | FP32_LOSS, .buffer_bytes = 3000000000,
     .gathers = 4, .gather_calls = 2, .scatter_calls = 2, .kept_parameters = 1000000000},
    /* Parameters are fetched tensor by tensor, but for those below stage3_param_persistence_threshold. For each rank's
     * piece a view is made before a gather and another after it, whose stream is told; for gradients a piece is cut off
     * and put into a list, and their sum cut again (@04cd6af1: partition_parameters.py, AllGatherCoalescedHandle;
     * coalesced_collectives.py, reduce_scatter_coalesced). */
    {"DeepSpeed", ATTENTION_FLASH2, SUM_BY_KERNEL, 2, 18,
     FUSED_KERNELS | FP32_LOSS | OVERLAPS_PARAMETERS | OVERLAPS_GRADIENTS, .buffer_bytes = 3000000000, .gathers = 7,
     .gather_calls = 3, .scatter_calls = 2, .kept_parameters = 1000000000},
    /* 0.8 and later: fused attention, --overlap-grad-reduce, --overlap-param-gather, --tp-comm-overlap; gradients are
     * accumulated by their GEMMs unless --no-gradient-accumulation-fusion says otherwise. */
    {"Megatron-Core", ATTENTION_CUDNN, SUM_BY_PRODUCT, 4, 18,
     FUSED_KERNELS | FP32_LOSS | OVERLAPS_PARAMETERS | OVERLAPS_GRADIENTS | OVERLAPS_UPDATE | OVERLAPS_TENSOR_FORWARD |
         OVERLAPS_TENSOR_BACKWARD | INTERLEAVES | CUTS_SENDS | CUTS_SEQUENCE,
     .gathers = 1},
    /* 2022, of which its published tables are: scores in memory, distributed_fused_adam before its collectives were
     * overlapped (NVIDIA/NeMo-Framework-Launcher@73d7e94: overlap_grad_sync is false; new parameters from @d1d5454 on);
     * tensor parallelism as in Megatron-LM of that year (apex). Gradients are
     * reduced in fp32 where grad_sync_dtype does not say otherwise (@2ed8ca13). "Gradient accumulation fusion can
     * only be used with pipeline parallel size > 1." */
    {"NeMo Megatron", ATTENTION_SCORES, SUM_BY_PRODUCT_OF_STAGES, 4, 18,
     FUSED_KERNELS | FP32_LOSS | OVERLAPS_TENSOR_BACKWARD | CUTS_SENDS | CUTS_SEQUENCE, .gathers = 1},
    /* 2021: scatter and gather of sends (arXiv 2104.04473, section 4.1); gradients after the last backward; before
     * persist_layer_norm (NVIDIA/Megatron-LM@a2fdcdf, which Megatron-DeepSpeed does not have either). */
    {"Megatron-LM PTD-P", ATTENTION_SCORES, SUM_BY_KERNEL, 2, 18,
     FUSED_KERNELS | REREADS_NORMS | FP32_LOSS | CUTS_SENDS, .gathers = 1},
    /* 2022: collectives of the backward overlapped with the GEMMs of weights' gradients (arXiv 2205.05198,
     * section 4.2), which add to sums in fp32 (NVIDIA/Megatron-LM@83b1e42; the paper's figure 1 has 18 bytes a
     * parameter). */
    {"Megatron-LM", ATTENTION_SCORES, SUM_BY_PRODUCT, 4, 18,
     FUSED_KERNELS | FP32_LOSS | OVERLAPS_TENSOR_BACKWARD | CUTS_SENDS, .gathers = 1},
    {"llm.c", ATTENTION_CUDNN, SUM_BY_KERNEL, 2, 16, FUSED_KERNELS | OVERLAPS_GRADIENTS, .gathers = 1},
};

const struct training_system *training_system_find(const char *text) {
    for (size_t i = 0; i < sizeof systems / sizeof *systems; i++)
        if (strstr(text, systems[i].name)) return &systems[i];
    return NULL;
}
