// millrace template: renders a chat template.
#include <fmt/format.h>

#include <algorithm>

#include "base/ordered_json.h"
#include "command.h"
#include "hub_model.h"
#include "input.h"
#include "run/language_model.h"
#include "text/template/chat_messages.h"
#include "text/template/chat_template.h"

namespace millrace {
namespace {

constexpr const char* kTemplateExamples = R"(Examples:
  millrace template -m model.gguf --context chat.json        {"messages": [...], "tools": [...], "add_generation_prompt": true}
  millrace template --template chatml.jinja --context chat.json
  millrace template -m ./Qwen3-0.6B/ --messages messages.json  a list of messages; adds the model's bos and eos tokens
  millrace template -m model.gguf --show                     print the template's source)";

struct TemplateFlags {
  std::string model, file, context, messages, name;
  bool show = false, list = false;
};

Result<std::string> choose_source(const TemplateFlags& flags, const ModelFiles* files) {
  if (!flags.file.empty()) return read_text_file(flags.file);
  if (!flags.name.empty()) {
    auto found = files->named_templates.find(flags.name);
    if (found != files->named_templates.end()) return found->second;
    return Error::user(fmt::format("--name: {} has no template '{}'", files->path, flags.name));
  }
  if (files->chat_template.empty())
    return Error::unsupported(fmt::format("{}: the model has no chat template", files->path));
  return files->chat_template;
}

std::string token_text(const ModelFiles* files, std::optional<TokenId> TokenizerSpec::*member) {
  if (!files || !files->tokenizer) return {};
  const auto& spec = *files->tokenizer;
  const auto& id = spec.*member;
  return id && *id >= 0 && static_cast<size_t>(*id) < spec.tokens.size() ? spec.tokens[static_cast<size_t>(*id)]
                                                                         : std::string();
}

// --context is used unchanged; --messages is extended with the variables that a server would add.
Result<nlohmann::ordered_json> make_context(const TemplateFlags& flags, const ModelFiles* files) {
  if (!flags.context.empty()) {
    MILLRACE_TRY(auto context, read_json_file(flags.context));
    if (!context.is_object())
      return Error::corrupt(fmt::format("{}: must be a JSON object of template variables", flags.context));
    return context;
  }
  MILLRACE_TRY(auto messages, read_json_file(flags.messages));
  ChatContextOptions options;
  options.bos_token = token_text(files, &TokenizerSpec::bos);
  options.eos_token = token_text(files, &TokenizerSpec::eos);
  return chat_context(messages, options);
}

Result<int> run(const TemplateFlags& flags) {
  std::optional<ModelFiles> files;
  if (flags.file.empty() || !flags.model.empty()) {
    MILLRACE_TRY(files, open_local_model(flags.model));
  }
  const ModelFiles* model = files ? &*files : nullptr;
  if (flags.list) {
    if (!model) return Error::user("--list: requires a model, not a template file");
    std::vector<std::string> names;
    for (const auto& [name, text] : model->named_templates) names.push_back(name);
    std::ranges::sort(names);
    if (!model->chat_template.empty()) fmt::print("default\n");
    for (const auto& name : names) fmt::print("{}\n", name);
    return 0;
  }
  MILLRACE_TRY(std::string source, choose_source(flags, model));
  if (flags.show) {
    std::fwrite(source.data(), 1, source.size(), stdout);
    return 0;
  }
  if (flags.context.empty() == flags.messages.empty())
    return Error::user("template: requires either --context FILE or --messages FILE");
  MILLRACE_TRY(auto parsed, ChatTemplate::parse(source));
  MILLRACE_TRY(auto context, make_context(flags, model));
  MILLRACE_TRY(std::string text, parsed.render(context));
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

}  // namespace

void add_template_command(CLI::App& app) {
  auto flags = std::make_shared<TemplateFlags>();
  CLI::App* command =
      add_command(app, "template", "Render a chat template", kTemplateExamples, [=] { return run(*flags); });
  command->add_option("-m,--model", flags->model, "Model with the template");
  command->add_option("--template", flags->file, "Use this template file instead of the model's");
  command->add_option("--context", flags->context, "JSON file with all template variables; -: standard input");
  command->add_option("--messages", flags->messages, "JSON file with a list of messages");
  command->add_option("--name", flags->name, "Use a named template of the model, such as tool_use");
  command->add_flag("--list", flags->list, "List the model's templates");
  command->add_flag("--show", flags->show, "Print the template instead of rendering it");
}

}  // namespace millrace
