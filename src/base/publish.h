// publish(): gives a finished file, link or folder its final name in one atomic step. A reader of the name, even after
// a crash, finds either the complete old content or the complete new content. No other code renames files
// (tools/check_layers).
#pragma once

#include <filesystem>
#include <system_error>

namespace millrace {

// Renames `fresh`, a complete file or folder next to `path`, to `path`: writes `fresh` to disk, renames it, and writes
// the directory entry to disk. If `path` is a folder, it is exchanged with `fresh` and then removed. After an error,
// both are unchanged.
std::error_code publish(const std::filesystem::path& fresh, const std::filesystem::path& path);

}  // namespace millrace
