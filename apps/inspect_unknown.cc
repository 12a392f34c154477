#include "inspect_unknown.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "models/unknown/file_blocks.h"
#include "run/language_model.h"
#include "table_room.h"
#include "terminal/display_width.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

std::string joined(const Json& names) {
  return fmt::format("{}", fmt::join(names.get<std::vector<std::string>>(), ", "));
}

}  // namespace

Json describe_unknown(const ModelFiles& files, const std::vector<ArchComparison>& known) {
  const ArchComparison& nearest = known.front();
  Json out = {{"path", files.path},
              {"kind", files.kind == ModelFiles::Kind::gguf ? "gguf" : "huggingface"},
              {"architecture", files.architecture},
              {"known", false},
              {"nearest",
               {{"architecture", nearest.arch->name},
                {"problem", nearest.problem},
                {"extra_tensors", nearest.extra},
                {"missing_tensors", nearest.missing},
                {"other_shapes", nearest.shapes},
                {"unread_fields", nearest.unread}}},
              {"blocks", Json::array()},
              {"parameters", count_parameters(files)}};
  for (const FileBlock& block : file_blocks(files, known))
    out["blocks"].push_back({{"name", block.name},
                             {"text", block.text},
                             {"built", built_text(block)},
                             {"as_in", block.as_in},
                             {"not_built", block.not_built},
                             {"tensors", block.kinds}});
  return out;
}

void print_unknown(const Json& described) {
  const size_t columns = terminal_columns();
  const auto line = [&](const std::string& label, const std::string& value) {
    if (!value.empty()) print_fact(label, value, columns);
  };
  const Json& nearest = described["nearest"];
  line("model", fmt::format("{} ({})", described["path"].get<std::string>(), described["kind"].get<std::string>()));
  line("architecture", fmt::format("{}, not known; the nearest is {}", described["architecture"].get<std::string>(),
                                   nearest["architecture"].get<std::string>()));
  line("  problem", nearest["problem"].get<std::string>());
  line("  also has", joined(nearest["extra_tensors"]));
  line("  lacks", joined(nearest["missing_tensors"]));
  line("  other shapes", joined(nearest["other_shapes"]));
  line("  other fields", joined(nearest["unread_fields"]));
  line("parameters", fmt::format("{:.2f} M", static_cast<double>(described["parameters"].get<int64_t>()) * 1e-6));
  fmt::print("blocks\n");
  for (const Json& block : described["blocks"]) {
    const auto text = block["text"].get<std::string>();
    print_wrapped(fmt::format("{}{}{} ({})", block["name"].get<std::string>(), text.empty() ? "" : ": ", text,
                              block["built"].get<std::string>()),
                  columns, 2);
  }
}

}  // namespace millrace
