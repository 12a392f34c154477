// OpenTelemetry traces of agents, one trace per line: {"spans": [...]} or the same under "trace". A span with
// gen_ai.input.messages is a request; others are skipped. Token counts are the recorded usage if present.
#include "workload/json_line.h"
#include "workload/readers/records.h"

namespace millrace {
namespace {

// Messages are an array, or its JSON as text. Approximates the text that a tokenizer would see: roles and contents.
Result<std::string> message_text(const TraceLine& line, const Json& attributes, const char* key,
                                 const std::string& what) {
  const auto field = attributes.find(key);
  if (field == attributes.end()) return std::string();
  Json messages = *field;
  if (field->is_string()) {
    const auto text = field->get<std::string>();
    MILLRACE_TRY(messages, parse_json_line({fmt::format("{{\"m\":{}}}", text), line.file, line.number}));
    messages = Json(messages["m"]);
  }
  if (!messages.is_array()) return line.defect(fmt::format("{}{}: must be an array of messages", what, key));
  std::string out;
  for (const Json& message : messages) {
    if (!message.is_object()) return line.defect(fmt::format("{}{}: a message is not an object", what, key));
    for (const char* part : {"role", "content"}) {
      const auto found = message.find(part);
      if (found == message.end() || found->is_null()) continue;
      out +=
          found->is_string() ? found->get<std::string>() : found->dump(-1, ' ', false, Json::error_handler_t::replace);
      out += '\n';
    }
  }
  return out;
}

class OtelReader : public TraceReader {
 public:
  explicit OtelReader(const TraceOptions& options) : options_(options) {}

  Result<void> read(const TraceLine& line, std::vector<WorkloadRequest>& out) override {
    MILLRACE_TRY(const Json object, parse_json_line(line));
    const Json& trace = object.contains("trace") ? object["trace"] : object;
    if (!trace.is_object() || !trace.contains("spans") || !trace["spans"].is_array())
      return line.defect("spans: must be an array of objects");
    const Json& spans = trace["spans"];
    for (size_t i = 0; i < spans.size(); ++i)
      MILLRACE_TRY_VOID(read_span(line, spans[i], fmt::format("spans[{}].", i), out));
    return {};
  }

 private:
  Result<void> read_span(const TraceLine& line, const Json& span, const std::string& what,
                         std::vector<WorkloadRequest>& out) {
    if (!span.is_object() || !span.contains("attributes") || !span["attributes"].is_object()) return {};
    const Json& attributes = span["attributes"];
    if (!attributes.contains("gen_ai.input.messages")) return {};
    WorkloadRequest request;
    MILLRACE_TRY(const std::string start, json_text(line, span, "start_time", what));
    const auto stamp = parse_timestamp(start);
    if (!stamp) return line.defect(fmt::format("{}start_time: must look like 2026-02-25T12:00:00.000000", what));
    request.arrival_seconds = since_first(*stamp);
    MILLRACE_TRY(const std::string prompt, message_text(line, attributes, "gen_ai.input.messages", what));
    MILLRACE_TRY(const int64_t used,
                 usage(line, attributes, {"gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"}, 1, what));
    MILLRACE_TRY_VOID(set_text_prompt(request, prompt, used, options_));
    MILLRACE_TRY(request.output_tokens,
                 usage(line, attributes, {"gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"}, 0, what));
    if (request.output_tokens < 0) {
      std::string output;
      if (attributes.contains("gen_ai.output.text")) {
        MILLRACE_TRY(output, json_text(line, attributes, "gen_ai.output.text", what));
      }
      if (output.empty()) {
        MILLRACE_TRY(output, message_text(line, attributes, "gen_ai.output.messages", what));
      }
      MILLRACE_TRY(request.output_tokens, count_tokens(output, options_));
    }
    if (span.contains("trace_id") && span["trace_id"].is_string())
      request.session = span["trace_id"].get<std::string>();
    out.push_back(std::move(request));
    return {};
  }

  // -1 if none of the names exists.
  static Result<int64_t> usage(const TraceLine& line, const Json& attributes, std::initializer_list<const char*> names,
                               int64_t min, const std::string& what) {
    for (const char* name : names)
      if (attributes.contains(name)) return json_integer(line, attributes, name, min, kMaxTraceTokens, what);
    return int64_t{-1};
  }

  TraceOptions options_;
};

bool is_otel(std::string_view first) {
  if (is_object_with(first, {"spans"})) return true;
  return is_object_with(first, {"trace"}) && first.find("\"spans\"") != std::string_view::npos;
}

}  // namespace

const TraceFormat kOtel = {
    .name = "otel",
    .summary = "JSON lines, one OpenTelemetry trace each; spans with gen_ai.input.messages are requests",
    .paper = "",
    .recognises = is_otel,
    .make = [](const TraceOptions& options) -> std::unique_ptr<TraceReader> {
      return std::make_unique<OtelReader>(options);
    },
};

}  // namespace millrace
