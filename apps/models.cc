// millrace models: lists the models in this binary.
#include <fmt/format.h>

#include "base/ordered_json.h"
#include "command.h"
#include "input.h"
#include "models/arch.h"
#include "run/embedded_model.h"
#include "run/language_model.h"
#include "table_room.h"

namespace millrace {
namespace {

constexpr const char* kModelsExamples = R"(Examples:
  millrace models                   names for -m, with sizes
  millrace chat -m stories          any command that takes a model file takes a name
  millrace convert stories my.gguf  writes one of them as a file)";

Result<nlohmann::ordered_json> described(const EmbeddedModel& model) {
  MILLRACE_TRY(const ModelFiles files, open_model(std::string(model.short_name)));
  MILLRACE_TRY(const ArchSpec spec, read_arch_spec(files));
  return nlohmann::ordered_json{{"name", model.short_name},
                                {"file", fmt::format("{}.gguf", model.name)},
                                {"default", model.short_name == kDefaultModel},
                                {"architecture", spec.arch},
                                {"parameters", count_parameters(files)},
                                {"bytes", model.image.size()},
                                {"context", spec.context},
                                {"vocabulary", spec.vocab},
                                {"chat_template", !files.chat_template.empty()}};
}

std::vector<TableColumn> model_columns() {
  return {{.name = "NAME", .left = true},
          {.name = "PARAMETERS", .drops = 2},
          {.name = "SIZE", .drops = 3},
          {.name = "CONTEXT", .drops = 4},
          {.name = "CHAT TEMPLATE", .left = true, .drops = 1}};
}

Result<int> run(bool json, bool wide) {
  auto all = nlohmann::ordered_json::array();
  for (const EmbeddedModel& model : embedded_models()) {
    MILLRACE_TRY(auto one, described(model));
    all.push_back(std::move(one));
  }
  if (json) {
    print_json_line({{"models", all}});
    return 0;
  }
  if (all.empty()) {
    fmt::print("no model ships in this build\n");
    return 0;
  }
  TextTable table(TableLook::plain, model_columns());
  for (const auto& one : all)
    table.add({one["name"].get<std::string>() + (one["default"].get<bool>() ? " (default)" : ""),
               fmt::format("{:.1f} M", one["parameters"].get<double>() * 1e-6),
               fmt::format("{:.1f} MB", one["bytes"].get<double>() * 1e-6),
               fmt::format("{}", one["context"].get<int64_t>()), one["chat_template"].get<bool>() ? "yes" : "no"});
  fmt::print("{}", table.text(table_room(wide, "--json")));
  return 0;
}

}  // namespace

void add_models_command(CLI::App& app) {
  auto json = std::make_shared<bool>(false), wide = std::make_shared<bool>(false);
  CLI::App* command =
      add_command(app, "models", "List the models in this binary", kModelsExamples, [=] { return run(*json, *wide); });
  command->add_flag("--json", *json, "Print {\"models\":[...]}");
  add_wide_to(command, wide.get(), model_columns());
}

}  // namespace millrace
