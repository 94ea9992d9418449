# cmake -DSOURCE=<directory> -DOUTPUT=<C file> -P make_page_source.cmake
# Writes the page as the C file that page.h declares: page.html with style.css and all scripts, sorted by name, in it.
include("${CMAKE_CURRENT_LIST_DIR}/../../../cmake/EmbedFile.cmake")

file(READ "${SOURCE}/page.html" page)
file(READ "${SOURCE}/style.css" style)
file(GLOB scripts "${SOURCE}/*.js")
list(SORT scripts)
set(script "")
foreach(file IN LISTS scripts)
    file(READ "${file}" text)
    string(APPEND script "${text}")
endforeach()
# The browser needs no comments and no indentation.
string(REGEX REPLACE "\n//[^\n]*" "" script "\n${script}")
string(REGEX REPLACE "\n +" "\n" script "${script}")
string(REGEX REPLACE "\n +" "\n" style "${style}")
string(REPLACE "{{style}}" "${style}" page "${page}")
string(REPLACE "{{script}}" "${script}" page "${page}")

string(FIND "${page}" "{{data}}" at)
math(EXPR after "${at} + 8")
string(SUBSTRING "${page}" 0 ${at} before_text)
string(SUBSTRING "${page}" ${after} -1 after_text)
set(source "#include \"report/page/page.h\"\n")
foreach(part IN ITEMS before after)
    file(WRITE "${OUTPUT}.${part}" "${${part}_text}")
    embed_file(bytes "${OUTPUT}.${part}")
    file(REMOVE "${OUTPUT}.${part}")
    string(APPEND source "const unsigned char page_source_${part}[] = {${bytes}};\n"
        "const size_t page_source_${part}_bytes = sizeof page_source_${part};\n")
endforeach()
file(WRITE "${OUTPUT}" "${source}")
