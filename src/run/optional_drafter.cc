#include "run/optional_drafter.h"

#include <algorithm>

#include "models/mixers/mixer.h"

namespace millrace {

std::string drafts_do_not_pay(const LanguageModel& model) {
  const auto recurrent = [](const LayerSpec& layer) { return layer.mixer->state_kind == StateKind::recurrent; };
  if (std::ranges::none_of(model.parts().model->spec().layers, recurrent)) return {};
  return "the model has recurrent layers, which run the kept tokens again after each rejected one";
}

}  // namespace millrace
