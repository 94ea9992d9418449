# libballast.so: the public calls of include/ballast.h with what they need of the static library, from the same objects.
# Nothing else is exported (src/library/exported.map). `make install` puts it beside the header and ballast.pc.

set(exported_symbols "${PROJECT_SOURCE_DIR}/src/library/exported.map")
add_library(ballast_shared SHARED $<TARGET_OBJECTS:ballast_public>)
set_target_properties(ballast_shared PROPERTIES
    OUTPUT_NAME ballast
    VERSION "${PROJECT_VERSION}"
    SOVERSION "${PROJECT_VERSION_MAJOR}"
    LINK_DEPENDS "${exported_symbols}"
    PUBLIC_HEADER include/ballast.h)
target_link_libraries(ballast_shared PRIVATE ballast)
target_link_options(ballast_shared PRIVATE "LINKER:--version-script=${exported_symbols}")
if(NOT BALLAST_SANITIZE) # whose run-time library is the program's
    target_link_options(ballast_shared PRIVATE LINKER:--no-undefined)
endif()

# Found from where it lies, so that a prefix may be chosen when installing, or moved later.
set(pc_folder "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
file(RELATIVE_PATH pc_to_prefix "/prefix/${pc_folder}" "/prefix")
cmake_path(NORMAL_PATH pc_to_prefix)
configure_file(cmake/ballast.pc.in ballast.pc @ONLY)

install(TARGETS ballast_shared LIBRARY PUBLIC_HEADER)
install(FILES "${PROJECT_BINARY_DIR}/ballast.pc" DESTINATION "${pc_folder}")
