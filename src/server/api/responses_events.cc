#include "server/api/responses_events.h"

#include "server/api/custom_tools.h"
#include "server/api/tool_fields.h"

namespace millrace {
namespace {

using PieceKind = AnswerPiece::Kind;

const char* item_status(const Choice& choice) {
  return choice.finish == FinishReason::stop || choice.finish == FinishReason::none ? "completed" : "incomplete";
}

Json text_part() {
  return {{"type", "output_text"}, {"text", ""}, {"annotations", Json::array()}, {"logprobs", Json::array()}};
}

Json call_item(const std::string& id, const std::string& call_id, const std::string& name, bool custom) {
  if (custom)
    return {{"id", "ctc_" + id},
            {"type", "custom_tool_call"},
            {"status", "in_progress"},
            {"call_id", call_id},
            {"name", name},
            {"input", ""}};
  return {{"id", "fc_" + id}, {"type", "function_call"}, {"status", "in_progress"},
          {"arguments", ""},  {"call_id", call_id},      {"name", name}};
}

// Cuts a stored text into the pieces in which it was streamed; one piece if it was not streamed.
class Pieces {
 public:
  Pieces(const Json& deltas, size_t item) : sizes_(item < deltas.size() ? deltas[item] : Json::array()) {}

  template <typename Take>
  void cut(const std::string& text, const Json& logprobs, Take take) const {
    size_t at = 0, token = 0;
    const auto tokens = [&](size_t count) {
      Json out = Json::array();
      for (; count > 0 && token < logprobs.size(); --count) out.push_back(logprobs[token++]);
      return out;
    };
    for (const Json& size : sizes_) {
      take(text.substr(std::min(at, text.size()), size[0].get<size_t>()), tokens(size[1].get<size_t>()));
      at += size[0].get<size_t>();
    }
    if (at < text.size() || sizes_.empty()) take(text.substr(std::min(at, text.size())), tokens(logprobs.size()));
  }

 private:
  Json sizes_;
};

}  // namespace

Json response_json(const Answer& answer, const char* status, Json output) {
  Json out = {{"id", answer.id},  {"object", "response"}, {"created_at", answer.created},
              {"status", status}, {"error", nullptr},     {"incomplete_details", nullptr}};
  for (const auto& [name, value] : answer.params.kept["request"].items()) out[name] = value;
  for (const auto& [name, applied] : {std::pair{"temperature", answer.params.request.sampling.temperature},
                                      std::pair{"top_p", answer.params.request.sampling.top_p}})
    if (out.contains(name)) out[name] = applied;
  out["model"] = answer.model_name;
  out["output"] = std::move(output);
  out["store"] = answer.params.store != nullptr;
  out["usage"] = nullptr;
  return out;
}

void ResponseEvents::event(const char* type, Json data) {
  const int64_t number = answer_.events++;
  if (number <= after_) return;
  Json out = {{"type", type}, {"sequence_number", number}};
  for (auto& [name, value] : data.items()) out[name] = std::move(value);
  bytes_ += sse_event(type, out);
}

void ResponseEvents::piece(const AnswerPiece& piece, Json logprobs) {
  switch (piece.kind) {
    case PieceKind::text:
    case PieceKind::reasoning: {
      if (choice_.part_kind != piece.kind) {
        close();
        open(piece.kind);
      }
      Json& part = item()["content"][0];
      part["text"].get_ref<std::string&>() += piece.text;
      answer_.deltas.back().push_back({piece.text.size(), logprobs.size()});
      if (piece.kind == PieceKind::text)
        part["logprobs"].insert(part["logprobs"].end(), logprobs.begin(), logprobs.end());
      return part_event(piece.kind == PieceKind::text ? "response.output_text.delta" : "response.reasoning_text.delta",
                        "delta", piece.text, std::move(logprobs));
    }
    case PieceKind::call: close(); return open_call(piece.text);
    case PieceKind::arguments:
      if (choice_.part_kind != PieceKind::call || choice_.open_custom) return;
      item()["arguments"].get_ref<std::string&>() += piece.text;
      answer_.deltas.back().push_back({piece.text.size(), 0});
      return event("response.function_call_arguments.delta",
                   {{"item_id", item()["id"]}, {"output_index", choice_.part}, {"delta", piece.text}});
    case PieceKind::call_end: return close();
  }
}

void ResponseEvents::open_call(const std::string& name) {
  const std::string id = choice_.calls[choice_.streamed_calls++].id;
  choice_.open_custom = is_custom(answer_.params, name);
  Json call = call_item(item_id(), id, name, choice_.open_custom);
  name_call(answer_.params, name, call);
  add(PieceKind::call, std::move(call));
}

void ResponseEvents::close_call() {
  item()["status"] = item_status(choice_);
  if (!choice_.open_custom)
    return event("response.function_call_arguments.done", {{"item_id", item()["id"]},
                                                           {"output_index", choice_.part},
                                                           {"name", item()["name"]},
                                                           {"arguments", item()["arguments"]}});
  choice_.open_custom = false;
  const std::string input = custom_input(choice_.calls[choice_.streamed_calls - 1].arguments);
  item()["input"] = input;
  event("response.custom_tool_call_input.delta",
        {{"item_id", item()["id"]}, {"output_index", choice_.part}, {"delta", input}});
  event("response.custom_tool_call_input.done",
        {{"item_id", item()["id"]}, {"output_index", choice_.part}, {"input", input}});
}

void ResponseEvents::close() {
  if (!choice_.part_kind) return;
  const PieceKind kind = *choice_.part_kind;
  choice_.part_kind.reset();
  if (kind == PieceKind::call) {
    close_call();
  } else {
    const Json& part = item()["content"][0];
    part_event(kind == PieceKind::text ? "response.output_text.done" : "response.reasoning_text.done", "text",
               part["text"].get<std::string>(), part.value("logprobs", Json::array()));
    event("response.content_part.done",
          {{"item_id", item()["id"]}, {"output_index", choice_.part}, {"content_index", 0}, {"part", part}});
    if (kind == PieceKind::text) item()["status"] = item_status(choice_);
  }
  event("response.output_item.done", {{"output_index", choice_.part}, {"item", item()}});
}

void ResponseEvents::at_least_one() {
  if (!answer_.items.empty()) return;
  open(PieceKind::text);
  close();
}

void ResponseEvents::add(PieceKind kind, Json item) {
  answer_.items.push_back(std::move(item));
  answer_.deltas.push_back(Json::array());
  choice_.part = static_cast<int64_t>(answer_.items.size()) - 1;
  choice_.part_kind = kind;
  event("response.output_item.added", {{"output_index", choice_.part}, {"item", answer_.items.back()}});
}

void ResponseEvents::open(PieceKind kind) {
  if (kind == PieceKind::text) {
    add(kind, {{"id", "msg_" + item_id()},
               {"type", "message"},
               {"status", "in_progress"},
               {"role", "assistant"},
               {"content", Json::array()}});
    item()["content"].push_back(text_part());
  } else {
    add(kind,
        {{"id", "rs_" + item_id()}, {"type", "reasoning"}, {"summary", Json::array()}, {"content", Json::array()}});
    item()["content"].push_back({{"type", "reasoning_text"}, {"text", ""}});
  }
  event("response.content_part.added", {{"item_id", item()["id"]},
                                        {"output_index", choice_.part},
                                        {"content_index", 0},
                                        {"part", item()["content"][0]}});
}

void ResponseEvents::part_event(const char* type, const char* key, const std::string& text, Json logprobs) {
  Json data = {{"item_id", item()["id"]}, {"output_index", choice_.part}, {"content_index", 0}, {key, text}};
  if (item()["type"] == "message") data["logprobs"] = std::move(logprobs);
  event(type, std::move(data));
}

std::string stored_response_events(const std::string& id, StoredResponse stored, int64_t after) {
  const Json& response = stored.response;
  Answer answer;
  answer.id = id;
  answer.items = answer.deltas = Json::array();
  answer.choices.resize(1);
  Choice& choice = answer.choices.front();
  ResponseEvents events(answer, after);
  Json begun = response;
  begun["status"] = "in_progress";
  begun["output"] = Json::array();
  for (const char* name : {"usage", "incomplete_details"}) begun[name] = nullptr;
  events.event("response.created", {{"response", begun}});
  events.event("response.in_progress", {{"response", begun}});
  const bool complete = response["status"] == "completed";
  for (size_t i = 0; i < response["output"].size(); ++i) {
    const Json& item = response["output"][i];
    const Pieces pieces(stored.deltas, i);
    const std::string type = item["type"];
    if (type == "message" || type == "reasoning") {
      const Json part = item["content"].empty() ? Json{{"text", ""}} : item["content"][0];
      const PieceKind kind = type == "message" ? PieceKind::text : PieceKind::reasoning;
      if (i == 0 && part["text"] == "" && response["output"].size() == 1) {
        events.at_least_one();
        continue;
      }
      pieces.cut(part["text"].get<std::string>(), part.value("logprobs", Json::array()),
                 [&](std::string text, Json logprobs) {
                   events.piece({kind, std::move(text)}, std::move(logprobs));
                 });
    } else {
      const bool custom = type == "custom_tool_call";
      const std::string space = item.value("namespace", ""), name = flat_tool_name(space, item["name"]);
      if (!space.empty()) answer.params.tools.namespaced.push_back({name, space, item["name"].get<std::string>()});
      if (custom) answer.params.tools.custom = {name};
      choice.calls.push_back(
          {item["call_id"].get<std::string>(), name,
           custom ? custom_arguments(item["input"].get<std::string>()) : item["arguments"].get<std::string>()});
      events.piece({PieceKind::call, name});
      if (!custom)
        pieces.cut(item["arguments"].get<std::string>(), Json::array(), [&](std::string text, Json) {
          events.piece({PieceKind::arguments, std::move(text)});
        });
      answer.params.tools.custom.clear();
      answer.params.tools.namespaced.clear();
    }
    if (item.value("status", "") == "incomplete") choice.finish = FinishReason::length;
    events.close();
  }
  events.event(complete ? "response.completed" : "response.incomplete", {{"response", response}});
  return events.take();
}

}  // namespace millrace
