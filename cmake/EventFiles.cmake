# TensorBoard's event files, where protobuf-c is found. Messages are made from src/train/event.proto.

option(BALLAST_EVENT_FILES "Write TensorBoard event files, if protobuf-c is found" ON)
if(BALLAST_EVENT_FILES)
    pkg_check_modules(protobuf_c QUIET IMPORTED_TARGET libprotobuf-c)
    find_program(PROTOC_C protoc-c)
endif()
if(NOT protobuf_c_FOUND OR NOT PROTOC_C)
    target_sources(ballast PRIVATE src/train/event_file_absent.c)
    summary_add(protobuf-c "no" "no TensorBoard event files (libprotobuf-c-dev, protobuf-c-compiler)")
    return()
endif()

set(generated "${PROJECT_BINARY_DIR}/generated")
file(MAKE_DIRECTORY "${generated}")
add_custom_command(
    OUTPUT "${generated}/train/event.pb-c.c" "${generated}/train/event.pb-c.h"
    COMMAND "${PROTOC_C}" "--proto_path=${PROJECT_SOURCE_DIR}/src" "--c_out=${generated}"
            "${PROJECT_SOURCE_DIR}/src/train/event.proto"
    DEPENDS "${PROJECT_SOURCE_DIR}/src/train/event.proto"
    VERBATIM)
# A target of its own: this code is compiled without the project's warnings.
add_library(ballast_events OBJECT "${generated}/train/event.pb-c.c" "${generated}/train/event.pb-c.h")
target_include_directories(ballast_events SYSTEM PUBLIC "${generated}")
target_link_libraries(ballast_events PUBLIC PkgConfig::protobuf_c)
target_sources(ballast PRIVATE src/train/event_file.c $<TARGET_OBJECTS:ballast_events>)
target_include_directories(ballast SYSTEM PRIVATE "${generated}")
target_link_libraries(ballast PUBLIC PkgConfig::protobuf_c)
add_dependencies(ballast ballast_events)
summary_add(protobuf-c "${protobuf_c_VERSION}")
