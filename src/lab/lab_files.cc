#include "lab/lab_files.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>

#include "base/json_text.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

// Calls take(json, line number) for each line that is not empty; stops at its first error.
template <typename Take>
Result<void> for_json_lines(std::string_view text, const std::string& name, const Take& take) {
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.size(), text.find('\n'));
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(text.size(), end + 1));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const Json json = parse_json(line);
    if (!json.is_object()) return Error::corrupt(fmt::format("{}: line {} is not a JSON object", name, number));
    if (auto taken = take(json); !taken.ok())
      return Error::corrupt(fmt::format("{}: line {}: {}", name, number, taken.error().message));
  }
  return {};
}

Result<std::string> text_field(const Json& object, const char* field) {
  const auto found = object.find(field);
  if (found == object.end() || !found->is_string())
    return Error::corrupt(fmt::format("the field {} is not a text", field));
  return found->get<std::string>();
}

Result<LabItem> parse_item(const Json& json) {
  LabItem item;
  MILLRACE_TRY(item.task, text_field(json, "task"));
  if (!find_lab_task(item.task))
    return Error::corrupt(fmt::format("no such task as '{}'; there are {}", item.task, lab_task_names()));
  MILLRACE_TRY(item.answer, text_field(json, "answer"));
  const auto messages = json.find("messages");
  if (messages == json.end() || !messages->is_array() || messages->empty())
    return Error::corrupt("the field messages is not a list of messages");
  for (const Json& message : *messages) {
    if (!message.is_object()) return Error::corrupt("the field messages is not a list of messages");
    LabMessage one;
    MILLRACE_TRY(one.role, text_field(message, "role"));
    MILLRACE_TRY(one.content, text_field(message, "content"));
    item.messages.push_back(std::move(one));
  }
  return item;
}

// The text of an answer in `millrace batch`'s output; "" if the request failed.
std::string batch_text(const Json& line) {
  const Json* at = &line;
  for (const char* field : {"response", "body", "choices"}) {
    const auto found = at->is_object() ? at->find(field) : at->end();
    if (!at->is_object() || found == at->end()) return "";
    at = &*found;
  }
  if (!at->is_array() || at->empty() || !at->front().is_object()) return "";
  const Json& choice = at->front();
  const Json content = choice.contains("message") && choice["message"].is_object()
                           ? choice["message"].value("content", Json())
                           : choice.value("text", Json());
  return content.is_string() ? content.get<std::string>() : "";
}

}  // namespace

Json lab_item_json(const LabItem& item) {
  Json messages = Json::array();
  for (const LabMessage& message : item.messages)
    messages.push_back({{"role", message.role}, {"content", message.content}});
  return {{"task", item.task}, {"prompt", item.prompt()}, {"messages", std::move(messages)}, {"answer", item.answer}};
}

Json lab_request_json(const LabItem& item, int64_t index, int64_t max_tokens) {
  Json body = {{"messages", lab_item_json(item)["messages"]}, {"max_tokens", max_tokens}, {"temperature", 0}};
  return {{"custom_id", std::to_string(index)}, {"url", "/v1/chat/completions"}, {"body", std::move(body)}};
}

Result<std::vector<LabItem>> parse_lab_items(std::string_view text, const std::string& name) {
  std::vector<LabItem> items;
  MILLRACE_TRY_VOID(for_json_lines(text, name, [&](const Json& json) -> Result<void> {
    MILLRACE_TRY(LabItem item, parse_item(json));
    items.push_back(std::move(item));
    return {};
  }));
  return items;
}

Result<std::vector<std::string>> parse_lab_answers(std::string_view text, const std::string& name, size_t items) {
  std::vector<std::string> answers(items);
  std::vector<bool> answered(items);
  size_t next = 0;
  MILLRACE_TRY_VOID(for_json_lines(text, name, [&](const Json& json) -> Result<void> {
    size_t at = next++;
    std::string answer;
    if (json.contains("custom_id")) {
      MILLRACE_TRY(const std::string id, text_field(json, "custom_id"));
      const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), at);
      if (error != std::errc() || end != id.data() + id.size())
        return Error::corrupt(fmt::format("custom_id '{}' is not the number of an item", id));
      answer = batch_text(json);
    } else {
      MILLRACE_TRY(answer, text_field(json, "answer"));
    }
    if (at >= items) return Error::corrupt(fmt::format("an answer to item {}, of {} items", at, items));
    if (answered[at]) return Error::corrupt(fmt::format("a second answer to item {}", at));
    answered[at] = true;
    answers[at] = std::move(answer);
    return {};
  }));
  return answers;
}

LabScores score_lab_answers(std::span<const LabItem> items, std::span<const std::string> answers) {
  LabScores out;
  for (size_t i = 0; i < items.size(); ++i) {
    const LabTask* task = find_lab_task(items[i].task);
    const double score = task->score(items[i], answers[i]);
    const auto length = static_cast<int64_t>(std::bit_ceil(items[i].prompt().size()));
    for (LabScore* sum : {&out.tasks[items[i].task], &out.lengths[{items[i].task, length}]}) {
      ++sum->items;
      sum->right += score == 1;
      sum->sum += score;
    }
  }
  return out;
}

}  // namespace millrace
