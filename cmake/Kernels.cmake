# Kernels that use vector instructions: each file is compiled once for every instruction set, with CPU_ISA as its name.
# All the rest is compiled for the architecture's baseline, so that the program starts anywhere and picks at run time.

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    set(kernel_isas avx2 avx512)
    set(kernel_flags_avx2 -mavx2 -mfma -mf16c)
    set(kernel_flags_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mprefer-vector-width=512)
else()
    set(kernel_isas generic)
endif()

file(GLOB kernel_sources CONFIGURE_DEPENDS src/backend/cpu/simd/*.c)
if(kernel_sources)
    foreach(isa IN LISTS kernel_isas)
        add_library(kernels_${isa} OBJECT ${kernel_sources})
        target_compile_definitions(kernels_${isa} PRIVATE CPU_ISA=${isa})
        target_compile_options(kernels_${isa} PRIVATE -O3 ${kernel_flags_${isa}})
        target_include_directories(kernels_${isa} PRIVATE src include)
        target_link_libraries(kernels_${isa} PRIVATE ballast_warnings ballast_dependencies)
        target_sources(ballast PRIVATE $<TARGET_OBJECTS:kernels_${isa}>)
    endforeach()
endif()
list(JOIN kernel_isas ", " kernel_text)
summary_add(kernels "${kernel_text}")
