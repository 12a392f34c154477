#include "prompt/message_rewrites.h"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <vector>

namespace millrace {
namespace {

using Message = nlohmann::ordered_json;

bool has_role(const Message& message, std::string_view role) {
  if (!message.is_object()) return false;
  const auto found = message.find("role");
  return found != message.end() && found->is_string() && found->get_ref<const std::string&>() == role;
}

// A field that is a string; "" otherwise.
std::string text_of(const Message& object, const char* key) {
  if (!object.is_object()) return "";
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

Message* calls_of(Message& message) {
  if (!message.is_object()) return nullptr;
  const auto found = message.find("tool_calls");
  return found != message.end() && found->is_array() ? &*found : nullptr;
}

struct OpenCall {
  std::string given, name, id;
  size_t index = 0;  // in the list of its message
};

// The call as it is before any rewrite.
OpenCall open_call(const Message& call, size_t index) {
  OpenCall one{.given = text_of(call, "id"), .name = "", .id = "", .index = index};
  if (const auto function = call.find("function"); function != call.end()) one.name = text_of(*function, "name");
  return one;
}

// Takes the call that a result answers out of `open`; nullopt: `open` is empty.
std::optional<OpenCall> take_call(std::vector<OpenCall>& open, const Message& result) {
  const std::string given = text_of(result, "tool_call_id");
  std::string name = text_of(result, "name");
  if (name.empty()) name = text_of(result, "tool_name");
  auto found = open.end();
  for (auto one = open.begin(); one != open.end() && found == open.end(); ++one)
    if (given.empty() ? name.empty() || one->name == name : one->given == given) found = one;
  if (found == open.end()) found = open.begin();
  if (found == open.end()) return std::nullopt;
  OpenCall taken = std::move(*found);
  open.erase(found);
  return taken;
}

bool is_plain(const Message& message) {
  return message.is_object() && !message.contains("tool_calls") && message.contains("content") &&
         message["content"].is_string();
}

}  // namespace

void rewrite_call_ids(Message& messages) {
  std::vector<OpenCall> open;
  size_t number = 0;
  for (Message& message : messages) {
    if (has_role(message, "tool")) {
      if (const auto call = take_call(open, message)) message["tool_call_id"] = call->id;
      continue;
    }
    Message* calls = calls_of(message);
    if (!calls) continue;
    open.clear();
    for (Message& call : *calls) {
      if (!call.is_object()) continue;
      OpenCall one = open_call(call, open.size());
      one.id = fmt::format("call{:05}", number++ % 100000);
      call["id"] = one.id;
      open.push_back(std::move(one));
    }
  }
}

void split_parallel_calls(Message& messages) {
  Message out = Message::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    Message* calls = calls_of(messages[i]);
    if (!calls || calls->size() < 2) {
      out.push_back(std::move(messages[i]));
      continue;
    }
    std::vector<OpenCall> open;
    for (size_t k = 0; k < calls->size(); ++k)
      if ((*calls)[k].is_object()) open.push_back(open_call((*calls)[k], k));
    std::vector<Message> results(calls->size(), Message::array());
    size_t next = i + 1;
    for (; next < messages.size() && has_role(messages[next], "tool"); ++next) {
      const auto call = take_call(open, messages[next]);
      results[call ? call->index : calls->size() - 1].push_back(std::move(messages[next]));
    }
    for (size_t k = 0; k < results.size(); ++k) {
      Message one = messages[i];
      one["tool_calls"] = Message::array({(*calls)[k]});
      if (k > 0) {
        one.erase("reasoning_content");
        if (one.contains("content")) one["content"] = "";
      }
      out.push_back(std::move(one));
      for (Message& result : results[k]) out.push_back(std::move(result));
    }
    i = next - 1;
  }
  messages = std::move(out);
}

void move_system_to_user(Message& messages) {
  Message out = Message::array();
  std::string text;
  for (Message& message : messages) {
    if ((has_role(message, "system") || has_role(message, "developer")) && is_plain(message)) {
      text += (text.empty() ? "" : "\n\n") + text_of(message, "content");
      continue;
    }
    if (!text.empty() && has_role(message, "user") && is_plain(message)) {
      message["content"] = text + "\n\n" + text_of(message, "content");
      text.clear();
    } else if (!text.empty()) {
      out.push_back({{"role", "user"}, {"content", std::move(text)}});
      text.clear();
    }
    out.push_back(std::move(message));
  }
  if (!text.empty()) out.push_back({{"role", "user"}, {"content", text}});
  messages = std::move(out);
}

void alternate_roles(Message& messages) {
  Message out = Message::array();
  for (Message& message : messages) {
    const bool joins = !out.empty() && is_plain(message) && is_plain(out.back()) &&
                       (has_role(message, "user") || has_role(message, "assistant")) &&
                       out.back()["role"] == message["role"];
    if (joins) {
      const std::string before = text_of(out.back(), "content"), more = text_of(message, "content");
      out.back()["content"] = before + (before.empty() || more.empty() ? "" : "\n\n") + more;
      continue;
    }
    if (has_role(message, "assistant") && (out.empty() || (out.size() == 1 && has_role(out[0], "system"))))
      out.push_back({{"role", "user"}, {"content", ""}});
    out.push_back(std::move(message));
  }
  messages = std::move(out);
}

void complete_calls(Message& messages) {
  for (Message& message : messages) {
    Message* calls = calls_of(message);
    if (!calls) continue;
    for (Message& call : *calls) {
      if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) continue;
      Message& arguments = call["function"]["arguments"];
      if (arguments.is_null() || (arguments.is_string() && arguments.get_ref<const std::string&>().empty()))
        arguments = Message::object();
      if (!call.contains("type")) call["type"] = "function";
    }
  }
}

std::span<const MessageRewrite> message_rewrites() {
  static constexpr std::array kRewrites = {
      MessageRewrite{"tool_call_ids",
                     "ids of tool calls replaced by nine letters and digits, which the template demands",
                     rewrite_call_ids},
      MessageRewrite{"single_calls",
                     "parallel tool calls split into one message each: the template takes one at a time",
                     split_parallel_calls},
      MessageRewrite{"system_to_user", "system messages moved into user messages: the template refuses the role",
                     move_system_to_user},
      MessageRewrite{"alternate_roles",
                     "neighbouring messages of one role joined: the template demands that roles alternate",
                     alternate_roles},
  };
  return kRewrites;
}

const MessageRewrite& empty_tools_rewrite() {
  static constexpr MessageRewrite kEmptyTools{
      "empty_tools", "an empty list of tools given to the template, which requires a list", [](Message&) {}};
  return kEmptyTools;
}

}  // namespace millrace
