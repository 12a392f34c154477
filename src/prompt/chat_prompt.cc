#include "prompt/chat_prompt.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "base/ordered_json.h"
#include "run/language_model.h"
#include "text/template/unfinished_message.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

std::string plain_text(const Json& messages) {
  std::string text;
  for (const Json& message : messages) {
    if (!message.is_object()) continue;
    const auto role = message.find("role"), content = message.find("content");
    if (content == message.end() || !content->is_string()) continue;
    if (role != message.end() && *role == "user" && !text.empty() && !text.ends_with('\n')) text += '\n';
    text += content->get_ref<const std::string&>();
  }
  return text;
}

Result<std::string> render(const LanguageModel& model, const Json& input, bool add_generation_prompt) {
  return model.apply_chat_template(input.dump(-1, ' ', false, Json::error_handler_t::replace), add_generation_prompt);
}

// All sets of rewrites, as bits, those of fewer rewrites first.
std::vector<size_t> sets_by_size(size_t rewrites) {
  std::vector<size_t> sets;
  for (size_t set = 1; set < size_t{1} << rewrites; ++set) sets.push_back(set);
  std::ranges::stable_sort(sets, {}, [](size_t set) { return std::popcount(set); });
  return sets;
}

// The first rendering that the template accepts, with the fewest rewrites; nullopt: it accepts none.
std::optional<RenderedChat> render_rewritten(const LanguageModel& model, const Json& input,
                                             bool add_generation_prompt) {
  const auto rewrites = message_rewrites();
  const bool bare = !input.is_object();
  std::vector<Json> tried = {bare ? input : input["messages"]};
  for (const size_t set : sets_by_size(rewrites.size())) {
    RenderedChat out{.text = "", .messages = tried.front()};
    for (size_t i = 0; i < rewrites.size(); ++i) {
      if ((set >> i & 1) == 0) continue;
      rewrites[i].apply(out.messages);
      out.rewrites.push_back(&rewrites[i]);
    }
    if (std::ranges::find(tried, out.messages) != tried.end()) continue;
    tried.push_back(out.messages);
    Json changed = input;
    (bare ? changed : changed["messages"]) = out.messages;
    auto text = render(model, changed, add_generation_prompt);
    if (!text.ok() && (text.error().kind == ErrorKind::resource || text.error().kind == ErrorKind::cancelled))
      return std::nullopt;
    if (!text.ok()) continue;
    out.text = std::move(*text);
    return out;
  }
  return std::nullopt;
}

// With an empty list of tools instead of none, for templates that loop over it.
std::optional<RenderedChat> render_without_tools(const LanguageModel& model, const Json& input,
                                                 bool add_generation_prompt) {
  if (input.is_object() && input.contains("tools") && !input["tools"].is_null()) return std::nullopt;
  Json changed = input.is_object() ? input : Json{{"messages", input}};
  changed["tools"] = Json::array();
  std::optional<RenderedChat> out;
  if (auto text = render(model, changed, add_generation_prompt); text.ok())
    out = RenderedChat{.text = std::move(*text), .messages = changed["messages"]};
  else if (text.error().kind == ErrorKind::corrupt)
    out = render_rewritten(model, changed, add_generation_prompt);
  if (out) out->rewrites.push_back(&empty_tools_rewrite());
  return out;
}

}  // namespace

bool has_chat_template(const LanguageModel& model) { return !model.parts().files->chat_template.empty(); }

Result<RenderedChat> render_chat(const LanguageModel& model, const Json& input, bool add_generation_prompt) {
  const bool has_messages = input.is_object() && input.contains("messages");
  const Json& messages = has_messages ? input["messages"] : input;
  if (!has_chat_template(model)) return RenderedChat{.text = plain_text(messages), .messages = messages};
  auto text = render(model, input, add_generation_prompt);
  if (text.ok()) return RenderedChat{.text = std::move(*text), .messages = messages};
  if (text.error().kind != ErrorKind::corrupt || !messages.is_array()) return text.error();
  if (auto rewritten = render_rewritten(model, input, add_generation_prompt)) return std::move(*rewritten);
  if (auto rewritten = render_without_tools(model, input, add_generation_prompt)) return std::move(*rewritten);
  return text.error();
}

Result<std::string> chat_text(const LanguageModel& model, const Json& input, bool add_generation_prompt) {
  MILLRACE_TRY(RenderedChat rendered, render_chat(model, input, add_generation_prompt));
  return std::move(rendered.text);
}

Result<RenderedChat> render_unfinished_chat(const LanguageModel& model, const Json& input) {
  RenderedChat rendered;
  MILLRACE_TRY(std::string text, render_unfinished(input, [&](const Json& marked) -> Result<std::string> {
                 MILLRACE_TRY(rendered, render_chat(model, marked, false));
                 return rendered.text;
               }));
  rendered.text = std::move(text);
  rendered.messages = input.is_object() ? input["messages"] : input;  // without the marker
  for (const MessageRewrite* rewrite : rendered.rewrites) rewrite->apply(rendered.messages);
  return rendered;
}

Result<std::vector<TokenId>> encode_chat(const LanguageModel& model, const std::string& text) {
  return model.encode(text, /*add_special=*/!has_chat_template(model));
}

}  // namespace millrace
