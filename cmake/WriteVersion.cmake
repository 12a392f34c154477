# cmake -DSOURCE=... -DOUT=... -DVERSION=... -P WriteVersion.cmake: writes OUT if the commit has changed.
set(commit "")
if(EXISTS ${SOURCE}/.git)
  execute_process(COMMAND git -C ${SOURCE} rev-parse --short=12 HEAD OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE
                  ERROR_QUIET RESULT_VARIABLE failed)
  if(failed)
    set(commit "")
  else()
    execute_process(COMMAND git -C ${SOURCE} diff --quiet HEAD -- RESULT_VARIABLE differs ERROR_QUIET)
    if(differs)
      string(APPEND commit "+")
    endif()
  endif()
endif()
set(text "millrace ${VERSION}")
if(commit)
  string(APPEND text " (${commit})")
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "#include \"base/version.h\"
namespace millrace {
const char* const kVersion = \"${VERSION}\";
const char* const kCommit = \"${commit}\";
const char* const kVersionText = \"${text}\";
}  // namespace millrace
")
