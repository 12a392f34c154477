// How the commands that talk to a server find it: its address and its key.
#pragma once

#include <string>

namespace millrace {

// Returns the value of MILLRACE_API_KEY; "": it is not set.
std::string api_key_of_environment();

// Returns `url` with a scheme (http:// if it has none) and without slashes at the end.
std::string address_of(std::string url);

}  // namespace millrace
