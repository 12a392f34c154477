#include "chat_set.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>

#include "arguments.h"
#include "sampling/schema.h"
#include "table_room.h"
#include "terminal/display_width.h"

namespace millrace {
namespace {

// Sets what a name stands for, and returns the line that says so.
using ChatSetter = Result<std::string> (*)(ChatSession& session, const std::string& name, const std::string& value);

// true, on, yes, 1 and their opposites.
std::optional<bool> read_switch(const std::string& value) {
  if (value == "on" || value == "true" || value == "yes" || value == "1") return true;
  if (value == "off" || value == "false" || value == "no" || value == "0") return false;
  return std::nullopt;
}

// "text", """text""" and text.
std::string without_quotes(std::string text) {
  for (const std::string_view quotes : {"\"\"\"", "\""}) {
    if (text.size() < 2 * quotes.size() || !text.starts_with(quotes) || !text.ends_with(quotes)) continue;
    text = text.substr(quotes.size(), text.size() - 2 * quotes.size());
    if (text.starts_with('\n')) text.erase(0, 1);
    if (text.ends_with('\n')) text.pop_back();
    break;
  }
  return text;
}

Error needs_value(const std::string& name) {
  return Error::user(fmt::format("{}: needs a value, as in /set temp 0.7; /set lists the options", name));
}

Result<std::string> set_system(ChatSession& session, const std::string&, const std::string& value) {
  if (value.empty()) {
    const std::string& now = session.conversation.system;
    fmt::print("{}\n", now.empty() ? "There is no system prompt." : now);
    return std::string();
  }
  session.conversation.system = without_quotes(value);
  return std::string(session.conversation.system.empty() ? "Cleared the system prompt." : "Set the system prompt.");
}

Result<std::string> set_length(ChatSession& session, const std::string& name, const std::string& value) {
  if (value.empty()) return needs_value(name);
  int64_t count = 0;
  const auto [end, status] = std::from_chars(value.data(), value.data() + value.size(), count);
  if (status != std::errc() || end != value.data() + value.size() || count < -1 || count > INT32_MAX)
    return Error::user(
        fmt::format("n: must be a number of tokens, or -1 to generate until the context is full, got '{}'", value));
  session.settings.max_tokens = count;
  return fmt::format("Set n to {}.", count);
}

Result<std::string> set_stop(ChatSession& session, const std::string& name, const std::string& value) {
  if (value.empty()) return needs_value(name);
  session.settings.stop.clear();
  for (size_t at = 0; at < value.size();) {
    const size_t end = std::min(value.find_first_of(" \t", at), value.size());
    const std::string word = without_quotes(value.substr(at, end - at));
    if (!word.empty()) session.settings.stop.push_back(word);
    at = end + 1;
  }
  if (session.settings.stop.empty()) return std::string("Cleared the texts that end an answer.");
  return fmt::format("Set stop to {}.", fmt::join(session.settings.stop, " "));
}

struct ChatSwitch {
  const char* name;
  bool ChatSettings::*field;
};
constexpr ChatSwitch kSwitches[] = {{"trim", &ChatSettings::trim},
                                    {"timings", &ChatSettings::timings},
                                    {"wordwrap", &ChatSettings::wrap},
                                    {"history", &ChatSettings::remember}};

Result<std::string> set_switch(ChatSession& session, const std::string& name, const std::string& value) {
  const ChatSwitch& one = *std::ranges::find_if(kSwitches, [&](const ChatSwitch& each) { return name == each.name; });
  const auto on = read_switch(value);
  if (!on && value.empty()) return needs_value(name);
  if (!on) return Error::user(fmt::format("{}: must be on or off, got '{}'", name, value));
  session.settings.*one.field = *on;
  return fmt::format("Set {} to {}.", name, *on ? "on" : "off");
}

// Ollama's words for a switch that need no value: "nowordwrap", "verbose".
Result<std::string> set_word(ChatSession& session, const std::string& name, const std::string& value) {
  if (name == "wordwrap" || name == "history") return set_switch(session, name, value.empty() ? "on" : value);
  if (!value.empty()) return Error::user(fmt::format("{}: takes no value, got '{}'", name, value));
  if (name == "noformat") return std::string("Answers have no format.");
  if (name == "verbose" || name == "quiet") return set_switch(session, "timings", name == "verbose" ? "on" : "off");
  return set_switch(session, name.substr(2), "off");  // "no..."
}

// Settings of Ollama that a chat cannot change, and what to do instead.
Result<std::string> refuse_setting(ChatSession& session, const std::string& name, const std::string& value) {
  const std::string given = value.empty() ? "N" : value;
  if (name == "num_ctx")
    return Error::user(
        fmt::format("num_ctx: the context is fixed when a model is loaded; /bye, then `millrace run {} "
                    "-c {}`",
                    session.shown_name(), given));
  if (name == "num_thread")
    return Error::user(
        fmt::format("num_thread: threads are fixed when a model is loaded; /bye, then `millrace run {} "
                    "-t {}`",
                    session.shown_name(), given));
  if (name == "format")
    return Error::user(
        fmt::format("format: answers of a chat are free text; `millrace run {} \"MESSAGE\" "
                    "--json-object` answers in JSON",
                    session.shown_name()));
  return Error::user(
      fmt::format("{}: a chat leaves thinking to the model's template; a server takes \"think\" in each "
                  "request",
                  name));
}

struct ChatSetting {
  const char* name;
  ChatSetter set;
};
constexpr ChatSetting kSettings[] = {
    {"n", set_length},
    {"max_tokens", set_length},
    {"num_predict", set_length},
    {"system", set_system},
    {"stop", set_stop},
    {"trim", set_switch},
    {"timings", set_switch},
    {"verbose", set_word},
    {"quiet", set_word},
    {"wordwrap", set_word},
    {"nowordwrap", set_word},
    {"history", set_word},
    {"nohistory", set_word},
    {"noformat", set_word},
    {"format", refuse_setting},
    {"num_ctx", refuse_setting},
    {"num_thread", refuse_setting},
    {"think", refuse_setting},
    {"nothink", refuse_setting},
};

// Other names of sampling options.
constexpr std::pair<const char*, const char*> kSamplingNicknames[] = {
    {"temp", "temperature"}, {"repeat_penalty", "repetition_penalty"}, {"repeat_last_n", "penalty_window"}};

Result<std::string> set_sampling(ChatSession& session, std::string name, const std::string& value) {
  for (const auto& [other, own] : kSamplingNicknames)
    if (name == other) name = own;
  const auto all = sampling_schema();
  if (std::ranges::find(all, name, &OptionSpec::name) == all.end())
    return Error::user(
        fmt::format("{}: unknown setting; /set lists them{}", name, suggestion(name, chat_setting_names())));
  if (value.empty()) return needs_value(name);
  SamplingOptions changed = session.settings.sampling;
  MILLRACE_TRY_VOID(set_sampling_option(changed, name, value));
  MILLRACE_TRY_VOID(validate(changed, session.model().info().vocab));
  session.settings.sampling = std::move(changed);
  if (name == "seed") session.seed_was_set();
  return fmt::format("Set {} to {}.", name, sampling_option_text(session.settings.sampling, name));
}

// The current value of options whose default a model's files can change; "": other options.
std::string current_value(const SamplingOptions& options, const OptionSpec& spec) {
  if (spec.name == "seed") return fmt::format("{}", options.seed);
  if (spec.name == "temperature") return fmt::format("{}", options.temperature);
  if (spec.name == "top_k") return fmt::format("{}", options.top_k);
  if (spec.name == "top_p") return fmt::format("{}", options.top_p);
  if (spec.name == "min_p") return fmt::format("{}", options.min_p);
  if (spec.name == "repetition_penalty") return fmt::format("{}", options.repetition_penalty);
  return {};
}

void list_settings(const ChatSession& session) {
  const ChatSettings& settings = session.settings;
  fmt::print("  {:<30} {}\n", "n", settings.max_tokens);
  for (const ChatSwitch& one : kSwitches) fmt::print("  {:<30} {}\n", one.name, settings.*one.field ? "on" : "off");
  const size_t columns = terminal_columns();
  print_fact("  system", session.conversation.system.empty() ? "(none)" : session.conversation.system, columns, 32);
  if (!settings.stop.empty()) print_fact("  stop", fmt::format("{}", fmt::join(settings.stop, " ")), columns, 32);
  for (const OptionSpec& spec : sampling_schema()) {
    const std::string value = current_value(settings.sampling, spec);
    if (!value.empty()) fmt::print("  {:<30} {}\n", spec.name, value);
  }
  fmt::print("Other sampling options and their defaults:\n");
  for (const OptionSpec& spec : sampling_schema())
    if (current_value(settings.sampling, spec).empty())
      print_fact(fmt::format("  {:<30} {:<10}", spec.name, spec.default_value), spec.help, columns, 43);
}

// The first word of a text, which it loses.
std::string take_word(std::string* text) {
  const size_t end = text->find_first_of(" \t\n=");
  const std::string word = text->substr(0, end);
  *text = end == std::string::npos ? "" : without_blanks(std::string_view(*text).substr(end + 1));
  return word;
}

}  // namespace

std::string without_blanks(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(" \t") - first + 1));
}

std::vector<std::string> chat_setting_names() {
  std::vector<std::string> out = {"parameter", "temp"};
  for (const ChatSetting& one : kSettings) out.emplace_back(one.name);
  for (const OptionSpec& spec : sampling_schema()) out.push_back(spec.name);
  return out;
}

Result<void> set_in_chat(ChatSession& session, const std::string& argument) {
  std::string value = argument;
  std::string name = take_word(&value);
  if (name == "parameter") name = take_word(&value);
  if (name.empty()) {
    list_settings(session);
    return {};
  }
  std::ranges::replace(name, '-', '_');
  const auto own = std::ranges::find_if(kSettings, [&](const ChatSetting& each) { return name == each.name; });
  MILLRACE_TRY(const std::string done,
               own != std::end(kSettings) ? own->set(session, name, value) : set_sampling(session, name, value));
  if (!done.empty() && isatty(STDOUT_FILENO) == 1) fmt::print("{}\n", done);
  return {};
}

}  // namespace millrace
