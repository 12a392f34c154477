#include "chat_conversation.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/ordered_json.h"
#include "input.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr uintmax_t kMaxFileBytes = uintmax_t{64} << 20;

Result<ChatMessage> read_message(const Json& item, size_t index, const std::string& path) {
  auto wrong = [&](const std::string& what) {
    return Error::corrupt(fmt::format("{}: message {}: {}", path, index + 1, what));
  };
  if (!item.is_object()) return wrong("must be an object with \"role\" and \"content\"");
  auto role = item.find("role");
  auto content = item.find("content");
  if (role == item.end() || !role->is_string()) return wrong("has no \"role\" string");
  if (content == item.end() || !content->is_string()) return wrong("has no \"content\" string");
  ChatMessage message{role->get<std::string>(), content->get<std::string>()};
  if (message.role == "system" && index > 0) return wrong("a system message must come first");
  if (message.role != "system" && message.role != "user" && message.role != "assistant") {
    return wrong(fmt::format("the role must be system, user or assistant, got '{}'", message.role));
  }
  return message;
}

}  // namespace

std::vector<ChatMessage> Conversation::messages() const {
  std::vector<ChatMessage> all;
  if (!system.empty()) all.push_back({"system", system});
  all.insert(all.end(), turns.begin(), turns.end());
  return all;
}

int Conversation::drop_oldest() {
  size_t count = 1;
  while (count < turns.size() && turns[count].role != "user") ++count;
  if (count >= turns.size()) return 0;
  turns.erase(turns.begin(), turns.begin() + static_cast<std::ptrdiff_t>(count));
  return static_cast<int>(count);
}

Result<Conversation> load_conversation(const std::string& path) {
  std::error_code status;
  if (std::filesystem::exists(path, status)) {
    if (!std::filesystem::is_regular_file(path, status))
      return Error::corrupt(fmt::format("{}: not a regular file", path));
    const uintmax_t bytes = std::filesystem::file_size(path, status);
    if (status || bytes > kMaxFileBytes)
      return Error::corrupt(fmt::format("{}: a conversation file can have at most {} bytes, this one has {}", path,
                                        kMaxFileBytes, bytes));
  }
  MILLRACE_TRY(Json json, read_json_file(path));
  if (json.is_object() && json.contains("messages")) json = Json(json["messages"]);
  if (!json.is_array())
    return Error::corrupt(fmt::format("{}: must be a JSON array of {{\"role\", \"content\"}} objects", path));
  Conversation loaded;
  for (size_t i = 0; i < json.size(); ++i) {
    MILLRACE_TRY(ChatMessage message, read_message(json[i], i, path));
    if (message.role == "system") {
      loaded.system = std::move(message.content);
    } else {
      loaded.turns.push_back(std::move(message));
    }
  }
  return loaded;
}

Result<void> save_conversation(const Conversation& conversation, const std::string& path) {
  const std::string text = to_json(conversation.messages()).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (!file) return Error::user(fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const int reason = errno;
  if (std::fclose(file) != 0 || !written)
    return Error::user(fmt::format("{}: cannot be written: {}", path, std::strerror(written ? errno : reason)));
  return {};
}

}  // namespace millrace
