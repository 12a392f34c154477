#include "run/second_models.h"

#include "run/language_model.h"

namespace millrace {

Result<std::shared_ptr<const LanguageModel>> SecondModels::load(const LanguageModel& first, const std::string& path,
                                                                LoadOptions options) {
  const bool default_context = options.context == 0;
  std::lock_guard lock(mutex_);
  Loaded& known = loaded_[path];
  if (auto model = known.model.lock();
      model && (default_context ? known.default_context : model->parts().model->context() >= options.context))
    return model;
  options.shared_memory = first.parts().accounts;
  MILLRACE_TRY(auto model, LanguageModel::load(path, options));
  known = {model, default_context};
  return model;
}

}  // namespace millrace
