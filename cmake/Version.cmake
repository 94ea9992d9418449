# ballast_version: the version in include/ballast.h, the only file that states it.
file(STRINGS include/ballast.h ballast_version REGEX "^#define BALLAST_VERSION_(MAJOR|MINOR|PATCH) ")
list(TRANSFORM ballast_version REPLACE "[^0-9]" "")
list(JOIN ballast_version "." ballast_version)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS include/ballast.h)
