# One program for each tests/<room>/test_<name>.c, one ctest entry `<room>.<name>` for each program or test_<name>.sh.
#
# A test that needs other ctest properties says so in a line of its own, for example
#     /* ctest: PROCESSORS 2 */          or, in a script,          # ctest: PROCESSORS 2
# One that takes more than five seconds on two cores is long, which make test runs after the others:
#     /* ctest: LABELS long */
# One that shall also run in another environment names the second run and its variables; <room>.<name>.avx2 is then
#     /* ctest-again: avx2 BALLAST_MAX_ISA=avx2 DNNL_MAX_CPU_ISA=AVX2 */
# `slow` among them leaves the second run to make test-slow.
# One that is linked in a way of its own says how: the proof's test replaces a function.
#     /* link: -Wl,--wrap=walk_program */
# A test that needs what the machine has not (a GPU) ends with 77 and counts as skipped.
# BALLAST_TEST_CASES in the environment has a program list its cases, or run one of them (tests/support/one_case.c).
# Programs see BALLAST_FIXTURES, BALLAST_SOURCE and BALLAST_PROGRAM as string macros, scripts as environment variables.

enable_testing()
set(BALLAST_FUZZ_BUILD "" CACHE PATH "Build folder of the libFuzzer targets; ctest then runs each for a minute")

option(BALLAST_PORTABLE_TESTS "Tests find fixtures and ballast in the folder above theirs (bench/gpu/bundle.sh)" OFF)
if(BALLAST_PORTABLE_TESTS)
    set(test_places "BALLAST_FIXTURES=fixtures" "BALLAST_SOURCE=." "BALLAST_PROGRAM=./ballast")
else()
    set(test_places
        "BALLAST_FIXTURES=${PROJECT_SOURCE_DIR}/tests/fixtures"
        "BALLAST_SOURCE=${PROJECT_SOURCE_DIR}"
        "BALLAST_PROGRAM=${PROJECT_BINARY_DIR}/ballast")
endif()
set(test_environment
    ${test_places}
    "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/leak-suppressions.txt:print_suppressions=0"
    "ASAN_OPTIONS=allocator_may_return_null=1" # a huge request must come back as NULL, as it does without sanitizers
    "UBSAN_OPTIONS=print_stacktrace=1"
    "OMP_WAIT_POLICY=passive")

function(test_set_properties test source)
    set_property(TEST ${test} PROPERTY ENVIRONMENT "${test_environment}")
    set_property(TEST ${test} PROPERTY SKIP_RETURN_CODE 77)
    # What the program chooses by itself is then the same everywhere.
    if(test MATCHES "^cli\\.")
        set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT "CUDA_VISIBLE_DEVICES=")
    endif()
    file(STRINGS "${source}" asked REGEX "^(/\\*|#) ctest: ")
    foreach(line IN LISTS asked)
        string(REGEX REPLACE "^(/\\*|#) ctest: *| *\\*/ *$" "" line "${line}")
        separate_arguments(line)
        set_tests_properties(${test} PROPERTIES ${line})
    endforeach()
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${source}")
endfunction()

# The test again for each `ctest-again` line of its source.
function(test_add_again test source program)
    file(STRINGS "${source}" asked REGEX "^/\\* ctest-again: ")
    foreach(line IN LISTS asked)
        string(REGEX REPLACE "^/\\* ctest-again: *| *\\*/ *$" "" line "${line}")
        separate_arguments(line)
        list(POP_FRONT line again)
        add_test(NAME ${test}.${again} COMMAND ${program})
        test_set_properties(${test}.${again} "${source}")
        if(slow IN_LIST line)
            list(REMOVE_ITEM line slow)
            set_property(TEST ${test}.${again} APPEND PROPERTY LABELS slow)
        endif()
        set_property(TEST ${test}.${again} APPEND PROPERTY ENVIRONMENT ${line})
    endforeach()
endfunction()

function(test_name source out)
    cmake_path(GET source PARENT_PATH folder)
    cmake_path(GET folder FILENAME room)
    cmake_path(GET source STEM name)
    string(REGEX REPLACE "^test_" "" name "${name}")
    set(${out} "${room}.${name}" PARENT_SCOPE)
endfunction()

pkg_check_modules(cmocka QUIET IMPORTED_TARGET cmocka)
if(cmocka_FOUND)
    summary_add(cmocka "${cmocka_VERSION}")
    file(GLOB support_sources CONFIGURE_DEPENDS tests/support/*.c)
    add_library(test_support INTERFACE)
    if(support_sources)
        add_library(test_support_objects STATIC ${support_sources})
        target_link_libraries(test_support_objects PUBLIC bench_support ballast PkgConfig::cmocka PRIVATE ballast_warnings)
        if(TARGET ballast_cuda)
            target_link_libraries(test_support_objects PUBLIC ballast_cuda)
        endif()
        target_include_directories(test_support_objects PRIVATE tests)
        target_link_libraries(test_support INTERFACE test_support_objects)
        list(TRANSFORM test_places REPLACE "=(.*)" "=\"\\1\"" OUTPUT_VARIABLE test_macros)
        target_compile_definitions(test_support_objects PUBLIC ${test_macros})
    endif()
    list(TRANSFORM test_places REPLACE "=(.*)" "=\"\\1\"" OUTPUT_VARIABLE test_macros)
    target_compile_definitions(test_support INTERFACE ${test_macros})
    target_include_directories(test_support INTERFACE tests)
    target_link_libraries(test_support INTERFACE bench_support ballast PkgConfig::cmocka)
    target_link_options(test_support INTERFACE -Wl,--wrap=_cmocka_run_group_tests) # tests/support/one_case.c

    file(GLOB test_sources CONFIGURE_DEPENDS tests/*/test_*.c)
    foreach(source IN LISTS test_sources)
        cmake_path(GET source STEM program)
        test_name("${source}" test)
        add_executable(${program} ${source})
        set_target_properties(${program} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
        target_link_libraries(${program} PRIVATE test_support ballast_warnings)
        if(TARGET ballast_program)
            add_dependencies(${program} ballast_program)
        endif()
        file(STRINGS "${source}" link_line REGEX "^/\\* link: ")
        if(link_line)
            string(REGEX REPLACE "^/\\* link: *| *\\*/ *$" "" link_line "${link_line}")
            separate_arguments(link_line)
            target_link_options(${program} PRIVATE ${link_line})
        endif()
        add_test(NAME ${test} COMMAND ${program})
        test_set_properties(${test} "${source}")
        test_add_again(${test} "${source}" ${program})
    endforeach()
    # A libnccl.so.2 without GPUs, which tests open as the program opens NCCL's.
    add_library(nccl_double MODULE tests/nccl_double/nccl_double.c)
    set_target_properties(nccl_double PROPERTIES PREFIX "" OUTPUT_NAME libnccl-double C_VISIBILITY_PRESET hidden
        LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
    target_include_directories(nccl_double PRIVATE src)
    target_link_libraries(nccl_double PRIVATE ballast_warnings)
    foreach(program IN ITEMS test_nccl test_nccl_ranks test_nccl_self test_emulated_ranks)
        add_dependencies(${program} nccl_double)
    endforeach()
    if(cudnn_found)
        target_compile_definitions(test_attention_cudnn PRIVATE BALLAST_CUDNN)
    endif()
    if(TARGET ballast_cuda)
        # Its own functions stand before those of the CUDA runtime.
        foreach(program IN ITEMS test_cuda_device test_cuda_graphs)
            target_link_options(${program} PRIVATE -Wl,--allow-multiple-definition)
        endforeach()
    endif()
    # Device code runs where there is no device, too: these tests with the kernels compiled for the CPU.
    include(CheckLanguage)
    check_language(CXX)
    if(TARGET ballast_cuda AND CMAKE_CXX_COMPILER)
        enable_language(CXX)
        add_subdirectory(tests/cuda_emulator)
        # The emulator's functions stand before those of the CUDA runtime, which the library brings all the same.
        set(emulated_options -Wl,--allow-multiple-definition)
        foreach(program IN ITEMS test_cuda_coded_experts test_cuda_emulated test_cuda_faults test_cuda_products
                test_cuda_programs test_cuda_slabs test_emulated_ranks)
            target_sources(${program} PRIVATE $<TARGET_OBJECTS:cuda_emulated>)
            target_compile_definitions(${program} PRIVATE BALLAST_CUDA_EMULATED)
            target_link_options(${program} PRIVATE ${emulated_options})
        endforeach()
        foreach(name kernel_muon kernel_plain kernel_reference kernel_runs kernel_updates)
            set(program test_${name}_emulated)
            add_executable(${program} tests/backend/test_${name}.c $<TARGET_OBJECTS:cuda_emulated>)
            set_target_properties(${program} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
            target_link_libraries(${program} PRIVATE test_support ballast_warnings)
            target_link_options(${program} PRIVATE ${emulated_options})
            add_test(NAME backend.${name}.emulated COMMAND ${program})
            test_set_properties(backend.${name}.emulated tests/backend/test_${name}.c)
            set_property(TEST backend.${name}.emulated APPEND PROPERTY ENVIRONMENT BALLAST_TEST_BACKEND=cuda)
        endforeach()
        set_property(TEST backend.kernel_plain.emulated backend.kernel_updates.emulated PROPERTY LABELS long)
    endif()
else()
    summary_add(cmocka "not found" "the tests are left out (libcmocka-dev)")
endif()

file(GLOB test_scripts CONFIGURE_DEPENDS tests/*/test_*.sh)
foreach(source IN LISTS test_scripts)
    test_name("${source}" test)
    add_test(NAME ${test} COMMAND sh ${source})
    test_set_properties(${test} "${source}")
endforeach()

find_program(AARCH64_GCC aarch64-linux-gnu-gcc)
if(AARCH64_GCC)
    summary_add("arm64 compiler" "${AARCH64_GCC}")
    add_test(NAME build.arm64 COMMAND "${PROJECT_SOURCE_DIR}/scripts/check-arm64.sh" "${AARCH64_GCC}")
    set_property(TEST build.arm64 PROPERTY LABELS long)
else()
    summary_add("arm64 compiler" "not found" "the test that arm64 compiles is left out (gcc-aarch64-linux-gnu)")
endif()

if(BALLAST_FUZZ_BUILD)
    file(GLOB fuzz_sources CONFIGURE_DEPENDS tests/fuzz/fuzz_*.c)
    foreach(source IN LISTS fuzz_sources)
        cmake_path(GET source STEM program)
        string(REGEX REPLACE "^fuzz_" "" name "${program}")
        add_test(NAME fuzz.${name} COMMAND "${PROJECT_SOURCE_DIR}/scripts/run-fuzzer.sh" "${BALLAST_FUZZ_BUILD}" ${name})
        set_property(TEST fuzz.${name} PROPERTY LABELS long)
    endforeach()
else()
    summary_add("fuzz targets" "not asked for" "ctest runs none (make test builds them in a folder of their own)")
endif()
