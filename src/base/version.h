// The version of the program and the commit it was built from. The build writes the definitions
// (cmake/WriteVersion.cmake).
#pragma once

namespace millrace {

extern const char* const kVersion;      // "0.1.0"
extern const char* const kCommit;       // twelve digits, then "+" if files were modified; "" outside of a checkout
extern const char* const kVersionText;  // "millrace 0.1.0 (1234567890ab)"

}  // namespace millrace
