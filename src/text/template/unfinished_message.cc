#include "text/template/unfinished_message.h"

#include "base/ordered_json.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

// A word that `input` does not contain. Letters only: no template alters it.
std::string absent_word(const Json& input) {
  const std::string text = input.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string word = "endofmessage";
  while (text.find(word) != std::string::npos) word += 'x';
  return word;
}

}  // namespace

Result<std::string> render_unfinished(Json input, const std::function<Result<std::string>(const Json&)>& render) {
  const std::string marker = absent_word(input);
  Json& messages = input.is_object() && input.contains("messages") ? input["messages"] : input;
  if (!messages.is_array() || messages.empty() || !messages.back().is_object())
    return Error::user("there is no last message to continue");
  Json& content = messages.back()["content"];
  const std::string given = content.is_string() ? content.get<std::string>() : "";
  const bool blank = given.find_first_not_of(" \t\r\n") == std::string::npos;  // a template may remove all of it
  content = blank ? marker : given + marker;
  MILLRACE_TRY(std::string text, render(input));
  const size_t end = text.rfind(marker);
  if (end == std::string::npos)
    return Error::user("the chat template leaves the last message out, so that it cannot be continued");
  text.resize(end);
  if (blank) return text + given;
  // A template may also replace white space inside a message, such as empty lines.
  constexpr const char* kSpace = " \t\r\n";
  const std::string trailing = given.substr(given.find_last_not_of(kSpace) + 1);
  if (!trailing.empty()) text.resize(text.find_last_not_of(kSpace) + 1);
  return text + trailing;
}

}  // namespace millrace
