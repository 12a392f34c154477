// A drafter that is only a default (EngineOptions::drafter_if_possible).
#pragma once

#include <string>

#include "millrace/options.h"
#include "run/language_model.h"

namespace millrace {

// Why an engine of this model is better off without drafts; "": it is not.
std::string drafts_do_not_pay(const LanguageModel& model);

}  // namespace millrace
