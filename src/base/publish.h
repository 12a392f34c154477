// publish(): gives a finished file, link or folder its name by one atomic step. Whoever reads the name, also after a
// crash in between, finds the old content or the new one, as a whole. The only place that renames anything
// (tools/check_layers).
#pragma once

#include <filesystem>
#include <system_error>

namespace millrace {

// `fresh` is complete and beside `path`. It is written to disk, takes the name `path`, and the name is written to disk.
// A folder that has the name changes places with `fresh` and is removed. After an error both are as they were.
std::error_code publish(const std::filesystem::path& fresh, const std::filesystem::path& path);

}  // namespace millrace
