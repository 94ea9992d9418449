# Modules of the library. A directory of src calls module_add in its CMakeLists.txt, so a new file needs no edit. A file
# that depends on an optional library has a replacement, NAME_absent.c; module_choose adds one of the two.

# module_add(<target> <pattern>... [EXCEPT <file>...])
# Compiles the matching files of the current directory and adds them to the library `ballast`.
function(module_add target)
    module_find_sources(sources ${ARGN})
    add_library(${target} OBJECT ${sources})
    target_link_libraries(${target} PRIVATE ballast_settings)
    target_compile_options(${target} PRIVATE ${fuzz_flags})
    target_sources(ballast PRIVATE $<TARGET_OBJECTS:${target}>)
endfunction()

# module_find_sources(<variable> <pattern>... [EXCEPT <file>...])
# Lists the matching files of the current directory, without those that module_choose adds.
function(module_find_sources variable)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "EXCEPT")
    file(GLOB sources CONFIGURE_DEPENDS RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}" ${arg_UNPARSED_ARGUMENTS})
    set(absent ${sources})
    list(FILTER absent INCLUDE REGEX "_absent\\.c$")
    list(TRANSFORM absent REPLACE "_absent\\.c$" ".c" OUTPUT_VARIABLE replaced)
    list(REMOVE_ITEM sources ${absent} ${replaced} ${arg_EXCEPT})
    set(${variable} ${sources} PARENT_SCOPE)
endfunction()

# module_choose(<target> <name> <condition>): adds <name>.c if the condition is true, <name>_absent.c otherwise.
function(module_choose target name condition)
    if(condition)
        target_sources(${target} PRIVATE ${name}.c)
    else()
        target_sources(${target} PRIVATE ${name}_absent.c)
    endif()
endfunction()

# module_add_optional(<target> <name> OPTION <option> <its help> LIBRARY <name> <pkg-config module> <Debian package>
#                     WITHOUT <consequence>)
# Adds <name>.c and links the library if the option is ON and pkg-config finds the library; adds <name>_absent.c otherwise.
function(module_add_optional target name)
    cmake_parse_arguments(PARSE_ARGV 2 arg "" "WITHOUT" "OPTION;LIBRARY")
    list(POP_FRONT arg_OPTION option help)
    list(POP_FRONT arg_LIBRARY library pkg_config_module package)
    option(${option} "${help}" ON)
    if(${option})
        pkg_check_modules(${library} QUIET IMPORTED_TARGET GLOBAL ${pkg_config_module})
    endif()
    module_choose(${target} ${name} "${${library}_FOUND}")
    if(${library}_FOUND)
        target_link_libraries(${target} PRIVATE PkgConfig::${library})
        target_link_libraries(ballast PUBLIC PkgConfig::${library})
        summary_add(${library} "${${library}_VERSION}")
    else()
        summary_add(${library} "no" "${arg_WITHOUT} (${package})")
    endif()
endfunction()
