// Fuzzes the byte size parser: any text is a size between 0 and 2^62, or an error.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/memory_accounts.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = millrace::parse_bytes(std::string_view(reinterpret_cast<const char*>(data), size));
  if (bytes.ok()) {
    if (*bytes < 0 || *bytes > (int64_t{1} << 62)) std::abort();
  } else if (bytes.error().message.empty()) {
    std::abort();
  }
  return 0;
}
