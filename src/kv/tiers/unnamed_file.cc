#include "kv/tiers/unnamed_file.h"

#include <unistd.h>

#include "base/system.h"

namespace millrace {

int open_unnamed_file(const std::string& folder) {
  std::string name = folder + "/.millrace-keys-XXXXXX";
  const int fd = make_scratch_file(name.data());
  if (fd >= 0) ::unlink(name.c_str());
  return fd;
}

}  // namespace millrace
