// docs/architectures.md: the table of architectures, made from their registry, their golden models, the rules of what
// goes with what, and conversions that are tried; and the names of llama.cpp that are missing. Written again with
// MILLRACE_WRITE_PAGES=1.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "models/arch.h"
#include "models/convert/convert.h"
#include "models/mixers/mixer.h"
#include "run/compatibility/collect.h"
#include "run/compatibility/rules.h"
#include "scenarios/other_architectures.h"
#include "test_paths.h"

namespace millrace {
namespace {

constexpr const char* kPageHead = R"(# Architectures

Find out whether a model runs, and what works for it. Models of the families below run. `millrace inspect` describes a
file of any family; for one that is not listed here it names the nearest family, what differs in tensors and fields, and
the blocks that the model needs.

    millrace inspect model.gguf

This page is made from the registry of architectures, from the golden models in `tests/golden/`, and from the rules of
[what goes with what](compatibility.md). After a change, write it again:

    MILLRACE_WRITE_PAGES=1 build/release/bin/scenarios_test --gtest_filter=ModelsPage.IsCurrent

## What runs

- *Layers*: the [mixers](how-to-add/mixer.md) of a layer, and its MLP. Kinds of layers are separated by semicolons.
- *Convert*: `millrace convert` between a Hugging Face folder and GGUF.
- *LoRA*: what [adapters](lora.md) may change.
- *Facts*: what decides which techniques a model goes with, see below. Families without facts go with all of them.
- *Tested by*: models with the logits of an independent reference.

| name | classes in config.json | layers | convert | LoRA | facts | tested by |
|---|---|---|---|---|---|---|
)";

// The properties of one architecture that its golden models show.
struct PageArch {
  std::vector<std::string> layers, golden;  // in order of appearance
  std::set<std::string> lora;
  Facts facts;
  bool to_gguf = false, to_folder = false;
};

void append_once(std::vector<std::string>& list, const std::string& text) {
  if (std::ranges::find(list, text) == list.end()) list.push_back(text);
}

std::string joined_by(const auto& texts, std::string_view separator) {
  std::string out;
  for (const auto& text : texts) out += fmt::format("{}{}", out.empty() ? "" : separator, text);
  return out;
}

std::string layer_kind(const LayerSpec& layer) {
  std::vector<std::string> parts;
  for (const LayerMixer& one : layer.mixers) append_once(parts, std::string(one.mixer->name));
  if (layer.mlp)
    parts.push_back(!layer.moe ? "MLP" : layer.experts.shared_hidden > 0 ? "experts, one shared" : "experts");
  return joined_by(parts, " + ");
}

bool page_conversion_works(const std::string& from, const std::string& to) {
  ThreadPool pool(1);
  const auto report = convert_model({.input = from, .output = to}, pool);
  return report.ok();
}

void try_page_conversions(const std::string& folder, PageArch& out) {
  const std::string scratch = fmt::format("{}models_page_{}", ::testing::TempDir(), getpid());
  std::filesystem::create_directories(scratch);
  if (!out.to_gguf) out.to_gguf = page_conversion_works(folder, scratch + "/there.gguf");
  const std::string gguf =
      std::filesystem::exists(folder + "/model.gguf") ? folder + "/model.gguf" : scratch + "/there.gguf";
  if (!out.to_folder && std::filesystem::exists(gguf)) out.to_folder = page_conversion_works(gguf, scratch + "/back");
  std::filesystem::remove_all(scratch);
}

void add_golden_model(const std::string& folder, const ModelFiles& files, const ArchSpec& spec, PageArch& out) {
  out.golden.push_back(std::filesystem::path(folder).filename());
  for (const LayerSpec& layer : spec.layers) {
    append_once(out.layers, layer_kind(layer));
    const auto is_attention = [](const LayerMixer& one) { return one.mixer == &kAttentionMixer; };
    if (std::ranges::any_of(layer.mixers, is_attention)) out.lora.insert("attention");
    if (layer.mlp && !layer.moe) out.lora.insert("MLP");
    if (layer.mlp && layer.moe && layer.experts.shared_hidden > 0) out.lora.insert("shared expert");
  }
  add_model(spec, spec.context, out.facts);
  if (out.golden.size() == 1) try_page_conversions(folder, out);
}

std::map<std::string, PageArch> golden_archs() {
  const std::filesystem::path golden = std::filesystem::path(MILLRACE_SOURCE_DIR) / "tests/golden";
  std::vector<std::filesystem::path> folders;
  for (const auto& parent : {golden, golden / "encoders"})
    for (const auto& entry : std::filesystem::directory_iterator(parent))
      for (const char* expected : {"expected.json", "encoded.json"})
        if (std::filesystem::exists(entry.path() / expected)) folders.push_back(entry.path());
  std::ranges::sort(folders);
  std::map<std::string, PageArch> out;
  for (const auto& folder : folders) {
    const auto files = open_model_files(folder);
    if (!files.ok() || !find_arch(*files)) continue;
    const auto spec = read_arch_spec(*files);
    EXPECT_TRUE(spec.ok()) << folder;
    if (spec.ok()) add_golden_model(folder, *files, *spec, out[std::string(find_arch(*files)->name)]);
  }
  return out;
}

// Facts that hold for some of the families, not for all.
std::vector<const Fact*> distinguishing_facts(const std::map<std::string, PageArch>& archs) {
  std::vector<const Fact*> out;
  for (const auto& [name, arch] : archs)
    for (const auto& [fact, who] : arch.facts.stated()) {
      const auto holds = [&](const auto& other) { return other.second.facts.has(*fact); };
      if (std::ranges::find(out, fact) == out.end() && !std::ranges::all_of(archs, holds)) out.push_back(fact);
    }
  return out;
}

std::string arch_row(const Arch& arch, const PageArch& found, const std::vector<const Fact*>& facts) {
  std::vector<std::string> texts;
  for (const Fact* fact : facts)
    if (found.facts.has(*fact)) texts.emplace_back(fact->text);
  const std::string name =
      arch.gguf_name.empty() ? std::string(arch.name) : fmt::format("{} (GGUF: {})", arch.name, arch.gguf_name);
  const char* convert = found.to_gguf && found.to_folder ? "both ways" : found.to_gguf ? "to GGUF" : "no";
  // Adapters are not applied to encoders (run/adapter_registry.cc).
  const std::string lora = found.facts.has(facts::kWholeTexts) ? "no" : joined_by(found.lora, ", ");
  if (found.golden.empty())
    return fmt::format("| {} | {} | | | | | no golden model yet |\n", name, joined_by(arch.huggingface, ", "));
  return fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", name, joined_by(arch.huggingface, ", "),
                     joined_by(found.layers, "; "), convert, lora.empty() ? "head" : lora, joined_by(texts, "; "),
                     joined_by(found.golden, ", "));
}

std::string facts_table(const std::vector<const Fact*>& facts) {
  std::string out =
      "\n## What facts exclude\n\nEngines and requests refuse these parts with a message that says what to do "
      "instead.\n\n"
      "| a model that | does not go with |\n|---|---|\n";
  for (const Fact* fact : facts) {
    std::vector<std::string> others;
    for (const Rule& rule : compatibility_rules()) {
      const Fact* other = rule.a == fact ? rule.b : rule.b == fact ? rule.a : nullptr;
      if (other) append_once(others, fmt::format("{}: {}", other->family, other->text));
    }
    out += fmt::format("| {} | {} |\n", fact->text, others.empty() ? "goes with everything" : joined_by(others, "; "));
  }
  return out;
}

// Rows of other_architectures.h, without the names that are known.
std::string missing_table() {
  std::set<std::string_view> known;
  for (const Arch* arch : archs().members()) known.insert({arch->name, arch->gguf_name});
  std::string rows;
  size_t missing = 0;
  for (const OtherArchitectures& row : kOtherArchitectures) {
    std::vector<std::string> names;
    std::istringstream words(row.names);
    for (std::string name; words >> name;)
      if (!known.contains(name)) names.push_back(name);
    missing += names.size();
    if (!names.empty()) rows += fmt::format("| {} | {} |\n", joined_by(names, ", "), row.needs);
  }
  return fmt::format(
      "\n## Names in llama.cpp's files that do not run\n\nllama.cpp's list of August 2026 has {} names more "
      "(`general.architecture` of a GGUF file). They run when the blocks\nof the second column exist, and "
      "[a file in `src/models/arch/`](how-to-add/architecture.md) reads their fields.\n\n| names | what is missing "
      "|\n|---|---|\n{}",
      missing, rows);
}

std::string models_page() {
  const auto found = golden_archs();
  const std::vector<const Fact*> facts = distinguishing_facts(found);
  std::string out = kPageHead;
  for (const Arch* arch : archs().members()) {
    const auto one = found.find(std::string(arch->name));
    out += arch_row(*arch, one == found.end() ? PageArch() : one->second, facts);
  }
  return out + facts_table(facts) + missing_table();
}

TEST(ModelsPage, IsCurrent) {
  const std::string path = std::string(MILLRACE_SOURCE_DIR) + "/docs/architectures.md";
  const std::string page = models_page();
  if (std::getenv("MILLRACE_WRITE_PAGES")) std::ofstream(path) << page;
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), page)
      << "write it again: MILLRACE_WRITE_PAGES=1 scenarios_test --gtest_filter=ModelsPage.IsCurrent";
}

TEST(ModelsPage, EachOtherNameIsListedOnce) {
  std::set<std::string> names;
  for (const OtherArchitectures& row : kOtherArchitectures) {
    EXPECT_NE(*row.needs, 0);
    std::istringstream words(row.names);
    for (std::string name; words >> name;) EXPECT_TRUE(names.insert(name).second) << name;
  }
  EXPECT_GT(names.size(), 100u);
}

}  // namespace
}  // namespace millrace
