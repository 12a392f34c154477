#include "chat_show.h"

#include <fmt/format.h>

#include <cstdio>

#include "arguments.h"
#include "hub/model_store.h"
#include "models/model.h"
#include "run/language_model.h"
#include "sampling/schema.h"
#include "server/models/model_facts.h"
#include "table_room.h"
#include "terminal/display_width.h"

namespace millrace {
namespace {

struct ShownPart {
  const char* name;
  const char* help;
  void (*print)(const ChatSession& session, const Modelfile& about);
};

void print_text_or(const std::string& text, const char* otherwise) {
  fmt::print("{}{}", text.empty() ? otherwise : text, text.ends_with('\n') ? "" : "\n");
}

void show_parameters(const ChatSession& session, const Modelfile& about) {
  const SamplingOptions usual;
  fmt::print("Of the model:\n");
  for (const auto& [name, value] : about.parameters) fmt::print("  {:<26} {}\n", name, value);
  if (about.parameters.empty()) fmt::print("  none\n");
  fmt::print("Of this chat, where they are not the engine's defaults:\n");
  fmt::print("  {:<26} {}\n", "n", session.settings.max_tokens);
  for (const OptionSpec& spec : sampling_schema()) {
    const std::string now = sampling_option_text(session.settings.sampling, spec.name);
    if (now != sampling_option_text(usual, spec.name)) fmt::print("  {:<26} {}\n", spec.name, now);
  }
}

void show_system(const ChatSession& session, const Modelfile&) {
  print_text_or(session.conversation.system, "There is no system prompt.");
}

void show_license(const ChatSession&, const Modelfile& about) {
  print_text_or(about.license, "The model's description names no license.");
}

void show_modelfile(const ChatSession& session, const Modelfile& about) {
  Modelfile shown = about;
  shown.from = session.settings.path;
  fmt::print("{}", modelfile_text(shown));
}

void show_template(const ChatSession& session, const Modelfile&) {
  print_text_or(session.model().parts().files->chat_template,
                "The model has no chat template: it continues your text instead of answering.");
}

void show_info(const ChatSession& session, const Modelfile& about) {
  const ModelInfo& info = session.model().info();
  const LanguageModel::Parts& parts = session.model().parts();
  const size_t columns = terminal_columns();
  const auto line = [&](const char* name, const std::string& value) {
    print_fact(fmt::format("    {}", name), value, columns, 22);
  };
  fmt::print("  Model\n");
  line("name", session.shown_name());
  line("architecture", info.architecture);
  line("parameters", fmt::format("{:.1f} M", static_cast<double>(info.parameters) * 1e-6));
  line("context length", fmt::format("{}, of which this chat has {}", info.context, session.context()));
  line("embedding length", fmt::format("{}", parts.model->spec().width));
  line("quantization", quantization_name(*parts.files));
  if (!about.parameters.empty()) fmt::print("\n  Parameters\n");
  for (const auto& [name, value] : about.parameters) line(name.c_str(), value);
  if (!session.conversation.system.empty()) fmt::print("\n  System\n");
  if (!session.conversation.system.empty()) print_wrapped(session.conversation.system, columns, 4);
}

constexpr ShownPart kParts[] = {
    {"info", "the architecture, sizes and format", show_info},
    {"license", "the license of its description", show_license},
    {"modelfile", "a file from which `millrace create` makes this model", show_modelfile},
    {"parameters", "the sampling options of the model and of this chat", show_parameters},
    {"system", "the system prompt", show_system},
    {"template", "the chat template", show_template},
};

}  // namespace

Result<void> show_in_chat(const ChatSession& session, const std::string& what) {
  const auto stored = ModelStore().find(session.shown_name());
  const Modelfile about = stored ? stored->about : Modelfile();
  std::vector<std::string> names;
  for (const ShownPart& part : kParts) {
    if (what == part.name) {
      part.print(session, about);
      return {};
    }
    names.emplace_back(part.name);
    if (what.empty()) print_fact(fmt::format("  /show {}", part.name), part.help, terminal_columns(), 20);
  }
  if (what.empty()) return {};
  return Error::user(fmt::format("/show {}: is not shown; /show lists what is{}", what, suggestion(what, names)));
}

}  // namespace millrace
