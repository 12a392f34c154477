// Selects a request's LoRA adapters: by model name, by the field `lora`, or by the model's default scales.
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

// Adapter scales for requests without their own; 0 for adapters not in the map. Thread-safe.
class AdapterScales {
 public:
  double get(const std::string& name) const;
  void set(std::map<std::string, double> scales);

 private:
  mutable std::mutex mutex_;
  std::map<std::string, double> scales_;
};

// The field `lora`: [{"id", "scale"}], where ids are indices in /lora-adapters.
Field lora_field();

// The loaded model that has an adapter with this name; nullopt: none.
std::optional<std::string> model_with_adapter(ModelRegistry& models, const std::string& adapter);

// Fills in params.request.adapters from the request, or from the model's default scales.
std::optional<ApiError> choose_adapters(GenerationRequest& params);

}  // namespace millrace
