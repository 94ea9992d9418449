# Collects what the configuration found and prints it in one block.

# summary_add(<name> <version, path or "no"> [<consequence>])
function(summary_add name found)
    string(LENGTH "${name}" length)
    math(EXPR padding "16 - ${length}")
    string(REPEAT " " ${padding} spaces)
    set(line "  ${name}${spaces}${found}")
    if(ARGC GREATER 2)
        string(APPEND line ": ${ARGV2}")
    endif()
    set_property(GLOBAL APPEND PROPERTY ballast_summary "${line}")
endfunction()

function(summary_print)
    get_property(lines GLOBAL PROPERTY ballast_summary)
    list(JOIN lines "\n" text)
    message(STATUS "Ballast ${PROJECT_VERSION} configuration:\n${text}")
endfunction()
