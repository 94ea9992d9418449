# Libraries that every build needs, as one target: ballast_dependencies.

find_package(PkgConfig REQUIRED)
add_library(ballast_dependencies INTERFACE)

function(dependency_missing name package)
    message(FATAL_ERROR "${name} was not found. On Debian: apt-get install ${package} "
                        "(scripts/install-packages.sh installs all that is needed)")
endfunction()

# dependency_add(<name> <pkg-config module> <Debian package>)
function(dependency_add name module package)
    pkg_check_modules(${name} QUIET IMPORTED_TARGET ${module})
    if(NOT ${name}_FOUND)
        dependency_missing(${name} ${package})
    endif()
    target_link_libraries(ballast_dependencies INTERFACE PkgConfig::${name})
    summary_add(${name} "${${name}_VERSION}")
endfunction()

dependency_add(jansson jansson libjansson-dev)
dependency_add(PCRE2 libpcre2-8 libpcre2-dev)
dependency_add(hwloc hwloc libhwloc-dev)
dependency_add(xxHash libxxhash libxxhash-dev)
dependency_add(utf8proc libutf8proc libutf8proc-dev)

# Found by hand: Debian gives oneDNN no pkg-config file, and its CMake package wants a C++ compiler.
find_path(DNNL_INCLUDE oneapi/dnnl/dnnl.h)
find_library(DNNL_LIBRARY dnnl)
if(NOT DNNL_INCLUDE OR NOT DNNL_LIBRARY)
    dependency_missing(oneDNN libdnnl-dev)
endif()
file(STRINGS "${DNNL_INCLUDE}/oneapi/dnnl/dnnl_version.h" dnnl_version REGEX "DNNL_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+")
list(TRANSFORM dnnl_version REPLACE ".* ([0-9]+).*" "\\1")
list(JOIN dnnl_version "." dnnl_version)
# Not for nvcc, to whose C++ compiler the system's own folder may not be named: it then finds no C headers.
target_include_directories(ballast_dependencies SYSTEM INTERFACE "$<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:${DNNL_INCLUDE}>")
target_link_libraries(ballast_dependencies INTERFACE "${DNNL_LIBRARY}")
summary_add(oneDNN "${dnnl_version}")

# Found by hand: its pkg-config file names all that CBC itself is linked with.
find_path(CBC_INCLUDE Cbc_C_Interface.h PATH_SUFFIXES coin)
find_library(CBC_LIBRARY CbcSolver)
if(NOT CBC_INCLUDE OR NOT CBC_LIBRARY)
    dependency_missing(CBC coinor-libcbc-dev)
endif()
pkg_check_modules(CBC QUIET cbc)
target_include_directories(ballast_dependencies SYSTEM INTERFACE "$<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:${CBC_INCLUDE}>")
target_link_libraries(ballast_dependencies INTERFACE "${CBC_LIBRARY}")
summary_add(CBC "${CBC_VERSION}")

find_package(OpenMP COMPONENTS C)
if(NOT OpenMP_C_FOUND)
    dependency_missing(OpenMP "gcc (for clang: libomp-dev)")
endif()
target_link_libraries(ballast_dependencies INTERFACE OpenMP::OpenMP_C)
summary_add(OpenMP "${OpenMP_C_VERSION}")

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
target_link_libraries(ballast_dependencies INTERFACE Threads::Threads m)
