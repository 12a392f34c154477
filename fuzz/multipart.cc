// Fuzzes uploads: the first line is the content type, the rest the body. Every part is within the body.
#include "server/http/multipart.h"

#include <cstdint>
#include <cstdlib>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(all.find('\n'), all.size());
  const auto boundary = multipart_boundary(all.substr(0, end));
  const std::string body(all.substr(std::min(end + 1, all.size())));
  const auto parts = parse_multipart(body, boundary.value_or("b"));
  if (!parts) return 0;
  if (parts->size() > 64) std::abort();
  for (const FormPart& part : *parts)
    if (part.name.empty() || part.content.data() < body.data() ||
        part.content.data() + part.content.size() > body.data() + body.size())
      std::abort();
  return 0;
}
