# The files of clusters/ as one C file (src/cluster/cluster_preset.h), by the order of their names.
# Included by the project it adds the rule; run by `cmake -P`, with SOURCE and OUTPUT, it is the rule.

function(clusters_build folder output)
    file(GLOB files "${folder}/*.json")
    list(SORT files)
    set(source "#include \"cluster/cluster_preset.h\"\n")
    set(table "")
    set(count 0)
    foreach(file IN LISTS files)
        cmake_path(GET file STEM LAST_ONLY name)
        file(READ "${file}" bytes HEX)
        string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
        string(REGEX REPLACE "(................................................................................)" "\\1\n"
            bytes "${bytes}")
        string(APPEND source "static const unsigned char text_${count}[] = {\n${bytes}};\n")
        string(APPEND table "    {\"${name}\", text_${count}, sizeof text_${count}},\n")
        math(EXPR count "${count} + 1")
    endforeach()
    string(APPEND source "const struct cluster_preset cluster_presets[] = {\n${table}};\n"
        "const int cluster_preset_count = ${count};\n")
    file(WRITE "${output}" "${source}")
endfunction()

if(CMAKE_SCRIPT_MODE_FILE)
    clusters_build("${SOURCE}" "${OUTPUT}")
    return()
endif()

file(GLOB cluster_files CONFIGURE_DEPENDS clusters/*.json)
add_custom_command(OUTPUT "${PROJECT_BINARY_DIR}/cluster_presets.c"
    COMMAND "${CMAKE_COMMAND}" "-DSOURCE=${PROJECT_SOURCE_DIR}/clusters"
        "-DOUTPUT=${PROJECT_BINARY_DIR}/cluster_presets.c" -P "${CMAKE_CURRENT_LIST_FILE}"
    DEPENDS ${cluster_files} "${CMAKE_CURRENT_LIST_FILE}"
    COMMENT "Making the presets of clusters" VERBATIM)
target_sources(ballast PRIVATE "${PROJECT_BINARY_DIR}/cluster_presets.c")
