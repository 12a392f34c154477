// The hub's list of the files of a repository at one revision.
#pragma once

#include <string>
#include <vector>

#include "hub/http_get.h"

namespace millrace {

struct RemoteFile {
  std::string name;
  int64_t size = 0;
  std::string hash;  // SHA-256 (64 digits) of a large file, or git's blob hash (40 digits) of a small one
};

struct RemoteRepository {
  std::string commit;
  std::vector<RemoteFile> files;
};

// Parses the answer of /api/models/OWNER/NAME/revision/REVISION?blobs=true. Errors: corrupt.
Result<RemoteRepository> parse_repository(const std::string& json);

// Percent-encodes all characters except letters, digits and "-._~/".
std::string in_url(std::string_view path);

}  // namespace millrace
