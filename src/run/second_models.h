// SecondModels: models in addition to the one that answers, such as draft models and the scorers of prompt compressors.
// They are charged to its memory budget, and a file that several of them name is loaded once. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "millrace/model.h"

namespace millrace {

class SecondModels {
 public:
  // `options` without the memory budget, which is that of `first`, the model that answers. A loaded model is shared if
  // it was loaded for as long streams; one for the default context is never a model for a given one. Errors: those of
  // LanguageModel::load.
  Result<std::shared_ptr<const LanguageModel>> load(const LanguageModel& first, const std::string& path,
                                                    LoadOptions options);

 private:
  struct Loaded {
    std::weak_ptr<const LanguageModel> model;
    bool default_context = false;
  };
  std::mutex mutex_;
  std::map<std::string, Loaded> loaded_;  // by path
};

}  // namespace millrace
