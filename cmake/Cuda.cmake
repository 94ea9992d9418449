# The CUDA toolkit, for src/backend/cuda. Languages are enabled at the top level, so that all targets can use them.

option(BALLAST_CUDA "Build the CUDA backend, if the toolkit is found" ON)
if(BALLAST_CUDA AND NOT BALLAST_FUZZ)
    include(CheckLanguage)
    # Machine code for compute capabilities 8.0 and 9.0, and PTX, which drivers compile for later ones.
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90 CACHE STRING "What CUDA code is compiled for")
    check_language(CUDA)
endif()
if(NOT BALLAST_CUDA OR BALLAST_FUZZ OR NOT CMAKE_CUDA_COMPILER)
    summary_add(CUDA "no" "no GPUs (CUDA toolkit 12.0 or later)")
    return()
endif()

enable_language(CUDA)
# CMake 3.25 modifies this target, whose library newer toolkits lack.
if(NOT TARGET CUDA::nvToolsExt)
    add_library(CUDA::nvToolsExt INTERFACE IMPORTED)
endif()
find_package(CUDAToolkit 12.0 REQUIRED)
summary_add(CUDA "${CUDAToolkit_VERSION}")
