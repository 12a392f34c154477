// Fuzzes hub responses: any bytes are a list of files whose paths stay inside their folder, or an error; any text is a
// URL or an error.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "hub/file_choice.h"
#include "hub/hub_cache.h"
#include "hub/repository.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto repository = millrace::parse_repository(text);
  if (repository.ok()) {
    std::vector<std::string> names;
    for (const auto& file : repository->files) {
      if (!millrace::is_safe_path(file.name) || !millrace::is_hash(file.hash) || file.size < 0) std::abort();
      names.push_back(file.name);
    }
    const auto choice = millrace::choose_files(names, "");
    if (choice.ok() && choice->files.empty()) std::abort();
  }
  const auto url = millrace::parse_hub_url(text);
  if (url.ok()) {
    if (url->host.empty() || url->target.empty() || url->target.front() != '/' ||
        url->target.find('\n') != std::string::npos)
      std::abort();
    if (!millrace::parse_hub_url(url->text()).ok()) std::abort();
    (void)millrace::redirect_url(*url, text);
  }
  (void)millrace::parse_hub_name(text);
  return 0;
}
