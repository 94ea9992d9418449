# The CUDA backend, where the toolkit is found: src/backend/cuda as a library of its own. Machine code for compute
# capability 8.0 and 9.0, and PTX, which drivers compile for what comes after.

option(BALLAST_CUDA "Build the CUDA backend, if the toolkit is found" ON)
if(BALLAST_CUDA AND NOT BALLAST_FUZZ)
    include(CheckLanguage)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90 CACHE STRING "What CUDA code is compiled for")
    check_language(CUDA)
endif()
if(NOT BALLAST_CUDA OR BALLAST_FUZZ OR NOT CMAKE_CUDA_COMPILER)
    target_sources(ballast PRIVATE src/backend/backend_cuda_absent.c)
    summary_add(CUDA "no" "no GPUs (CUDA toolkit 12.0 or later)")
    return()
endif()

enable_language(CUDA)
# CMake 3.25 writes to this target, whose library newer toolkits do not have.
if(NOT TARGET CUDA::nvToolsExt)
    add_library(CUDA::nvToolsExt INTERFACE IMPORTED)
endif()
find_package(CUDAToolkit 12.0 REQUIRED)

file(GLOB cuda_sources CONFIGURE_DEPENDS src/backend/cuda/*.c src/backend/cuda/*.cu)
# cuDNN's attention is off until a device has shown it to be right: bench/gpu/check.sh builds it where it is found.
option(BALLAST_CUDNN "Build cuDNN's fused attention, which BALLAST_ATTENTION=cudnn then selects, if cuDNN is found" OFF)
find_path(CUDNN_INCLUDE cudnn_graph.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
if(BALLAST_CUDNN AND CUDNN_INCLUDE AND CUDNN_LIBRARY)
    set(cudnn_found yes)
    list(FILTER cuda_sources EXCLUDE REGEX "attention_cudnn_absent\\.c$")
else()
    set(cudnn_found no)
    list(FILTER cuda_sources EXCLUDE REGEX "(attention_cudnn|cudnn_graph|cudnn_library)\\.c$")
endif()
add_library(ballast_cuda STATIC ${cuda_sources})
set_target_properties(ballast_cuda PROPERTIES CUDA_RUNTIME_LIBRARY Static)
# Division, roots and numbers below the smallest normal one as IEEE 754 says: these are defaults, and results rest on
# them.
target_compile_options(ballast_cuda PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20 --ftz=false --prec-div=true --prec-sqrt=true -Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers>
    $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${BALLAST_WERROR}>>:-Werror=all-warnings>
    $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wshadow -Wconversion>
    $<$<AND:$<COMPILE_LANGUAGE:C>,$<BOOL:${BALLAST_WERROR}>>:-Werror>)
target_include_directories(ballast_cuda PUBLIC src include)
target_include_directories(ballast_cuda SYSTEM PUBLIC ${CUDAToolkit_INCLUDE_DIRS})
target_compile_definitions(ballast_cuda PUBLIC BALLAST_CUDA)
# Each uses the other: the library finds the backend in its table, the backend is written with the library's means.
target_link_libraries(ballast_cuda PUBLIC ballast CUDA::cudart_static ${CMAKE_DL_LIBS})
# cuBLASLt and cuDNN are opened by a run that uses them (opened_library.h).
set_source_files_properties(src/backend/cuda/cublaslt_library.c PROPERTIES COMPILE_DEFINITIONS
    "CUBLASLT_FOLDER=\"${CUDAToolkit_LIBRARY_DIR}\"")
cmake_path(GET CUDNN_LIBRARY PARENT_PATH cudnn_folder)
set_source_files_properties(src/backend/cuda/cudnn_library.c PROPERTIES COMPILE_DEFINITIONS
    "CUDNN_FOLDER=\"${cudnn_folder}\"")
# The two need each other: what the second reading of one takes from the other may need it a third time.
set_target_properties(ballast ballast_cuda PROPERTIES LINK_INTERFACE_MULTIPLICITY 3)
target_link_libraries(ballast PUBLIC ballast_cuda)
if(cudnn_found)
    target_include_directories(ballast_cuda SYSTEM PRIVATE ${CUDNN_INCLUDE})
endif()
# The library is older than the setting, which CMake asks of all that is linked with CUDA code.
set_target_properties(ballast PROPERTIES CUDA_ARCHITECTURES "${CMAKE_CUDA_ARCHITECTURES}")
summary_add(CUDA "${CUDAToolkit_VERSION}")
if(cudnn_found)
    summary_add(cuDNN "${CUDNN_LIBRARY}")
else()
    summary_add(cuDNN "not asked for" "attention by own kernels alone (-DBALLAST_CUDNN=ON)")
endif()
