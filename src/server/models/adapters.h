// LoRA adapters in requests: as a model's name, in the field `lora`, or by the scales that a client has set for all.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "server/api/api_error.h"
#include "server/api/schema.h"
#include "server/generation/generation_request.h"

namespace millrace {

struct ServedModel;
class ModelRegistry;

// Scales of adapters for requests that say nothing; 0 for those that are not here. Thread-safe.
class AdapterScales {
 public:
  double get(const std::string& name) const;
  void set(std::map<std::string, double> scales);

 private:
  mutable std::mutex mutex_;
  std::map<std::string, double> scales_;
};

// [{"id", "scale"}], of which the ids are places in /lora-adapters.
Field lora_field();

// The loaded model that has an adapter of this name; none: there is no such.
std::optional<std::string> model_with_adapter(ModelRegistry& models, const std::string& adapter);

// Fills in ask.request.adapters from what the request and the model's scales say.
std::optional<ApiError> choose_adapters(GenerationRequest& ask);

}  // namespace millrace
