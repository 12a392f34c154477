// The millrace binary; each subcommand is one file in this folder.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "arguments.h"
#include "base/network_error.h"
#include "base/version.h"
#include "command.h"
#include "completion_words.h"
#include "config_file.h"
#include "declaration.h"
#include "help_text.h"
#include "parse_again.h"
#include "whole_numbers.h"

namespace millrace {
namespace {

int last_exit_code = 0;

// The program prints this without arguments. It fits a screen of 24 lines.
constexpr const char* kStart = R"(millrace: an LLM inference engine. One binary; runs GGUF files and Hugging
Face folders on the CPU.

  millrace run qwen3:0.6b "Why is it so?"   answer a message
  millrace run qwen3:0.6b                   talk with the model
  millrace run lab                          talk with a model of the binary
  millrace serve                            serve models over HTTP, with a page
  millrace pull --list                      models to download, by short names
  millrace list                             models on this machine
  millrace doctor                           check this machine

A model that is not on this machine is downloaded after a question.
`millrace help` lists all commands, `millrace help COMMAND` describes one.
)";

constexpr const char* kFooter = R"(Examples:
  millrace run -p "Once upon a time"           generate text with the built-in model
  millrace run -m model.gguf -p "Hello" -n 64  use a GGUF file
  millrace run qwen3:0.6b "Why is it so?"      answer a message; the model is downloaded after a question
  millrace chat -hf OWNER/NAME:Q4_K_M          download a model from a hub, and talk with it
  millrace serve                               serve it over HTTP, with a page at http://127.0.0.1:8080
  millrace COMMAND --help                      the flags that most users need; --help-all: every flag, in groups

Flags can also be set in a TOML file: a table [run] with n = 64, temp = 0.7 ... It is the one of --config, or
~/.config/millrace/config.toml, or /etc/millrace/config.toml; --config /dev/null reads none.

Environment: MILLRACE_ISA=ref|avx2|avx512|amx, or less such as avx512-bf16, limits the instruction set.
MILLRACE_CAIRO=FOLDER names the folder of the libraries that draw pictures, where the system does not find them.

Exit codes: 0 success, 2 usage, 3 an input file is missing or damaged, 4 not supported, 5 not enough memory or disk,
6 network, 7 answers differ, 141 the reader of the output has ended, 1 anything else.)";

constexpr int kUnreadExit = 141;  // as shells report a program that SIGPIPE ended

// The commands as --help lists them.
constexpr std::pair<const char*, const char*> kCommandGroups[] = {
    {"Use a model", "run chat serve cluster program index embed batch attention-worker"},
    {"Models on this machine", "list show pull create cp rm ps stop models inspect offload convert compress doctor"},
    {"Measure", "bench perplexity compare exactness simulate replay trace lab plot"},
    {"Text and techniques",
     "techniques tokenize template datastore draft-search window-search pattern-search centroids budget-search "
     "document-search cascade kv-levels npu-scales npu-plan offload-train train train-lab"},
    {"Shell", "help version completion man"},
};

void group_commands(CLI::App& app) {
  for (const auto& [title, names] : kCommandGroups)
    for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; }))
      if ((" " + std::string(names) + " ").find(" " + command->get_name() + " ") != std::string::npos)
        command->group(title);
}

using AddCommands = void (*)(CLI::App& app);
// Those that wait for a model to answer.
constexpr std::pair<std::string_view, AddCommands> kModelCommands[] = {
    {"run", add_run_command},
    {"chat", add_chat_command},
    {"serve", add_serve_command},
    {"cluster", add_cluster_command},
};
constexpr AddCommands kOtherCommands[] = {
    add_pull_command,          add_stored_commands,        add_running_commands,      add_inspect_command,
    add_offload_command,       add_models_command,         add_convert_command,       add_compress_command,
    add_tokenize_command,      add_datastore_command,      add_template_command,      add_techniques_command,
#ifdef MILLRACE_TRAIN
    add_train_command,
#endif
    add_embed_command,         add_batch_command,          add_perplexity_command,    add_draft_search_command,
    add_window_search_command, add_pattern_search_command, add_budget_search_command, add_document_search_command,
    add_kv_levels_command,     add_bench_command,          add_centroids_command,     add_trace_command,
    add_replay_command,        add_simulate_command,       add_lab_command,           add_compare_command,
    add_exactness_command,     add_train_lab_command,      add_doctor_command,        add_completion_command,
    add_man_command,           add_help_commands,          add_worker_command,        add_offload_train_command,
    add_plot_command,          add_npu_scales_command,     add_npu_plan_command,      add_program_command,
    add_cascade_command,       add_index_command,
};

// The model command of these arguments, if nothing but its own flags is needed to read them; else null. Declaring every
// command takes a few milliseconds, which count where a model starts in a tenth of a second.
AddCommands only_command(const std::vector<std::string>& arguments) {
  const auto names_config = [](const std::string& argument) { return argument.starts_with("--config"); };
  if (arguments.size() < 2 || std::ranges::any_of(arguments, names_config) || !default_config().empty()) return nullptr;
  const auto* found = std::ranges::find(kModelCommands, arguments[1], [](const auto& one) { return one.first; });
  return found == std::end(kModelCommands) ? nullptr : found->second;
}

// Commands that work with a damaged config file. They have no flags that one would set there, and doctor reports what
// is wrong with it.
constexpr std::string_view kWithoutDefaultConfig[] = {"help", "version", "completion", "man", "doctor"};

// `only`: null: all.
void declare(CLI::App& app, AddCommands only) {
  app.require_subcommand(1);
  app.set_version_flag("--version", kVersionText);
  app.formatter(help_formatter());
  app.set_help_flag("-h,--help", "The flags that most users need, with examples");
  app.set_help_all_flag("--help-all", "Every flag, in groups");
  app.set_config("--config", default_config(),
                 "TOML file with flags, one table per command; default: ~/.config/millrace/config.toml or "
                 "/etc/millrace/config.toml, if it exists");
  app.config_formatter(std::make_shared<ConfigFile>(app));
  app.allow_config_extras(CLI::config_extras_mode::error);
  app.footer(kFooter);
  if (only) {
    only(app);
  } else {
    for (const auto& [name, add] : kModelCommands) add(app);
    for (const AddCommands add : kOtherCommands) add(app);
  }
  group_commands(app);
  check_whole_numbers(app);
}

// The exit code for an error of the system. Prints the error, unless the reader of the output has ended, as `head`
// does.
int exit_of(const std::system_error& error) {
  if (error.code() == std::errc::broken_pipe) return kUnreadExit;
  const auto same = [&](std::errc one) { return error.code() == one; };
  const bool unwritten = same(std::errc::no_space_on_device) || same(std::errc::file_too_large) ||
                         same(std::errc::io_error) || error.code().value() == EDQUOT;
  std::fprintf(stderr, "millrace: %s: %s\n", unwritten ? "output: cannot be written" : "internal error",
               unwritten ? error.code().message().c_str() : error.what());
  return exit_code(unwritten ? ErrorKind::resource : ErrorKind::internal);
}

}  // namespace

CLI::App* add_command(CLI::App& app, const char* name, const char* summary, const char* examples,
                      std::function<Result<int>()> run) {
  CLI::App* command = app.add_subcommand(name, summary);
  command->footer(examples);
  command->fallthrough();  // allows --config after the command
  command->callback([run = std::move(run)] {
    try {
      Result<int> result = run();
      if (std::fflush(stdout) != 0) throw std::system_error(errno, std::generic_category(), "output");
      if (!result.ok()) std::fprintf(stderr, "millrace: %s\n", result.error().message.c_str());
      last_exit_code = result.ok()                            ? *result
                       : result.error().kind == kNetworkError ? kNetworkExit
                                                              : exit_code(result.error().kind);
    } catch (const std::bad_alloc&) {
      std::fprintf(stderr, "millrace: out of memory; choose a smaller model, context or batch\n");
      last_exit_code = exit_code(ErrorKind::resource);
    } catch (const std::system_error& error) {
      last_exit_code = exit_of(error);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "millrace: internal error: %s\n", error.what());
      last_exit_code = exit_code(ErrorKind::internal);
    }
  });
  return command;
}

void declare_commands(CLI::App& app) { declare(app, nullptr); }

// The place in the --config file of the flag that an error is about, with ": "; "": the flag is not from there.
std::string config_place(const CLI::App& app, const std::string& command, const std::string& message) {
  const auto config = std::dynamic_pointer_cast<ConfigFile>(app.get_config_formatter());
  const size_t flag = message.find(": -");
  if (!config || flag == std::string::npos) return "";
  const std::string name = message.substr(flag + 2, message.find_first_of(": ", flag + 2) - flag - 2);
  const std::string place = config->place_of(command, name);
  return place.empty() ? "" : place + ": ";
}

int refuse_usage(const CLI::App& app, const CLI::ParseError& error) {
  const auto called = app.get_subcommands();
  const std::string command = called.empty() ? "" : called.front()->get_name();
  const std::string message = dynamic_cast<const CLI::ConfigError*>(&error) ? error.what() : usage_error(app, error);
  std::fprintf(stderr, "millrace: %s%s\n", config_place(app, command, message).c_str(), message.c_str());
  return exit_code(dynamic_cast<const CLI::FileError*>(&error) ? ErrorKind::corrupt : ErrorKind::user);
}

int run_main(int argc, char** argv) {
  CLI::App app{"millrace: an LLM inference engine. One binary; runs GGUF files and Hugging Face folders on the CPU.",
               "millrace"};
  const std::vector<std::string> given(argv, argv + argc);
  if (print_completion_words(given)) return 0;
  declare(app, only_command(given));
  const auto checked = check_arguments(app, given);
  if (!checked.ok()) {
    std::fprintf(stderr, "millrace: %s\n", checked.error().message.c_str());
    return exit_code(checked.error().kind);
  }
  for (const std::string& note : checked->notes) std::fprintf(stderr, "millrace: note: %s\n", note.c_str());
  if (checked->arguments.size() < 2) {
    std::fputs(kStart, stderr);
    return exit_code(ErrorKind::user);
  }
  if (checked->describes ||
      std::ranges::find(kWithoutDefaultConfig, checked->command) != std::end(kWithoutDefaultConfig))
    app.get_config_ptr()->default_str("");
  std::vector<const char*> args;
  for (const std::string& argument : checked->arguments) args.push_back(argument.c_str());
  try {
    app.parse(static_cast<int>(args.size()), args.data());
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return refuse_usage(app, error);
  }
  return last_exit_code;
}

}  // namespace millrace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // exceeding the file size limit is then an error of the write
  return millrace::run_main(argc, argv);
}
