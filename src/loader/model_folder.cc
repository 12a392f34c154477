#include "loader/model_folder.h"

#include <fmt/format.h>

#include "base/ordered_json.h"
#include "tensor/mapped_file.h"

namespace millrace {

namespace fs = std::filesystem;

namespace {

constexpr size_t kMaxModuleList = 1 << 20;  // bytes of modules.json

// The value of a module's field that is a string; "" if there is none.
std::string module_field(const nlohmann::ordered_json& module, const char* field) {
  const auto found = module.is_object() ? module.find(field) : module.end();
  return found != module.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

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

Result<std::vector<FolderModule>> read_modules(const fs::path& folder) {
  std::vector<FolderModule> out;
  const fs::path list = folder / "modules.json";
  std::error_code ignored;
  if (!fs::exists(list, ignored)) return out;
  MILLRACE_TRY(const auto modules, read_json_object(list, {.bytes = kMaxModuleList, .may_be_list = true}));
  for (const auto& module : modules) {
    out.push_back({module_field(module, "type"), module_field(module, "path")});
    if (out.back().path.find_first_of("/\\.") != std::string::npos)
      return Error::corrupt(fmt::format("{}: path '{}' of a module", list.string(), out.back().path));
  }
  return out;
}

}  // namespace millrace
