# Compiler, warnings and sanitizers.

option(BALLAST_WERROR "Treat warnings as errors" OFF)
option(BALLAST_TESTS "Build the tests" ON)
option(BALLAST_FUZZ "Build the libFuzzer targets in place of the tests (clang only)" OFF)
set(BALLAST_SANITIZE "" CACHE STRING "Sanitizers for all of the build, e.g. address,undefined")

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
include(GNUInstallDirs)

if(NOT CMAKE_C_COMPILER_ID MATCHES "^(GNU|Clang)$")
    message(FATAL_ERROR "Ballast builds with gcc or clang, not with ${CMAKE_C_COMPILER_ID}")
endif()
if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Release or Debug" FORCE)
endif()
set(CMAKE_C_FLAGS_RELEASE "-O2 -g")

# No implicit fused multiply-adds: code calls fma where it needs one, so results do not depend on the compiler.
add_compile_options(-ffp-contract=off -fno-math-errno)
add_compile_definitions(_GNU_SOURCE)

# Builds only the fuzz targets and the library that they test.
if(BALLAST_FUZZ)
    if(NOT CMAKE_C_COMPILER_ID STREQUAL "Clang")
        message(FATAL_ERROR "The fuzz targets need clang: configure with -DCMAKE_C_COMPILER=clang")
    endif()
    set(fuzz_flags -fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=all -fno-omit-frame-pointer)
endif()

if(BALLAST_SANITIZE)
    set(sanitize -fsanitize=${BALLAST_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    add_compile_options(${sanitize})
    add_link_options(${sanitize})
endif()

add_library(ballast_warnings INTERFACE)
target_compile_options(ballast_warnings INTERFACE -Wall -Wextra -Wshadow -Wconversion
    $<$<COMPILE_LANGUAGE:C>:-Werror=implicit-function-declaration> $<$<BOOL:${BALLAST_WERROR}>:-Werror>)

summary_add(compiler "${CMAKE_C_COMPILER_ID} ${CMAKE_C_COMPILER_VERSION}, ${CMAKE_BUILD_TYPE}, ${CMAKE_SYSTEM_PROCESSOR}")
if(BALLAST_SANITIZE)
    summary_add(sanitizers "${BALLAST_SANITIZE}")
endif()
