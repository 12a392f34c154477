// Request: a generation request. Plain data, immutable once submitted.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "millrace/token.h"

namespace millrace {

// How the next token is sampled. By default only temperature 0.8, top_k 40, top_p 0.95 and min_p 0.05 are active. Steps
// run in the order of the fields; a neutral value skips the step.
struct SamplingOptions {
  uint64_t seed = 0;                // randomness depends only on the seed and the token's position
  double repetition_penalty = 1.0;  // > 1 lowers the logits of tokens among the last penalty_window ones
  double frequency_penalty = 0.0;
  double presence_penalty = 0.0;
  int64_t penalty_window = 64;  // preceding tokens considered; 0: none, -1: all
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
  int64_t logprobs = -1;  // -1: none; k >= 0: of the sampled token and the k most likely ones
};

// Structured output: the format that the answer must follow. Tokens that would violate it are masked. The answer ends
// when nothing can follow, or with an end-of-generation token where the format allows it.
struct Constraint {
  enum class Kind { none, json_object, json_schema, regex, grammar, choice, structure };
  Kind kind = Kind::none;
  std::string text;                  // the JSON Schema, the regex (matches the whole answer), the GBNF grammar, or the
                                     // structure (a combination of these; src/text/grammar/structure.h)
  std::vector<std::string> choices;  // for choice: the answer is one of these
  std::string trigger;               // if not empty, the answer is unconstrained until this text occurs in it
};

// The thinking part of an answer, delimited by `open` and `close`, and the limit of its tokens: at the limit, `close`
// is forced. Stop strings do not apply to the thinking part.
struct ThinkingBudget {
  int64_t tokens = -1;  // -1: unlimited
  std::string open, close;
  bool begun = false;     // the prompt ends inside the thinking part
  std::string call = {};  // also ends the thinking part: the start of a tool call; "": nothing else does
};

// One of the engine's LoRA adapters and its scale: y = W x + scale * adapter(x).
struct AdapterUse {
  std::string name;
  double scale = 1;
};

// When a beam search ends, like Hugging Face's early_stopping. `yes`: as soon as there are as many finished answers as
// beams. `no`: when the best open beam, if it ended now, would not be among the best. `never`: when it could not be at
// any length.
enum class EarlyStopping { no, yes, never };

// Rows that replace the embeddings of consecutive prompt tokens: soft prompts, images' features. Each row is like a row
// of the model's embedding table, and the model scales it likewise (LanguageModel::embedding()).
struct PromptEmbeddings {
  int64_t begin = 0;                               // position in the prompt of the first row
  std::shared_ptr<const std::vector<float>> rows;  // [n, width]
};

// Tokens [begin, end) of a prompt: one of the documents that it is made of.
struct PromptDocument {
  int64_t begin = 0;
  int64_t end = 0;
};

// Receives what the model computes at the positions of a prompt, for scores and embeddings. Its functions are called on
// the engine's threads, during a step; a preempted request's positions are passed again, with the same bits. If one
// throws, the request ends with an error.
class PromptReader {
 public:
  virtual ~PromptReader() = default;
  // True: rows are logits [vocab], of the token that follows; several positions at once, in any order. False: final
  // hidden states [width], one after the other in ascending order.
  virtual bool logits() const = 0;
  virtual bool wants(int64_t position) const = 0;
  virtual void read(int64_t position, const float* row) = 0;
};

struct Request {
  std::vector<TokenId> prompt;  // at least one token
  // Ascending, without overlaps. The prompt's ids at these positions are used only where tokens are counted, as by
  // penalties. Prefixes are shared only with equal rows.
  std::vector<PromptEmbeddings> embeddings;
  // Null: none. The whole prompt is then computed, even if the prefix cache holds part of it. With max_tokens 0 it may
  // fill the context. With a document context, only positions behind the last document are read. Not with embeddings or
  // several answers.
  std::shared_ptr<PromptReader> reader;
  SamplingOptions sampling;
  int64_t max_tokens = 128;  // -1: until the context is full
  int64_t min_tokens = 0;    // end-of-generation tokens are masked before this many
  bool ignore_eos = false;
  std::vector<std::string> stop;                // the text behind `thinking` never contains one, or part of one
  bool include_stop = false;                    // include the stop string that ended the answer
  std::vector<TokenId> stop_tokens;             // end the answer like the model's own end tokens
  std::vector<std::vector<TokenId>> bad_words;  // token sequences that are never generated
  bool skip_special = true;                     // control tokens produce no text
  bool show_markers = false;                    // except the markers of thinking and tool calls (src/text/tools/)
  Constraint constraint;
  ThinkingBudget thinking;
  std::vector<AdapterUse> adapters;  // applied in this order; prefixes are shared only with equal adapters
  bool cache_prompt = true;          // may reuse and store prefix blocks
  // Evictor, which drops keys and values while the stream runs, NAME[:key=value,...]; ANSWERS CHANGE. "": the one of
  // EngineOptions::evictor; "none": all keys and values are kept.
  std::string evictor;
  // Exit gate, behind which layers the request's tokens leave the model, NAME[:key=value,...]; ANSWERS CHANGE. "": the
  // engine's, an entry exit=NAME of EngineOptions::kernels; "none": every layer runs.
  std::string exit;
  // Documents in the prompt, ascending; the prompt's last token is behind them. How they become keys and values,
  // NAME[:key=value,...]; ANSWERS CHANGE. "": the one of EngineOptions::document_context; "none": as any other token.
  std::vector<PromptDocument> documents;
  std::string document_context;
  // The request's prefix blocks are evicted last for this long after it has ended, at most 1e9; but never at the cost
  // of memory promised to a stream. 0: the evictor decides.
  double keep_seconds = 0;
  // Requests with the same group share prefixes with each other, across tenants, and with no others. "": shared within
  // the tenant.
  std::string prefix_group;
  int64_t n = 1;  // answers; they share the prompt's computation and memory and use the seeds seed + answer
  // Number of generated answers; 0: n. The n answers with the highest mean token log-probability are returned when all
  // have ended, best first. If more than n, nothing is streamed before the end.
  int64_t best_of = 0;

  // Beam search with this many beams; returns the n most likely answers, best first, when it has ended. It uses the
  // model's own distribution without temperature and truncation; stop strings, penalties and biases are not supported.
  int64_t beams = 1;
  double length_penalty = 1;  // score = sum of log-probabilities / tokens ^ length_penalty
  EarlyStopping early_stopping = EarlyStopping::no;

  // For the scheduler; the policy determines which of these have an effect.
  std::string tenant;             // owner of the request
  int64_t priority = 0;           // higher runs first
  double deadline_seconds = 0;    // the answer should be complete this long after submission; 0: none
  double time_limit_seconds = 0;  // ends with FinishReason::time_limit after this time; 0: never
  int64_t predicted_tokens = -1;  // length of the answer that the client expects; -1: unknown
  int64_t known_tokens = -1;      // true length of the answer, for simulations and oracle policies; -1: unknown

  // Text that much of the answer is expected to repeat, such as the text that it edits. An engine with a drafter drafts
  // from it. It changes the number of steps, not the answer.
  std::vector<TokenId> prediction;
};

}  // namespace millrace
