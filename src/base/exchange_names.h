// exchange_names(): defined in system.cc. For publish() (publish.h), which other code calls instead.
#pragma once

#include <string>

namespace millrace {

// Two files or folders take each other's names in one step. False: see errno; EINVAL or ENOSYS if the system or the
// file system cannot.
bool exchange_names(const std::string& one, const std::string& other);

}  // namespace millrace
