# libFuzzer targets: each tests/fuzz/fuzz_<name>.c becomes <build>/fuzz/fuzz_<name>, its seeds in tests/fuzz/corpus/<name>.

if(NOT CMAKE_C_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "The fuzz targets need clang: configure with -DCMAKE_C_COMPILER=clang")
endif()
set(fuzz_flags -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
target_compile_options(ballast PRIVATE ${fuzz_flags} -fsanitize=fuzzer-no-link)

file(GLOB fuzz_sources CONFIGURE_DEPENDS tests/fuzz/fuzz_*.c)
foreach(source IN LISTS fuzz_sources)
    cmake_path(GET source STEM program)
    add_executable(${program} ${source})
    set_target_properties(${program} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/fuzz")
    target_compile_options(${program} PRIVATE ${fuzz_flags} -fsanitize=fuzzer-no-link)
    target_link_options(${program} PRIVATE ${fuzz_flags} -fsanitize=fuzzer)
    target_link_libraries(${program} PRIVATE ballast ballast_warnings)
endforeach()
if(TARGET fuzz_scale_rows) # the same
    target_sources(fuzz_scale_rows PRIVATE bench/support/scale_rows.c)
    target_include_directories(fuzz_scale_rows PRIVATE bench)
endif()
if(TARGET fuzz_parallel_cases) # the reader of cases is a benchmark's
    file(GLOB case_sources CONFIGURE_DEPENDS bench/support/case_*.c)
    target_sources(fuzz_parallel_cases PRIVATE ${case_sources} bench/support/published_layouts.c
        bench/support/rotor_cases.c)
    target_include_directories(fuzz_parallel_cases PRIVATE bench)
endif()
list(LENGTH fuzz_sources fuzz_count)
summary_add("fuzz targets" "${fuzz_count}")
