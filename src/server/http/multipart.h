// multipart/form-data (RFC 7578), as clients upload files.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

struct FormPart {
  std::string name;
  std::string filename;      // "": no file
  std::string_view content;  // into the body
};

// "multipart/form-data; boundary=..." to the boundary; nothing where it has none, or an impossible one.
std::optional<std::string> multipart_boundary(std::string_view content_type);

// Nothing where the body is not well formed, or has more than 64 parts.
std::optional<std::vector<FormPart>> parse_multipart(std::string_view body, const std::string& boundary);

}  // namespace millrace
