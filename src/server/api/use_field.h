// The field "millrace" of requests that generate text: {"use": ["sampler=min_p:min_p=0.1"]} chooses techniques for one
// request, in the syntax of --use. The response names its changes.
#pragma once

#include "server/api/schema.h"

namespace millrace {

Field use_field();
// The `use` field for requests that do not generate text: refused unless it is empty.
Field no_use_field();

// Applies body["millrace"]["use"] to params, whose sampling options have been set from the body's other fields;
// `defaults` are the model's. Errors: as parse_use(); a field that contradicts it.
std::optional<ApiError> apply_use(const Json& body, const SamplingOptions& defaults, GenerationRequest& params);

}  // namespace millrace
