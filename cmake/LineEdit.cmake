# Editing of lines at a terminal (ballast chat), where libedit is found.

option(BALLAST_LINE_EDIT "Edit lines at a terminal, if libedit is found" ON)
if(BALLAST_LINE_EDIT)
    pkg_check_modules(libedit QUIET IMPORTED_TARGET libedit)
endif()
if(libedit_FOUND)
    target_sources(ballast PRIVATE src/cli/line_edit.c)
    target_link_libraries(ballast PUBLIC PkgConfig::libedit)
    summary_add(libedit "${libedit_VERSION}")
else()
    target_sources(ballast PRIVATE src/cli/line_edit_absent.c)
    summary_add(libedit "no" "lines are read without editing (libedit-dev)")
endif()
