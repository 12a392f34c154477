// Finds Cairo, Pango and a font at run time.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"

namespace millrace {

// Opens a shared library by its file name. Returns its handle for dlsym(); null: not found.
using LibraryOpener = std::function<void*(const std::string& file)>;

// Opens libraries in the folder that the environment variable MILLRACE_CAIRO names, or where the system looks for them.
void* open_picture_library(const std::string& file);

// Checks that pictures can be drawn. Errors: unsupported, with the package to install (a library is not found, lacks a
// function, or there is no font).
Result<void> check_cairo(const LibraryOpener& open = open_picture_library);

}  // namespace millrace
