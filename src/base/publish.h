// publish(): gives a finished file, link or folder its name by one atomic step. Whoever reads the name, also after a
// crash in between, finds the old content or the new one, as a whole. The only place that renames anything
// (tools/check_layers).
#pragma once

#include <filesystem>
#include <system_error>

namespace millrace {

// Renames `fresh`, a complete file or folder next to `path`, to `path`: writes it to disk, renames it, and writes the
// name to disk. A folder that has the name is exchanged with `fresh` and removed. After an error both are as they were.
std::error_code publish(const std::filesystem::path& fresh, const std::filesystem::path& path);

}  // namespace millrace
