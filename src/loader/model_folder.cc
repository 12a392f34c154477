#include "loader/model_folder.h"

#include "base/ordered_json.h"
#include "tensor/mapped_file.h"

namespace millrace {

namespace fs = std::filesystem;

fs::path model_folder(const std::string& path) {
  std::error_code ignored;
  const fs::path given = path;
  return fs::is_directory(given, ignored) ? given : given.parent_path();
}

Result<nlohmann::ordered_json> read_json_object(const fs::path& path, const JsonLimits& limits) {
  MILLRACE_TRY(const std::shared_ptr<const MappedFile> file, MappedFile::open(path));
  return parse_json_object({reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()}, path.string(),
                           limits);
}

}  // namespace millrace
