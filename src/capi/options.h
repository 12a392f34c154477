// Options of the C interface: pairs of a name and a value, as text. An option that `millrace run` has as a flag has the
// flag's name. Tables in options.cc list all of them, with types and bounds. Pure functions.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "millrace.h"
#include "millrace/options.h"
#include "millrace/request.h"
#include "techniques/technique_use.h"

namespace millrace {

using GivenOptions = std::vector<std::pair<std::string, std::string>>;

inline constexpr double kMaxThreads = 1024;

// Copies the pairs; '-' in a name becomes '_'. Errors (user): a null pointer.
Result<GivenOptions> given_options(const millrace_option* options, size_t count);

// `what`: what the option was given for, such as "a model"; `names`: the options that exist.
Error unknown_option(const std::string& name, const char* what, const std::string& names);

// Errors of the following functions (user): an unknown option, a value of another type or out of bounds, a technique
// that is chosen elsewhere.

Result<LoadOptions> load_options(const GivenOptions& given);

struct CEngineOptions {
  EngineOptions engine;
  int64_t open_streams = 1024;    // maximum of streams that are not freed
  int64_t unread_events = 16384;  // maximum of unread events of one stream
  std::vector<AppliedTechnique> applied;
};
Result<CEngineOptions> engine_options(const GivenOptions& given);

struct CRequestOptions {
  Request request;          // without a prompt; its sampling options begin with `sampling`
  bool no_special = false;  // no start token before a text
  bool adapters_given = false;
  std::vector<std::string> documents = {};  // texts before the prompt
};
// `sampling`: the model's own options, which `given` overrides.
Result<CRequestOptions> request_options(const GivenOptions& given, const SamplingOptions& sampling);

}  // namespace millrace
