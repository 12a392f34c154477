// PromptCompressor: shortens a prompt before the engine receives it. A compressor selects tokens, may move them within
// one message, and may write tokens of its own there. Each compressor is one file under compressors/ and one line in
// builtin.cc. Immutable; several threads may use one object at once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/registry.h"
#include "millrace/token.h"
#include "prompt/prompt_source.h"

namespace millrace {

class Tokenizer;

// Services of a model that a compressor asks for. Memory for them is reserved when the pipeline's models are opened.
enum PromptNeeds : uint32_t {
  kPromptNeedsNothing = 0,
  kNeedsSelfInformation = 1,
  kNeedsEmbeddings = 2,
  kNeedsAnswers = 4,
};

// A file that a compressor reads in addition to models: a trained policy, or parses. Immutable.
class PromptFile {
 public:
  virtual ~PromptFile() = default;
};

// Computes what compressors ask of models (evaluate/prompt_scores.h). `model` is a file, as PromptCompressor::model()
// returns it; "": the model that answers. Results depend on the arguments alone. Not thread-safe. Errors: user (the
// model is not available, or the text is too long), resource, unsupported.
class PromptScores {
 public:
  virtual ~PromptScores() = default;
  // Returns -log p(token | tokens before) in nats for each token; infinite for the first.
  virtual Result<std::vector<float>> self_information(const std::string& model, std::span<const TokenId> tokens) = 0;
  // Returns a vector of length 1 for each text: the mean of the final hidden states of its tokens, or as the file of an
  // embedding model declares it. No text is empty.
  virtual Result<std::vector<std::vector<float>>> embeddings(const std::string& model,
                                                             std::span<const std::vector<TokenId>> texts) = 0;
  // Returns the likeliest answer to a message of a user, of at most `max_tokens` tokens of the model. `model` is a
  // file.
  virtual Result<std::string> answer(const std::string& model, const std::string& message, int64_t max_tokens) = 0;

  // Receives the final hidden state [width] of one token of a text. Tokens arrive in order. If the sink returns an
  // error, hidden_states() stops and returns it.
  using StateSink = std::function<Result<void>(size_t token, std::span<const float> state)>;
  // Computes the final hidden state of each token. A model with another tokenizer reads the same text; a token then
  // receives the mean state of its bytes, and zeros if it has no text.
  virtual Result<void> hidden_states(const std::string& model, std::span<const TokenId>, const StateSink&) {
    return Error::internal("prompt: no hidden states of model '" + model + "'");
  }
  // Returns what open_file() of the member `member` has read from `path`. Errors: user (the file was not opened).
  virtual Result<std::shared_ptr<const PromptFile>> file(const std::string& member, const std::string& path) {
    return Error::user("prompt " + member + ": " + path +
                       " is not one of the files that were opened; requests cannot name files");
  }
};

// A prompt as parallel arrays, one entry a token.
struct PromptView {
  std::span<const TokenId> tokens;
  std::span<const std::string> texts;     // the bytes of each token
  std::span<const char> fixed;            // 1: must remain (out of the compressor's scope)
  std::span<const PromptSource> sources;  // empty: all are PromptSource::text
  const Tokenizer* tokenizer = nullptr;   // tokenizer of the model that answers; null in tests

  PromptSource source(size_t token) const { return sources.empty() ? PromptSource::text : sources[token]; }
};

inline constexpr int64_t kWrittenToken = -1;

// The rest of a prompt, in the order in which the model reads it.
struct PromptRest {
  std::vector<int64_t> kept;  // indices of the prompt's tokens; kWrittenToken: a token that the compressor wrote
  std::vector<TokenId> written = {};  // the written tokens, in order
};

class PromptCompressor {
 public:
  virtual ~PromptCompressor() = default;

  virtual PromptNeeds needs() const { return kPromptNeedsNothing; }
  // Returns the file of the model that computes the compressor's scores; "": the model that answers.
  virtual std::string model() const { return ""; }
  // Returns the path of the file that compress() asks `scores` for; "": none.
  virtual std::string file() const { return ""; }
  // Reads file(), once, where the pipeline's models are opened. Null: there is none. Errors: those of the file.
  virtual Result<std::shared_ptr<const PromptFile>> open_file() const { return std::shared_ptr<const PromptFile>(); }
  // Returns the tokens that the compressor may drop; all others are fixed.
  virtual PromptScope scope() const { return PromptScope::all; }
  // Returns true if recover_answer() should replace what the answer quotes (prompt/recovery.h).
  virtual bool recovers() const { return false; }
  // Returns what remains: every fixed token, in order, and between two of them any tokens that were between them. Their
  // number is at most `budget`, unless there are more fixed tokens. The result must depend on the arguments alone.
  // Errors: those of `scores`.
  virtual Result<PromptRest> compress(const PromptView& prompt, PromptScores& scores, int64_t budget) const = 0;
};

using PromptCompressorFactory = Result<std::unique_ptr<PromptCompressor>> (*)(const OptionValues& options);
const Registry<PromptCompressorFactory>& prompt_compressors();

// `text` is NAME[:key=value,...]. Errors (user): unknown name or option.
Result<std::unique_ptr<PromptCompressor>> make_prompt_compressor(std::string_view text);

}  // namespace millrace
