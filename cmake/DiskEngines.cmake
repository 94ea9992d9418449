# The disk tier's requests by io_uring, where liburing is found; by threads everywhere.

option(BALLAST_URING "Use io_uring for the disk tier, if liburing is found" ON)
if(BALLAST_URING)
    pkg_check_modules(liburing QUIET IMPORTED_TARGET liburing>=2.0)
endif()
if(liburing_FOUND)
    target_sources(ballast PRIVATE src/store/disk_uring.c)
    target_link_libraries(ballast PUBLIC PkgConfig::liburing)
    summary_add(liburing "${liburing_VERSION}")
else()
    target_sources(ballast PRIVATE src/store/disk_uring_absent.c)
    summary_add(liburing "no" "the disk tier works by threads alone (liburing-dev)")
endif()
