// Parses multipart/form-data (RFC 7578), the format of file uploads.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

struct FormPart {
  std::string name;
  std::string filename;      // "": not a file
  std::string_view content;  // view into the body
};

// "multipart/form-data; boundary=..." -> the boundary; nullopt if it is missing or invalid.
std::optional<std::string> multipart_boundary(std::string_view content_type);

// Returns nullopt if the body is malformed or has more than 64 parts.
std::optional<std::vector<FormPart>> parse_multipart(std::string_view body, const std::string& boundary);

}  // namespace millrace
