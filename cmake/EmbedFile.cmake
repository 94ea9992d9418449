# embed_file(<variable> <file>): the bytes of the file as the elements of a C array.
function(embed_file variable file)
    file(READ "${file}" bytes HEX)
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
    set(${variable} "${bytes}" PARENT_SCOPE)
endfunction()
