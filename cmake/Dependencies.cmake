# Libraries that every build needs, as one target: ballast_dependencies. Reports all missing libraries together.

add_library(ballast_dependencies INTERFACE)

function(dependency_missing name package)
    set_property(GLOBAL APPEND_STRING PROPERTY ballast_missing "\n  ${name} (${package})")
endfunction()

find_package(PkgConfig QUIET)
if(NOT PkgConfig_FOUND)
    dependency_missing(pkg-config pkg-config)
endif()

# dependency_add(<name> <pkg-config module> <Debian package>)
function(dependency_add name module package)
    pkg_check_modules(${name} QUIET IMPORTED_TARGET ${module})
    if(NOT ${name}_FOUND)
        dependency_missing(${name} ${package})
        return()
    endif()
    target_link_libraries(ballast_dependencies INTERFACE PkgConfig::${name})
    summary_add(${name} "${${name}_VERSION}")
endfunction()

dependency_add(jansson jansson libjansson-dev)
dependency_add(PCRE2 libpcre2-8 libpcre2-dev)
dependency_add(hwloc hwloc libhwloc-dev)
dependency_add(xxHash libxxhash libxxhash-dev)
dependency_add(utf8proc libutf8proc libutf8proc-dev)

# Debian's oneDNN has no pkg-config file, and its CMake package needs a C++ compiler.
find_path(DNNL_INCLUDE oneapi/dnnl/dnnl.h)
find_library(DNNL_LIBRARY dnnl)
if(NOT DNNL_INCLUDE OR NOT DNNL_LIBRARY)
    dependency_missing(oneDNN libdnnl-dev)
else()
    file(STRINGS "${DNNL_INCLUDE}/oneapi/dnnl/dnnl_version.h" dnnl_version REGEX "DNNL_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+")
    list(TRANSFORM dnnl_version REPLACE ".* ([0-9]+).*" "\\1")
    list(JOIN dnnl_version "." dnnl_version)
endif()
# Not for nvcc: if its command line has the system's include directory, its C++ compiler does not find C headers.
target_include_directories(ballast_dependencies SYSTEM INTERFACE "$<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:${DNNL_INCLUDE}>")
target_link_libraries(ballast_dependencies INTERFACE "${DNNL_LIBRARY}")
summary_add(oneDNN "${dnnl_version}")

# Only CBC's headers are needed: src/plan/layout/ilp_cbc.c loads the library at run time.
find_path(CBC_INCLUDE Cbc_C_Interface.h PATH_SUFFIXES coin)
if(NOT CBC_INCLUDE)
    dependency_missing(CBC coinor-libcbc-dev)
endif()
pkg_check_modules(CBC QUIET cbc)
target_include_directories(ballast_dependencies SYSTEM INTERFACE "$<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:${CBC_INCLUDE}>")
summary_add(CBC "${CBC_VERSION}")

find_package(OpenMP COMPONENTS C)
if(NOT OpenMP_C_FOUND)
    dependency_missing(OpenMP "gcc (for clang: libomp-dev)")
endif()

get_property(missing GLOBAL PROPERTY ballast_missing)
if(missing)
    message(FATAL_ERROR "Ballast needs these libraries, which were not found (Debian package in parentheses):${missing}\n"
                        "On Debian, `make deps` installs all packages that a build uses.")
endif()

target_link_libraries(ballast_dependencies INTERFACE OpenMP::OpenMP_C)
summary_add(OpenMP "${OpenMP_C_VERSION}")

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
target_link_libraries(ballast_dependencies INTERFACE Threads::Threads m)
