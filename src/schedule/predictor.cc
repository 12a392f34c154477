#include "schedule/predictor.h"

#include <fmt/format.h>

namespace millrace {

Result<std::unique_ptr<Predictor>> make_predictor(std::string_view text) {
  const auto colon = text.find(':');
  const auto* entry = predictors().find(text.substr(0, colon));
  if (!entry) {
    std::string known;
    for (const auto& other : predictors().entries()) known += (known.empty() ? "" : ", ") + other.info.name;
    return Error::user(fmt::format("predictor: no '{}'; there are: {}", text.substr(0, colon), known));
  }
  MILLRACE_TRY(auto options,
               parse_options(colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1),
                             entry->info.options));
  return entry->make(options);
}

}  // namespace millrace
