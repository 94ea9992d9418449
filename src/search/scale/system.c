#include "search/scale/training.h"

/* The first whose name is in a framework's text counts, so longer names stand before shorter ones. state_bytes: weights
 * and gradients in 16 bits, a master weight and two moments in fp32 make 16; a gradient in fp32 makes 18. */
static const struct training_system systems[] = {
    /* What Ballast plans for at scale: fused attention, everything that moves overlapped with compute, gradients in
     * fp32.
     */
    {.name = "Ballast",
     .own_kernels = true,
     .attention = ATTENTION_OWN,
     .fused = true,
     .sum = SUM_BY_PRODUCT,
     .gradient_bytes = 4,
     .state_bytes = 18,
     .overlaps_parameters = true,
     .overlaps_gradients = true,
     .interleaves = true,
     .cuts_sequence = true},
    /* llm-foundry: MPT's attention is Triton's FlashAttention 1; mixed precision of FSDP gathers in bf16 and, but for
     * "PURE", reduces in fp32. */
    {.name = "Composer FSDP1",
     .attention = ATTENTION_FLASH1,
     .fp32_loss = true,
     .gradient_bytes = 4,
     .state_bytes = 16,
     .overlaps_parameters = true,
     .overlaps_gradients = true},
    /* torch.compile joins elementwise kernels; fms-fsdp's policy reduces in bf16. */
    {.name = "FSDP1+torch.compile",
     .attention = ATTENTION_FLASH2,
     .fused = true,
     .fp32_loss = true,
     .gradient_bytes = 2,
     .state_bytes = 16,
     .overlaps_parameters = true,
     .overlaps_gradients = true},
    {.name = "torchtitan",
     .attention = ATTENTION_FLASH2,
     .fused = true,
     .fp32_loss = true,
     .gradient_bytes = 4,
     .state_bytes = 16,
     .overlaps_parameters = true,
     .overlaps_gradients = true,
     .cuts_sends = true,
     .cuts_sequence = true},
    {.name = "PyTorch FSDP1",
     .attention = ATTENTION_SCORES,
     .fp32_loss = true,
     .gradient_bytes = 2,
     .state_bytes = 16,
     .overlaps_parameters = true,
     .overlaps_gradients = true},
    /* hybrid-ZeRO: gradients are all-reduced, owners broadcast what they updated (AMSP, arXiv 2311.00257, section IV).
     */
    {.name = "InternEvo",
     .attention = ATTENTION_FLASH2,
     .fused = true,
     .fp32_loss = true,
     .gradient_bytes = 2,
     .state_bytes = 24,
     .update_bytes = 4,
     .gathers = 5, /* those of queries, keys and values, of the output, and of the MLP's three */
     .overlaps_parameters = true,
     .overlaps_gradients = true,
     .broadcasts = true},
    /* Stages send each other activations cut among the tensor ranks ("pipe_partitioned"); with bf16, gradients are
     * added up in fp32. */
    {.name = "Megatron-DeepSpeed",
     .attention = ATTENTION_SCORES,
     .fused = true,
     .rereads_norms = true,
     .blocks_launches = true,
     .fp32_loss = true,
     .gradient_bytes = 2,
     .state_bytes = 16,
     .buffer_bytes = 3000000000, /* three buckets of 5e8 elements, its default */
     .cuts_sends = true,
     .fills_stages = true},
    /* 0.3, with PyTorch 1.8: ZeRO-3 waits for the device, makes a view of each rank's piece of a weight, and PyTorch
     * copies each out of what it gathered; gradients the same way back (microsoft/DeepSpeed@ab5534fc,
     * partition_parameters.py: _allgather_param, _reduce_scatter_gradient; PyTorch's ProcessGroupNCCL). A layer above
     * stage3_max_reuse_distance, 1e9, is released after it is computed again. */
    {.name = "DeepSpeed 0.3",
     .attention = ATTENTION_SCORES,
     .fused = true,
     .fp32_loss = true,
     .gradient_bytes = 2,
     .state_bytes = 18,
     .buffer_bytes = 3000000000,
     .gathers = 4,
     .gather_calls = 2,
     .scatter_calls = 2,
     .kept_parameters = 1000000000},
    /* Parameters are fetched tensor by tensor, but for those below stage3_param_persistence_threshold. For each rank's
     * piece a view is made before a gather and another after it, whose stream is told; for gradients a piece is cut off
     * and put into a list, and their sum cut again (@04cd6af1: partition_parameters.py, AllGatherCoalescedHandle;
     * coalesced_collectives.py, reduce_scatter_coalesced). */
    {.name = "DeepSpeed",
     .attention = ATTENTION_FLASH2,
     .fused = true,
     .fp32_loss = true,
     .gradient_bytes = 2,
     .state_bytes = 18,
     .buffer_bytes = 3000000000,
     .gathers = 7,
     .gather_calls = 3,
     .scatter_calls = 2,
     .kept_parameters = 1000000000,
     .overlaps_parameters = true,
     .overlaps_gradients = true},
    /* 0.8 and later: fused attention, --overlap-grad-reduce, --overlap-param-gather, --tp-comm-overlap; gradients are
     * accumulated by their GEMMs unless --no-gradient-accumulation-fusion says otherwise. */
    {.name = "Megatron-Core",
     .attention = ATTENTION_CUDNN,
     .fused = true,
     .fp32_loss = true,
     .gradient_bytes = 4,
     .state_bytes = 18,
     .overlaps_parameters = true,
     .overlaps_gradients = true,
     .overlaps_update = true,
     .overlaps_tensor_forward = true,
     .overlaps_tensor_backward = true,
     .sum = SUM_BY_PRODUCT,
     .interleaves = true,
     .cuts_sends = true,
     .cuts_sequence = true},
    /* 2022, of which its published tables are: scores in memory, distributed_fused_adam before its collectives were
     * overlapped (NVIDIA/NeMo-Framework-Launcher@73d7e94: overlap_grad_sync is false; new parameters from @d1d5454 on);
     * tensor parallelism as in Megatron-LM of that year (apex). Gradients are
     * reduced in fp32 where grad_sync_dtype does not say otherwise (@2ed8ca13). "Gradient accumulation fusion can
     * only be used with pipeline parallel size > 1." */
    {.name = "NeMo Megatron",
     .attention = ATTENTION_SCORES,
     .fused = true,
     .fp32_loss = true,
     .gradient_bytes = 4,
     .state_bytes = 18,
     .overlaps_tensor_backward = true,
     .sum = SUM_BY_PRODUCT_OF_STAGES,
     .cuts_sends = true,
     .cuts_sequence = true},
    /* 2021: scatter and gather of sends (arXiv 2104.04473, section 4.1); gradients after the last backward; before
     * persist_layer_norm (NVIDIA/Megatron-LM@a2fdcdf, which Megatron-DeepSpeed does not have either). */
    {.name = "Megatron-LM PTD-P",
     .attention = ATTENTION_SCORES,
     .fused = true,
     .rereads_norms = true,
     .fp32_loss = true,
     .gradient_bytes = 2,
     .state_bytes = 18,
     .cuts_sends = true},
    /* 2022: collectives of the backward overlapped with the GEMMs of weights' gradients (arXiv 2205.05198,
     * section 4.2), which add to sums in fp32 (NVIDIA/Megatron-LM@83b1e42; the paper's figure 1 has 18 bytes a
     * parameter). */
    {.name = "Megatron-LM",
     .attention = ATTENTION_SCORES,
     .fused = true,
     .fp32_loss = true,
     .gradient_bytes = 4,
     .state_bytes = 18,
     .overlaps_tensor_backward = true,
     .sum = SUM_BY_PRODUCT,
     .cuts_sends = true},
    {.name = "llm.c",
     .attention = ATTENTION_CUDNN,
     .fused = true,
     .gradient_bytes = 2,
     .state_bytes = 16,
     .overlaps_gradients = true},
};

const struct training_system *training_system_find(const char *text) {
    for (size_t i = 0; i < sizeof systems / sizeof *systems; i++)
        if (strstr(text, systems[i].name)) return &systems[i];
    return NULL;
}
