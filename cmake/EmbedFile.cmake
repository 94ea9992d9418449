# embed_file(<variable> <file>): sets the variable to the file's bytes, as elements of a C array.
function(embed_file variable file)
    file(READ "${file}" bytes HEX)
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
    set(${variable} "${bytes}" PARENT_SCOPE)
endfunction()

# embed_prose(<target> <variable> <file>): adds the text of a document to the target, as
# `const unsigned char <variable>[]`. Lines "%%" separate its parts, each of which ends with a zero byte.
function(embed_prose target variable file)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${file}")
    file(READ "${CMAKE_CURRENT_SOURCE_DIR}/${file}" bytes HEX)
    string(REPLACE "0a25250a" "0a00" bytes "${bytes}")
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
    set(source "${CMAKE_CURRENT_BINARY_DIR}/${variable}.c")
    file(CONFIGURE OUTPUT "${source}" @ONLY
        CONTENT "extern const unsigned char @variable@[];\nconst unsigned char @variable@[] = {@bytes@0};\n")
    target_sources(${target} PRIVATE "${source}")
endfunction()
