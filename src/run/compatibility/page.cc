#include "run/compatibility/page.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/cpu.h"
#include "kv/prefix_evictor.h"
#include "run/compatibility/collect.h"
#include "run/compatibility/rules.h"

namespace millrace {
namespace {

constexpr const char* kHead = R"(# What goes with what

Find out which techniques go together before you combine them. An engine, a simulation, a scorer and a request are
refused if two of their parts exclude each other, such as `--use kv_format=kivi --use drafter=token_recycling`. The message
names both, and says why and what to do. This command prints the page, with the facts of the program at hand:

    millrace techniques --matrix

Each member of a family, the model, the engine's blocks and the request state facts; one table of rules
(`src/run/compatibility/rules.cc`) says which facts exclude each other, and engines have no other checks of pairs. What the
table does not name goes together: `tests/properties/compatibility_test.cc` runs all pairs of members and 500 triples.

)";

// A row of the rules: a part that states the first fact is refused beside one that states the second.
std::string rules_table() {
  std::string out = "## Rules\n\nThe first rule that is broken is reported.\n\n";
  out +=
      "| part | with this fact | does not go with | with this fact | because | instead |\n|---|---|---|---|---|---|\n";
  for (const Rule& rule : compatibility_rules())
    out += fmt::format("| {} | {} | {} | {} | {} | {} |\n", rule.a->family, rule.a->text, rule.b->family, rule.b->text,
                       rule.why, rule.advice);
  return out;
}

// The facts of one member with its default options; nothing if it cannot be made without a file.
using Stated = std::optional<Facts>;

Stated drafter_facts(const std::string& name) {
  for (const char* options : {"", ":model=FOLDER"}) {
    const auto made = make_drafter(name + options);
    if (!made.ok()) continue;
    Facts facts;
    add_drafter(**made, name, facts);
    return facts;
  }
  return std::nullopt;
}

Stated evictor_facts(const std::string& name) {
  const auto rule = make_eviction_rule(name);
  if (!rule.ok()) return std::nullopt;
  Facts facts;
  add_evictor(**rule, facts);
  return facts;
}

Stated format_facts(const std::string& name) {
  const auto formats = find_kv_formats(name, make_kernel_table(Isa::ref));
  if (!formats.ok() || !formats->keys) return std::nullopt;
  Facts facts;
  add_kv_format(*formats, name, facts);
  return facts;
}

Stated switch_facts(const std::string& name) {
  const auto switches = make_forward_switches(std::vector<std::string>{name});
  if (!switches.ok()) return std::nullopt;
  Facts facts;
  add_switches(*switches, facts);
  return facts;
}

Stated exit_facts(const std::string& name) {
  const auto gate = make_exit_gate(name);
  if (!gate.ok()) return std::nullopt;
  Facts facts;
  add_exit(gate->get(), facts);
  return facts;
}

Stated context_facts(const std::string& name) {
  const auto encoder = make_document_context(name + ":model=FOLDER"), context = make_document_context(name);
  Facts facts;
  if (encoder.ok() && (*encoder)->encoder()) {
    facts.add(facts::kEncoder, name);
    add_encoded(name, facts);
    return facts;
  }
  if (!context.ok()) return std::nullopt;
  const std::vector<PromptDocument> documents = {{1, 40}, {40, 80}, {80, 120}};
  facts.add(facts::kContext, name);
  add_parts((*context)->plan(documents), name, facts);
  return facts;
}

Stated prefix_evictor_facts(const std::string& name) {
  Facts facts;
  facts.add_if(find_prefix_evictor(name)->needs & kNeedsAttentionMass, facts::kBlockImportance, name);
  return facts;
}

std::string member_row(const TechniqueInfo& info, const Stated& stated) {
  std::string texts;
  if (!stated) texts = "depends on its file";
  for (size_t i = 0; stated && i < stated->stated().size(); ++i)
    texts += fmt::format("{}{}", i == 0 ? "" : "; ", stated->stated()[i].first->text);
  return fmt::format("| {} | {} | {} |\n", info.family, info.name, texts);
}

std::string members_table() {
  std::string out =
      "\n## Facts of members\n\nWith default options; others may change them, such as `branches` of a drafter, "
      "`positions` of an evictor, `phase` of a\npattern or `residual` of a codec. Members without facts go with "
      "everything.\n\n| family | member | facts |\n|---|---|---|\n";
  const auto add = [&](const std::vector<TechniqueInfo>& infos, const std::string& prefix, const auto& facts_of) {
    for (const TechniqueInfo& info : infos) out += member_row(info, facts_of(prefix + info.name));
  };
  add(drafters().infos(), "", drafter_facts);
  add(token_evictors().infos(), "", evictor_facts);
  add(kv_codecs().infos(), "", format_facts);
  add({progressive_kv_format()}, "", format_facts);
  add(attention_patterns().infos(), std::string(kPatternPrefix), switch_facts);
  add(kernel_switches().infos(), "", switch_facts);
  add(exit_gates().infos(), "", exit_facts);
  add(prefix_evictors().infos(), "", prefix_evictor_facts);
  add(document_contexts().infos(), "", context_facts);
  return out;
}

}  // namespace

std::string compatibility_page() { return kHead + rules_table() + members_table(); }

}  // namespace millrace
