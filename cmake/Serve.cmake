# The page over HTTP while training (--serve), where libmicrohttpd is found.

option(BALLAST_SERVE "Build --serve, if libmicrohttpd is found" ON)
if(BALLAST_SERVE)
    pkg_check_modules(libmicrohttpd QUIET IMPORTED_TARGET libmicrohttpd>=0.9.71)
endif()
if(libmicrohttpd_FOUND)
    target_sources(ballast PRIVATE src/page/serve.c)
    target_link_libraries(ballast PUBLIC PkgConfig::libmicrohttpd)
    summary_add(libmicrohttpd "${libmicrohttpd_VERSION}")
else()
    target_sources(ballast PRIVATE src/page/serve_absent.c)
    summary_add(libmicrohttpd "no" "train --serve is left out (libmicrohttpd-dev)")
endif()
