// millrace program: executes a generation program, whose branches run in one batch.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>

#include "base/ordered_json.h"
#include "command.h"
#include "hub_model.h"
#include "input.h"
#include "interrupt.h"
#include "model_flags.h"
#include "program/engine_generator.h"
#include "program/member.h"
#include "program/program_json.h"
#include "program/program_reader.h"

namespace millrace {
namespace {

constexpr const char* kProgramExamples = R"(Examples:
  millrace program examples/programs/opinions.json -m model.gguf --var "topic=a holiday at the sea"
  millrace program extract.json -m model.gguf --json     every generation with its tokens, and the variables
  millrace program --use program=skeleton -m model.gguf -p "How do I keep bees?"   the points at the same time
  millrace program --use program=self_consistency:n=8 -p "Step by step: 38 + 96 + 25 ="
  millrace program triage.json -m small.gguf --other large=large.gguf   steps with "model": "large" use the other one

The form of the file is described in docs/programs.md.)";

struct OtherModel {
  std::shared_ptr<const LanguageModel> model;
  std::unique_ptr<Engine> engine;
};

struct ProgramFlags {
  ModelFlags model;
  EngineFlags engine;
  SamplingFlags sampling;
  std::string file, prompt, system;
  int64_t max_tokens = 256;
  std::vector<std::string> variables, others;
  int64_t at_once = 16;
  bool json = false;
};

// NAME=VALUE of the flag `flag`. Errors: user.
Result<std::pair<std::string, std::string>> named_value(const std::string& flag, const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos)
    return Error::user(fmt::format("{} {}: must be NAME=VALUE", flag, text));
  return std::pair(text.substr(0, equals), text.substr(equals + 1));
}

Result<ProgramVariables> given_variables(const ProgramFlags& flags) {
  ProgramVariables out;
  for (const std::string& text : flags.variables) {
    MILLRACE_TRY(auto named, named_value("--var", text));
    out.insert_or_assign(std::move(named.first), std::move(named.second));
  }
  return out;
}

Result<ProgramModel> program_model(const ProgramFlags& flags, const std::string& name, const ModelFlags& path,
                                   std::vector<OtherModel>& models) {
  MILLRACE_TRY(const ModelFlags found, path.found());
  OtherModel made;
  MILLRACE_TRY(made.model, found.load(&flags.engine.use));
  MILLRACE_TRY(EngineOptions options, flags.engine.get(found));
  options.max_streams = flags.at_once;
  MILLRACE_TRY(made.engine, Engine::create(made.model, options));
  ProgramModel out{.name = name, .model = made.model, .engine = made.engine.get(), .sampling = {}};
  MILLRACE_TRY(out.sampling, flags.sampling.get(*made.model, flags.engine.use, nullptr, found.defaults));
  models.push_back(std::move(made));
  return out;
}

void print_usage(const ProgramResult& result, double seconds) {
  const ProgramUsage& usage = result.usage;
  fmt::print(stderr,
             "{} branches, {} generations, at most {} at once; {} prompt tokens, {} of them from the prefix cache; {} "
             "tokens generated in {:.2f} s\n",
             usage.branches, usage.requests, usage.at_once, usage.prompt_tokens, usage.cached_tokens,
             usage.generated_tokens, seconds);
}

// The program of --use, for the question of -p. Errors: user.
Result<Program> chosen_program(const ProgramFlags& flags, const std::string& member) {
  if (!flags.file.empty())
    return Error::user(
        fmt::format("program {}: --use program={} makes its own; give only one of them", flags.file, member));
  if (flags.prompt.empty()) return Error::user(fmt::format("--use program={}: needs a question, -p TEXT", member));
  MILLRACE_TRY(const auto made, make_program_member(member));
  ProgramQuestion question;
  if (!flags.system.empty()) question.messages.push_back({"system", flags.system});
  question.messages.push_back({"user", flags.prompt});
  question.max_tokens = flags.max_tokens;
  for (const auto& [field, text] : flags.sampling.set)
    if (field == "temperature") question.temperature = std::strtod(text.c_str(), nullptr);
  return made->program(question);
}

Result<Program> program_of_file(const ProgramFlags& flags) {
  if (flags.file.empty()) return Error::user("program: needs a FILE, or --use program=NAME with a question, -p TEXT");
  if (!flags.prompt.empty()) return Error::user("-p: goes with --use program=NAME; a file has its own texts");
  MILLRACE_TRY(const auto json, read_json_file(flags.file));
  auto program = read_program(json);
  if (!program.ok()) return Error{program.error().kind, flags.file + ": " + program.error().message};
  return program;
}

Result<int> execute_program(const ProgramFlags& flags) {
  MILLRACE_TRY(const auto uses, flags.engine.use.get());
  const std::string member = program_of(uses);
  Result<Program> program = member.empty() ? program_of_file(flags) : chosen_program(flags, member);
  if (!program.ok()) return program.error();
  MILLRACE_TRY(const ProgramVariables given, given_variables(flags));
  std::vector<OtherModel> owned;
  std::vector<ProgramModel> models;
  MILLRACE_TRY(models.emplace_back(), program_model(flags, "", flags.model, owned));
  for (const std::string& text : flags.others) {
    MILLRACE_TRY(const auto named, named_value("--other", text));
    ModelFlags other = flags.model;
    other.path = named.second;
    MILLRACE_TRY(models.emplace_back(), program_model(flags, named.first, other, owned));
  }
  catch_interrupts();
  EngineGenerator generator(std::move(models));
  const auto began = std::chrono::steady_clock::now();
  auto result = run_program(std::move(*program), given, generator,
                            {.at_once = flags.at_once, .limits = {}, .on_step = {}}, [] { return !interrupted(); });
  if (!result.ok() && interrupted()) return 130;
  if (!result.ok())
    return Error{result.error().kind,
                 fmt::format("{}: {}", member.empty() ? flags.file : member, result.error().message)};
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  if (flags.json) {
    print_json_line(program_json(*result, seconds));
    return 0;
  }
  fmt::print("{}\n", result->text);
  print_usage(*result, seconds);
  return 0;
}

}  // namespace

void add_program_command(CLI::App& app) {
  auto flags = std::make_shared<ProgramFlags>();
  CLI::App* command = add_command(app, "program", "Execute a generation program", kProgramExamples,
                                  [=] { return execute_program(*flags); });
  command->add_option("file", flags->file, "File with the program, JSON; -: standard input");
  command->add_option("-p,--prompt", flags->prompt, "Question that --use program=NAME answers");
  command->add_option("--system", flags->system, "System message before the question");
  command->add_option("-n,--max-tokens", flags->max_tokens, "Most tokens of each generation of --use program=NAME")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{65536}));
  flags->model.add_to(command);
  command->add_option("--var", flags->variables, "Value of a variable of the program, NAME=VALUE; repeatable")
      ->allow_extra_args(false);
  command->add_option("--other", flags->others, "Another model that steps may name, NAME=MODEL; repeatable")
      ->allow_extra_args(false);
  command->add_option("--at-once", flags->at_once, "Most generations that run at the same time")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{256}));
  command->add_flag("--json", flags->json, "Print one JSON object at the end instead of text");
  flags->engine.add_to(command);
  flags->sampling.add_to(command);
}

}  // namespace millrace
