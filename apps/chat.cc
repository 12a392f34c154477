// millrace chat: a conversation in the terminal, or piped in line by line.
#include "chat.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "arguments.h"
#include "chat_commands.h"
#include "chat_completion.h"
#include "command.h"
#include "config_file.h"
#include "hub_model.h"
#include "interrupt.h"
#include "line_editor.h"
#include "quiet_terminal.h"
#include "run/embedded_model.h"

namespace millrace {
namespace {

constexpr const char* kChatExamples = R"(Examples:
  millrace chat qwen3:0.6b                           a model by its short name; the download is offered
  millrace chat -m model.gguf                        type a message and press Enter; /help lists the commands
  millrace chat -m ./Qwen3-0.6B/ --system "Answer in one sentence." --temp 0.3
  millrace chat -m model.gguf --trim --timings       drop the oldest messages when the context is full
  printf 'Hello\nAnd in French?\n' | millrace chat -m model.gguf --temp 0   a script: each line is one message

Commands in a chat:
  /set temp 0.7      /set system You are a pirate.      /regen      /save talk.json      /load talk.json      /read FILE
A line that ends in a backslash continues on the next line, and a paste of several lines is one message, as is what stands
between two """. Ollama's /set and /show are understood. The up and down
keys recall earlier messages, Ctrl-R searches them, Tab completes commands and paths. What is typed during an answer
appears at the next prompt. Ctrl-C stops an answer or clears the line; Ctrl-C twice at an empty prompt, Ctrl-D or /exit
leaves. In a terminal, answers are broken at words; code blocks are not.)";

constexpr std::string_view kQuotes = "\"\"\"";

// Returns the bytes of a line up to and with the three quotes that open a text of several lines; 0: it opens none.
size_t opening_quotes(const std::string& line) {
  for (const std::string_view before : {"", "/set system "})
    if (line.starts_with(before) && std::string_view(line).substr(before.size()).starts_with(kQuotes))
      return before.size() + kQuotes.size();
  return 0;
}

bool is_quoted(const std::string& text) { return text.starts_with(kQuotes); }

// Reads lines until one ends in the three quotes that close the text.
LineEnd read_quoted(LineReader& lines, size_t begin, std::string* message) {
  while (message->size() < begin + kQuotes.size() || !message->ends_with(kQuotes)) {
    std::string more;
    const LineEnd end = lines.read(". ", &more);
    if (end == LineEnd::interrupted || end == LineEnd::cleared) return LineEnd::cleared;
    if (end == LineEnd::end_of_input) return LineEnd::line;
    *message += '\n' + more;
  }
  return LineEnd::line;
}

// Returns what the quotes enclose, without the line breaks next to them.
std::string without_message_quotes(std::string text) {
  text.erase(0, kQuotes.size());
  if (text.ends_with(kQuotes)) text.resize(text.size() - kQuotes.size());
  if (text.starts_with('\n')) text.erase(0, 1);
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

// Reads a message of one or more lines; all but the last end in a backslash, or three quotes enclose them.
LineEnd read_message(LineReader& lines, std::string* message) {
  LineEnd end = lines.read("> ", message);
  if (const size_t begin = opening_quotes(*message); end == LineEnd::line && begin > 0)
    return read_quoted(lines, begin, message);
  while (end == LineEnd::line && message->ends_with('\\')) {
    std::string more;
    end = lines.read(". ", &more);
    message->pop_back();
    if (end == LineEnd::end_of_input) return LineEnd::line;
    *message += '\n' + more;
  }
  return end == LineEnd::interrupted && !message->empty() ? LineEnd::cleared : end;
}

bool is_blank(const std::string& text) { return text.find_first_not_of(" \t\r\n") == std::string::npos; }

// Runs a command, or answers a message.
Result<ChatStep> take_step(ChatSession& session, const std::string& text, bool terminal) {
  const QuietTerminal quiet(terminal);
  if (is_quoted(text)) {
    const std::string message = without_message_quotes(text);
    if (is_blank(message)) return ChatStep::handled;
    MILLRACE_TRY_VOID(session.say(message));
    return ChatStep::message;
  }
  if (is_chat_command(text)) return run_chat_command(session, text);
  if (auto answered = session.say(text.starts_with("//") ? text.substr(1) : text); !answered.ok())
    return answered.error();
  return ChatStep::message;
}

// Returns the exit code: 0, or in a script the code of the last message's error.
int talk(ChatSession& session, LineReader& lines) {
  int code = 0;
  std::string text;
  for (bool leaving = false;;) {
    const LineEnd end = read_message(lines, &text);
    if (end == LineEnd::end_of_input) break;
    if (end == LineEnd::interrupted && !lines.interactive()) return 130;
    if (end == LineEnd::interrupted && leaving) return code;
    leaving = end == LineEnd::interrupted;
    if (leaving) fmt::print(stderr, "Ctrl-C again, Ctrl-D or /exit leaves the chat.\n");
    if (end == LineEnd::interrupted || end == LineEnd::cleared) {
      clear_interrupt();
      continue;
    }
    if (is_blank(text)) continue;
    if (session.settings.remember) lines.remember(text);
    const bool command = is_chat_command(text);
    const Result<ChatStep> done = take_step(session, text, lines.interactive());
    clear_interrupt();
    if (std::ferror(stdout)) return code;  // the output is closed
    if (done.ok() && *done == ChatStep::leave) return code;
    if (!done.ok()) fmt::print(stderr, "millrace: {}\n", done.error().message);
    if (!command) code = done.ok() || lines.interactive() ? 0 : exit_code(done.error().kind);
  }
  if (lines.interactive()) std::fputs("\n", stdout);
  return code;
}

}  // namespace

Result<int> chat(ChatFlags flags) {
  const std::string typed = flags.model.path;
  MILLRACE_TRY(flags.model, flags.model.found());
  MILLRACE_TRY(auto model, flags.model.load(&flags.engine.use));
  if (auto text = model->encode("a"); !text.ok()) return text.error();  // a model without a tokenizer cannot chat
  ChatSettings settings = flags.settings;
  MILLRACE_TRY(settings.sampling, flags.sampling.get(*model, flags.engine.use, nullptr, flags.model.defaults));
  if (settings.stop.empty()) settings.stop = flags.model.defaults.stop;
  if (!flags.max_tokens_given && flags.model.defaults.max_tokens >= 0)
    settings.max_tokens = flags.model.defaults.max_tokens;
  std::error_code unknown;
  if (!looks_like_path(typed) && !std::filesystem::exists(typed, unknown)) settings.name = typed;
  settings.path = flags.model.path.empty() ? std::string(kDefaultModel) : flags.model.path;
  settings.adapters = flags.engine.all_adapters(flags.model);
  MILLRACE_TRY(EngineOptions options, flags.engine.get(flags.model));
  options.max_streams = 1;
  MILLRACE_TRY(auto session, ChatSession::create(model, options, std::move(settings)));
  session->conversation.system = flags.system.empty() ? flags.model.system : flags.system;
  catch_interrupts();
  auto lines = open_line_reader(flags.history, complete_chat);
  if (lines->interactive()) introduce_built_in(flags.model.path, model->info().parameters);
  if (lines->interactive())
    fmt::print(stderr, "{}, context {} tokens{}. /help lists the commands, Ctrl-D quits.\n", session->shown_name(),
               session->context(), session->conversation.system.empty() ? "" : ", with a system prompt");
  if (!session->has_template())
    fmt::print(stderr, "millrace: {} has no chat template: it continues your text instead of answering\n",
               session->shown_name());
  return talk(*session, *lines);
}

namespace {

// `model_given`: -m is on the command line.
Result<int> run(ChatFlags flags, bool model_given) {
  if (!flags.words.model.empty() && model_given)
    return Error::user(fmt::format("chat: '{}' is not expected here: -m names the model", flags.words.model));
  if (flags.words.place(&flags.model.path, false)) MILLRACE_TRY_VOID(offer_model(flags.model.path, flags.words.yes));
  return chat(std::move(flags));
}

}  // namespace

void add_chat_command(CLI::App& app) {
  auto flags = std::make_shared<ChatFlags>();
  CLI::App* command = add_command(app, "chat", "Talk with a model", kChatExamples, [=, &app] {
    return run(*flags, on_command_line(*app.get_subcommand("chat"), "--model"));
  });
  flags->words.add_to(command, false);
  flags->model.add_to(command);
  flags->model.add_pack_to(command);
  command->add_option("--system", flags->system, "System message with instructions for the model");
  command
      ->add_option("-n,--max-tokens", flags->settings.max_tokens,
                   "Most tokens per answer; -1: until the context is full")
      ->each([=](const std::string&) { flags->max_tokens_given = true; })
      ->capture_default_str()
      ->check(CLI::Range(int64_t{-1}, int64_t{INT32_MAX}));
  command->add_option("--stop", flags->settings.stop, "End an answer before this text; repeatable");
  command->add_flag("--trim", flags->settings.trim, "Drop the oldest messages when the context is full");
  command->add_flag("--timings", flags->settings.timings, "Print tokens and speed on standard error after each answer");
  command->add_option("--history", flags->history,
                      "File for the input history of this and later sessions; default: none");
  flags->engine.add_to(command);
  flags->engine.add_adapters_to(command, "All of them are applied");
  flags->sampling.add_to(command);
  take_one_value_each(command);
}

}  // namespace millrace
