# Run by CPack after it has gathered the files of a package: adds /etc/default/millrace to the Debian package. The file is
# outside of the prefix, so install() would write it to this machine's /etc.
if(CPACK_GENERATOR STREQUAL DEB)
  set(folder ${CPACK_TEMPORARY_DIRECTORY}/program/etc/default)
  file(MAKE_DIRECTORY ${folder})
  file(COPY_FILE ${CMAKE_CURRENT_LIST_DIR}/../docs/ops/millrace.default ${folder}/millrace)
endif()
