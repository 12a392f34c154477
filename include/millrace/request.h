// Request: a generation request. Plain data, immutable once submitted.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "millrace/token.h"

namespace millrace {

// How the next token is sampled. Each field belongs to a sampling step; the steps run in the order of the fields, and a
// neutral value skips the step. By default only top_k 40, top_p 0.95, min_p 0.05 and temperature 0.8 are active.
struct SamplingOptions {
  uint64_t seed = 0;                // randomness depends only on the seed and the token's position
  double repetition_penalty = 1.0;  // > 1 lowers the logits of tokens among the last penalty_window ones
  double frequency_penalty = 0.0;
  double presence_penalty = 0.0;
  int64_t penalty_window = 64;  // preceding tokens considered; 0: none, -1: all
  double dry_multiplier = 0.0;  // DRY penalty for repeated sequences; 0: off
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
  double dynamic_temperature_range = 0.0;  // entropy chooses the temperature in temperature +/- range; 0: off
  double dynamic_temperature_exponent = 1.0;
  int64_t mirostat = 0;  // 2: mirostat v2 instead of the truncating steps
  double mirostat_tau = 5.0;
  double mirostat_eta = 0.1;
  int64_t logprobs = -1;  // k >= 0: return those of the sampled token and of the k most likely tokens; -1: none
};

// Structured output: the format that the answer must follow. Tokens that would violate the format are masked. The
// answer ends when the format allows no further token, or with an end-of-generation token where the format allows one.
struct Constraint {
  enum class Kind { none, json_object, json_schema, regex, grammar, choice, structure };
  Kind kind = Kind::none;
  std::string text;                  // the JSON Schema, the regex (matches the whole answer), the GBNF grammar, or the
                                     // structure (a combination of these; src/text/grammar/structure.h)
  std::vector<std::string> choices;  // for choice: the answer is one of these
  std::string trigger;               // if not empty, the answer is unconstrained until this text occurs in it
};

// Limits the thinking part of an answer, which is delimited by the texts `open` and `close`. At the limit, `close` is
// forced. Stop strings do not apply to the thinking part.
struct ThinkingBudget {
  int64_t tokens = -1;  // -1: unlimited
  std::string open, close;
  bool begun = false;     // the prompt ends inside the thinking part
  std::string call = {};  // start of a tool call, which also ends the thinking part; "": only `close` does
};

// One of the engine's LoRA adapters and its scale: y = W x + scale * adapter(x).
struct AdapterUse {
  std::string name;
  double scale = 1;
};

// When a beam search ends, like Hugging Face's early_stopping. `yes`: when the number of finished answers reaches the
// number of beams. `no`: when the best open beam would not be among the best answers if it ended now. `never`: when the
// best open beam cannot be among the best answers at any length.
enum class EarlyStopping { no, yes, never };

// Rows that replace the embeddings of consecutive prompt tokens, for soft prompts and image features. A row has the
// scale of the model's embedding table (see LanguageModel::embedding()); the model scales it like a row of that table.
struct PromptEmbeddings {
  int64_t begin = 0;                               // prompt position of the first row
  std::shared_ptr<const std::vector<float>> rows;  // [n, width]
};

// A document in a prompt: the tokens [begin, end).
struct PromptDocument {
  int64_t begin = 0;
  int64_t end = 0;
};

// Receives logits or hidden states at the positions of a prompt, for scores and embeddings. The engine's threads call
// its functions during a step. After a preemption, positions are passed again, with identical values. If a function
// throws, the request ends with an error.
class PromptReader {
 public:
  virtual ~PromptReader() = default;
  // Returns true if rows are logits [vocab] for the token after the position; read() may then be called for several
  // positions concurrently and in any order. Returns false if rows are final hidden states [width]; read() is then
  // called for one position at a time, in ascending order.
  virtual bool logits() const = 0;
  virtual bool wants(int64_t position) const = 0;
  virtual void read(int64_t position, const float* row) = 0;
};

struct Request {
  std::vector<TokenId> prompt;  // at least one token
  // In ascending order, without overlaps. At these positions, the ids in `prompt` are used only to count tokens, for
  // example by penalties. Requests share a prefix only if its rows are equal, too.
  std::vector<PromptEmbeddings> embeddings;
  // Null: none. With a reader, the whole prompt is computed, even if the prefix cache holds part of it. With max_tokens
  // 0, the prompt may fill the context. With a document context, only positions after the last document are read. A
  // reader cannot be combined with embeddings or several answers.
  std::shared_ptr<PromptReader> reader;
  SamplingOptions sampling;
  int64_t max_tokens = 128;  // -1: until the context is full
  int64_t min_tokens = 0;    // end-of-generation tokens are masked until the answer has this many tokens
  bool ignore_eos = false;
  std::vector<std::string> stop;     // end the answer outside `thinking`; its text contains no part of the stop string
  bool include_stop = false;         // include the stop string that ended the answer in its text
  std::vector<TokenId> stop_tokens;  // tokens that end the answer, in addition to the model's own end tokens
  std::vector<std::vector<TokenId>> bad_words;  // token sequences that are never generated
  bool skip_special = true;                     // control tokens produce no text
  bool show_markers = false;  // with skip_special, show the markers of thinking and tool calls (src/text/tools/)
  Constraint constraint;
  ThinkingBudget thinking;
  std::vector<AdapterUse> adapters;  // applied in this order; requests share prefixes only if these are equal
  bool cache_prompt = true;          // may reuse and store prefix blocks
  // Evictor that drops keys and values while the stream runs, NAME[:key=value,...]; ANSWERS CHANGE. "": use
  // EngineOptions::evictor. "none": keep all keys and values.
  std::string evictor;
  // Exit gate, which decides after which layer a token skips the remaining layers, NAME[:key=value,...]; ANSWERS
  // CHANGE. "": use the entry exit=NAME of EngineOptions::kernels. "none": run every layer.
  std::string exit;
  // Documents in the prompt, in ascending order. The prompt's last token must come after the last document.
  std::vector<PromptDocument> documents;
  // How the documents' keys and values are computed, NAME[:key=value,...]; ANSWERS CHANGE. "": use
  // EngineOptions::document_context. "none": like those of any other token.
  std::string document_context;
  // Time after the end of the request during which its prefix blocks are evicted after all others; at most 1e9. Memory
  // promised to a stream takes precedence. 0: no protection.
  double keep_seconds = 0;
  // Requests share prefixes only with requests of the same group, also across tenants. "": only within the tenant.
  std::string prefix_group;
  int64_t n = 1;  // answers; they share the prompt's computation and memory, and answer i uses `seed` + i
  // Number of generated answers; 0: n. When all have ended, the n answers with the highest mean token log-probability
  // are returned, best first. If best_of is greater than n, nothing is streamed before the end.
  int64_t best_of = 0;

  // Number of beams; more than 1: beam search. Returns the n most likely answers, best first, when the search has
  // ended. Beam search uses the model's own distribution without temperature and truncation; stop strings, penalties
  // and biases are not supported.
  int64_t beams = 1;
  double length_penalty = 1;  // score = sum of log-probabilities / tokens ^ length_penalty
  EarlyStopping early_stopping = EarlyStopping::no;

  // For the scheduler; the policy determines which of these have an effect.
  std::string tenant;             // owner of the request
  int64_t priority = 0;           // higher runs first
  double deadline_seconds = 0;    // the answer should be complete this long after submission; 0: no deadline
  double time_limit_seconds = 0;  // after this time, the request ends with FinishReason::time_limit; 0: no limit
  int64_t predicted_tokens = -1;  // length of the answer that the client expects; -1: unknown
  int64_t known_tokens = -1;      // true length of the answer, for simulations and oracle policies; -1: unknown

  // Text that the answer is expected to repeat in large part, such as the text to edit. An engine with a drafter uses
  // it as a draft. The number of steps then changes; the answer does not.
  std::vector<TokenId> prediction;
};

}  // namespace millrace
