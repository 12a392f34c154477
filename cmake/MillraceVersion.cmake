# millrace_version: src/base/version.h. A separate library, so that a new commit relinks only its users.
set(written ${CMAKE_BINARY_DIR}/generated/version.cc)
add_custom_target(millrace_write_version BYPRODUCTS ${written} VERBATIM
  COMMAND ${CMAKE_COMMAND} -DSOURCE=${CMAKE_SOURCE_DIR} -DOUT=${written} -DVERSION=${PROJECT_VERSION}
          -P ${CMAKE_SOURCE_DIR}/cmake/WriteVersion.cmake)
add_library(millrace_version STATIC ${written})
target_include_directories(millrace_version PRIVATE ${CMAKE_SOURCE_DIR}/src)
add_dependencies(millrace_version millrace_write_version)
