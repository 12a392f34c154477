// exchange_names(): used only by publish() (publish.h); other code calls publish(). Defined in system.cc.
#pragma once

#include <string>

namespace millrace {

// Exchanges the names of two files or folders in one atomic step. Returns false with errno set; EINVAL or ENOSYS if the
// system or the file system does not support it.
bool exchange_names(const std::string& one, const std::string& other);

}  // namespace millrace
