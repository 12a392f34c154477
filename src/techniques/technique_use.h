// One syntax for choosing techniques: FAMILY=NAME[:key=value,...], as given to `--use`, in config files and in
// requests. A table in technique_use.cc lists where each family applies and which option of the engine or of sampling
// it sets; the flags of the command line are short names for it. All functions are pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ordered_json.h"
#include "base/technique.h"
#include "millrace/options.h"
#include "millrace/request.h"

namespace millrace {

// A checked choice: the family and the member exist, and the options are within their bounds.
struct TechniqueUse {
  std::string family, name;
  std::string given;                // the options as typed, "" for none
  std::vector<OptionSpec> options;  // options of the member
  OptionValues values;

  std::string text() const { return family + "=" + written(); }                      // as typed
  std::string written() const { return given.empty() ? name : name + ":" + given; }  // as the family's flag takes it
};

// Effect of a choice.
struct AppliedTechnique {
  std::string family, name;
  nlohmann::ordered_json options;  // every option with the value that it has
  std::string effect;              // its change, in one line
};

// In `place`: a command's name, or kInRequest.
inline constexpr std::string_view kInRequest = "a request";

// The name that chooses no member of a family which can do without: evictor=none, exit=none, context=none,
// drafter=none, prompt=none. It leaves out what the server, the config file or the model's defaults would choose.
inline constexpr std::string_view kNoTechnique = "none";

// Families that apply in `place`, and the same as one text, "policy, kv_format".
std::vector<std::string_view> family_names_in(std::string_view place);
std::string families_in(std::string_view place);

// Errors (user): malformed, unknown family, member or option, a value out of bounds, a family that does not apply in
// `place`; for the list also a repeated choice. Messages begin with the choice as typed.
Result<TechniqueUse> parse_use(std::string_view text, std::string_view place);
Result<std::vector<TechniqueUse>> parse_uses(std::span<const std::string> texts, std::string_view place);

// Returns true if both choose the same member with the same values.
bool same_choice(const TechniqueUse& a, const TechniqueUse& b);

// Sets the options of the families that apply to loading a model, to its engine, or to sampling; other choices are left
// alone. Errors (user): a predictor for a policy that has none, an acceptance without a drafter.
Result<std::vector<AppliedTechnique>> apply_uses(std::span<const TechniqueUse> uses, LoadOptions& options);
Result<std::vector<AppliedTechnique>> apply_uses(std::span<const TechniqueUse> uses, EngineOptions& options);
Result<std::vector<AppliedTechnique>> apply_uses(std::span<const TechniqueUse> uses, SamplingOptions& options);

// The choices of the family prompt, for PromptPipeline::create().
std::vector<std::string> prompt_passes_of(std::span<const TechniqueUse> uses);

// The choice of the family program, for make_program_member(); "": none.
std::string program_of(std::span<const TechniqueUse> uses);

// The sampling options that a choice sets: its given ones; temperature for greedy.
std::vector<std::string> sampling_options_of(const TechniqueUse& use);

// The samplers of these options, with their values in `now`; the effect is what differs from `before`.
std::vector<AppliedTechnique> applied_samplers(const SamplingOptions& before, const SamplingOptions& now,
                                               std::span<const std::string> options);

// An array of {family, name, options, effect}.
nlohmann::ordered_json applied_json(std::span<const AppliedTechnique> applied);

}  // namespace millrace
