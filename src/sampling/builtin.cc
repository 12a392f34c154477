// The built-in sampling steps, one line each, in the order in which they run: steps that edit logits come first, while
// the row is dense; then the truncating steps; temperature and mirostat last.
#include "sampling/schema.h"
#include "sampling/steps/factories.h"

namespace millrace {

// clang-format off
const Registry<SamplerFactory>& samplers() {
  static const Registry<SamplerFactory> registry({
      {{"sampler", "penalties", "lowers the logits of tokens that occurred recently", "Keskar et al., 2019, CTRL; OpenAI API reference", sampling_options({"repetition_penalty", "frequency_penalty", "presence_penalty", "penalty_window"})}, make_penalties},
      {{"sampler", "dry", "penalises continuing a sequence that already occurred", "p-e-w, 2024, DRY: a modern repetition penalty", sampling_options({"dry_multiplier", "dry_base", "dry_allowed_length", "dry_window", "dry_breakers"})}, make_dry},
      {{"sampler", "logit_bias", "adds a bias to the logits of chosen tokens", "", sampling_options({"logit_bias"})}, make_logit_bias},
      {{"sampler", "banned_tokens", "never samples these tokens", "", sampling_options({"banned_tokens"})}, make_banned_tokens},
      {{"sampler", "bad_words", "never completes these token sequences", "", {}}, make_bad_words},
      {{"sampler", "end_of_generation", "suppresses end-of-generation tokens: before min_tokens, or always (ignore_eos)", "", {}}, make_end_of_generation},
      {{"sampler", "allowed_tokens", "samples only these tokens", "", sampling_options({"allowed_tokens"})}, make_allowed_tokens},
      {{"sampler", "thinking_budget", "ends thinking at its token budget by forcing the closing tag", "Muennighoff et al., 2025, s1: Simple test-time scaling (arXiv 2501.19393), budget forcing", {}}, make_thinking_budget},
      {{"sampler", "constraint", "keeps the tokens that the answer's JSON Schema, regex, grammar or choice allows", "Dong et al., 2024, XGrammar (arXiv 2411.15100)", {}}, make_constraint},
      {{"sampler", "greedy", "the most likely token (temperature 0)", "", {}}, make_greedy},
      {{"sampler", "top_n_sigma", "keeps logits within n standard deviations of the largest", "Tang et al., 2024, Top-n-sigma: Not All Logits Are You Need", sampling_options({"top_n_sigma"})}, make_top_n_sigma},
      {{"sampler", "top_k", "keeps the k most likely tokens", "Fan et al., 2018, Hierarchical Neural Story Generation", sampling_options({"top_k"})}, make_top_k},
      {{"sampler", "typical_p", "keeps tokens whose surprise is near the entropy", "Meister et al., 2023, Locally Typical Sampling", sampling_options({"typical_p"})}, make_typical_p},
      {{"sampler", "top_p", "keeps the smallest set of most likely tokens with mass p", "Holtzman et al., 2020, The Curious Case of Neural Text Degeneration", sampling_options({"top_p"})}, make_top_p},
      {{"sampler", "min_p", "keeps tokens at least p times as likely as the best", "Nguyen et al., 2024, Min-p Sampling for Creative and Coherent LLM Outputs", sampling_options({"min_p"})}, make_min_p},
      {{"sampler", "xtc", "randomly drops all top choices except the least likely one", "p-e-w, 2024, Exclude Top Choices", sampling_options({"xtc_probability", "xtc_threshold"})}, make_xtc},
      {{"sampler", "temperature", "divides the logits", "Ackley et al., 1985, A Learning Algorithm for Boltzmann Machines", sampling_options({"temperature"})}, make_temperature},
      {{"sampler", "dynamic_temperature", "temperature that follows the entropy", "kalomaze, 2023, Dynamic Temperature Sampling", sampling_options({"dynamic_temperature_range", "dynamic_temperature_exponent"})}, make_dynamic_temperature},
      {{"sampler", "mirostat", "steers the surprise of the text towards tau bits per token (version 2)", "Basu et al., 2021, Mirostat", sampling_options({"mirostat", "mirostat_tau", "mirostat_eta"})}, make_mirostat},
  });
  return registry;
}
// clang-format on

}  // namespace millrace
