#include "chat_commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "arguments.h"
#include "chat_set.h"
#include "chat_show.h"
#include "hub/model_store.h"
#include "input.h"
#include "table_room.h"
#include "terminal/display_width.h"

namespace millrace {
namespace {

struct ChatCommand {
  const char* name;
  const char* arguments;
  const char* help;
  Result<ChatStep> (*run)(ChatSession& session, const std::string& argument);
};

template <typename T>
bool parse_whole(std::string_view text, T* out) {
  auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return !text.empty() && status == std::errc() && end == text.data() + text.size();
}

Result<ChatStep> reset(ChatSession& session, const std::string&) {
  session.conversation.turns.clear();
  fmt::print("Conversation cleared{}.\n", session.conversation.system.empty() ? "" : "; the system message is kept");
  return ChatStep::handled;
}

// Returns true if a name could be meant as that of a model, as /save and /load of Ollama take it.
bool could_be_model(const std::string& name) {
  return name.find('/') == std::string::npos && !name.ends_with(".json") && is_model_name(name);
}

Result<ChatStep> save(ChatSession& session, const std::string& argument) {
  if (argument.empty()) return Error::user("/save: name a file, as in /save chat.json");
  MILLRACE_TRY_VOID(save_conversation(session.conversation, at_home(argument)));
  fmt::print("Saved {} messages to {}{}.\n", session.conversation.messages().size(), argument,
             could_be_model(argument) ? ", a file that /load reads; `millrace create` makes models" : "");
  return ChatStep::handled;
}

Result<ChatStep> load(ChatSession& session, const std::string& argument) {
  if (argument.empty()) return Error::user("/load: name a file, as in /load chat.json");
  std::error_code unknown;
  if (could_be_model(argument) && !std::filesystem::exists(argument, unknown))
    return Error::user(
        fmt::format("/load {0}: there is no such file. /load reads a conversation that /save wrote; "
                    "another model needs a chat of its own: /bye, then `millrace run {0}`",
                    argument));
  MILLRACE_TRY(session.conversation, load_conversation(at_home(argument)));
  fmt::print("Loaded {} messages from {}{}.\n", session.conversation.messages().size(), argument,
             session.conversation.ends_with("user") ? "; /regen answers the last one" : "");
  return ChatStep::handled;
}

// "/read FILE TEXT": the file's text, and TEXT after it, as one message.
Result<ChatStep> read_into_chat(ChatSession& session, const std::string& argument) {
  if (argument.empty()) return Error::user("/read: name a file, as in /read notes.txt Summarize this.");
  constexpr uintmax_t kMaxBytes = uintmax_t{16} << 20;
  const size_t space = argument.find_first_of(" \t");
  const std::string path = argument.substr(0, space);
  std::error_code failed;
  if (const auto bytes = std::filesystem::file_size(at_home(path), failed); !failed && bytes > kMaxBytes)
    return Error::user(fmt::format("/read {}: has {} bytes; at most {} are read", path, bytes, kMaxBytes));
  MILLRACE_TRY(std::string text, read_text_file(at_home(path)));
  while (text.ends_with('\n')) text.pop_back();
  if (space != std::string::npos) text += "\n\n" + without_blanks(std::string_view(argument).substr(space));
  if (text.empty()) return Error::user(fmt::format("/read {}: is empty", path));
  MILLRACE_TRY_VOID(session.say(text));
  return ChatStep::handled;
}

Result<ChatStep> set(ChatSession& session, const std::string& argument) {
  MILLRACE_TRY_VOID(set_in_chat(session, argument));
  return ChatStep::handled;
}

Result<ChatStep> show_model(ChatSession& session, const std::string& argument) {
  MILLRACE_TRY_VOID(show_in_chat(session, argument));
  return ChatStep::handled;
}

Result<ChatStep> regenerate(ChatSession& session, const std::string& argument) {
  std::optional<uint64_t> seed;
  if (!argument.empty()) {
    uint64_t value = 0;
    if (!parse_whole(argument, &value))
      return Error::user(fmt::format("/regen: seed: expected a whole number from 0 to 2^64 - 1, got '{}'", argument));
    seed = value;
  }
  MILLRACE_TRY_VOID(session.regenerate(seed));
  return ChatStep::handled;
}

Result<ChatStep> tokens(ChatSession& session, const std::string&) {
  MILLRACE_TRY(const int64_t count, session.count_tokens());
  const int64_t context = session.context();
  fmt::print("{} of {} tokens ({} %) in {} messages; {} left\n", count, context, count * 100 / context,
             session.conversation.messages().size(), std::max<int64_t>(0, context - count));
  return ChatStep::handled;
}

Result<ChatStep> leave(ChatSession&, const std::string&) { return ChatStep::leave; }

Result<ChatStep> help(ChatSession& session, const std::string&);

constexpr ChatCommand kCommands[] = {
    {"help", "", "this list", help},
    {"reset", "", "clear the conversation; also /clear", reset},
    {"save", "FILE", "save the conversation as a JSON list of messages", save},
    {"load", "FILE", "load a conversation from a file", load},
    {"read", "FILE [TEXT]", "send the text of a file, and TEXT after it", read_into_chat},
    {"set", "[NAME VALUE]", "set n, trim, timings, system, temp ...; without arguments, list them", set},
    {"show", "[PART]", "show info, system, parameters, template or modelfile of the model", show_model},
    {"regen", "[SEED]", "generate the last answer again, with the next seed or SEED", regenerate},
    {"tokens", "", "show how much of the context is used", tokens},
    {"exit", "", "quit; also /quit, /bye and Ctrl-D", leave},
    // As other programs call them.
    {"quit", "", "", leave},
    {"bye", "", "", leave},
    {"clear", "", "", reset},
    {"?", "", "", help},
};

Result<ChatStep> help(ChatSession&, const std::string&) {
  const size_t columns = terminal_columns();
  for (const ChatCommand& command : kCommands)
    if (*command.help) print_fact(fmt::format("  /{} {}", command.name, command.arguments), command.help, columns, 22);
  print_wrapped(
      "A line that ends in a backslash continues on the next line; \"\"\" begins a message of several lines and ends "
      "it; a "
      "paste of several lines is one message; // begins a "
      "message with a slash. Ctrl-C stops an answer, or clears the line.",
      columns);
  return ChatStep::handled;
}

const ChatCommand* find_command(std::string_view text) {
  const std::string_view name = text.substr(1, text.find_first_of(" \t\n") - 1);
  auto found = std::ranges::find_if(kCommands, [&](const ChatCommand& command) { return name == command.name; });
  return found == std::end(kCommands) ? nullptr : found;
}

}  // namespace

std::vector<std::string> chat_command_names() {
  std::vector<std::string> out;
  for (const ChatCommand& command : kCommands) out.push_back(std::string("/") + command.name);
  return out;
}

bool is_chat_command(std::string_view text) {
  if (!text.starts_with('/') || text.starts_with("//")) return false;
  return text.find('\n') == std::string_view::npos || find_command(text) != nullptr;
}

Result<ChatStep> run_chat_command(ChatSession& session, const std::string& text) {
  const ChatCommand* command = find_command(text);
  if (!command) {
    const std::string name = text.substr(0, text.find(' '));
    return Error::user(fmt::format("{}: unknown command; /help lists them, and // begins a message with a slash{}",
                                   name, suggestion(name, chat_command_names())));
  }
  const size_t end = text.find_first_of(" \t\n");
  auto done =
      command->run(session, end == std::string::npos ? "" : without_blanks(std::string_view(text).substr(end + 1)));
  std::fflush(stdout);
  return done;
}

}  // namespace millrace
