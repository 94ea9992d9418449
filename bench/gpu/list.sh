# shellcheck shell=bash
# The parts of first.sh and second.sh: name, seconds, requirements, description, command of parts.sh (see library.sh).

kernel_tests='kernel_reference kernel_plain kernel_updates kernel_gradients kernel_attention kernel_muon kernels kernel_runs'

first_parts() {
    check libraries 8 nvidia 'libraries and their versions' libraries
    # shellcheck disable=SC2086 # a list
    check kernels 35 "$(printf 'test:%s ' $kernel_tests)" 'every operator against the CPU, PyTorch and fp64' run_tests $kernel_tests
    check bits 20 test:policies 'equal bits: 4 families, bf16 and fp32, 3 policies, graphs on and off' short_subjects
    check reference 12 test:reference "gpt2 and llama against PyTorch's stored steps" reference gpt2 llama
    measure gpt2-124m 25 bench:random_tokens 'tokens/s, MFU, memory beyond the arena' steps gpt2 32 12
    measure llama-1b 40 bench:random_tokens 'the same' steps llama-1b 16 8
    measure attention 10 'gpu bench:attention_ways' "own attention and its gradient compared with cuDNN's" bench attention_ways
    measure products 20 'gpu bench:product_choice' "cuBLASLt's best 8 algorithms of each shape" bench product_choice
    measure operators 18 '' "time of GPT-2's operators, and part of the GPU's limit" operators
}

second_parts() {
    measure sustained 14 'gpu bench:sustained_rate' 'GEMMs for 10 s compared with a burst of 0.15 s' bench sustained_rate
    measure copies 14 'gpu bench:copy_ways' 'host and device, pageable, registered and pinned; O_DIRECT' bench copy_ways
    measure rates 14 '' 'copies each way alone and at once, GEMMs' rates
    check graphs 25 'test:graph_segments test:same_bits test:lanes' 'graphs and runs of several steps' run_tests graph_segments same_bits lanes
    check runs 14 '' 'a resumed run has the bits of an unbroken one; generated text is that of the CPU' runs
    check nccl 6 'gpu test:nccl_self nccl' "a communicator of one rank; sums of ranks" run_tests nccl_self
    measure llama-1b-in-8g 26 bench:random_tokens 'offload: 8 GB of the GPU' steps llama-1b 32 5 --device-memory 8G --host-memory 40G
    measure llama-8b 75 bench:random_tokens 'offload: bf16 with 8-bit states' steps llama-8b 8 4 --optimizer-dtype int8 --master-weights none --host-memory 60G
    measure memcheck 30 'gpu command:compute-sanitizer test:kernel_plain' 'kernel tests under the sanitizer' memcheck
    measure pytorch-gpt2 35 'gpu torch bench:random_tokens' 'eager and compiled, fused AdamW, SDPA' pytorch gpt2 32 16
    measure pytorch-llama-1b 45 'gpu torch bench:random_tokens' 'the same' pytorch llama-1b 16 8
    measure peer 12 gpu "llm.c's steps, where LLMC names its build" peer
    measure step-ways 30 'gpu bench:step_ways' 'sizes of micro-batches, a padded vocabulary, graphs compared with calls' bench step_ways
    measure racecheck 12 'gpu command:compute-sanitizer test:kernel_reference' 'shared memory; findings around cp.async are no failure' racecheck
    check subjects 40 test:policies 'equal bits of the other subjects, as many as fit' other_subjects
}
