#include "run/drafting/optional_drafter.h"

#include "models/layer_mixers.h"

namespace millrace {

std::string drafts_do_not_pay(const LanguageModel& model) {
  if (!keeps(model.parts().model->spec(), StateKind::recurrent)) return {};
  return "the model has recurrent layers, which run the kept tokens again after each rejected one";
}

}  // namespace millrace
