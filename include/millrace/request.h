// Request: what a client asks for. Plain data, immutable once submitted.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "millrace/token.h"

namespace millrace {

// How the next token is chosen. Defaults switch every step off but temperature 0.8, top_k 40, top_p 0.95, min_p 0.05.
// Steps run in the order of the fields; a neutral value skips the step.
struct SamplingOptions {
  uint64_t seed = 0;                // randomness depends on the seed and the token's position alone
  double repetition_penalty = 1.0;  // > 1 lowers logits of tokens among the last penalty_window ones
  double frequency_penalty = 0.0;
  double presence_penalty = 0.0;
  int64_t penalty_window = 64;  // tokens looked back; 0: none, -1: all
  double dry_multiplier = 0.0;  // DRY: 0 is off
  double dry_base = 1.75;
  int64_t dry_allowed_length = 2;
  int64_t dry_window = -1;
  std::vector<std::string> dry_breakers = {"\n", ":", "\"", "*"};
  std::map<TokenId, double> logit_bias;
  std::vector<TokenId> banned_tokens;
  std::vector<TokenId> allowed_tokens;  // empty: all
  double top_n_sigma = -1.0;            // -1: off
  int64_t top_k = 40;                   // 0: off
  double typical_p = 1.0;
  double top_p = 0.95;
  double min_p = 0.05;
  double xtc_probability = 0.0;
  double xtc_threshold = 0.1;
  double temperature = 0.8;                // 0: greedy
  double dynamic_temperature_range = 0.0;  // temperature in [t - range, t + range] by entropy; 0: off
  double dynamic_temperature_exponent = 1.0;
  int64_t mirostat = 0;  // 2: mirostat v2 instead of the truncating steps
  double mirostat_tau = 5.0;
  double mirostat_eta = 0.1;
  int64_t logprobs = -1;  // -1: none; k >= 0: the chosen token's and the k best ones'
};

// What the answer must be written like. The tokens that would break it cannot be chosen; the answer ends when nothing
// can follow, or with an end-of-generation token where it may end.
struct Constraint {
  enum class Kind { none, json_object, json_schema, regex, grammar, choice, structure };
  Kind kind = Kind::none;
  std::string text;  // the JSON Schema, the regex (the whole answer matches), the grammar in GBNF, or the
                     // structure (several of these put together; src/text/grammar/structure.h)
  std::vector<std::string> choices;  // for choice: the answer is one of these
  std::string trigger;               // not empty: the answer is free until this occurs in it, and held from there on
};

// Thinking, told by the marks around it, that may have so many tokens at most: then its closing mark is written.
struct ThinkingBudget {
  int64_t tokens = -1;  // -1: as many as it likes
  std::string open, close;
  bool begun = false;  // the prompt leaves off inside it
};

// A LoRA adapter that the engine has, and how much of it: y = W x + scale * its product.
struct AdapterUse {
  std::string name;
  double scale = 1;
};

// When a beam search ends, as Hugging Face's early_stopping: `yes`, as soon as there are as many finished answers as
// beams; `no`, when the best beam, ended now, would not be among them; `never`, when it could not be at any length.
enum class EarlyStopping { no, yes, never };

struct Request {
  std::vector<TokenId> prompt;  // at least one token
  SamplingOptions sampling;
  int64_t max_tokens = 128;  // -1: until the context is full
  int64_t min_tokens = 0;    // end-of-generation tokens are held back before that many
  bool ignore_eos = false;
  std::vector<std::string> stop;                // the text never contains a stop string, nor part of one
  bool include_stop = false;                    // ... but the one that ended it, as its end
  std::vector<TokenId> stop_tokens;             // end the answer as the model's own end tokens do
  std::vector<std::vector<TokenId>> bad_words;  // sequences of tokens that are never completed
  bool skip_special = true;                     // control tokens print nothing
  bool show_markers = false;                    // but those that mark thinking and calls of tools (text/tools/)
  Constraint constraint;
  ThinkingBudget thinking;
  std::vector<AdapterUse>
      adapters;              // added in this order; its prefixes are shared with requests of the same ones alone
  bool cache_prompt = true;  // may reuse and leave prefix blocks
  double keep_seconds = 0;   // what it leaves goes last for so long after it has ended, 1e9 at most; memory that a
                             // stream was promised is never withheld for it. 0: as the evictor has it
  // Whose prefixes it finds, and who finds its own: "": its tenant's requests, and no others. Requests that name the
  // same group share with each other, whatever their tenants, and with nobody else.
  std::string prefix_group;
  int64_t n = 1;  // answers; they share the prompt's work and memory, and differ by seed + answer
  // Answers written, of which the n with the highest mean log-probability of their tokens are returned, best first,
  // when all have ended; 0: n. More than n: nothing is streamed before the end.
  int64_t best_of = 0;

  // Beam search: the n likeliest of so many beams, best first, when the search has ended. It looks at the model's own
  // distribution, without temperature and truncation; stop strings, penalties and biases are not supported with it.
  int64_t beams = 1;
  double length_penalty = 1;  // score = sum of log-probabilities / tokens ^ length_penalty
  EarlyStopping early_stopping = EarlyStopping::no;

  // For the scheduler; which of these count is the policy's matter.
  std::string tenant;             // whose request it is
  int64_t priority = 0;           // higher goes first
  double deadline_seconds = 0;    // wanted whole within this time of its submission; 0: whenever
  double time_limit_seconds = 0;  // ended with FinishReason::time_limit after this time; 0: never
  int64_t predicted_tokens = -1;  // length of the answer that the client expects; -1: unknown
  int64_t known_tokens = -1;      // its true length, known to simulations and oracles alone; -1: unknown
};

}  // namespace millrace
