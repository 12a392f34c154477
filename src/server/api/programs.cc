// POST /v1/programs: executes a generation program (docs/programs.md).
#include "program/program_reader.h"
#include "server/api/api.h"
#include "server/api/sampling_fields.h"
#include "server/generation/program_call.h"
#include "server/service.h"

namespace millrace {
namespace {

using Wrong = std::optional<ApiError>;

constexpr size_t kMaxVariables = 4096;

Wrong read_variables(const Json& body, ProgramVariables& out) {
  if (!body.contains("variables")) return std::nullopt;
  for (const auto& [name, value] : body["variables"].items()) {
    if (!value.is_string()) return ApiError::bad("variables." + name.substr(0, 80), "must be a string");
    out[name] = value.get<std::string>();
  }
  return std::nullopt;
}

Wrong begin_program(Call& call, const Exchange& exchange) {
  auto program = read_program(call.body["program"]);
  if (!program.ok()) return ApiError::bad("program", program.error().message);
  ProgramVariables given;
  if (auto wrong = read_variables(call.body, given)) return wrong;
  for (const auto& [name, value] : given)
    if (!program->variables.contains(name))
      return ApiError::bad("variables." + name.substr(0, 80), "the program has no such variable");
  if (const auto size = check_program(*program, {}); !size.ok()) return ApiError::bad("program", size.error().message);
  ProgramCall::Settings settings{.model = call.body.value("model", std::string()),
                                 .stream = call.params.stream,
                                 .at_once = call.body.value("at_once", int64_t{16}),
                                 .priority = call.params.request.priority,
                                 .timeout_seconds = call.params.timeout_seconds,
                                 .headers = call.service.headers(call.request)};
  ProgramCall::start(call.service, kOpenAi, std::move(settings), std::move(*program), given, call.request, exchange);
  return std::nullopt;
}

std::vector<Field> program_fields() {
  Field program{"program", kJsonObject, "", "the program, in the form of docs/programs.md"};
  program.required = true;
  Field variables{"variables", kJsonObject, "{}", "values of the program's variables, strings"};
  variables.most = kMaxVariables;
  Field at_once{"at_once", kJsonInteger, "16", "most generations of the program that run at the same time"};
  at_once.min = 1;
  at_once.max = 256;
  return joined({{model_field(), program, variables, stream_field(false), at_once}, reading_fields()});
}

}  // namespace

std::vector<Endpoint> program_endpoints() {
  return {{.method = "POST",
           .path = "/v1/programs",
           .dialect = &kOpenAi,
           .summary = "Executes a generation program; its branches run in one batch and share their prefixes. With "
                      "`stream`, the answer is server-sent events: `step` after each generation, then `result` with "
                      "the JSON that the answer has without `stream`, or an error.",
           .fields = program_fields(),
           .begin = begin_program}};
}

}  // namespace millrace
