# Run at build time: writes OUTPUT with the version and the commit. The file is touched only when
# they change, so that a build with nothing new compiles nothing.
execute_process(COMMAND git describe --always --dirty --abbrev=12 WORKING_DIRECTORY ${SOURCE_DIR}
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT commit)
  set(commit unknown)  # built from an archive
endif()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [[
#pragma once
#define MKERNEL_VERSION "@VERSION@"
#define MKERNEL_COMMIT "@commit@"
]])
