// Lists how the engine of an answer differs from a plain one, if answers change with the difference: the choices of
// techniques/lossy_choices.h, as they were given, and prefix stores that fetch a part of a prompt only.
#pragma once

#include <string>
#include <string_view>

#include "millrace/options.h"
#include "millrace/request.h"
#include "server/json.h"

namespace millrace {

struct ServedModel;

// {"kv_format": "kivi:bits=2", "attention": "bigbird", "kernel": "unified_max", "router": "switch", "acceptance":
// "typical", "evictor": "h2o:budget=512", "context": "kvlink", "store": "ssd:fetch=0.5"}: the entries of techniques
// that were chosen; {} for a plain engine. Several kernels are joined by "; ". The context is named where the request
// has documents. A request's own evictor or context replaces the engine's. Files and folders appear by name only.
// `router`: how the model chooses experts; `weights`: the source of its weights, named if it predicts neurons.
Json engine_choices(const EngineOptions& options, const Request& request, std::string_view router = "topk",
                    std::string_view weights = "resident");

// The router that the model runs with; "topk" of models without a mixture of experts.
std::string_view router_of(const ServedModel& served);

// The source of the model's weights if it computes MLPs by neuron or has cold experts, NAME:key=value,...; "resident"
// for all others.
std::string lossy_weights_of(const ServedModel& served);

// The choices that apply to prompts which are read and not answered: embeddings, rankings and scores.
Json reading_choices(const ServedModel& served);

}  // namespace millrace
