// The built-in sampling steps, one line each, in the order in which they run: steps that edit logits come first, while
// the row is dense; then the truncating steps; temperature and mirostat last.
#include "sampling/schema.h"
#include "sampling/steps/factories.h"

namespace millrace {

// clang-format off
const Registry<SamplerFactory>& samplers() {
  static const Registry<SamplerFactory> registry({.loss = Loss::lossy, .test = "src/sampling/steps_test.cc"}, {
      {{"sampler", "penalties", "lowers the logits of tokens that occurred recently", "Keskar et al., 2019, CTRL: A Conditional Transformer Language Model for Controllable Generation", sampling_options({"repetition_penalty", "frequency_penalty", "presence_penalty", "penalty_window"}), Loss::lossy, "src/sampling/steps/edits_test.cc"}, make_penalties},
      {{"sampler", "dry", "penalises continuing a sequence that already occurred (DRY by p-e-w)", "", sampling_options({"dry_multiplier", "dry_base", "dry_allowed_length", "dry_window", "dry_breakers"}), Loss::lossy, "src/sampling/steps/dry_test.cc"}, make_dry},
      {{"sampler", "logit_bias", "adds a bias to the logits of chosen tokens", "", sampling_options({"logit_bias"}), Loss::lossy, "src/sampling/steps/edits_test.cc"}, make_logit_bias},
      {{"sampler", "banned_tokens", "never samples these tokens", "", sampling_options({"banned_tokens"})}, make_banned_tokens},
      {{"sampler", "bad_words", "never completes these token sequences", "", {}}, make_bad_words},
      {{"sampler", "end_of_generation", "suppresses end-of-generation tokens: before min_tokens, or always (ignore_eos)", "", {}}, make_end_of_generation},
      {{"sampler", "allowed_tokens", "samples only these tokens", "", sampling_options({"allowed_tokens"})}, make_allowed_tokens},
      {{"sampler", "thinking_budget", "ends thinking at its token budget by forcing the closing tag", "Muennighoff et al., 2025, s1: Simple test-time scaling", {}, Loss::lossy, "src/sampling/steps/thinking_budget_test.cc"}, make_thinking_budget},
      {{"sampler", "constraint", "keeps the tokens that the answer's JSON Schema, regex, grammar or choice allows", "Dong et al., 2024, XGrammar: Flexible and Efficient Structured Generation Engine for Large Language Models", {}, Loss::lossy, "tests/properties/constraint_test.cc"}, make_constraint},
      {{"sampler", "greedy", "the most likely token (temperature 0)", "", {}}, make_greedy},
      {{"sampler", "top_n_sigma", "keeps logits within n standard deviations of the largest", "Tang et al., 2024, Top-n-sigma: Not All Logits Are You Need", sampling_options({"top_n_sigma"}), Loss::lossy, "tests/properties/sampling_distribution_test.cc"}, make_top_n_sigma},
      {{"sampler", "top_k", "keeps the k most likely tokens", "Fan et al., 2018, Hierarchical Neural Story Generation", sampling_options({"top_k"}), Loss::lossy, "tests/properties/sampling_distribution_test.cc"}, make_top_k},
      {{"sampler", "typical_p", "keeps tokens whose surprise is near the entropy", "Meister et al., 2023, Locally Typical Sampling", sampling_options({"typical_p"}), Loss::lossy, "tests/properties/sampling_distribution_test.cc"}, make_typical_p},
      {{"sampler", "top_p", "keeps the smallest set of most likely tokens with mass p", "Holtzman et al., 2020, The Curious Case of Neural Text Degeneration", sampling_options({"top_p"}), Loss::lossy, "tests/properties/sampling_distribution_test.cc"}, make_top_p},
      {{"sampler", "min_p", "keeps tokens at least p times as likely as the best", "Nguyen et al., 2024, Turning Up the Heat: Min-p Sampling for Creative and Coherent LLM Outputs", sampling_options({"min_p"}), Loss::lossy, "tests/properties/sampling_distribution_test.cc"}, make_min_p},
      {{"sampler", "xtc", "randomly drops all top choices except the least likely one (XTC by p-e-w)", "", sampling_options({"xtc_probability", "xtc_threshold"}), Loss::lossy, "tests/properties/sampling_distribution_test.cc"}, make_xtc},
      {{"sampler", "temperature", "divides the logits", "Ackley et al., 1985, A Learning Algorithm for Boltzmann Machines", sampling_options({"temperature"}), Loss::lossy, "tests/properties/sampling_distribution_test.cc"}, make_temperature},
      {{"sampler", "dynamic_temperature", "temperature that follows the entropy (by kalomaze)", "", sampling_options({"dynamic_temperature_range", "dynamic_temperature_exponent"}), Loss::lossy, "src/sampling/steps/dynamic_temperature_test.cc"}, make_dynamic_temperature},
      {{"sampler", "mirostat", "steers the surprise of the text towards tau bits per token (version 2)", "Basu et al., 2021, Mirostat: A Neural Text Decoding Algorithm that Directly Controls Perplexity", sampling_options({"mirostat", "mirostat_tau", "mirostat_eta"}), Loss::lossy, "src/sampling/steps/mirostat_test.cc"}, make_mirostat},
  });
  return registry;
}
// clang-format on

}  // namespace millrace
