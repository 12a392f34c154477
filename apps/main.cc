// The millrace binary; each subcommand is one file in this folder.
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string_view>
#include <vector>

#include "base/version.h"
#include "command.h"
#include "declaration.h"
#include "parse_again.h"

namespace millrace {
namespace {

int last_exit_code = 0;

constexpr const char* kFooter = R"(Examples:
  millrace run -p "Once upon a time"           generate text with the built-in model; `millrace models` lists them
  millrace run -m model.gguf -p "Hello" -n 64  use a GGUF file
  millrace run -m ./Qwen3-0.6B/ -f prompt.txt  use a Hugging Face folder
  millrace COMMAND --help                      show the flags and examples of a command

Flags can also be set in a TOML file given with --config: a [run] table with n = 64, temp = 0.7 ...
Environment: MILLRACE_ISA=ref|avx2|avx512|amx, or less such as avx512-bf16, limits the instruction set.
Exit codes: 0 success, 2 usage, 3 bad input file, 4 not supported, 5 not enough resources, 1 anything else.)";

}  // namespace

CLI::App* add_command(CLI::App& app, const char* name, const char* summary, const char* examples,
                      std::function<Result<int>()> run) {
  CLI::App* command = app.add_subcommand(name, summary);
  command->footer(examples);
  command->fallthrough();  // allows --config after the command
  command->callback([run = std::move(run)] {
    try {
      Result<int> result = run();
      if (!result.ok()) std::fprintf(stderr, "millrace: %s\n", result.error().message.c_str());
      last_exit_code = result.ok() ? *result : exit_code(result.error().kind);
    } catch (const std::bad_alloc&) {
      std::fprintf(stderr, "millrace: out of memory; choose a smaller model, context or batch\n");
      last_exit_code = exit_code(ErrorKind::resource);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "millrace: internal error: %s\n", error.what());
      last_exit_code = exit_code(ErrorKind::internal);
    }
  });
  return command;
}

void declare_commands(CLI::App& app) {
  app.require_subcommand(1);
  app.set_version_flag("--version", kVersionText);
  app.set_config("--config", "", "TOML file with flags, one table per command");
  app.allow_config_extras(CLI::config_extras_mode::error);
  app.footer(kFooter);
  add_run_command(app);
  add_chat_command(app);
  add_serve_command(app);
  add_pull_command(app);
  add_inspect_command(app);
  add_models_command(app);
  add_convert_command(app);
  add_compress_command(app);
  add_tokenize_command(app);
  add_datastore_command(app);
  add_template_command(app);
  add_techniques_command(app);
#ifdef MILLRACE_TRAIN
  add_train_command(app);
#endif
  add_embed_command(app);
  add_batch_command(app);
  add_perplexity_command(app);
  add_draft_search_command(app);
  add_bench_command(app);
  add_trace_command(app);
  add_replay_command(app);
  add_simulate_command(app);
  add_lab_command(app);
  add_compare_command(app);
  add_train_lab_command(app);
  add_completion_command(app);
  add_man_command(app);
}

int run_main(int argc, char** argv) {
  CLI::App app{"millrace: an LLM inference engine. One binary; runs GGUF files and Hugging Face folders on the CPU.",
               "millrace"};
  std::vector<const char*> args(argv, argv + argc);
  for (const char*& arg : args) {  // llama.cpp's spelling, which would be parsed as -p g, -c tk and -m d
    if (std::string_view(arg) == "-pg") arg = "--pg";
    if (std::string_view(arg) == "-ctk") arg = "--ctk";
    if (std::string_view(arg) == "-md") arg = "--model-draft";
    if (std::string_view(arg) == "-np") arg = "--parallel";
    if (std::string_view(arg) == "-ctv") arg = "--ctv";
  }
  declare_commands(app);
  try {
    app.parse(static_cast<int>(args.size()), args.data());
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);  // prints help or the error
    return code == 0 ? 0 : exit_code(ErrorKind::user);
  }
  return last_exit_code;
}

}  // namespace millrace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // exceeding the file size limit is then an error of the write
  return millrace::run_main(argc, argv);
}
