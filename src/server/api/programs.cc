// POST /v1/programs: executes a generation program (docs/programs.md).
#include "program/member.h"
#include "program/program_reader.h"
#include "server/api/api.h"
#include "server/api/sampling_fields.h"
#include "server/generation/program_call.h"
#include "server/service.h"

namespace millrace {
namespace {

using Wrong = std::optional<ApiError>;

constexpr size_t kMaxVariables = 4096, kMaxMessages = 4096;

Wrong read_variables(const Json& body, ProgramVariables& out) {
  if (!body.contains("variables")) return std::nullopt;
  for (const auto& [name, value] : body["variables"].items()) {
    if (!value.is_string()) return ApiError::bad("variables." + name.substr(0, 80), "must be a string");
    out[name] = value.get<std::string>();
  }
  return std::nullopt;
}

// The program that `millrace.use` names, for a conversation.
Result<Program> chosen_program(const Json& body, const std::string& member) {
  MILLRACE_TRY(const auto made, make_program_member(member));
  if (!body.contains("messages")) return Error::user("needs messages");
  ProgramQuestion question;
  for (const Json& message : body["messages"]) {
    const bool texts = message.is_object() && message.contains("role") && message["role"].is_string() &&
                       message.contains("content") && message["content"].is_string();
    if (!texts) return Error::user("messages: each must have a role and a content, which are strings");
    question.messages.push_back({message["role"], message["content"]});
  }
  if (question.messages.empty() || question.messages.back().role != "user")
    return Error::user("messages: the last one must be the user's");
  question.max_tokens = body.value("max_tokens", question.max_tokens);
  question.seed = body.value("seed", question.seed);
  if (body.contains("temperature")) question.temperature = body["temperature"].get<double>();
  return made->program(question);
}

// The program of the request, and the field that it is from.
Result<Program> requested_program(const Json& body, std::string& field) {
  constexpr std::string_view kFamily = "program=";
  const Json uses = body.contains("millrace") ? body["millrace"].value("use", Json::array()) : Json::array();
  field = uses.empty() ? "program" : "millrace.use";
  if (uses.empty() && body.contains("messages")) return Error::user("is missing; messages are for millrace.use");
  if (uses.empty()) return read_program(body.value("program", Json()));
  if (body.contains("program")) return Error::user("cannot be combined with program");
  const std::string text = uses.size() == 1 ? uses[0].get<std::string>() : "";
  if (!text.starts_with(kFamily)) return Error::user("must be one choice, program=NAME:key=value,...");
  return chosen_program(body, text.substr(kFamily.size()));
}

Wrong begin_program(Call& call, const Exchange& exchange) {
  std::string field;
  auto program = requested_program(call.body, field);
  if (!program.ok()) return ApiError::bad(field, program.error().message);
  ProgramVariables given;
  if (auto wrong = read_variables(call.body, given)) return wrong;
  for (const auto& [name, value] : given)
    if (!program->variables.contains(name))
      return ApiError::bad("variables." + name.substr(0, 80), "the program has no such variable");
  if (const auto size = check_program(*program, {}); !size.ok()) return ApiError::bad(field, size.error().message);
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
  Field program{"program", kJsonObject, "none", "the program, in the form of docs/programs.md"};
  Field messages{"messages", kJsonList, "none",
                 "in place of a program, with millrace.use: the conversation to answer, objects with role and content"};
  messages.most = kMaxMessages;
  Field max_tokens{"max_tokens", kJsonInteger, "256", "most tokens of each generation, with messages"};
  max_tokens.min = 1;
  max_tokens.max = 65536;
  Field seed{"seed", kJsonInteger, "0", "seed of the first branch, with messages"};
  seed.min = 0;
  seed.max = 9007199254740992.0;
  Field temperature{"temperature", kJsonNumber, "that of the program", "temperature of its generations, with messages"};
  temperature.min = 0;
  temperature.max = 100;
  Field use{"use", kJsonTexts, "[]",
            "one choice of the family program, program=skeleton:points=8, which answers the messages"};
  use.most = 1;
  Field own = object_field("millrace", "extensions of this server; unknown keys are refused", {use});
  own.closed = true;
  Field variables{"variables", kJsonObject, "{}", "values of the program's variables, strings"};
  variables.most = kMaxVariables;
  Field at_once{"at_once", kJsonInteger, "16", "most generations of the program that run at the same time"};
  at_once.min = 1;
  at_once.max = 256;
  return joined(
      {{model_field(), program, variables, messages, max_tokens, seed, temperature, own, stream_field(false), at_once},
       reading_fields()});
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
