#include "schedule/predictor.h"

#include "base/choose.h"

namespace millrace {

Result<std::unique_ptr<Predictor>> make_predictor(std::string_view text) {
  MILLRACE_TRY(const auto chosen, choose_member("predictor", predictors(), text));
  return chosen.member(chosen.options);
}

}  // namespace millrace
