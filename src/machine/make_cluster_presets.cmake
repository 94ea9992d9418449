# cmake -DSOURCE=<directory> -DOUTPUT=<C file> -P make_cluster_presets.cmake
# Writes the JSON files of the directory, sorted by name, as the C file that cluster.h declares.
include("${CMAKE_CURRENT_LIST_DIR}/../../cmake/EmbedFile.cmake")

file(GLOB files "${SOURCE}/*.json")
list(SORT files)
list(LENGTH files count)
set(texts "")
set(table "")
foreach(file IN LISTS files)
    cmake_path(GET file STEM LAST_ONLY name)
    string(MAKE_C_IDENTIFIER "text_${name}" text)
    embed_file(bytes "${file}")
    string(APPEND texts "static const unsigned char ${text}[] = {${bytes}};\n")
    string(APPEND table "    {\"${name}\", ${text}, sizeof ${text}},\n")
endforeach()
file(WRITE "${OUTPUT}" "#include \"machine/cluster.h\"\n${texts}"
    "const struct cluster_preset cluster_presets[] = {\n${table}};\n"
    "const int cluster_preset_count = ${count};\n")
