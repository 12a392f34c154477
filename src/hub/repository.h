// What a hub says of a repository at one revision.
#pragma once

#include <string>
#include <vector>

#include "hub/http_get.h"

namespace millrace {

struct RemoteFile {
  std::string name;
  int64_t size = 0;
  std::string hash;  // SHA-256 (64 digits) of large files, git's blob hash (40) of the others
};

struct RemoteRepository {
  std::string commit;
  std::vector<RemoteFile> files;
};

// The answer of /api/models/OWNER/NAME/revision/REVISION?blobs=true. Errors: corrupt.
Result<RemoteRepository> parse_repository(const std::string& json);

// Letters, digits and "-._~/" as they are, the rest in percents.
std::string in_url(std::string_view path);

}  // namespace millrace
