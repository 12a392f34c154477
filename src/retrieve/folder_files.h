// The files of a folder that can be indexed, in the order of their paths.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "retrieve/text_chunks.h"

namespace millrace {

struct FoundFile {
  std::string path;  // absolute, without "." and ".."
  DocumentKind kind;
};

struct FoundFiles {
  std::vector<FoundFile> files;
  int64_t skipped = 0;  // files of other kinds
};

// `path`: a file or a folder. Hidden files and folders, and links to folders, are passed over. Errors: corrupt (no such
// file), unsupported (a file of another kind), resource (more than `most` files).
Result<FoundFiles> find_files(const std::string& path, int64_t most = 1000000);
// Returns the absolute path without "." and "..", of a file that need not exist.
std::string document_name(const std::string& path);
// Errors: corrupt (unreadable), resource (more than kMaxDocumentBytes).
Result<std::string> read_document(const std::string& path);

}  // namespace millrace
