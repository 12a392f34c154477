// Model descriptions shared by several APIs.
#pragma once

#include <optional>
#include <string_view>

#include "server/api/endpoint.h"
#include "server/service.h"

namespace millrace {

// One entry of /v1/models, for the model under one of its names.
Json model_entry(const Service& service, const ModelStatus& model, const std::string& name);

// "keep_alive": seconds, or "5m", "1h30m", "500ms"; negative: forever.
Field keep_alive_field();
// Seconds, or nothing if `text` is not a duration.
std::optional<double> duration_seconds(std::string_view text);

// /models, /models/load, /models/unload
std::vector<Endpoint> model_endpoints();

}  // namespace millrace
