# ballast_version: the version that include/ballast.h states, the one place that does.
file(STRINGS include/ballast.h ballast_version REGEX "^#define BALLAST_VERSION_(MAJOR|MINOR|PATCH) ")
list(TRANSFORM ballast_version REPLACE "[^0-9]" "")
list(JOIN ballast_version "." ballast_version)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS include/ballast.h)
