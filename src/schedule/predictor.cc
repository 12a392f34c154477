#include "schedule/predictor.h"

#include <fmt/format.h>

namespace millrace {

Result<std::unique_ptr<Predictor>> make_predictor(std::string_view text) {
  const auto colon = text.find(':');
  const auto* entry = predictors().find(text.substr(0, colon));
  if (!entry)
    return Error::user(
        fmt::format("predictor: unknown '{}'; available: {}", text.substr(0, colon), predictors().names()));
  MILLRACE_TRY(auto options,
               parse_options(colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1),
                             entry->info.options));
  return entry->member(options);
}

}  // namespace millrace
