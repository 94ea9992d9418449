# The page's sources as one C file (src/page/page.h). Scripts are put in by the order of their names.
# Included by the project it adds the rule; run by `cmake -P`, with SOURCE and OUTPUT, it is the rule.

function(page_build folder output)
    file(READ "${folder}/page.html" page)
    file(READ "${folder}/style.css" style)
    file(GLOB scripts "${folder}/*.js")
    list(SORT scripts)
    set(script "")
    foreach(file IN LISTS scripts)
        file(READ "${file}" text)
        string(APPEND script "${text}")
    endforeach()
    # Comments and indentation are for those who read the sources.
    string(REGEX REPLACE "\n//[^\n]*" "" script "\n${script}")
    string(REGEX REPLACE "\n +" "\n" script "${script}")
    string(REGEX REPLACE "\n +" "\n" style "${style}")
    string(REPLACE "{{style}}" "${style}" page "${page}")
    string(REPLACE "{{script}}" "${script}" page "${page}")
    string(FIND "${page}" "{{data}}" at)
    math(EXPR after "${at} + 8")
    string(SUBSTRING "${page}" 0 ${at} before_text)
    string(SUBSTRING "${page}" ${after} -1 after_text)
    set(source "#include \"page/page.h\"\n")
    foreach(part before after)
        file(WRITE "${output}.${part}" "${${part}_text}")
        file(READ "${output}.${part}" bytes HEX)
        file(REMOVE "${output}.${part}")
        string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
        string(REGEX REPLACE "(................................................................................)" "\\1\n"
            bytes "${bytes}")
        string(APPEND source "const unsigned char page_source_${part}[] = {\n${bytes}};\n"
            "const size_t page_source_${part}_bytes = sizeof page_source_${part};\n")
    endforeach()
    file(WRITE "${output}" "${source}")
endfunction()

if(CMAKE_SCRIPT_MODE_FILE)
    page_build("${SOURCE}" "${OUTPUT}")
    return()
endif()

file(GLOB page_sources CONFIGURE_DEPENDS src/page/sources/*)
add_custom_command(OUTPUT "${PROJECT_BINARY_DIR}/page_source.c"
    COMMAND "${CMAKE_COMMAND}" "-DSOURCE=${PROJECT_SOURCE_DIR}/src/page/sources"
        "-DOUTPUT=${PROJECT_BINARY_DIR}/page_source.c" -P "${CMAKE_CURRENT_LIST_FILE}"
    DEPENDS ${page_sources} "${CMAKE_CURRENT_LIST_FILE}"
    COMMENT "Making the page" VERBATIM)
target_sources(ballast PRIVATE "${PROJECT_BINARY_DIR}/page_source.c")
